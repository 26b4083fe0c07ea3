// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// delegations adds a finding if the NFS server gives delegations. It opens a file for plain
// reading, which Holdfast's servers never do, and removes it: before that the client returns the
// delegation. A server that gives delegations need not give one each time, so no finding proves
// nothing.
func (p *probe) delegations() {
	before, ok := p.returned()
	if !ok {
		return
	}
	path, err := p.file("read")
	if err == nil {
		_, err = os.ReadFile(path)
	}
	if err = errors.Join(err, os.Remove(path)); err != nil {
		p.failed("delegations", err)
		return
	}
	if after, ok := p.returned(); ok && after > before {
		p.report.add("delegations", Info, "the NFS server gives delegations: when a host dies, changes of files that it had read may wait for its lease (90 s by default); takeovers do not. On a Linux server sysctl -w fs.leases-enable=0 ends them (docs/nfs.md)")
	}
}

// returned returns how many delegations the client has returned through the mount. ok is false if
// that could not be read.
func (p *probe) returned() (n uint64, ok bool) {
	m := p.report.at
	if !m.isNFS() {
		return 0, false
	}
	text, err := p.opt.stats()
	if err != nil {
		return 0, false
	}
	return operations(text, m.point, "DELEGRETURN")
}

// stats returns the kernel's counts of the calls of each mount.
func (o Options) stats() (string, error) {
	if o.mountStats != nil {
		return o.mountStats()
	}
	return o.read("proc/self/mountstats")
}

// operations returns how often an operation was called through an NFS mount, according to the text
// of mountstats, and whether the text has it. Of several mounts at one point the last one counts,
// since it covers the others.
func operations(text, point, name string) (n uint64, ok bool) {
	const on, with = " mounted on ", " with fstype "
	inside := false
	for line := range strings.Lines(text) {
		if _, rest, head := strings.Cut(line, on); head && !strings.HasPrefix(line, "\t") {
			at, _, _ := strings.Cut(rest, with)
			if inside = unescape(at) == point; inside {
				n, ok = 0, false
			}
			continue
		}
		counts, found := strings.CutPrefix(strings.TrimSpace(line), name+":")
		if fields := strings.Fields(counts); inside && found && len(fields) > 0 {
			count, err := strconv.ParseUint(fields[0], 10, 64)
			n, ok = count, err == nil
		}
	}
	return n, ok
}
