// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"fmt"
	"os/exec"
	"strings"
)

// Share is the filesystem of a lab's volume.
type Share struct {
	// Name describes it, for people.
	Name string

	role  string // of the hosts: guest/role-ROLE
	hosts int
	// exported: a machine of its own has the disk, and exports it over NFS.
	exported bool
	mkfs     string // makes its filesystem in the file %s
	mount    string // mounts it in a host
	// options are those of QEMU for a disk that several machines have at once.
	options string
}

// NFS returns a share that a fourth machine exports over NFS, mounted with these options.
func NFS(options string) Share {
	return Share{
		Name: "NFS " + options, role: "client", hosts: 3, exported: true, mkfs: "mkfs.ext4 -q -F %s",
		mount: fmt.Sprintf("mount.nfs %s:/export %s -o %s", tested(nfsHost), Mounted, options),
	}
}

// OCFS2 returns a share on one disk that is attached to three machines.
func OCFS2() Share {
	return Share{
		Name: "OCFS2", role: "ocfs2", hosts: 3, options: ",file.locking=off",
		mkfs:  "mkfs.ocfs2 -q -F -x -T mail -N 4 -J size=32M --cluster-stack=o2cb --cluster-name=lab %s",
		mount: "mount.ocfs2 /dev/vda " + Mounted,
	}
}

// Disk returns a share on the disk of a single machine, with a filesystem of this type. That machine
// runs all three servers.
func Disk(fstype string) Share {
	force := map[string]string{"ext4": "-F", "xfs": "-f", "btrfs": "-f"}[fstype]
	return Share{
		Name: fstype, role: "disk", hosts: 1,
		mkfs:  "mkfs." + fstype + " -q " + force + " %s",
		mount: "/insmods " + fstype + "; mount -t " + fstype + " /dev/vda " + Mounted,
	}
}

// missing returns what this machine lacks to make the share; nil if nothing.
func (s Share) missing() error {
	tool, _, _ := strings.Cut(s.mkfs, " ")
	if _, err := exec.LookPath(tool); err != nil {
		return fmt.Errorf("needs %s: apt-get install ocfs2-tools xfsprogs btrfs-progs", tool)
	}
	return nil
}
