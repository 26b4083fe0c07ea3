// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// steadyLock is never broken and has leases that outlast a scenario; its file
	// is the one that clients rotate.
	steadyLock  cluster.LockName = "steady"
	rotatedFile cluster.FileName = "steady/rotated.log"
	// movedDir is where rotated generations go, below files/.
	movedDir = "moved"
)

// world is what all wanderers of a scenario share.
type world struct {
	moves   atomic.Int32 // files that were moved away
	outages atomic.Int32 // power losses that have begun
}

// wanderer is a client that does whatever a client may do, in random order,
// one thing at a time, and knows which answers it may get.
type wanderer struct {
	scenario *Scenario
	rng      *rand.Rand
	id       cluster.ClientID
	locks    []cluster.LockName
	ttl      time.Duration // of every lock but the steady one
	granted  time.Duration // the TTL that it acquired what it holds with
	world    *world

	next  cluster.RequestID
	lock  cluster.LockName
	token cluster.Token // 0 when it holds nothing
	mode  locktable.Mode
	sent  time.Time                  // when the try that was answered last was sent
	hold  *hold                      // of token
	past  []answered                 // the latest requests, for echoes
	sums  map[cluster.FileName]int64 // where files ended, according to its answers

	// limit is how many permits its locks have; 0 = they have no limit.
	limit uint32

	last map[cluster.LockName]cluster.Token // of its latest grant of each lock
	slot cluster.Slot                       // what it holds its lock for

	emptied bool // the file that others rotate was emptied in place
}

// answered is a request and its final answer.
type answered struct {
	q   locktable.Request
	out locktable.Outcome
}

// run does n steps and releases what it holds in the end.
func (w *wanderer) run(ctx context.Context, n int) {
	for range n {
		if w.token == 0 {
			w.stepWithout(ctx)
		} else {
			w.stepHolding(ctx)
		}
		if w.rng.IntN(8) == 0 {
			w.echo(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if w.limit == 0 { // the terms of a schedule are as long as the others make them
			w.scenario.progress.Add(1)
		}
		if w.rng.IntN(4) == 0 {
			time.Sleep(time.Duration(w.rng.IntN(300)) * time.Millisecond)
		}
	}
	if w.token != 0 {
		w.release(ctx)
	}
}

func (w *wanderer) stepWithout(ctx context.Context) {
	lock := w.locks[w.rng.IntN(len(w.locks))]
	switch n := w.rng.IntN(100); {
	case n < 30:
		w.acquire(ctx, lock, 0)
	case n < 60:
		w.acquire(ctx, lock, time.Duration(100+w.rng.IntN(3000))*time.Millisecond)
	case n < 75:
		w.acquire(ctx, lock, locktable.WaitForever)
	case n < 82:
		w.acquireAndCancel(ctx, lock)
	case n < 87:
		w.cancelUnsent(ctx)
	case n < 92 && w.scenario.Breaks && w.mayLose(lock):
		grace := time.Duration(w.rng.IntN(3)) * 700 * time.Millisecond
		w.request(ctx, locktable.Request{Op: locktable.OpBreak, Lock: lock, Grace: grace, Actor: "sim", Reason: "at random"})
	case n < 96:
		w.keepAlive(ctx)
	default:
		w.read(ctx)
	}
}

func (w *wanderer) stepHolding(ctx context.Context) {
	file := cluster.FileName(fmt.Sprintf("%s/%d.log", w.lock, w.rng.IntN(2)))
	if w.lock == steadyLock {
		file = rotatedFile
	}
	if w.mode == locktable.ModeShared {
		w.stepSharing(ctx, file)
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 50:
		w.append(ctx, file)
	case n < 55:
		w.downgrade(ctx)
	case n < 62:
		w.held(ctx, locktable.Request{Op: locktable.OpBind, File: file, AdoptExisting: true})
	case n < 67 && w.lock == steadyLock:
		w.rotate(ctx, file)
	case n < 70 && w.lock == steadyLock:
		w.recycle(ctx, file)
	case n < 70:
		w.held(ctx, locktable.Request{Op: locktable.OpUnbind, File: file})
	case n < 72 && w.lock == steadyLock:
		w.harm(ctx, file)
	case n < 74:
		w.renew(ctx)
	case n < 80:
		w.keepAlive(ctx)
	case n < 83:
		w.read(ctx)
	case n < 86:
		w.readFile(ctx, file)
	case n < 87 && w.lock == steadyLock:
		w.seal(ctx, file)
	case n < 89:
		w.held(ctx, locktable.Request{Op: locktable.OpMetadata, Metadata: fmt.Sprint("says ", w.next)})
	case n < 91 && w.lock != steadyLock: // it goes on to count on the shorter lease
		w.held(ctx, locktable.Request{Op: locktable.OpExtend, TTL: min(w.granted+w.granted/4, ttl)})
	default:
		w.release(ctx)
	}
}

// stepSharing does what a token is good for that writes nothing.
func (w *wanderer) stepSharing(ctx context.Context, file cluster.FileName) {
	switch n := w.rng.IntN(100); {
	case n < 15:
		if out := w.appendOnce(ctx, file); out.Status == cluster.StatusOK {
			w.scenario.Ledger.violation("I1: %s appended under the shared token %d of %s", w.id, w.token, w.lock)
		}
	case n < 30:
		w.renew(ctx)
	case n < 45:
		w.keepAlive(ctx)
	case n < 60:
		w.read(ctx)
	case n < 70:
		w.held(ctx, locktable.Request{Op: locktable.OpMetadata, Metadata: fmt.Sprint("shares ", w.next)})
	default:
		w.release(ctx)
	}
}

// downgrade lets others in. They may be before it knows that.
func (w *wanderer) downgrade(ctx context.Context) {
	w.mode = locktable.ModeShared
	w.scenario.Ledger.shares(w.hold, time.Now())
	w.held(ctx, locktable.Request{Op: locktable.OpDowngrade})
}

// mayLose reports whether a grant of this lock can end without its holder.
func (w *wanderer) mayLose(lock cluster.LockName) bool { return w.scenario.Lossy && lock != steadyLock }

func (w *wanderer) acquire(ctx context.Context, lock cluster.LockName, wait time.Duration) {
	leased := w.ttl
	if lock == steadyLock {
		leased = ttl
	}
	q := locktable.Request{Op: locktable.OpAcquire, Lock: lock, TTL: leased, Wait: wait, Permit: w.permit()}
	if q.Permit.Limit == 0 && w.rng.IntN(5) < 2 {
		q.Mode = locktable.ModeShared
	}
	if w.rng.IntN(4) == 0 {
		q.Metadata = fmt.Sprint("begins as ", w.next)
	}
	if q.Permit.Limit == 0 && q.Mode == locktable.ModeExclusive && w.rng.IntN(3) == 0 {
		q.Slot = cluster.Slot(fmt.Sprint("run-", w.next/8))
	}
	if q.Remember = w.rng.IntN(3) == 0; wait == 0 && w.last[lock] != 0 && w.rng.IntN(2) == 0 {
		q.After = w.last[lock] // its own last grant of this lock
	}
	out := w.request(ctx, q)
	w.took(&q, out)
}

// permit is what it asks for: some permits, and seldom of another limit than all others.
func (w *wanderer) permit() (p locktable.Permit) {
	if w.limit == 0 {
		return p
	}
	if p.Limit = w.limit; w.rng.IntN(16) == 0 {
		p.Limit++
	}
	p.Weight = 1 + w.rng.Uint32N(w.limit)
	return p
}

func (w *wanderer) took(q *locktable.Request, out locktable.Outcome) {
	if out.Status == cluster.StatusOK {
		w.lock, w.token, w.mode, w.granted = q.Lock, out.Token, q.Mode, q.TTL
		if q.Permit.Limit != 0 {
			w.mode = locktable.ModeShared
		}
		if out.Permit != q.Permit {
			w.scenario.Ledger.violation("I1: %s asked for %+v and was granted %+v", w.id, q.Permit, out.Permit)
		}
		w.last[q.Lock], w.slot = out.Token, q.Slot
		w.hold = w.scenario.Ledger.held(q.Lock, out.Token, w.sent.Add(trusted(q.TTL)))
		w.hold.permit = q.Permit
		if w.mode == locktable.ModeShared {
			w.scenario.Ledger.shares(w.hold, time.Unix(0, 0)) // by any of its clients
		}
	}
}

// trusted is how much of a lease its holder counts on.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 }

// lose ends what the holder believes in.
func (w *wanderer) lose() {
	w.scenario.Ledger.ends(w.hold, w.sent)
	w.token, w.hold = 0, nil
}

// echo sends an old request again, as a network does that kept a copy of it: it
// gets the old answer or is refused, and is never executed.
func (w *wanderer) echo(ctx context.Context) {
	if len(w.past) < 2 {
		return
	}
	// The last one may still be the newest that the table knows of this client.
	old := w.past[w.rng.IntN(len(w.past)-1)]
	marked := false
	for _, x := range w.past {
		marked = marked || x.out.LSN > 0 && x.q.LowWater > old.q.ID
	}
	r := w.scenario.pickMostly(w.rng.IntN(6))
	if !marked || r == nil {
		return
	}
	out, err := ask(ctx, r, old.q)
	if err == nil && out.Status == cluster.StatusOK && out.LSN != old.out.LSN {
		w.scenario.Ledger.violation("I7: %s/%d %v was answered %v at LSN %d, and executed once more at LSN %d",
			old.q.Client, old.q.ID, old.q.Op, old.out.Status, old.out.LSN, out.LSN)
	}
}

// acquireAndCancel waits for a lock and cancels that meanwhile: one of the two wins, for both.
func (w *wanderer) acquireAndCancel(ctx context.Context, lock cluster.LockName) {
	w.next++
	q := locktable.Request{
		Op: locktable.OpAcquire, Client: w.id, ID: w.next, LowWater: w.next,
		Lock: lock, TTL: ttl, Wait: locktable.WaitForever, Permit: w.permit(),
	}
	pause := time.Duration(w.rng.IntN(1500)) * time.Millisecond
	cancelled := make(chan locktable.Outcome, 1)
	other := *w // what it notes of its tries is its own
	go func() {
		time.Sleep(pause)
		cancelled <- other.ask(ctx, locktable.Request{Op: locktable.OpCancel, Client: w.id, Target: q.ID, LowWater: q.ID})
	}()
	got := w.ask(ctx, q)
	w.took(&q, got)
	word := <-cancelled
	if ctx.Err() != nil {
		return
	}
	dead := word.Status == cluster.StatusCancelled
	refused := got.Status == cluster.StatusOtherLimit || got.Status == cluster.StatusInvalidArgument // below the level of semaphores
	if dead != (refused || got.Status == cluster.StatusCancelled) {
		w.scenario.Ledger.violation("I7: %s/%d was told %v and its cancel %v", w.id, q.ID, got.Status, word.Status)
	}
}

// cancelUnsent cancels a request before it is sent: it never executes.
func (w *wanderer) cancelUnsent(ctx context.Context) {
	w.next++
	w.ask(ctx, locktable.Request{Op: locktable.OpCancel, Client: w.id, Target: w.next, LowWater: w.next})
	out := w.ask(ctx, locktable.Request{
		Op: locktable.OpAcquire, Client: w.id, ID: w.next, LowWater: w.next, Lock: w.locks[0], TTL: time.Minute, Wait: locktable.WaitForever, Permit: w.permit(),
	})
	if out.Status != cluster.StatusCancelled && ctx.Err() == nil {
		w.scenario.Ledger.violation("I7: %s/%d was cancelled and then answered %v", w.id, w.next, out.Status)
	}
}

// held is a request under the token; the grant may turn out to have ended.
func (w *wanderer) held(ctx context.Context, q locktable.Request) locktable.Outcome {
	q.Lock, q.Token = w.lock, w.token
	if q.Op == locktable.OpRelease {
		w.scenario.Ledger.ends(w.hold, time.Now()) // from its first try on
	}
	out := w.request(ctx, q)
	if out.Status == cluster.StatusInvalidToken || out.Status == cluster.StatusLeaseExpired || q.Op == locktable.OpRelease {
		w.lose()
	}
	return out
}

func (w *wanderer) release(ctx context.Context) {
	w.held(ctx, locktable.Request{Op: locktable.OpRelease, Done: w.slot != "" && w.rng.IntN(2) == 0})
}

func (w *wanderer) append(ctx context.Context, file cluster.FileName) {
	switch out := w.appendOnce(ctx, file); {
	case w.lock != steadyLock:
	case out.Status == cluster.StatusFileQuarantined:
		w.held(ctx, locktable.Request{Op: locktable.OpRotate, File: file})
	case out.Status == cluster.StatusFileSealed:
		w.rotate(ctx, file)
	}
}

func (w *wanderer) appendOnce(ctx context.Context, file cluster.FileName) locktable.Outcome {
	data := fmt.Appendf(nil, "<%s.%d:%s>\n", w.id, w.next+1, bytes.Repeat([]byte{'a' + byte(w.rng.IntN(26))}, w.rng.IntN(2500)))
	q := locktable.Request{
		Op: locktable.OpAppend, File: file, Data: data, CRC: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)), AdoptExisting: true,
	}
	if w.rng.IntN(4) == 0 {
		q.At = w.expect(file)
	}
	out := w.held(ctx, q)
	w.expected(&q, out)
	if out.Status == cluster.StatusInvalidToken || out.Status == cluster.StatusInvalidArgument {
		w.scenario.Ledger.refuse(data)
	}
	return out
}

// rotate moves the file away, as a user does for a rotation, and requests a
// new one. A user that moves a file must know that it is complete: an append was just
// answered, no other client appends, and it is synced first. A power loss in between
// takes what only the log has; moved away, the file never gets it back.
func (w *wanderer) rotate(ctx context.Context, file cluster.FileName) {
	outages := w.world.outages.Load()
	if last := w.appendOnce(ctx, file); last.Status == cluster.StatusOK || last.Status == cluster.StatusFileSealed {
		if _, err := w.move(file); err != nil {
			w.scenario.Ledger.violation("the operator cannot move %s: %v", file, err)
		}
		if w.world.outages.Load() != outages {
			w.scenario.Ledger.spoil(generation{file, last.Generation})
		}
	}
	w.held(ctx, locktable.Request{Op: locktable.OpRotate, File: file})
}

func (w *wanderer) renew(ctx context.Context) {
	top := w.scenario.Ledger.top(w.lock)
	out := w.until(ctx, func(ctx context.Context, r *Term) (locktable.Outcome, error) {
		return r.hear("a renewal", func(p *primary.Primary) (locktable.Outcome, error) { return p.Renew(ctx, w.lock, w.token) })
	})
	if out.Status == cluster.StatusOK && top > w.token && w.mode == locktable.ModeExclusive {
		w.scenario.Ledger.violation("I1: token %d of %s was renewed after %d was granted", w.token, w.lock, top)
	}
	if out.Status == cluster.StatusInvalidToken {
		if !w.mayLose(w.lock) {
			w.scenario.Ledger.violation("%s: renewal of token %d of %s: %v %s", w.id, w.token, w.lock, out.Status, out.Message)
		}
		w.lose()
	}
	if out.Status == cluster.StatusOK {
		w.scenario.Ledger.renewed(w.hold, w.sent.Add(trusted(w.leased())))
	}
}

// leased is the TTL of what it holds.
func (w *wanderer) leased() time.Duration {
	if w.lock == steadyLock {
		return ttl
	}
	return w.ttl
}

func (w *wanderer) keepAlive(ctx context.Context) {
	held := cluster.Digest(0)
	if w.token != 0 {
		held = held.With(w.token)
	}
	high := w.scenario.Ledger.High()
	var stray []locktable.Grant
	out := w.until(ctx, func(ctx context.Context, r *Term) (out locktable.Outcome, err error) {
		return r.hear("a keep-alive", func(p *primary.Primary) (out locktable.Outcome, err error) {
			stray, _, out, err = p.KeepAlive(ctx, w.id, serving.Belief{Digest: &held})
			return out, err
		})
	})
	if out.Status != cluster.StatusOK {
		return
	}
	if out.LSN < high {
		w.scenario.Ledger.violation("I9: a keep-alive was answered at LSN %d after %d was acknowledged", out.LSN, high)
	}
	if w.token != 0 && len(stray) == 1 && stray[0].Token == w.token {
		w.scenario.Ledger.violation("%s holds %d and was told that it strayed", w.id, w.token)
	}
	if w.token != 0 && stray == nil {
		w.scenario.Ledger.renewed(w.hold, w.sent.Add(trusted(w.leased())))
	}
}

// read reads the table: it must be as new as everything that was acknowledged.
func (w *wanderer) read(ctx context.Context) {
	high := w.scenario.Ledger.High()
	out := w.until(ctx, func(ctx context.Context, r *Term) (locktable.Outcome, error) {
		return r.hear("a read", func(p *primary.Primary) (locktable.Outcome, error) { return p.Read(ctx, func(serving.View) {}) })
	})
	if out.Status == cluster.StatusOK && out.LSN < high {
		w.scenario.Ledger.violation("I9: a read saw LSN %d after %d was acknowledged", out.LSN, high)
	}
}

// request gives q the next number and asks until there is a final answer.
func (w *wanderer) request(ctx context.Context, q locktable.Request) locktable.Outcome {
	w.next++
	q.Client, q.ID, q.LowWater = w.id, w.next, w.next
	out := w.ask(ctx, q)
	if w.past = append(w.past, answered{q, out}); len(w.past) > 8 {
		w.past = w.past[1:]
	}
	return out
}

func (w *wanderer) ask(ctx context.Context, q locktable.Request) locktable.Outcome {
	high := w.scenario.Ledger.High()
	var epoch cluster.Epoch
	out := w.until(ctx, func(ctx context.Context, r *Term) (locktable.Outcome, error) {
		epoch = r.primary.Load().Epoch()
		return ask(ctx, r, q)
	})
	switch {
	case ctx.Err() != nil && out.Status == cluster.StatusNone:
	case out.Status == cluster.StatusOK && q.Op != locktable.OpCancel:
		w.scenario.Ledger.ack(Ack{Request: q, Outcome: out, Epoch: epoch, After: high})
	case !w.mayHear(&q, out.Status):
		w.scenario.Ledger.violation("%s/%d %v was refused by epoch %d: %v %s", q.Client, q.ID, q.Op, epoch, out.Status, out.Message)
	}
	return out
}

// until asks one term after the other until one gives a final answer.
func (w *wanderer) until(ctx context.Context, do func(context.Context, *Term) (locktable.Outcome, error)) locktable.Outcome {
	for try := 0; ctx.Err() == nil; try++ {
		r := w.scenario.pickMostly(try)
		if r == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		limit := patience
		if (int(w.next)+try)%8 == 5 {
			limit = 30 * time.Second // long enough for the answer of a term that was paused
		}
		call, cancel := context.WithTimeout(ctx, limit)
		w.sent = time.Now()
		out, err := do(call, r)
		cancel()
		if err != nil {
			continue
		}
		switch out.Status {
		case cluster.StatusUnknown, cluster.StatusServerFencing, cluster.StatusSecondaryMode,
			cluster.StatusNoQuorum, cluster.StatusStorageUnavailable:
			time.Sleep(20 * time.Millisecond)
		default:
			return out
		}
	}
	return locktable.Outcome{}
}

// mayHear reports whether a final refusal can be right.
func (w *wanderer) mayHear(q *locktable.Request, status cluster.Status) bool {
	lost := w.mayLose(q.Lock)
	switch q.Op {
	case locktable.OpAcquire:
		switch status {
		case cluster.StatusHeld:
			return q.Wait == 0
		case cluster.StatusLockChanged:
			return q.After != 0
		case cluster.StatusInvalidArgument: // below the level of marks, or of semaphores
			return w.scenario.Older && (q.After != 0 || q.Remember || q.Slot != "" || q.Permit.Limit != 0)
		case cluster.StatusOtherLimit:
			return q.Permit.Limit != 0
		case cluster.StatusAlreadyDone:
			return q.Slot != ""
		case cluster.StatusWaitTimeout:
			return q.Wait != 0
		case cluster.StatusLeaseExpired:
			return lost
		}
		return status == cluster.StatusCancelled
	case locktable.OpCancel:
		return status == cluster.StatusCancelled || status == cluster.StatusOK || status == cluster.StatusWaitTimeout || status == cluster.StatusLeaseExpired
	case locktable.OpExtend: // its answer may be lost, and then its grant
		return lost && (status == cluster.StatusInvalidToken || status == cluster.StatusLeaseExpired)
	case locktable.OpBreak: // several may hold it
		return status == cluster.StatusInvalidToken || status == cluster.StatusInvalidArgument && q.Token == 0
	case locktable.OpUnbind, locktable.OpRotate, locktable.OpSeal: // not bound, or not moved away any more
		if (q.Op == locktable.OpSeal || q.Op == locktable.OpUnbind) && q.File == rotatedFile && (status == cluster.StatusFileQuarantined || status == cluster.StatusFileSealed) {
			return true
		}
		return status == cluster.StatusInvalidArgument || lost && status == cluster.StatusInvalidToken
	case locktable.OpAppend, locktable.OpBind:
		if q.File == rotatedFile && (status == cluster.StatusFileQuarantined || status == cluster.StatusFileSealed) {
			return true
		}
		if w.emptied && status == cluster.StatusInvalidArgument {
			return true
		}
		if q.At != nil && status == cluster.StatusOffsetMismatch {
			return true
		}
		if w.mode == locktable.ModeShared && status == cluster.StatusInvalidArgument {
			return true
		}
	}
	return lost && status == cluster.StatusInvalidToken
}
