// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// cluster reads CLUSTER, if there is one, and returns on how many hosts its servers run.
func (r *Report) cluster(dir string, hosts int) int {
	f, err := osfs.Open(dir)
	if err != nil {
		r.refuse("CLUSTER", err, err.Error())
		return hosts
	}
	defer f.Close() //nolint:errcheck // only descriptors of directories
	r.Filesystem, r.Network = f.Kind().Name, r.Network || f.Kind().Network
	c, err := volume.ReadClusterNow(f)
	switch {
	case errors.Is(err, volume.ErrNoCluster):
		r.add("CLUSTER", Info, "no CLUSTER file: not a volume yet, or the share is not mounted", "holdfast init --volume "+dir+" --server 1=HOST --server 2=HOST --server 3=HOST")
		return hosts
	case err != nil:
		r.refuse("CLUSTER", err, err.Error())
		return hosts
	}
	r.ClusterID = c.ID.String()
	r.add("CLUSTER", OK, fmt.Sprintf("cluster %s, servers %v, made at feature level %d; this holdfast knows levels up to %d", c.ID, c.Servers.IDs(), c.FeatureLevel, volume.FeatureLevel))
	r.logins(dir, f)
	if hosts == 0 {
		hosts = distinctHosts(c.Servers)
	}
	return hosts
}

// logins looks at login/, if it is there: servers take no logins where others could move what users make in it.
func (r *Report) logins(dir string, f *osfs.FS) {
	const check = "logins"
	o, err := f.Owner(volume.LoginDir)
	if err != nil {
		return // switched off, or not to be seen
	}
	secrets, err := f.Owner(volume.SecretsDir)
	if o.Type != vfs.TypeDir || o.Mode != osfs.LoginMode || err == nil && o.UID != secrets.UID {
		r.add(check, Warn, fmt.Sprintf("%s/ has mode %o and the owner %d: servers take logins only if it is a directory of mode %o that belongs to the owner of %s/", volume.LoginDir, o.Mode, o.UID, osfs.LoginMode, volume.SecretsDir),
			"holdfast access logins --volume "+dir)
		return
	}
	r.add(check, OK, "users log in by directories that they make here: that is as strong as the ownership of files on this filesystem, and with sec=sys any host's root can be any user")
}

func distinctHosts(servers cluster.Members) int {
	hosts := map[string]bool{}
	for _, m := range servers {
		host, _, err := net.SplitHostPort(m.Peer)
		if err != nil {
			host = m.Peer
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
			host = "localhost"
		}
		hosts[host] = true
	}
	return len(hosts)
}

// locate finds the mount that holds the directory.
func (r *Report) locate(mounts []mount) {
	device, err := deviceOf(r.Path)
	m, ok := find(mounts, r.Path, device)
	if ok {
		r.at, r.MountPoint, r.Source, r.Options, r.Network = m, m.point, m.source, m.options, !m.single()
	}
	switch {
	case err != nil:
		r.refuse("filesystem", err, err.Error())
	case !ok:
		r.add("filesystem", Warn, "no mount in mountinfo leads here")
	}
}

func (r *Report) permissions(info fs.FileInfo) {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		r.add("permissions", Warn, fmt.Sprintf("others than the owner may write (mode %04o): a program that writes past Holdfast can break what it protects", mode), "chmod go-w "+r.Path)
		return
	}
	r.add("permissions", OK, fmt.Sprintf("mode %04o", info.Mode().Perm()))
}

// The space that a volume needs: a segment and its successor, two checkpoints and the reserve.
const (
	leastBytes  = 256 << 20
	enoughBytes = 1 << 30
	leastInodes = 1000
)

func (r *Report) space(dir string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		r.add("space", Refuse, err.Error())
		return
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	text := fmt.Sprintf("%d MiB free", free>>20)
	switch {
	case free < leastBytes:
		r.add("space", Refuse, text+fmt.Sprintf(": at least %d MiB are needed for two log segments and two checkpoints", leastBytes>>20), "df -h "+dir)
	case free < enoughBytes:
		r.add("space", Warn, text+": little for log segments and checkpoints", "df -h "+dir)
	default:
		r.add("space", OK, text)
	}
	// Filesystems that make inodes on demand report 0 of 0.
	if st.Files > 0 && st.Ffree < leastInodes {
		r.add("inodes", Refuse, fmt.Sprintf("%d inodes free", st.Ffree), "df -i "+dir)
	}
}

// inode returns a file's inode number, which identifies it on every mount of one filesystem.
func inode(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return st.Ino, err
}
