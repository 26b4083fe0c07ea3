// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
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
	// mostOpen is how many unused files keep their descriptors at most.
	mostOpen = 512
)

// slot is a protected file as the core loop sees it.
type slot struct {
	writer    *fileWriter
	verified  bool // the file is bound and appends are admitted
	verifying bool // parked calls wait for the writer's word
	used      time.Duration
	parked    parked
}

// verified is a writer's word on its file, from before anything is admitted.
type verified struct {
	writer *fileWriter
	op     locktable.Op // that it was asked for
	facts  locktable.FileFacts
	err    error
}

// answers says that the word is one for this operation: an Unbind, a Seal and a Rotate
// have the file made durable first, so they need a word of their own.
func (v *verified) answers(op locktable.Op) bool {
	own := func(op locktable.Op) locktable.Op {
		if op == locktable.OpBind {
			return locktable.OpAppend
		}
		return op
	}
	return own(v.op) == own(op)
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

// dropSlot forgets a file: it is no longer bound, has another inode, or was not
// used for long. Its writer stops when this batch is committed, after what the
// batch has for it. Calls that were parked are looked at again.
func (c *core) dropSlot(name cluster.FileName) {
	s, ok := c.slots[name]
	if !ok {
		return
	}
	delete(c.slots, name)
	c.cur.stops = append(c.cur.stops, s.writer)
	c.resume(s)
}

// needsFile says that a request which was not seen before needs the word of the
// file's writer first. A request that will be refused anyway does not: it must
// not open or create anything. A word on a bound file is good until the file
// rests; any other only for the call that asked for it.
func (c *core) needsFile(x *call) bool {
	q := x.req
	switch q.Op {
	case locktable.OpAppend, locktable.OpBind, locktable.OpUnbind, locktable.OpRotate, locktable.OpSeal:
	default:
		return false
	}
	if g, live := c.table.Live(q.Lock, q.Token); !live || g.Mode != locktable.ModeExclusive {
		return false
	}
	state, bound := c.table.File(q.File)
	if bound && state.Lock != q.Lock {
		return false
	}
	s, ok := c.slots[q.File]
	if waits := ok && s.verifying; q.Op == locktable.OpAppend && !waits && !c.table.MayAppend(q) {
		return false // behind an append that waits it may be admitted
	}
	asked := ok && x.word != nil && x.word.writer == s.writer
	switch q.Op {
	case locktable.OpUnbind, locktable.OpSeal:
		return bound && !state.Quarantined && !state.Sealed && !asked
	case locktable.OpRotate:
		return bound && !asked
	}
	if !bound {
		return !asked
	}
	return !state.Quarantined && !state.Sealed && (!ok || !s.verified)
}

// park keeps a call until its file's writer has spoken.
func (c *core) park(x *call) {
	s := c.slot(x.req.File)
	x.word = nil
	if why := s.parked.add(x, &c.parkedBytes); why != "" {
		q := x.req
		c.answer(x, locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: why, Client: q.Client, Request: q.ID, Lock: q.Lock, File: q.File})
		return
	}
	if !s.verifying {
		s.verifying, s.verified = true, false
		c.verify(s.writer, x.req)
	}
}

// verify asks a writer for its word. The question goes with the batch, behind
// the appends that its end counts.
func (c *core) verify(w *fileWriter, q *locktable.Request) {
	state, bound := c.table.File(q.File)
	c.cur.questions = append(c.cur.questions, question{writer: w, job: verifyJob{op: q.Op, state: state, bound: bound}})
}

// onVerified lets what was parked go on, in order of arrival. What needs another
// word than the one that came parks again and asks for its own.
func (c *core) onVerified(v *verified) {
	s, ok := c.slots[v.writer.name]
	if !ok || s.writer != v.writer {
		return
	}
	s.verifying = false
	name := v.writer.name
	_, bound := c.table.File(name)
	if bound && errors.Is(v.err, volume.ErrForeign) {
		c.quarantine(name, v.err)
	}
	// A word for a rotation speaks of the next file, not of the bound one.
	s.verified = bound && v.err == nil && v.op != locktable.OpRotate
	for _, x := range s.parked.calls {
		if v.answers(x.req.Op) {
			x.word = v
		}
	}
	c.resume(s)
}

func (c *core) quarantine(name cluster.FileName, why error) {
	c.apply(c.table.DecideQuarantine(name, why.Error(), c.p.Epoch(), c.recs[:0]), nil)
}

// refuseFile refuses a parked call whose file's writer said no.
func (c *core) refuseFile(x *call) {
	q, err := x.req, x.word.err
	out := locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: err.Error(), Client: q.Client, Request: q.ID, Lock: q.Lock, File: q.File}
	_, bound := c.table.File(q.File)
	switch {
	case errors.Is(err, volume.ErrForeign) && bound:
		out.Status = cluster.StatusFileQuarantined
	case errors.Is(err, volume.ErrForeign), errors.Is(err, errStillThere):
		out.Status = cluster.StatusInvalidArgument
	}
	c.answer(x, out)
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
	if c.p.noSpace.Load() && !c.p.log.NextReady() && c.p.log.Room() < 2*c.p.opt.MaxBatch {
		out.Message = "the volume is full: free some space; releases still work"
		return out, true
	}
	if need := int64(len(q.Data)); q.Op == locktable.OpAppend {
		if s, known := c.p.reign.Space(); known && s.Left < need {
			out.File, out.Message = q.File, fmt.Sprintf("no space left on the volume: %d bytes are to be appended, %d are left: free some", need, s.Left)
			return out, true
		}
	}
	if s, ok := c.slots[q.File]; ok && q.File != "" {
		if f := s.writer.failing.Load(); f != nil {
			out.File, out.Message = q.File, f.text
			return out, true
		}
	}
	return out, false
}

// writing lists the writer of a file with appends under way, or with ones that it knows to be in
// no file while the table does not know it yet.
func (c *core) writing(name cluster.FileName) []*fileWriter {
	s, ok := c.slots[name]
	if !ok {
		return nil
	}
	if s.writer.pending.Load() > 0 {
		return []*fileWriter{s.writer}
	}
	if s.writer.condemned.Load() { // asked behind pending, as it is set before
		if f, bound := c.table.File(name); bound && !f.Quarantined {
			return []*fileWriter{s.writer}
		}
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

// restSlots lets files that are not used be verified again before the next append, and closes
// those that are not used for long. Where more are open than may be, it closes the ones that
// were used longest ago.
func (c *core) restSlots() {
	more := len(c.slots) - c.p.opt.OpenFiles
	var resting []*slot
	for name, s := range c.slots { // any order: it changes no record
		idle := c.now - s.used
		if idle < verifiedFor || s.verifying || s.writer.pending.Load() > 0 {
			continue
		}
		s.verified = false
		switch {
		case idle < openFor && more <= 0, !s.writer.clean():
		case idle < openFor:
			resting = append(resting, s)
		default:
			c.dropSlot(name)
			more--
		}
	}
	if more <= 0 {
		return
	}
	slices.SortFunc(resting, func(a, b *slot) int { return cmp.Compare(a.used, b.used) })
	for _, s := range resting[:min(more, len(resting))] {
		c.dropSlot(s.writer.name)
	}
}

// openFiles is the default of Options.OpenFiles: half of what a server leaves to the volume
// where descriptors are few.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return mostOpen
	}
	return int(min(limit.Cur/8, mostOpen))
}
