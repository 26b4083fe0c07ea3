// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// verifiedFor is how long a file counts as verified without being used.
	verifiedFor = time.Second
	// openFor is how long an unused file keeps its descriptor.
	openFor = 30 * time.Second
)

// slot is a protected file as the core loop sees it.
type slot struct {
	writer    *fileWriter
	verified  bool // appends are admitted
	verifying bool // parked calls wait for the writer's word
	used      time.Duration
	parked    []*call
}

// verified is a writer's word on its file, from before anything is admitted.
type verified struct {
	file  cluster.FileName
	facts locktable.FileFacts
	err   error
}

// slot finds or makes the slot and the writer of a file.
func (c *core) slot(name cluster.FileName) *slot {
	s, ok := c.slots[name]
	if !ok {
		state, _ := c.table.File(name)
		s = &slot{writer: c.p.newWriter(name, state, nil)}
		c.slots[name] = s
		c.p.startWriter(s.writer)
	}
	s.used = c.now
	return s
}

// dropSlot forgets a file that is no longer bound.
func (c *core) dropSlot(name cluster.FileName) {
	if s, ok := c.slots[name]; ok {
		delete(c.slots, name)
		c.p.stopWriter(s.writer)
	}
}

// needsFile says that a request which was not seen before needs the word of the
// file's writer first. A request that will be refused anyway does not: it must
// not open or create anything.
func (c *core) needsFile(q *locktable.Request) bool {
	switch q.Op {
	case locktable.OpAppend, locktable.OpBind, locktable.OpUnbind:
	default:
		return false
	}
	if _, live := c.table.Live(q.Lock, q.Token); !live {
		return false
	}
	state, bound := c.table.File(q.File)
	if bound && (state.Lock != q.Lock || state.Quarantined) {
		return false
	}
	if !bound && q.Op == locktable.OpUnbind {
		return false
	}
	s, ok := c.slots[q.File]
	return !ok || !s.verified || q.Op == locktable.OpUnbind
}

// park keeps a call until its file's writer has spoken.
func (c *core) park(x *call) {
	s := c.slot(x.req.File)
	s.parked = append(s.parked, x)
	c.verify(s, x.req)
}

// verify asks the writer for its word, unless it has been asked.
func (c *core) verify(s *slot, q *locktable.Request) {
	if s.verifying {
		return
	}
	s.verifying, s.verified = true, false
	state, bound := c.table.File(q.File)
	job := verifyJob{state: state, bound: bound, sync: q.Op == locktable.OpUnbind}
	s.writer.verify(job, func(v verified) {
		c.p.queue.put(&call{kind: callVerified, verified: v})
	})
}

// onVerified decides what was parked, in order of arrival.
func (c *core) onVerified(x *call) {
	v := x.verified
	s, ok := c.slots[v.file]
	if !ok {
		return
	}
	s.verifying = false
	if _, bound := c.table.File(v.file); bound && errors.Is(v.err, volume.ErrForeign) {
		c.apply(c.table.DecideQuarantine(v.file, v.err.Error(), c.p.Epoch(), c.recs[:0]), nil)
	}
	s.verified = v.err == nil
	parked := s.parked
	s.parked = nil
	for i, y := range parked {
		if i > 0 && c.needsFile(y.req) {
			// An earlier one changed what was verified.
			s = c.slot(v.file)
			s.parked = append(s.parked, parked[i:]...)
			c.verify(s, y.req)
			return
		}
		c.decideVerified(y, v)
	}
	if _, bound := c.table.File(v.file); !bound {
		c.dropSlot(v.file) // what was seen of a file that stays unbound is old news at once
	}
}

// decideVerified decides a parked call with what the writer saw.
func (c *core) decideVerified(x *call, v verified) {
	_, bound := c.table.File(v.file)
	switch {
	case v.err == nil || bound && errors.Is(v.err, volume.ErrForeign):
		c.decide(x, v.facts) // the table knows of the quarantine
	case errors.Is(v.err, volume.ErrForeign):
		c.refuseFile(x, cluster.StatusInvalidArgument, v.err)
	default:
		c.refuseFile(x, cluster.StatusStorageUnavailable, v.err)
	}
}

func (c *core) refuseFile(x *call, status cluster.Status, err error) {
	c.answer(x, locktable.Outcome{
		Status: status, Message: err.Error(), Client: x.req.Client, Request: x.req.ID, Lock: x.req.Lock, File: x.req.File,
	})
}

// followAppend sends a decided append on its way to its file.
func (c *core) followAppend(r *locktable.Record, appended *call) {
	s := c.slot(r.File)
	s.writer.pending.Add(1)
	job := appendJob{writer: s.writer, rec: *r}
	if appended != nil {
		job.done = appended.done
	}
	c.cur.appends = append(c.cur.appends, job)
}

// refuseFull refuses what would use up the log while no next segment can be
// made, and appends to a file that cannot be written. What ends something is admitted.
func (c *core) refuseFull(q *locktable.Request) (locktable.Outcome, bool) {
	out := locktable.Outcome{Status: cluster.StatusStorageUnavailable, Client: q.Client, Request: q.ID, Lock: q.Lock}
	switch q.Op {
	case locktable.OpRelease, locktable.OpCancel, locktable.OpBreak:
		return out, false
	}
	if !c.p.log.NextReady() && c.p.log.Room() < 2*c.p.opt.MaxBatch {
		if c.p.noSpace.Load() {
			out.Message = "the volume is full: free some space; releases still work"
			return out, true
		}
	}
	if s, ok := c.slots[q.File]; ok && q.File != "" {
		if text := s.writer.failing.Load(); text != nil {
			out.File, out.Message = q.File, *text
			return out, true
		}
	}
	return out, false
}

// writing lists the writer of a file with appends under way.
func (c *core) writing(name cluster.FileName) []*fileWriter {
	if s, ok := c.slots[name]; ok && s.writer.pending.Load() > 0 {
		return []*fileWriter{s.writer}
	}
	return nil
}

// writingUnder lists the writers with appends under way to files of a lock.
func (c *core) writingUnder(lock cluster.LockName) []*fileWriter {
	if len(c.slots) == 0 {
		return nil
	}
	var all []*fileWriter
	for _, name := range c.table.FilesOf(lock) {
		all = append(all, c.writing(name)...)
	}
	return all
}

// restSlots lets files that are not used be verified again before the next
// append, and closes those that are not used for long.
func (c *core) restSlots() {
	for name, s := range c.slots {
		idle := c.now - s.used
		if idle < verifiedFor || s.verifying || s.writer.pending.Load() > 0 {
			continue
		}
		s.verified = false
		if idle >= openFor && s.writer.clean() {
			c.dropSlot(name)
		}
	}
}
