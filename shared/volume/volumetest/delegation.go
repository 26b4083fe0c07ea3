// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Delegations is what an NFS server lets a machine do by itself with a file that it has opened
// (RFC 8881, section 10.4). Who wants something that conflicts waits until the machine has given
// its delegation back. One that runs does so at once; of one without power the server waits until
// the lease of its client is over.
type Delegations struct {
	// Lease is how long the server waits for a machine that does not answer: 90 s by default on
	// Linux. 0 gives no delegations.
	Lease time.Duration
	// Write gives them to who opens for writing, too, as Linux does since 6.6, where no other
	// machine has the file open. Else only who opens for reading gets one, where no other machine
	// has it open for writing.
	Write bool
}

// delegation is what one machine has of one file.
type delegation struct {
	host  *Host // with which it got it; one machine may be several
	write bool
}

// Delegate sets what the server gives from now on to who opens files of a network filesystem
// without saying that it wants none, as Open does on NFS: see Browse, and Replace, whose new file
// is a library's.
func (d *Disk) Delegate(x Delegations) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delegations = x
}

// delegate gives a host that has opened a file what nobody else's open files forbid. It is called
// with disk.mu held.
func (h *Host) delegate(n *inode, flag vfs.Flag) {
	x := h.disk.delegations
	writes := flag&(vfs.FlagWrite|vfs.FlagCreate) != 0
	if x.Lease == 0 || !h.profile.Kind.Network || writes && !x.Write {
		return
	}
	for _, other := range h.disk.hosts {
		for f := range other.files {
			if f.node == n && other.id != h.id && (f.writable() || writes) {
				return
			}
		}
		for l := range other.locks {
			if l.node == n && other.id != h.id {
				return
			}
		}
	}
	n.delegations = append(n.delegations, delegation{h, writes})
}

// Browse opens files as any program does, cat or an editor, and closes them.
func (h *Host) Browse(flag vfs.Flag, names ...string) error {
	for _, name := range names {
		f, err := h.openStep(OpOpen, name, flag)
		if err != nil {
			return err
		}
		h.disk.mu.Lock()
		h.delegate(f.node, flag)
		f.release()
		h.disk.mu.Unlock()
	}
	return nil
}

// held is how long the server still waits for a machine to give a delegation back. It is called
// with disk.mu held.
func (x delegation) held() time.Duration {
	h := x.host
	if h.lost.IsZero() || !h.disk.dark[h.id] {
		return 0 // it runs, or has forgotten that it had one
	}
	return time.Until(h.lost.Add(h.disk.delegations.Lease))
}

// recall takes from all other machines what conflicts with a call that changes a file or its
// names, or only opens it for reading; and says how long the server waits for one of them. It is
// called with disk.mu held.
func (n *inode) recall(by *Host, changes bool) (wait time.Duration) {
	n.delegations = slices.DeleteFunc(n.delegations, func(x delegation) bool {
		if x.host.id == by.id || !x.write && !changes {
			return false
		}
		left := x.held()
		wait = max(wait, left)
		return left <= 0
	})
	return wait
}

// recall waits as the server does. It comes before the call happens.
func (h *Host) recall(s step) {
	for {
		h.disk.mu.Lock()
		var wait time.Duration
		if s.conflicts != nil && !h.dead {
			nodes, changes := s.conflicts()
			for _, n := range nodes {
				wait = max(wait, n.recall(h, changes))
			}
		}
		h.disk.mu.Unlock()
		if wait <= 0 {
			return
		}
		h.note(s.call, 1)
		gate := NewGate()
		t := time.AfterFunc(wait, gate.Resume)
		h.wait(gate)
		t.Stop()
		h.note(s.call, -1)
	}
}

// Waiting lists the calls that the server holds back until a dead machine's lease is over.
func (h *Host) Waiting() (calls []string) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return slices.Clone(h.waiting)
}

func (h *Host) note(c Call, n int) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if n > 0 {
		h.waiting = append(h.waiting, c.String())
	} else {
		h.waiting = slices.DeleteFunc(h.waiting, func(s string) bool { return s == c.String() })
	}
}

// changing are the files behind names, about which a call changes something.
func (h *Host) changing(names ...string) func() ([]*inode, bool) {
	return func() ([]*inode, bool) { return h.disk.files(names), true }
}

// opening is the file behind a name that a call opens or asks about.
func (h *Host) opening(name string, flag vfs.Flag) func() ([]*inode, bool) {
	return func() ([]*inode, bool) { return h.disk.files([]string{name}), flag&vfs.FlagWrite != 0 }
}

// files finds the regular files that the server has behind names. It is called with mu held.
func (d *Disk) files(names []string) (nodes []*inode) {
	for _, name := range names {
		n, err := walk(d.root, name, func(at place) *inode { return at.dir.entries[at.name] })
		if err == nil && n.kind == vfs.TypeFile {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
