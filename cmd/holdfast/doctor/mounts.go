// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one parsed line of mountinfo, see proc_pid_mountinfo(5).
type mount struct {
	device  string // major:minor
	point   string
	fstype  string // "nfs4", "fuse.glusterfs", …
	source  string
	options []string // of the mount and of the superblock
}

func readMounts(path string) (mounts []mount, err error) {
	if path == "" {
		path = "/proc/self/mountinfo"
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return parseMounts(f)
}

func parseMounts(r io.Reader) ([]mount, error) {
	var all []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // option lists of overlays are long
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		a, b := strings.Fields(left), strings.Fields(right)
		if !ok || len(a) < 6 || len(b) < 3 {
			return nil, fmt.Errorf("mountinfo: cannot read the line %q", lines.Text())
		}
		m := mount{device: a[2], point: unescape(a[4]), fstype: b[0], source: unescape(b[1])}
		m.options = append(strings.Split(a[5], ","), strings.Split(b[2], ",")...)
		all = append(all, m)
	}
	return all, lines.Err()
}

// unescape decodes the kernel's octal escapes of blank, tab, newline and backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// find returns the mount that holds a path: the deepest and latest of those with its device, or
// with any device if that one has no line of its own (btrfs).
func find(mounts []mount, path, device string) (mount, bool) {
	var best mount
	ok := false
	for _, sameDevice := range []bool{true, false} {
		for _, m := range mounts {
			if sameDevice && m.device != device || !within(path, m.point) {
				continue
			}
			if !ok || len(m.point) >= len(best.point) {
				best, ok = m, true
			}
		}
		if ok {
			break
		}
	}
	return best, ok
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func deviceOf(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), nil
}

// single reports whether the filesystem belongs to one kernel.
func (m mount) single() bool { return profileOf(m.fstype).single }

// has looks an option up by name; value is the text after "=".
func (m mount) has(name string) (value string, ok bool) {
	for _, o := range m.options {
		if n, v, _ := strings.Cut(o, "="); n == name {
			return v, true
		}
	}
	return "", false
}

// volume returns the name of a GlusterFS volume, from a source like
// "server:/volume/directory" or "server1,server2:volume".
func (m mount) volume() string {
	_, path, ok := strings.Cut(m.source, ":")
	if !ok {
		path = m.source
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}
