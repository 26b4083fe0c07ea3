// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine on which a report was measured.
type Machine struct {
	OS          string `json:"os"`
	Kernel      string `json:"kernel"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	MemoryBytes int64  `json:"memory_bytes"`
	// Filesystem is the type of the filesystem with the servers' data.
	Filesystem string `json:"filesystem"`
	// Load is the load average at the beginning: on a busy machine figures mean little.
	Load string `json:"load_average"`
}

// ReadMachine describes this machine and the filesystem of a directory. Fields that
// cannot be read are empty.
func ReadMachine(dir string) Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		return string(b)
	}
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	m.Load = strings.Join(firstFields(read("/proc/loadavg"), 3), " ")
	m.CPU = lineValue(read("/proc/cpuinfo"), "model name")
	if kib := firstFields(lineValue(read("/proc/meminfo"), "MemTotal"), 1); len(kib) == 1 {
		n, _ := strconv.ParseInt(kib[0], 10, 64) // 0 = not known
		m.MemoryBytes = n << 10
	}
	m.Filesystem = Filesystem(dir)
	return m
}

func firstFields(s string, n int) []string {
	f := strings.Fields(s)
	return f[:min(n, len(f))]
}

// lineValue returns the text after the colon in the first line that begins with name.
func lineValue(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// filesystems are the magic numbers of statfs.
var filesystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
}

// Filesystem returns the type of the filesystem that holds a directory.
func Filesystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return ""
	}
	if name, ok := filesystems[int64(s.Type)]; ok {
		return name
	}
	return fmt.Sprintf("%#x", s.Type)
}

// Commit returns the commit from which this program was built, or else the one that is
// checked out here; "unknown" if neither is known.
func Commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		commit, changed := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+changes"
			}
		}
		if commit != "" {
			return commit + changed
		}
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out)) + " (of the working directory)"
}
