// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Lockers configure clients that record one history.
type Lockers struct {
	History *check.History
	// Locks is the number of locks. Fewer mean more contention, and longer
	// parts for porcupine to decide about.
	Locks int
	// Names is the format of their names, and of their files' names; "" = "lock/%d".
	Names string
	// TTL is that of leases. Brief is that of every fourth, which may end while it is held; 0 = none
	// is brief.
	TTL, Brief time.Duration
	// Pace is how long a locker rests after each lock.
	Pace time.Duration
	// Breaks is true if lockers now and then break a grant.
	Breaks bool
	// Limit bounds one call.
	Limit time.Duration
	// Log is called for calls without an answer; nil = not logged.
	Log func(format string, args ...any)

	answered atomic.Int64
}

// Answered returns how many calls were answered so far.
func (l *Lockers) Answered() int { return int(l.answered.Load()) }

// Locker is one client. It belongs to one goroutine.
type Locker struct {
	All    *Lockers
	Client *clientlib.Client
	Number int
	Rand   *rand.Rand

	lines int                        // appended so far
	ends  map[cluster.LockName]int64 // of the files, when this client wrote last
}

// limitedEvery is how many locks there are to one that is used with a limit, of so many permits as a rule.
const limitedEvery, permits = 3, 3

// limit is with how many permits a lock is used as a rule, 0 for no limit.
func (l *Lockers) limit(name cluster.LockName) uint32 {
	for n := limitedEvery - 1; n < l.Locks; n += limitedEvery {
		if name == l.lock(n) {
			return permits
		}
	}
	return 0
}

func (l *Lockers) lock(n int) cluster.LockName {
	return cluster.LockName(fmt.Sprintf(cmp.Or(l.Names, "lock/%d"), n))
}

// FileOf returns the protected file of a lock in the history.
func FileOf(lock cluster.LockName) cluster.FileName { return cluster.FileName(lock + ".txt") }

// Run works until over returns true.
func (w *Locker) Run(ctx context.Context, over func() bool) {
	for ctx.Err() == nil && !over() {
		w.round(ctx, w.any())
		Rest(ctx, w.All.Pace)
	}
}

func (w *Locker) any() cluster.LockName { return w.All.lock(w.Rand.IntN(w.All.Locks)) }

// begin notes a call; the returned function notes how it ended.
func (w *Locker) begin(call any) (end func(check.Reply, error) bool) {
	noted := w.All.History.Begin(w.Number, call)
	return func(r check.Reply, err error) bool {
		var mismatch *clientlib.OffsetError
		switch {
		case err == nil:
		case errors.Is(err, wire.ErrHeld):
			r.Held = true
		case errors.Is(err, wire.ErrOtherLimit):
			r.OtherLimit = true
		case errors.Is(err, wire.ErrAlreadyDone):
			r.Done = true
		case errors.Is(err, wire.ErrInvalidToken) && !errors.Is(err, wire.ErrUnknown):
			r.Refused = true
		case mayShare(call) && errors.Is(err, wire.ErrInvalidArgument) && !errors.Is(err, wire.ErrUnknown):
			r.Shared = true
		case errors.As(err, &mismatch):
			r.Mismatch, r.Offset = true, mismatch.End
		case refusedByStorage(call, err):
			return false // it did nothing and never will: no call of the history
		default:
			r.Unknown = true
			if e, ok := errors.AsType[*wire.Error](err); ok && unexpected(e.Status) && !errors.Is(err, wire.ErrUnknown) {
				w.All.History.Violation("client %d: %+v: %v", w.Number, call, err)
			}
			if w.All.Log != nil {
				w.All.Log("client %d: %v", w.Number, err)
			}
		}
		noted(r)
		if !r.Unknown {
			w.All.answered.Add(1)
		}
		return err == nil
	}
}

// refusedByStorage reports whether a call was refused for the moment and not executed. A wait
// that ends so may have been granted in between.
func refusedByStorage(call any, err error) bool {
	_, waits := call.(check.AcquireCall)
	return !waits && errors.Is(err, wire.ErrStorageUnavailable) && !errors.Is(err, wire.ErrUnknown)
}

// unexpected reports whether no locker may get a status, whatever happens to the servers.
func unexpected(s cluster.Status) bool {
	switch s {
	case cluster.StatusError, cluster.StatusPermissionDenied, cluster.StatusStaleRequest, cluster.StatusInvalidArgument,
		cluster.StatusTooLarge, cluster.StatusFileQuarantined, cluster.StatusCancelled:
		return true
	}
	return false
}

// Least returns how many answers of each kind a history needs to be judged, see
// check.HistoryOptions.
func (l *Lockers) Least() map[string]int {
	least := map[string]int{"AcquireCall": 100, "ReleaseCall": 50, "AppendCall": 50, "ShowCall": 50, "DowngradeCall": 5, "DoneCall": 5, "ReadCall": 1, check.PermitsCall: 50}
	if l.Breaks {
		least["BreakCall"] = 1
	}
	return least
}

func (w *Locker) round(ctx context.Context, name cluster.LockName) {
	ctx, cancel := context.WithTimeout(ctx, w.All.Limit)
	defer cancel()
	if w.All.Breaks && w.Rand.IntN(50) == 0 {
		w.breaks(ctx, name)
	}
	lock, slot, ok := w.acquire(ctx, name)
	if !ok {
		return
	}
	if w.append(ctx, lock) && w.Rand.IntN(8) == 0 {
		w.read(ctx, name)
	}
	if slot == 0 && w.Rand.IntN(4) == 0 {
		w.downgrade(ctx, lock)
		if w.Rand.IntN(4) == 0 {
			w.append(ctx, lock) // which is refused
		}
		Rest(ctx, w.All.Pace)
	}
	w.show(ctx, name)
	w.release(ctx, lock, slot != 0 && w.Rand.IntN(2) == 0)
}

// slotEvery is how many answers it takes until something else is to be done once: several clients want the same.
const slotEvery = 100

// acquire also returns the slot that the lock was acquired for, 0 for none.
func (w *Locker) acquire(ctx context.Context, name cluster.LockName) (lock *clientlib.Lock, slot int, ok bool) {
	opt := clientlib.AcquireOptions{TTL: w.All.TTL, Wait: clientlib.Forever, Shared: w.Rand.IntN(3) == 0}
	if w.Rand.IntN(3) == 0 {
		opt.Wait = 0
	}
	mayEnd := w.All.Brief > 0 && w.Rand.IntN(4) == 0
	w.limit(name, &opt)
	if !opt.Shared && opt.Limit == 0 && w.Rand.IntN(3) == 0 {
		slot = 1 + w.All.Answered()/slotEvery
		opt.Once = fmt.Sprintf("run-%d", slot)
	}
	call := check.AcquireCall{Lock: name, Shared: opt.Shared, Try: opt.Wait == 0, Slot: slot, Limit: opt.Limit, Weight: opt.Weight}
	if mayEnd {
		opt.TTL, call.TTL = w.All.Brief, w.All.Brief
	}
	end := w.begin(call)
	lock, err := w.Client.Acquire(ctx, name, opt)
	var r check.Reply
	if err == nil {
		r.Token = lock.Token()
	}
	return lock, slot, end(r, err)
}

// limit asks for permits, and now and then otherwise than the others do: with another limit, or with none.
func (w *Locker) limit(name cluster.LockName, o *clientlib.AcquireOptions) {
	o.Limit = w.All.limit(name)
	if o.Limit == 0 {
		return
	}
	switch w.Rand.IntN(12) {
	case 0:
		o.Limit = 0
		return
	case 1:
		o.Limit++
	}
	o.Shared, o.Weight = false, 1+uint32(w.Rand.IntN(int(o.Limit)))
}

// breaks ends a grant: that of the only holder, or one that it names.
func (w *Locker) breaks(ctx context.Context, name cluster.LockName) {
	call := check.BreakCall{Lock: name}
	if info, err := w.Client.Get(ctx, name); err == nil && w.Rand.IntN(2) == 0 && info.Holder != nil {
		call.Token = info.Holder.Token
		if n := len(info.SharedWith); n > 0 {
			call.Token = info.SharedWith[w.Rand.IntN(n)].Token
		}
	}
	end := w.begin(call)
	end(check.Reply{}, w.Client.Break(ctx, name, clientlib.BreakOptions{Token: call.Token, Actor: "locker", Reason: "for the history"}))
}

// mayShare reports whether a call may be refused because its lock is shared.
func mayShare(call any) bool {
	switch call := call.(type) {
	case check.AppendCall, check.DowngradeCall:
		return true
	case check.BreakCall:
		return call.Token == 0
	}
	return false
}

// release ends the grant, and may say that its slot is done. A client that knows of its loss does not ask.
func (w *Locker) release(ctx context.Context, lock *clientlib.Lock, done bool) {
	if lock.Context().Err() != nil {
		return
	}
	if done {
		end := w.begin(check.DoneCall{Lock: lock.Name(), Token: lock.Token()})
		end(check.Reply{}, lock.Done(ctx))
		return
	}
	end := w.begin(check.ReleaseCall{Lock: lock.Name(), Token: lock.Token()})
	end(check.Reply{}, lock.Release(ctx))
}

// downgrade lets others share the lock. Of one that is shared already nothing changes.
func (w *Locker) downgrade(ctx context.Context, lock *clientlib.Lock) {
	if lock.Context().Err() != nil {
		return
	}
	end := w.begin(check.DowngradeCall{Lock: lock.Name(), Token: lock.Token()})
	end(check.Reply{}, lock.Downgrade(ctx))
}

// append appends a unique line, now and then at the offset where the file ended when this
// client wrote last.
func (w *Locker) append(ctx context.Context, lock *clientlib.Lock) bool {
	if lock.Context().Err() != nil {
		return false
	}
	w.lines++
	data := fmt.Appendf(nil, "client %d, line %d.\n", w.Number, w.lines)
	call := check.AppendCall{Lock: lock.Name(), Token: lock.Token(), Data: data}
	var opts []clientlib.AppendOption
	if last, wrote := w.ends[lock.Name()]; wrote && w.Rand.IntN(4) == 0 {
		call.At, opts = &last, append(opts, clientlib.At(last))
	}
	end := w.begin(call)
	r, err := lock.Append(ctx, FileOf(lock.Name()), data, opts...)
	done := end(check.Reply{Offset: r.Offset}, err)
	if done {
		if w.ends == nil {
			w.ends = map[cluster.LockName]int64{}
		}
		w.ends[lock.Name()] = r.Offset + r.Length
	}
	return done
}

// read reads the lock's file through the service while others append. What does not fit into
// one answer is not for the history.
func (w *Locker) read(ctx context.Context, name cluster.LockName) {
	end := w.begin(check.ReadCall{Lock: name})
	p, err := w.Client.ReadFile(ctx, FileOf(name), clientlib.ReadOptions{})
	if err == nil && int64(len(p.Data)) < p.End {
		err = wire.ErrUnknown
	}
	end(check.Reply{Length: p.End, Sum: crc32.Checksum(p.Data, crc32.MakeTable(crc32.Castagnoli))}, err)
}

// show asks for the holders of a lock, which is not always this client's own.
func (w *Locker) show(ctx context.Context, name cluster.LockName) {
	if w.Rand.IntN(4) == 0 {
		name = w.any()
	}
	end := w.begin(check.ShowCall{Lock: name})
	info, err := w.Client.Get(ctx, name)
	var r check.Reply
	if info.Holder != nil {
		r.Token, r.Shared, r.Limit = info.Holder.Token, info.Holder.Mode == sharedWord, info.Limit
		r.Weights = append(r.Weights, info.Holder.Weight)
	}
	for _, x := range info.SharedWith {
		r.Others, r.Weights = append(r.Others, x.Token), append(r.Weights, x.Weight)
	}
	for _, f := range info.Files {
		r.Length = f.End
	}
	end(r, err)
}

// sharedWord is the mode of a shared holder in answers.
const sharedWord = "shared"

// Read adds the final content of the files to the history, after the last append. A lock without
// appends has no file.
func (l *Lockers) Read(path func(cluster.FileName) string) error {
	for i := range l.Locks {
		lock := l.lock(i)
		b, err := os.ReadFile(path(FileOf(lock)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("I5: %w", err)
		}
		end := l.History.Begin(readerNumber, check.ReadCall{Lock: lock})
		end(check.Reply{Length: int64(len(b)), Sum: crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))})
	}
	return nil
}

// Landed returns a function that finds appends without an answer in the files, see
// check.HistoryOptions.
func Landed(path func(cluster.FileName) string) func(check.AppendCall) (int64, bool) {
	return func(a check.AppendCall) (int64, bool) {
		b, err := os.ReadFile(path(FileOf(a.Lock)))
		i := bytes.Index(b, a.Data)
		return int64(i), err == nil && i >= 0
	}
}

// readerNumber is a client that no locker is.
const readerNumber = 1000

// Rest pauses for d, or until ctx ends.
func Rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
