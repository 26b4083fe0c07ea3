// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Place is a protected file and the lock that guards it, or a lock with a limit, which guards no file.
type Place struct {
	Lock  cluster.LockName
	File  cluster.FileName
	Limit uint32 // how many permits the lock has; 0 = no limit
}

// Worker is one client that appends its lines, round after round: acquire,
// some appends, release. It belongs to one goroutine.
type Worker struct {
	Client *clientlib.Client
	// Holder is the command that the client names as the holder; "" = it names none.
	Holder  string
	Speaker *check.Speaker
	Places  []Place
	Ledger  *check.Ledger
	Rand    *rand.Rand
	// TTL is that of its leases.
	TTL time.Duration
	// Pace is how long it rests after an append, so that the text lasts.
	Pace time.Duration
	// Limit bounds every call. A call that takes longer ends without an answer.
	Limit time.Duration
	// Lossy is true if leases are so short that they may end while the worker holds them.
	Lossy bool
	// Storage is true if the storage may have faults: then the service may refuse for a while.
	Storage bool
	// Sharing is true if the worker now and then shares a lock, and writes nothing meanwhile.
	Sharing bool
}

const (
	// chunks of an append carry lines up to a size between these.
	smallestChunk = 256
	largestChunk  = 16 << 10
	// refusedPause is how long a worker rests when the storage refuses.
	refusedPause = 100 * time.Millisecond
	// appendsPerGrant is the most.
	appendsPerGrant = 6
	// sharedEvery and downgradeEvery are how often, on average, a sharing worker does so.
	sharedEvery, downgradeEvery = 4, 4
)

// Run works, round after round, until over returns true.
func (w *Worker) Run(ctx context.Context, over func() bool) {
	for ctx.Err() == nil && !over() {
		w.round(ctx, w.Places[w.Rand.IntN(len(w.Places))])
	}
}

func (w *Worker) round(ctx context.Context, p Place) {
	o := clientlib.AcquireOptions{TTL: w.TTL, Wait: clientlib.Forever, Limit: p.Limit}
	if p.Limit > 0 {
		o.Weight = 1 + uint32(w.Rand.IntN(int(p.Limit)))
	} else {
		o.Shared = w.Sharing && w.Rand.IntN(sharedEvery) == 0
	}
	lock, ok := w.acquire(ctx, p.Lock, o)
	if !ok {
		return
	}
	switch {
	case p.Limit > 0:
		w.rest(ctx, w.Ledger.WatchPermits(w.Speaker.Client(), lock, o.Limit, o.Weight, time.Now()))
	case o.Shared:
		w.share(ctx, lock)
	default:
		w.write(ctx, lock, p)
	}
	w.release(ctx, lock, p)
}

// share holds a lock together with others.
func (w *Worker) share(ctx context.Context, lock *clientlib.Lock) {
	w.rest(ctx, w.Ledger.WatchShared(w.Speaker.Client(), lock, time.Now()))
}

// rest holds a lock for about as long as some appends take.
func (w *Worker) rest(ctx context.Context, given func()) {
	Rest(ctx, w.Pace*time.Duration(1+w.Rand.IntN(appendsPerGrant)))
	given()
}

// write appends lines, and now and then it lets others in before it lets go.
func (w *Worker) write(ctx context.Context, lock *clientlib.Lock, p Place) {
	given := w.Ledger.WatchHold(w.Speaker.Client(), lock, time.Now())
	for range 1 + w.Rand.IntN(appendsPerGrant) {
		if !w.append(ctx, lock, p) {
			break
		}
		Rest(ctx, w.Pace)
	}
	given()
	if !w.Sharing || w.Rand.IntN(downgradeEvery) > 0 {
		return
	}
	actx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	if err := lock.Downgrade(actx); err != nil {
		w.failed(ctx, "downgrade "+string(p.Lock), err)
		return
	}
	w.share(ctx, lock)
}

func (w *Worker) release(ctx context.Context, lock *clientlib.Lock, p Place) {
	release, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	if err := lock.Release(release); err != nil {
		w.failed(ctx, "release "+string(p.Lock), err)
	}
}

func (w *Worker) acquire(ctx context.Context, name cluster.LockName, o clientlib.AcquireOptions) (*clientlib.Lock, bool) {
	actx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	g := check.Grant{Client: w.Speaker.Client(), Holder: w.Holder, Lock: name, After: w.Ledger.High(), Sent: time.Now()}
	lock, err := w.Client.Acquire(actx, name, o)
	if err != nil {
		w.failed(ctx, "acquire "+string(name), err)
		return nil, false
	}
	g.Token, g.Epoch, g.Answered = lock.Token(), lock.Epoch(), time.Now()
	w.Ledger.Grant(g)
	return lock, true
}

func (w *Worker) append(ctx context.Context, lock *clientlib.Lock, p Place) bool {
	actx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	size := smallestChunk + w.Rand.IntN(largestChunk-smallestChunk)
	a := check.Append{Chunk: w.Speaker.Chunk(size), File: p.File, Lock: p.Lock, After: w.Ledger.High(), Sent: time.Now()}
	r, err := lock.Append(actx, p.File, a.Data)
	a.Answered = time.Now()
	if err != nil {
		a.Refused = !errors.Is(err, wire.ErrUnknown)
		w.failed(ctx, "append to "+string(p.File), err)
		w.Ledger.Append(a)
		return false
	}
	a.Acked, a.Repeat = true, r.Repeat
	a.Receipt = ReceiptOf(r)
	w.Ledger.Append(a)
	return true
}

// ReceiptOf converts a receipt of the client library for package check.
func ReceiptOf(r clientlib.Receipt) wire.Receipt {
	return wire.Receipt{
		File: r.File, Offset: r.Offset, Length: r.Length, CRC32C: r.CRC32C,
		LSN: r.LSN, Token: r.Token, Epoch: r.Epoch, Generation: r.Generation,
	}
}

// failed judges an error: a call may end without an answer, but with long
// leases and no operator nothing else may go wrong.
func (w *Worker) failed(ctx context.Context, what string, err error) {
	switch {
	case ctx.Err() != nil:
	case w.Lossy && errors.Is(err, clientlib.ErrLost):
	case w.Lossy && errors.Is(err, wire.ErrWaitTimeout): // a waiter that is not heard for its TTL leaves the queue
	case w.Storage && errors.Is(err, wire.ErrStorageUnavailable) && !errors.Is(err, wire.ErrUnknown):
		Rest(ctx, refusedPause)
	case errors.Is(err, wire.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		w.Ledger.Unknown()
	default:
		w.Ledger.Violation("client %d: %s: %v", w.Speaker.Client(), what, err)
	}
}
