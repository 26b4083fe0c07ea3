// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/primary/protected"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const (
	// verifiedFor is how long a file counts as verified without being used.
	verifiedFor = time.Second
	// openFor is how long an unused file keeps its descriptor. While it is open for writing, an NFS
	// server gives no other machine a delegation of it, for which the next append would have to
	// wait if that machine dies.
	openFor = 10 * time.Minute
	// mostOpen is how many unused files keep their descriptors at most.
	mostOpen = 512
)

// fileSlot is a protected file as the core loop sees it.
type fileSlot struct {
	writer    *protected.Writer
	verified  bool // the file is bound and appends are admitted
	verifying bool // parked calls wait for the writer's verification
	used      time.Duration
	parked    parked
}

// fileHost implements protected.Host.
type fileHost struct{ p *Primary }

func (h fileHost) Check() error { return h.p.check() }

func (h fileHost) Verified(v *protected.Verification) {
	h.p.queue.put(&call{kind: callVerified, verified: v})
}

func (h fileHost) Foreign(name cluster.FileName, why error) {
	h.p.queue.put(&call{kind: callQuarantine, req: &locktable.Request{File: name, Reason: why.Error()}})
}

// SyncFiles has every protected file made durable, and waits for that a bounded time.
func (p *Primary) SyncFiles(ctx context.Context) { p.files.Sync(ctx) }

// FileTrouble returns a message for each protected file that cannot be written now, nil if all
// can.
func (p *Primary) FileTrouble() []string { return p.files.Trouble() }

// slot returns the slot of a file, and makes it and its writer if they are not there.
func (c *core) slot(name cluster.FileName) *fileSlot {
	s, ok := c.slots[name]
	if !ok {
		state, _ := c.table.File(name)
		s = &fileSlot{writer: c.p.files.Start(name, state, nil)}
		c.slots[name] = s
	}
	s.used = c.now
	return s
}

// dropSlot forgets a file: it is no longer bound, has another inode, or was not
// used for long. Its writer stops when this batch is committed, after what the
// batch has for it. Calls that were parked are handled again.
func (c *core) dropSlot(name cluster.FileName) {
	s, ok := c.slots[name]
	if !ok {
		return
	}
	delete(c.slots, name)
	w := s.writer
	c.cur.files = append(c.cur.files, func() { c.p.files.Stop(w) })
	c.resume(s)
}

// needsFile reports whether a request which was not seen before needs its file verified first.
// A request that will be refused anyway does not: it must not open or create anything. The
// verification of a bound file is good until the file rests; any other only for the call that
// asked for it.
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
	if c.table.DeniesToken(q.Lock, q.Token, q.Identity) != "" || c.table.DeniesClient(q.Client, q.Identity) != "" || !c.table.Own().Owns(string(q.File)) {
		return false
	}
	state, bound := c.table.File(q.File)
	if bound && state.Lock != q.Lock {
		return false
	}
	s, ok := c.slots[q.File]
	if waits := ok && s.verifying; q.Op == locktable.OpAppend && !waits && !c.table.MayAppend(q) {
		return false // after an append that waits it may be admitted
	}
	asked := ok && x.verified != nil && x.verified.Writer == s.writer
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

// park keeps a call until its file is verified.
func (c *core) park(x *call) {
	s := c.slot(x.req.File)
	x.verified = nil
	if why := s.parked.add(x, &c.parkedBytes); why != "" {
		q := x.req
		c.answer(x, locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: why, Client: q.Client, Request: q.ID, Lock: q.Lock, File: q.File})
		return
	}
	if !s.verifying {
		s.verifying, s.verified = true, false
		w, op := s.writer, x.req.Op
		state, bound := c.table.File(x.req.File)
		// With the batch, after the appends that the table counts.
		c.cur.files = append(c.cur.files, func() { w.Verify(op, state, bound) })
	}
}

// onVerified handles what was parked, in order of arrival. A call that needs another
// verification parks again and asks for it.
func (c *core) onVerified(v *protected.Verification) {
	name := v.Writer.Name()
	s, ok := c.slots[name]
	if !ok || s.writer != v.Writer {
		return
	}
	s.verifying = false
	_, bound := c.table.File(name)
	if bound && v.Foreign() {
		c.quarantine(name, v.Err.Error())
	}
	// The facts for a rotation are of the next file, not of the bound one.
	s.verified = bound && v.Err == nil && v.Op != locktable.OpRotate
	for _, x := range s.parked.calls {
		if v.Answers(x.req.Op) {
			x.verified = v
		}
	}
	c.resume(s)
}

func (c *core) quarantine(name cluster.FileName, why string) {
	c.apply(c.table.DecideQuarantine(name, why, c.p.Epoch(), c.recs[:0]), nil)
}

// refuseFile refuses a parked call whose file failed the verification.
func (c *core) refuseFile(x *call) {
	q, v := x.req, x.verified
	_, bound := c.table.File(q.File)
	c.answer(x, locktable.Outcome{Status: v.Refusal(bound), Message: v.Err.Error(), Client: q.Client, Request: q.ID, Lock: q.Lock, File: q.File})
}

// followAppend adds a decided append to the batch, for its file's writer.
func (c *core) followAppend(r *locktable.Record, appended *call) {
	s := c.slot(r.File)
	s.writer.Expect()
	job := appendJob{writer: s.writer, rec: *r}
	if appended != nil {
		job.call, job.done = appended, appended.done
	}
	c.cur.appends = append(c.cur.appends, job)
}

// refuseFull refuses what would use up the log while no next segment can be made, appends
// to a file that cannot be written, and changes of the list of servers that have to wait or to be asked of another server; false if the request is admitted. Requests that end a grant
// or a wait always are.
func (c *core) refuseFull(q *locktable.Request) (locktable.Outcome, bool) {
	out := locktable.Outcome{Status: cluster.StatusStorageUnavailable, Client: q.Client, Request: q.ID, Lock: q.Lock}
	switch q.Op {
	case locktable.OpRelease, locktable.OpCancel, locktable.OpBreak:
		return out, false
	case locktable.OpMembers:
		if why := c.refusesMember(q); why != "" {
			out.Status, out.Message = cluster.StatusInvalidArgument, why
			return out, true
		}
		if out.Message = c.unshown(); out.Message != "" {
			return out, true
		}
	}
	if c.p.noSpace.Load() && !c.p.log.NextReady() && c.p.log.Room() < 2*c.p.opt.MaxBatch {
		out.Message = "the volume is full: free some space; releases still work"
		return out, true
	}
	if need := int64(len(q.Data)); q.Op == locktable.OpAppend {
		if s, known := c.p.term.Space(); known && s.Left < need {
			out.File, out.Message = q.File, fmt.Sprintf("no space left on the volume: %d bytes are to be appended, %d are left: free some", need, s.Left)
			return out, true
		}
	}
	out.File, out.Message = q.File, c.failing(q.File)
	return out, out.Message != ""
}

// failing returns why a file cannot be written now; "" if it can, or is not known.
func (c *core) failing(name cluster.FileName) string {
	if s, ok := c.slots[name]; ok {
		return s.writer.Failing()
	}
	return ""
}

// writing returns the writer of a file if it has appends under way, or has found the file
// foreign and the table does not have the quarantine yet; else nil.
func (c *core) writing(name cluster.FileName) []*protected.Writer {
	s, ok := c.slots[name]
	if !ok {
		return nil
	}
	if f, bound := c.table.File(name); !s.writer.Unsettled(bound && !f.Quarantined) {
		return nil
	}
	return []*protected.Writer{s.writer}
}

// writingUnder returns the writers with appends under way to files of a lock.
func (c *core) writingUnder(lock cluster.LockName) (all []*protected.Writer) {
	if len(c.slots) == 0 {
		return nil
	}
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
	var resting []*fileSlot
	for name, s := range c.slots { // any order: it changes no record
		idle := c.now - s.used
		if idle < verifiedFor || s.verifying || s.writer.Pending() {
			continue
		}
		s.verified = false
		switch {
		case idle < openFor && more <= 0, !s.writer.Clean():
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
	slices.SortFunc(resting, func(a, b *fileSlot) int { return cmp.Compare(a.used, b.used) })
	for _, s := range resting[:min(more, len(resting))] {
		c.dropSlot(s.writer.Name())
	}
}

// openFiles returns the default of Options.OpenFiles: an eighth of the process's descriptors,
// mostOpen at most.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return mostOpen
	}
	return int(min(limit.Cur/8, mostOpen))
}

const (
	// parkedCalls bounds the calls that wait for the verification of one file, parkedBytes the data
	// of those for all files. It mostly takes milliseconds, and a file that hangs fails soon.
	parkedCalls = 8192
	parkedBytes = 128 << 20
)

// parked are the calls that wait for the verification of a file, in order of arrival.
type parked struct {
	calls []*call
	first map[waitKey]*call // of each request
	times map[waitKey]int   // how often a request among calls was repeated
	bytes int               // of data, which repeats share
}

// add keeps a call, or returns why not. all counts the data that is parked at all files.
func (p *parked) add(x *call, all *int) (refused string) {
	q := x.req
	key := waitKey{q.Client, q.ID}
	first := p.first[key]
	shared := first != nil && bytes.Equal(first.req.Data, q.Data)
	switch {
	case first != nil && p.times[key]+1 >= maxJoined:
		return "too many repeats of this request wait already: ask again later"
	case len(p.calls) >= parkedCalls, !shared && *all+len(q.Data) > parkedBytes:
		return fmt.Sprintf("too many requests wait until protected file %s is verified: ask again later", q.File)
	}
	if p.first == nil {
		p.first, p.times = map[waitKey]*call{}, map[waitKey]int{}
	}
	switch {
	case !shared:
		p.bytes += len(q.Data)
		*all += len(q.Data)
	case len(q.Data) > 0 && &first.req.Data[0] != &q.Data[0]:
		q.Data = first.req.Data
	}
	if first == nil {
		p.first[key] = x
	} else {
		p.times[key]++
	}
	p.calls = append(p.calls, x)
	return ""
}

// dropAbandoned removes and returns the calls whose callers wait no more.
func (p *parked) dropAbandoned(all *int) (dropped []*call) {
	gone := func(x *call) bool { return x.abandoned.Load() }
	if !slices.ContainsFunc(p.calls, gone) {
		return nil
	}
	calls := p.take(all)
	for _, x := range calls {
		if gone(x) || p.add(x, all) != "" {
			dropped = append(dropped, x)
		}
	}
	return dropped
}

// take removes and returns all calls.
func (p *parked) take(all *int) []*call {
	calls := p.calls
	*all -= p.bytes
	*p = parked{}
	return calls
}

// resume has the calls that are parked at a slot handled again.
func (c *core) resume(s *fileSlot) {
	c.resumed = append(c.resumed, s.parked.take(&c.parkedBytes)...)
}

// watchFiles notices files that hang, and answers calls that wait too long for files that hang or
// fail.
func (c *core) watchFiles() {
	now := time.Now()
	for _, s := range c.slots { // any order: it changes no record
		s.writer.Tick(now)
		if s.verifying && s.writer.Failing() != "" {
			c.resume(s) // and refused, unless it was seen
			continue
		}
		for _, x := range s.parked.dropAbandoned(&c.parkedBytes) {
			c.answer(x, locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: "the caller waits no more", Client: x.req.Client, Request: x.req.ID})
		}
	}
}

// tellFile answers a callFile after the writes under way, as a repeat of an append is.
func (c *core) tellFile(x *call) {
	name := x.req.File
	out := locktable.Outcome{Status: cluster.StatusOK, LSN: c.table.LSN(), Epoch: c.p.Epoch(), File: name}
	f, bound := c.table.File(name)
	foreign, has := c.table.Own().Refuses("", name)
	switch why := c.failing(name); {
	case foreign != "":
		out.Status, out.Message, out.Cell = cluster.StatusWrongCell, foreign, has
		c.answer(x, out)
	case bound && f.Quarantined:
		out.Status, out.Message = cluster.StatusFileQuarantined, f.Reason
		c.answer(x, out)
	case why != "":
		out.Status, out.Message = cluster.StatusStorageUnavailable, why
		c.answer(x, out)
	default:
		x.read(c.view())
		c.answerAfter(x, out, c.writing(name), true)
	}
}
