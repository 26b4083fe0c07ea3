// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// call is one request of one mount on its way to the share.
type call struct {
	op     Op
	at     []place // what it is about, for the paths of faults
	caller uint32  // thread ID, 0 = the kernel
	cancel <-chan struct{}

	// detach copies what the effect needs and the kernel takes back; may be nil.
	detach func()
	// unheard is true if no caller waits for the result of the effect.
	unheard bool
	// injected says, once the call has come back, that the effect did not
	// happen and that the error is a fault's.
	injected bool
}

// doable are the calls that an Effect applies to; the others have none.
const doable = Changes | Lock

// do lets faults at a call, and does it unless they prevent that.
func (m *Mount) do(c *call, effect func() syscall.Errno) syscall.Errno {
	m.counts[c.op.index()].Add(1)
	struck := m.struck(c)
	for _, r := range struck {
		if errno := m.hold(c, r); errno != 0 {
			return errno
		}
	}
	for _, r := range struck {
		if r.fault.Err == 0 {
			continue
		}
		m.fail(c, r, effect)
		return r.fault.Err
	}
	return m.effect(effect)
}

// fail is a call that a rule makes report an error.
func (m *Mount) fail(c *call, r *Rule, effect func() syscall.Errno) {
	if c.op&doable == 0 || r.fault.Effect == NotDone {
		c.injected = true
		return
	}
	c.unheard = true
	if r.fault.Effect == Done {
		m.effect(effect)
		return
	}
	m.doLate(c, r, effect)
}

// effect does a call: never across a power loss.
func (m *Mount) effect(do func() syscall.Errno) syscall.Errno {
	m.share.power.RLock()
	defer m.share.power.RUnlock()
	return do()
}

// struck are the rules that strike a call, the share's first.
func (m *Mount) struck(c *call) (all []*Rule) {
	shared, own := m.share.rules.current(), m.rules.current()
	if len(shared)+len(own) == 0 {
		return nil
	}
	paths := m.share.nodes.paths(c.at)
	for _, rules := range [][]*Rule{shared, own} {
		for _, r := range rules {
			if r.selects(c.op, paths, m.share.luck) {
				all = append(all, r)
			}
		}
	}
	return all
}

// hold makes a call wait as a rule requires.
func (m *Mount) hold(c *call, r *Rule) syscall.Errno {
	if d := r.fault.Delay + m.share.luck.upTo(r.fault.Jitter); d > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		if errno := m.wait(c, ctx.Done()); errno != 0 {
			return errno
		}
	}
	if !r.fault.Hang {
		return 0
	}
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	return m.wait(c, r.released)
}

// doLate does a call once the rule is released, unless the mount ends before.
func (m *Mount) doLate(c *call, r *Rule, effect func() syscall.Errno) {
	if c.detach != nil {
		c.detach()
	}
	for _, p := range c.at {
		m.share.nodes.hold(p.dir)
	}
	r.waiting.Add(1)
	r.afterRelease(func() {
		defer r.waiting.Add(-1)
		select {
		case <-r.released:
			m.effect(effect)
		case <-m.ended:
		}
		for _, p := range c.at {
			m.share.nodes.release(p.dir)
		}
	})
}

// killPoll is how often an interrupted call checks whether its caller was killed.
const killPoll = 20 * time.Millisecond

// wait waits for a channel to close. It ends early with EINTR when the caller
// is killed, but not for other signals (the Go runtime sends them all the
// time), as NFS does; and with EIO when the mount ends.
func (m *Mount) wait(c *call, until <-chan struct{}) syscall.Errno {
	interrupted := c.cancel
	var poll <-chan time.Time
	for {
		select {
		case <-until:
			return 0
		case <-m.ended:
			return syscall.EIO
		case <-interrupted:
			// The kernel tells it once, for the first signal of any kind.
			interrupted = nil
			ticker := time.NewTicker(killPoll)
			defer ticker.Stop()
			poll = ticker.C
		case <-poll:
		}
		if interrupted == nil && killed(c.caller) {
			return syscall.EINTR
		}
	}
}

// killed reports whether a thread has SIGKILL before it, or is no more.
func killed(thread uint32) bool {
	if thread == 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return true
	}
	for line := range bytes.Lines(status) {
		mask, is := bytes.CutPrefix(line, []byte("SigPnd:"))
		if !is {
			mask, is = bytes.CutPrefix(line, []byte("ShdPnd:"))
		}
		if !is {
			continue
		}
		pending, err := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
		if err == nil && pending&(1<<(syscall.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}
