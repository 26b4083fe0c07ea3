// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Image has the files that every machine boots.
type Image struct {
	Kernel, Initrd string
}

// tools are the programs of this machine that go into the initramfs, with their libraries; and more
// of them, which only some shares need.
var (
	tools     = []string{"rpc.nfsd", "exportfs", "rpc.mountd", "nfsdcld", "rpcbind", "rpc.statd", "mount.nfs", "umount.nfs", "sm-notify"}
	moreTools = []string{"o2cb", "mount.ocfs2", "ocfs2_hb_ctl"}
)

// Missing returns what this machine lacks to run the lab; nil if nothing.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: network namespaces and taps")
	}
	for _, tool := range slices.Concat([]string{"qemu-system-x86_64", "busybox", "cpio", "modprobe", "depmod", "apt-get", "dpkg-deb", "xz", "ip", "mkfs.ext4"}, tools) {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("needs %s: apt-get install qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 e2fsprogs nfs-kernel-server nfs-common rpcbind", tool)
		}
	}
	return nil
}

// ImageIn returns the image that Build made in a directory.
func ImageIn(dir string) Image {
	return Image{Kernel: filepath.Join(dir, "vmlinux"), Initrd: filepath.Join(dir, "initrd")}
}

// Build makes an image with this holdfast binary, which must be statically linked. The kernel is
// downloaded once, into the user's cache directory. guest has the scripts that machines run when
// they boot.
func Build(dir, holdfast string, guest fs.FS) error {
	b := builder{dir: dir, guest: guest, root: filepath.Join(dir, "root")}
	i := ImageIn(dir)
	for _, step := range []func() error{
		b.fetch,
		func() error { return b.extract(i.Kernel) },
		b.skeleton,
		func() error { return b.programs(holdfast) },
		func() error {
			return b.modules("base", "virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ext4", "nfs", "nfsv4", "nfsv3")
		},
		func() error { return b.modules("nfsd", "nfsd") },
		func() error { return b.modules("xfs", "xfs") },
		func() error { return b.modules("btrfs", "btrfs") },
		func() error { return b.modules("ocfs2", "ocfs2", "ocfs2_stack_o2cb", "ocfs2_dlm", "ocfs2_dlmfs") },
		func() error { return shell(b.root, "find . | cpio -o -H newc --quiet > "+i.Initrd) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("build the machines' image: %w", err)
		}
	}
	return nil
}

type builder struct {
	dir, root string
	guest     fs.FS
	kernel    string // what the kernel's package holds
	version   string
}

// fetch downloads the kernel's package, unless that was done before.
func (b *builder) fetch() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, "holdfast-vmlab")
	b.kernel = filepath.Join(cache, "kernel")
	if _, err := os.Stat(filepath.Join(b.kernel, "lib", "modules")); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(cache, 0o755); err != nil {
			return err
		}
		const get = `rm -rf kernel *.deb && apt-get download -qq "$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/{print $2}')" && dpkg-deb -x linux-image-*.deb making && mv making kernel`
		if err := shell(cache, get); err != nil {
			return err
		}
	}
	versions, err := os.ReadDir(filepath.Join(b.kernel, "lib", "modules"))
	if err != nil {
		return err
	}
	if len(versions) != 1 {
		return fmt.Errorf("%s holds the modules of %d kernels", b.kernel, len(versions))
	}
	b.version = versions[0].Name()
	return shell(b.kernel, "depmod -b . "+b.version)
}

// extract unpacks the kernel, so that QEMU enters it at once.
func (b *builder) extract(to string) error {
	packed, err := os.ReadFile(filepath.Join(b.kernel, "boot", "vmlinuz-"+b.version))
	if err != nil {
		return err
	}
	magic := []byte("\xfd7zXZ\x00")
	for at := bytes.Index(packed, magic); at >= 0; {
		cmd := exec.Command("xz", "-dc", "--single-stream")
		cmd.Stdin = bytes.NewReader(packed[at:])
		if out, _ := cmd.Output(); bytes.HasPrefix(out, []byte("\x7fELF")) { // what follows it is no xz, and an error
			return os.WriteFile(to, out, 0o644)
		}
		next := bytes.Index(packed[at+1:], magic)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return errors.New("no kernel is packed with xz in it")
}

// skeleton makes the root directory with its small files.
func (b *builder) skeleton() error {
	if err := os.RemoveAll(b.root); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "usr/bin", "usr/sbin", "proc", "sys", "dev", "tmp", "run", "etc", "modules", "lib", "lib64", "root", "mnt"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\nstatd:x:100:65534::/var/lib/nfs:/bin/sh\n_rpc:x:101:65534::/run/rpcbind:/bin/sh\n",
		"group":         "root:x:0:\nnogroup:x:65534:\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nrpc: files\nservices: files\nprotocols: files\n",
		"hosts":         "127.0.0.1 localhost\n",
	} {
		if err := os.WriteFile(filepath.Join(b.root, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.CopyFS(b.root, b.guest); err != nil {
		return err
	}
	return errors.Join(os.Chmod(filepath.Join(b.root, "init"), 0o755), os.Chmod(filepath.Join(b.root, "insmods"), 0o755))
}

// programs brings what runs in the machines.
func (b *builder) programs(holdfast string) error {
	err := shell(b.dir, fmt.Sprintf("cp /etc/netconfig /etc/protocols /etc/rpc /etc/services %[1]s/etc/ && cp $(command -v busybox) %[1]s/bin/busybox && cp %[2]s %[1]s/bin/holdfast", b.root, holdfast))
	if err != nil {
		return err
	}
	agent := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(b.root, "bin", "agent"), "github.com/holdfast-lock/holdfast/faulttests/vmlab/agent")
	agent.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := agent.CombinedOutput(); err != nil {
		return fmt.Errorf("build the agent: %w: %s", err, out)
	}
	for _, tool := range slices.Concat(tools, moreTools) {
		if _, err := exec.LookPath(tool); err != nil && slices.Contains(moreTools, tool) {
			continue
		}
		if err := b.bring(tool); err != nil {
			return err
		}
	}
	// What libraries open by name.
	return shell(b.root, `for n in libnss_files.so.2 libtirpc.so.3; do l=$(ldconfig -p | awk -v n=$n '$1==n{print $NF; exit}'); mkdir -p ".$(dirname "$l")"; cp -nL "$l" ".$l"; done; ln -s mount.nfs sbin/mount.nfs4`)
}

// bring copies a program with the libraries that it is linked with.
func (b *builder) bring(tool string) error {
	return shell(b.root, fmt.Sprintf(`f=$(readlink -f "$(command -v %[1]s)"); mkdir -p ".$(dirname "$f")"; cp -n "$f" ".$f"; [ -e sbin/%[1]s ] || ln -s "$f" sbin/%[1]s
for l in $(ldd "$f" 2>/dev/null | grep -o '/[^ ]*'); do mkdir -p ".$(dirname "$l")"; cp -nL "$l" ".$l"; done`, tool))
}

// modules brings kernel modules with those that they need, and lists them in the order in which
// they are loaded.
func (b *builder) modules(list string, names ...string) error {
	var order []string
	for _, name := range names {
		out, err := exec.Command("modprobe", "-d", b.kernel, "-S", b.version, "--show-depends", "--ignore-install", name).Output()
		if err != nil {
			return fmt.Errorf("modules of %s: %w", name, err)
		}
		for line := range strings.Lines(string(out)) {
			f, found := strings.CutPrefix(strings.TrimSpace(line), "insmod ")
			if !found || slices.Contains(order, filepath.Base(f)) {
				continue
			}
			order = append(order, filepath.Base(f))
			if err := shell(b.root, "cp "+f+" modules/"); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(b.root, "modules", list), []byte(strings.Join(order, "\n")+"\n"), 0o644)
}

func shell(dir, command string) error {
	cmd := exec.Command("/bin/sh", "-ec", command)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return nil
}
