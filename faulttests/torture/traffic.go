// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fault"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// speakers append text under long leases, hasty ones under leases so short
	// that they lose them; lockers make the history for porcupine.
	speakers, hasty, lockers = 3, 2, 4
	// lockNames is how many locks the history has, so that each part of it stays
	// small enough for porcupine.
	lockNames = 16
	longTTL   = time.Minute
	hastyTTL  = 2 * time.Second
	// lockerPace is how long a locker rests after each lock.
	lockerPace = 40 * time.Millisecond
	textPace   = 10 * time.Millisecond
	// callLimit bounds one call. A call that a fault outlasts stays without an answer.
	callLimit = 2 * time.Minute
)

// Traffic is what clients do during a round, and what they were told.
type Traffic struct {
	Ledger  *check.Ledger
	History *check.History

	t       testing.TB
	c       *cluster.Cluster
	rand    *rand.Rand
	working sync.WaitGroup
	stop    chan struct{}
	counts  struct {
		sync.Mutex
		history int
	}
}

// NewTraffic makes clients of a cluster, which append the given lines.
func NewTraffic(t testing.TB, c *cluster.Cluster, random *rand.Rand) *Traffic {
	return &Traffic{
		Ledger: &check.Ledger{}, History: check.NewHistory(), t: t, c: c, rand: random, stop: make(chan struct{}),
	}
}

// Start lets the clients work until End.
func (x *Traffic) Start(ctx context.Context, lines [][]byte) {
	for i := range speakers + hasty {
		w := &fault.Worker{
			Client: x.client(), Speaker: check.NewSpeaker(lines, i, speakers+hasty), Places: filesOf(i), Ledger: x.Ledger,
			Rand: x.fork(), TTL: longTTL, Pace: textPace, Limit: callLimit,
		}
		if i >= speakers {
			w.TTL, w.Lossy = hastyTTL, true
		}
		x.working.Go(func() { w.Run(ctx, x.over) })
	}
	for i := range lockers {
		w := &locker{client: x.client(), number: i, traffic: x, rand: x.fork()}
		x.working.Go(func() { w.run(ctx) })
	}
}

// End tells the clients to stop and waits until each has its last answer.
func (x *Traffic) End() {
	close(x.stop)
	x.working.Wait()
}

// Calls is how many calls were answered so far.
func (x *Traffic) Calls() int {
	appends, grants, _, _ := x.Ledger.Count()
	x.counts.Lock()
	defer x.counts.Unlock()
	return appends + grants + x.counts.history
}

func (x *Traffic) over() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

func (x *Traffic) fork() *rand.Rand { return rand.New(rand.NewPCG(x.rand.Uint64(), x.rand.Uint64())) }

// client looks for a primary for as long as the longest fault and its healing may last.
func (x *Traffic) client() *clientlib.Client {
	client, err := clientlib.New(clientlib.Options{Endpoints: x.c.Endpoints(), Budget: callLimit})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { client.Close() }) //nolint:errcheck // the servers may be gone
	return client
}

// filesOf a client are a file of its own and one that all share.
func filesOf(client int) []fault.Place {
	return []fault.Place{
		{Lock: hf.LockName(fmt.Sprintf("own/%d", client)), File: hf.FileName(fmt.Sprintf("own/%d.txt", client))},
		{Lock: "all", File: "deep/er/all.txt"},
	}
}

// locker acquires and releases, for the history.
type locker struct {
	client  *clientlib.Client
	number  int
	traffic *Traffic
	rand    *rand.Rand
}

func (w *locker) run(ctx context.Context) {
	for ctx.Err() == nil && !w.traffic.over() {
		w.round(ctx, hf.LockName(fmt.Sprintf("lock/%d", w.rand.IntN(lockNames))))
		rest(ctx, lockerPace)
	}
}

func (w *locker) round(ctx context.Context, name hf.LockName) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	opt := clientlib.AcquireOptions{TTL: longTTL, Wait: clientlib.Forever}
	if w.rand.IntN(3) == 0 {
		opt.Wait = 0
	}
	end := w.begin(check.AcquireCall{Lock: name, Try: opt.Wait == 0})
	lock, err := w.client.Acquire(ctx, name, opt)
	switch {
	case errors.Is(err, wire.ErrHeld):
		end(check.Reply{Held: true})
		return
	case err != nil:
		end(check.Reply{Unknown: true})
		return
	}
	end(check.Reply{Token: lock.Token()})
	rest(ctx, time.Duration(w.rand.IntN(4))*time.Millisecond)
	end = w.begin(check.ReleaseCall{Lock: name, Token: lock.Token()})
	err = lock.Release(ctx)
	end(check.Reply{Token: lock.Token(), Unknown: err != nil})
}

// begin notes a call; the returned function notes its answer and counts it.
func (w *locker) begin(call any) func(check.Reply) {
	end := w.traffic.History.Begin(w.number, call)
	return func(r check.Reply) {
		end(r)
		if !r.Unknown {
			w.traffic.counts.Lock()
			w.traffic.counts.history++
			w.traffic.counts.Unlock()
		}
	}
}
