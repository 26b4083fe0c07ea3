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
	"github.com/holdfast-lock/holdfast/faulttests/check"
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
	h := check.NewHistory()
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
	linearizable(t, all)
}

func linearizable(t *testing.T, all []porcupine.Operation) {
	t.Helper()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(check.LockModel(), all, checkLimit)
	t.Logf("porcupine: %s after %v", result, time.Since(began).Round(time.Millisecond))
	if result == porcupine.Ok {
		return
	}
	picture := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(check.LockModel(), info, picture); err != nil {
		t.Logf("visualize: %v", err)
	}
	t.Errorf("the history is not linearizable: %s, see %s", result, picture)
}

// locker is one client of the history.
type locker struct {
	client  *clientlib.Client
	number  int
	history *check.History
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
	end := w.history.Begin(w.number, check.AcquireCall{Lock: name, Try: opt.Wait == 0})
	lock, err := w.client.Acquire(ctx, name, opt)
	switch {
	case errors.Is(err, wire.ErrHeld):
		end(check.Reply{Held: true})
		return
	case err != nil:
		end(check.Reply{Unknown: true})
		t.Logf("client %d: %v", w.number, err)
		return
	}
	end(check.Reply{Token: lock.Token()})
	rest(ctx, time.Duration(w.rand.IntN(4))*time.Millisecond)
	end = w.history.Begin(w.number, check.ReleaseCall{Lock: name, Token: lock.Token()})
	err = lock.Release(ctx)
	end(check.Reply{Token: lock.Token(), Unknown: err != nil})
	if err != nil {
		t.Logf("client %d: %v", w.number, err)
	}
}
