// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	historyClients = 6
	historyLocks   = 3
	historyKills   = 12
	// checkLimit bounds porcupine; what it cannot decide by then is a failure.
	checkLimit = 2 * time.Minute
)

// TestHistoryIsLinearizable has porcupine decide whether what clients saw of
// locks under kills is what one lock after the other could have shown them.
func TestHistoryIsLinearizable(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	h := NewHistory()
	stop := make(chan struct{})
	var working sync.WaitGroup
	for i := range historyClients {
		w := &locker{client: newClient(t, c), number: i, history: h, rand: rand.New(rand.NewPCG(*faultSeed, uint64(i)))}
		working.Go(func() { w.run(t, stop) })
	}
	n := &Nemesis{Cluster: c, Rand: rand.New(rand.NewPCG(*faultSeed, 77)), Every: time.Second}
	for n.Primaries < historyKills {
		n.Rest(t.Context())
		if !n.Strike(t.Context()) {
			t.Errorf("I15: no primary within %v", cluster.Patience)
			break
		}
	}
	close(stop)
	working.Wait()
	all, unknown := h.Operations()
	t.Logf("%d operations on %d locks by %d clients over %d kills, %d without an answer", len(all), historyLocks, historyClients, n.Primaries, unknown)
	if len(all) < 500 {
		t.Errorf("only %d operations: a run in which nothing happens proves nothing", len(all))
	}
	check(t, all)
}

func check(t *testing.T, all []porcupine.Operation) {
	t.Helper()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(lockModel(), all, checkLimit)
	t.Logf("porcupine: %s after %v", result, time.Since(began).Round(time.Millisecond))
	if result == porcupine.Ok {
		return
	}
	picture := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(lockModel(), info, picture); err != nil {
		t.Logf("visualize: %v", err)
	}
	t.Errorf("the history is not linearizable: %s, see %s", result, picture)
}

// locker is one client of the history.
type locker struct {
	client  *clientlib.Client
	number  int
	history *History
	rand    *rand.Rand
}

func (w *locker) run(t *testing.T, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		w.round(t, hf.LockName(fmt.Sprintf("lock/%d", w.rand.IntN(historyLocks))))
		rest(t.Context(), 3*time.Millisecond)
	}
}

func (w *locker) round(t *testing.T, name hf.LockName) {
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	opt := clientlib.AcquireOptions{TTL: longTTL, Wait: clientlib.Forever}
	if w.rand.IntN(3) == 0 {
		opt.Wait = 0
	}
	end := w.history.Begin(w.number, acquireCall{lock: name, try: opt.Wait == 0})
	lock, err := w.client.Acquire(ctx, name, opt)
	switch {
	case errors.Is(err, wire.ErrHeld):
		end(lockReply{held: true})
		return
	case err != nil:
		end(lockReply{unknown: true})
		t.Logf("client %d: %v", w.number, err)
		return
	}
	end(lockReply{token: lock.Token()})
	rest(ctx, time.Duration(w.rand.IntN(4))*time.Millisecond)
	end = w.history.Begin(w.number, releaseCall{lock: name, token: lock.Token()})
	err = lock.Release(ctx)
	end(lockReply{token: lock.Token(), unknown: err != nil})
	if err != nil {
		t.Logf("client %d: %v", w.number, err)
	}
}

// TestModelNoticesWrongHistories is the model's own negative control.
func TestModelNoticesWrongHistories(t *testing.T) {
	op := func(client int, in any, call, back int64, out lockReply) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back}
	}
	a := acquireCall{lock: "a"}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"one after the other": {[]porcupine.Operation{
			op(0, a, 0, 1, lockReply{token: 5}), op(0, releaseCall{"a", 5}, 2, 3, lockReply{}), op(1, a, 4, 5, lockReply{token: 7}),
		}, true},
		"two holders":      {[]porcupine.Operation{op(0, a, 0, 1, lockReply{token: 5}), op(1, a, 2, 3, lockReply{token: 7})}, false},
		"one token twice":  {[]porcupine.Operation{op(0, a, 0, 1, lockReply{token: 5}), op(0, releaseCall{"a", 5}, 2, 3, lockReply{}), op(1, a, 4, 5, lockReply{token: 5})}, false},
		"a token falls":    {[]porcupine.Operation{op(0, a, 0, 1, lockReply{token: 5}), op(0, releaseCall{"a", 5}, 2, 3, lockReply{}), op(1, a, 4, 5, lockReply{token: 4})}, false},
		"held by nobody":   {[]porcupine.Operation{op(0, a, 0, 1, lockReply{held: true})}, false},
		"held by somebody": {[]porcupine.Operation{op(0, a, 0, 1, lockReply{token: 5}), op(1, a, 2, 3, lockReply{held: true})}, true},
		"released by another token": {[]porcupine.Operation{
			op(0, a, 0, 1, lockReply{token: 5}), op(0, releaseCall{"a", 4}, 2, 3, lockReply{}),
		}, false},
		"a lost answer explains held": {[]porcupine.Operation{
			op(0, a, 0, math64, lockReply{unknown: true}), op(1, a, 2, 3, lockReply{held: true}),
		}, true},
	} {
		if got := porcupine.CheckOperations(lockModel(), c.history); got != c.want {
			t.Errorf("%s: linearizable %v, want %v", name, got, c.want)
		}
	}
}

const math64 = int64(^uint64(0) >> 1)
