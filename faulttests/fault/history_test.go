// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

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
	read(t, c, h)
	var report check.Report
	v := h.Check(check.HistoryOptions{Limit: checkLimit, Pictures: t.ArtifactDir(), Landed: landed(c)}, &report)
	t.Logf("%+v over %d kills", v, n.Primaries)
	if v.Operations < 500 {
		t.Errorf("only %d operations: a run in which nothing happens proves nothing", v.Operations)
	}
	for _, bad := range report.Violations() {
		t.Error(bad)
	}
}

// historyFile is the protected file of a lock in the history.
func historyFile(lock hf.LockName) hf.FileName { return hf.FileName(lock + ".txt") }

// read adds to the history what is in the files in the end.
func read(t *testing.T, c *cluster.Cluster, h *check.History) {
	t.Helper()
	for i := range historyLocks {
		lock := hf.LockName(fmt.Sprintf("lock/%d", i))
		end := h.Begin(historyClients, check.ReadCall{Lock: lock})
		b, err := os.ReadFile(c.File(string(historyFile(lock))))
		if err != nil {
			t.Errorf("I5: %v", err)
		}
		end(check.Reply{Length: int64(len(b)), Sum: crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))})
	}
}

// landed finds appends without an answer in the files.
func landed(c *cluster.Cluster) func(check.AppendCall) (int64, bool) {
	return func(a check.AppendCall) (int64, bool) {
		b, err := os.ReadFile(c.File(string(historyFile(a.Lock))))
		i := bytes.Index(b, a.Data)
		return int64(i), err == nil && i >= 0
	}
}

// locker is one client of the history.
type locker struct {
	client  *clientlib.Client
	number  int
	history *check.History
	rand    *rand.Rand
	lines   int // appended so far
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
	w.append(ctx, t, lock)
	w.show(ctx, t, name)
	end = w.history.Begin(w.number, check.ReleaseCall{Lock: name, Token: lock.Token()})
	err = lock.Release(ctx)
	end(check.Reply{Unknown: err != nil})
	if err != nil {
		t.Logf("client %d: %v", w.number, err)
	}
}

// append appends a line that nobody else does.
func (w *locker) append(ctx context.Context, t *testing.T, lock *clientlib.Lock) {
	w.lines++
	data := fmt.Appendf(nil, "client %d, line %d.\n", w.number, w.lines)
	end := w.history.Begin(w.number, check.AppendCall{Lock: lock.Name(), Token: lock.Token(), Data: data})
	r, err := lock.Append(ctx, historyFile(lock.Name()), data)
	end(check.Reply{Offset: r.Offset, Unknown: err != nil})
	if err != nil {
		t.Logf("client %d: %v", w.number, err)
	}
}

// show asks who holds the lock, which is not always this client's own.
func (w *locker) show(ctx context.Context, t *testing.T, name hf.LockName) {
	if w.rand.IntN(4) == 0 {
		name = hf.LockName(fmt.Sprintf("lock/%d", w.rand.IntN(historyLocks)))
	}
	end := w.history.Begin(w.number, check.ShowCall{Lock: name})
	info, err := w.client.Get(ctx, name)
	if err != nil {
		end(check.Reply{Unknown: true})
		t.Logf("client %d: %v", w.number, err)
		return
	}
	r := check.Reply{Length: 0}
	if info.Holder != nil {
		r.Token = info.Holder.Token
	}
	for _, f := range info.Files {
		r.Length = f.End
	}
	end(r)
}
