// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// change is an un-synced change of names. With both halves it is a rename,
// which is kept or undone as one.
type change struct {
	removes, adds place  // dir is nil where there is no such half
	node          *node  // what the added name leads to
	victim        *node  // what a name led to before, nil for none
	stash         string // the victim's name meanwhile
	made          time.Time
}

// nodes are what a change holds references to.
func (c *change) nodes() []*node {
	all := []*node{c.node, c.victim, c.removes.dir, c.adds.dir}
	return slices.DeleteFunc(all, func(n *node) bool { return n == nil })
}

// touches reports whether a sync of the directory makes the change durable.
func (c *change) touches(dir *node) bool { return c.removes.dir == dir || c.adds.dir == dir }

// needs reports whether a change cannot last without an earlier one: both are about
// one name, or the earlier one is about a name in a directory that is removed.
func (c *change) needs(earlier *change) bool {
	for _, at := range []place{c.removes, c.adds} {
		if at.dir != nil && (at == earlier.removes || at == earlier.adds) {
			return true
		}
	}
	return c.victim != nil && earlier.touches(c.victim)
}

// commitAfter is when a change of names is durable without a sync: file servers
// commit their journals by themselves, and removed files give back their space.
const commitAfter = 30 * time.Second

// log remembers a change.
func (t *tree) log(c *change) {
	c.made = time.Now()
	for _, n := range c.nodes() {
		t.nodes.hold(n)
	}
	t.pending = append(t.pending, c)
	if old := time.Now().Add(-commitAfter); t.pending[0].made.Before(old) {
		// An error leaves something in the stash, which clients do not see.
		_ = t.settle(func(c *change) bool { return c.made.Before(old) })
	}
}

// syncDir makes a directory's names durable, and whatever they need.
func (t *tree) syncDir(dir *node) syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	return inner(t.settle(func(c *change) bool { return c.touches(dir) }))
}

// syncAll makes all names durable.
func (t *tree) syncAll() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settle(func(*change) bool { return true })
}

// settle makes changes durable that are chosen, or that a chosen one needs.
func (t *tree) settle(chosen func(*change) bool) error {
	var lasting, rest []*change
	for i := len(t.pending) - 1; i >= 0; i-- {
		c := t.pending[i]
		if chosen(c) || needed(lasting, c) {
			lasting = append(lasting, c)
		} else {
			rest = append(rest, c)
		}
	}
	slices.Reverse(rest)
	t.pending = rest
	var failed error
	for _, c := range lasting {
		failed = errors.Join(failed, t.forget(c))
	}
	return failed
}

// needed reports whether one of the later changes needs this one.
func needed(later []*change, c *change) bool {
	return slices.ContainsFunc(later, func(x *change) bool { return x.needs(c) })
}

// forget ends a change that lasts: what it removed is gone for good.
func (t *tree) forget(c *change) error {
	defer t.letGo(c)
	if c.victim == nil {
		return nil
	}
	flags := 0
	if c.victim.dir {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(t.stash, c.stash, flags); err != nil {
		return fmt.Errorf("remove %s for good: %w", c.stash, err)
	}
	if !c.victim.dir { // a removed directory stays one
		c.victim.hidden.Add(-1)
	}
	return nil
}

func (t *tree) letGo(c *change) {
	for _, n := range c.nodes() {
		t.nodes.release(n)
	}
}

// powerLoss undoes un-synced changes that luck does not keep, latest first.
func (t *tree) powerLoss(keep float64, luck *luck, loss *Loss) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lasting []*change
	var failed error
	for i := len(t.pending) - 1; i >= 0; i-- {
		c := t.pending[i]
		if needed(lasting, c) || luck.chance(keep) {
			lasting = append(lasting, c)
			continue
		}
		if err := t.undo(c); err != nil {
			failed = errors.Join(failed, err)
			lasting = append(lasting, c)
			continue
		}
		loss.Names++
		t.letGo(c)
	}
	t.pending = nil
	for _, c := range lasting {
		failed = errors.Join(failed, t.forget(c))
	}
	return failed
}

// undo makes names what they were before a change.
func (t *tree) undo(c *change) error {
	switch from, to := c.adds, c.removes; {
	case from.dir != nil && to.dir != nil:
		if err := unix.Renameat(from.dir.fd, from.name, to.dir.fd, to.name); err != nil {
			return fmt.Errorf("undo a rename to %s: %w", from.name, err)
		}
		t.nodes.moved(c.node, to)
		return t.restore(c, from)
	case from.dir != nil:
		return t.lose(c)
	default:
		return t.restore(c, to)
	}
}

// restore brings a change's victim back from the stash, if there is one.
func (t *tree) restore(c *change, to place) error {
	if c.victim == nil {
		return nil
	}
	if err := unix.Renameat(t.stash, c.stash, to.dir.fd, to.name); err != nil {
		return fmt.Errorf("undo the end of %s: %w", to.name, err)
	}
	c.victim.hidden.Add(-1)
	t.nodes.moved(c.victim, to)
	return nil
}

// lose takes away a name that never was. A directory disappears with all that
// is in it; the stash keeps it until the share is closed.
func (t *tree) lose(c *change) error {
	at := c.adds
	t.stashed++
	var err error
	if c.node.dir {
		err = unix.Renameat(at.dir.fd, at.name, t.stash, "lost-"+fmt.Sprint(t.stashed))
	} else {
		err = unix.Unlinkat(at.dir.fd, at.name, 0)
	}
	if err != nil {
		return fmt.Errorf("undo the making of %s: %w", at.name, err)
	}
	st, err := statFD(c.node.fd)
	if c.node.dir || err == nil && st.Nlink == 0 {
		c.node.lost.Store(true)
	}
	return err
}
