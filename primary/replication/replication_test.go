// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary/throttle"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/wal"
)

// host is a primary without a volume: what it decides is committed at once.
type host struct {
	t     *testing.T
	r     *Replication
	wait  time.Duration // before a read
	mu    sync.Mutex
	table *locktable.Table
	at    wal.Position
}

// newHost makes a host that has committed one grant before its replication begins.
func newHost(t *testing.T, replicas map[cluster.ServerID]Link) *host {
	h := &host{t: t, table: locktable.New()}
	h.commit("first")
	h.r = New(h, Options{Epoch: 1, Replicas: replicas, Timing: cluster.DefaultTiming(), Log: zerolog.New(t.Output())})
	h.r.feed.begin(h.at, nil)
	return h
}

// CheckNow implements Host.
func (h *host) CheckNow() error { return nil }

// ReadTable implements Host.
func (h *host) ReadTable(_ context.Context, _ bool, f func(serving.View)) error {
	time.Sleep(h.wait)
	h.mu.Lock()
	defer h.mu.Unlock()
	f(serving.View{Table: h.table, At: h.at})
	return nil
}

// commit commits a grant of a lock in a frame of its own.
func (h *host) commit(lock string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	r := locktable.Record{LSN: h.at.LSN + 1, Epoch: 1, Kind: locktable.KindGrant, Client: "c", Request: cluster.RequestID(h.at.LSN + 1), Lock: cluster.LockName(lock), TTL: time.Minute}
	if err := h.table.Apply(&r); err != nil {
		h.t.Errorf("grant %s: %v", lock, err)
		return
	}
	header := r.AppendHeader(nil)
	before := h.at
	h.at = wal.Position{LSN: r.LSN, Chain: before.Chain.Next(header)}
	if h.r == nil {
		return
	}
	h.r.Add(before, h.at, wal.AppendFrame(nil, wal.FrameHeader{
		Kind: wal.FrameRecords, Elided: true, Epoch: 1, First: r.LSN, Count: 1, Chain: h.at.Chain,
	}, []wal.Entry{{Header: header}}))
}

// follower is a replica. hook, if it is set, comes before a push is taken.
type follower struct {
	r         *replica.Replica
	hook      func(push.Push)
	snapshots int
}

// Push implements Link.
func (f *follower) Push(_ context.Context, p push.Push) (push.Ack, error) {
	f.hook(p)
	if p.Chunk != nil && p.Chunk.Last {
		f.snapshots++
	}
	ack, _ := f.r.Push(p) // the answer is right nevertheless
	return ack, nil
}

// What was committed during a snapshot is kept until the replica has it, and not
// only until it has the snapshot.
func TestWhatFollowsASnapshotIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		f := &follower{r: replica.New()}
		flooded, after := false, 0
		f.hook = func(p push.Push) {
			switch {
			case p.Chunk != nil && p.Chunk.Last && !flooded:
				flooded = true
				for i := range 2 * feedBytes / 200 {
					h.commit(fmt.Sprintf("%s%d", strings.Repeat("x", 200), i))
				}
			case len(p.Frames) > 0 && flooded && after < 10:
				h.commit(fmt.Sprintf("l%d", after))
				after++
			}
		}
		h = newHost(t, map[cluster.ServerID]Link{2: f})
		ctx, stop := context.WithCancel(t.Context())
		go h.r.Run(ctx)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if !flooded || after < 10 || f.r.LSN() != h.at.LSN {
			t.Errorf("the replica is at LSN %d, committed is LSN %d", f.r.LSN(), h.at.LSN)
		}
		if f.snapshots != 1 {
			t.Errorf("it took %d snapshots", f.snapshots)
		}
		if h.r.feed.mu.snapshots != 0 {
			t.Error("there is no feed that holds nothing back")
		}
	})
}

// A replica where clients read gets one push after the other while there is something to send.
// One where none reads gets what was committed during a push and the pause after it as one push.
// No two pushes to a replica are under way at once.
func TestPushesAreGathered(t *testing.T) {
	for _, test := range []struct {
		read  bool
		pause time.Duration
	}{{read: true, pause: 0}, {read: false, pause: pushUnread}} {
		synctest.Test(t, func(t *testing.T) {
			const trip, took = time.Millisecond / 2, time.Second
			f := &follower{r: replica.New()}
			pushes, flying := 0, atomic.Int32{}
			f.hook = func(push.Push) {
				if pushes++; flying.Add(1) > 1 {
					t.Error("two pushes to one replica are under way")
				}
				time.Sleep(trip)
				flying.Add(-1)
				if test.read {
					f.r.Read(func(cluster.LSN, cluster.Epoch, time.Duration, *locktable.Table) {})
				}
			}
			h := newHost(t, map[cluster.ServerID]Link{2: f})
			ctx, stop := context.WithCancel(t.Context())
			go h.r.Run(ctx)
			for began := time.Now(); time.Since(began) < took; time.Sleep(trip / 5) {
				h.commit(fmt.Sprint(h.at.LSN))
			}
			time.Sleep(test.pause + 2*trip)
			stop()
			synctest.Wait()
			if want := int(took / (test.pause + trip)); pushes < want || pushes > want+10 {
				t.Errorf("clients read there: %v: %d pushes, want about %d", test.read, pushes, want)
			}
			if f.r.LSN() != h.at.LSN {
				t.Errorf("the replica is at LSN %d, committed is LSN %d", f.r.LSN(), h.at.LSN)
			}
		})
	}
}

// A chunk that waits for the owner of the table makes no rest longer.
func TestWaitingForTheCoreLoopIsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.wait = 10 * time.Millisecond
		e := &export{host: h, limit: throttle.New(nil, nil)}
		if _, err := e.ask(t.Context(), false, func(serving.View) { time.Sleep(2 * time.Millisecond) }); err != nil {
			t.Fatal(err)
		}
		if e.limit.Rest(); e.limit.Rested() != 6*time.Millisecond {
			t.Errorf("it rested %v after 2 ms of work and 10 ms of waiting, want 6 ms", e.limit.Rested())
		}
	})
}

// An export is the state at its beginning. The table forgets it at its end, or when it is given up.
func TestExportOfAHost(t *testing.T) {
	h := newHost(t, nil)
	for i := range 3 * exportChunk {
		h.commit(fmt.Sprintf("l%d", i))
	}
	x, _, err := h.r.Export(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h.commit("later")
	restored, err := locktable.Restore(x.At.LSN, x.Entities)
	if err != nil || restored.Hash() != x.Hash || restored.LSN() != h.table.LSN()-1 {
		t.Errorf("its entities make another state: %v", err)
	}
	_, stop, err := h.r.Export(t.Context(), nil)
	if n := h.table.Exporting(); err != nil || n != 1 {
		t.Fatalf("%d exports are under way, want the second: %v", n, err)
	}
	if stop(); h.table.Exporting() != 0 {
		t.Error("the table still keeps an export that was given up")
	}
}

// TestReplicasComeAndGo: a replica is fed from when it is named, and no more when it is not. Answers wait for one that counts when it has caught up,
// and for none that is gone.
func TestReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.PushAck, timing.PushAckTimeout = cluster.PushAckAll, time.Hour
		h := newHost(t, nil)
		stuck := make(chan struct{})
		two := &follower{r: replica.New(), hook: func(push.Push) {}}
		three := &follower{r: replica.New(), hook: func(push.Push) { <-stuck }}
		four := &follower{r: replica.New(), hook: func(push.Push) {}}
		h.r = New(h, Options{Epoch: 1, Replicas: map[cluster.ServerID]Link{2: two, 3: three}, Timing: timing, Log: zerolog.New(t.Output())})
		h.r.feed.begin(h.at, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go h.r.Run(ctx)
		answered := make(chan bool, 1)
		h.r.Hold(h.at.LSN, func(ok bool) { answered <- ok })
		time.Sleep(time.Second)
		if len(answered) != 0 {
			t.Error("an answer did not wait for a replica that counts")
		}
		h.r.Follow(map[cluster.ServerID]Replica{2: {two, true}, 4: {four, false}})
		time.Sleep(time.Second)
		if len(answered) != 1 {
			t.Error("an answer waits for a replica that is gone")
		}
		h.commit("second")
		time.Sleep(time.Second)
		if two.r.LSN() != h.at.LSN || four.r.LSN() != h.at.LSN {
			t.Errorf("replicas 2 and 4 are at LSN %d and %d, want %d", two.r.LSN(), four.r.LSN(), h.at.LSN)
		}
		if w := h.r.Waited(); len(w) != 1 || !w[2] {
			t.Errorf("answers wait for %v: one joins", w)
		}
		h.r.Follow(map[cluster.ServerID]Replica{4: {four, true}})
		if w := h.r.Waited(); len(w) != 1 || w[4] {
			t.Errorf("answers wait for %v at once", w)
		}
		time.Sleep(2 * time.Second)
		if w := h.r.Waited(); len(w) != 1 || !w[4] {
			t.Errorf("answers wait for %v, when it has caught up", w)
		}
		before := two.r.LSN()
		h.commit("third")
		time.Sleep(time.Second)
		if two.r.LSN() != before || four.r.LSN() != h.at.LSN {
			t.Errorf("replica 2 was removed at LSN %d and is at %d; 4 is at %d, want %d", before, two.r.LSN(), four.r.LSN(), h.at.LSN)
		}
		stop()
		close(stuck)
		synctest.Wait()
	})
}
