// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/primary/replication"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// follower is a replica that knows where it stands and nothing else.
type follower struct {
	mu        sync.Mutex
	at        wal.Position
	snapshots int
	// hook, if set, comes before a message is taken in.
	hook func(push.Push)
}

// Push implements replication.Link.
func (f *follower) Push(_ context.Context, p push.Push) (push.Ack, error) {
	if f.hook != nil {
		f.hook(p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	coming := 0
	switch {
	case p.Chunk != nil && p.Chunk.Last:
		f.snapshots, f.at = f.snapshots+1, p.Chunk.At
	case p.Chunk != nil:
		coming = p.Chunk.Offset + len(p.Chunk.Bytes)
	case p.Before == f.at:
		for b := p.Frames; len(b) > 0; {
			h, _, n, err := wal.DecodeFrame(b)
			if err != nil {
				return push.Ack{}, err
			}
			f.at, b = wal.Position{LSN: h.Last(), Chain: h.Chain}, b[n:]
		}
	}
	return push.Ack{At: f.at, Epoch: p.Epoch, Chunk: coming}, nil
}

// stands is where the follower stands, and how many snapshots it took.
func (f *follower) stands() (cluster.LSN, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at.LSN, f.snapshots
}

// flood grants locks with long names to n clients.
func (x *term) flood(n int) {
	var wg sync.WaitGroup
	for i := range n {
		client := cluster.ClientID(fmt.Sprintf("c%d", i))
		wg.Go(func() { x.ok(acquire(client, 1, cluster.LockName(strings.Repeat("x", 200)+string(client)), 0)) })
	}
	wg.Wait()
}

// laggard is a replica that hears nothing for a while.
type laggard struct {
	r    *replica.Replica
	deaf atomic.Bool
	took atomic.Int64    // chunks
	then func(push.Push) // after each push, if it is set
}

// Push implements replication.Link.
func (l *laggard) Push(_ context.Context, p push.Push) (push.Ack, error) {
	if l.deaf.Load() {
		return push.Ack{}, errors.New("deaf")
	}
	if p.Chunk != nil {
		l.took.Add(1)
	}
	ack, _ := l.r.Push(p) // the answer is right nevertheless
	if l.then != nil {
		l.then(p)
	}
	return ack, nil
}

// A replica that lacks the last frames of a term gets them from the next one, and
// no snapshot: that of a large table takes a minute.
func TestReplicaThatLagsBehindAnOlderTermGetsItsFrames(t *testing.T) {
	for _, warm := range []bool{false, true} {
		t.Run(fmt.Sprintf("warm %v", warm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				l := &laggard{r: replica.New()}
				x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{Replicas: map[cluster.ServerID]replication.Link{3: l}})
				token := x.ok(acquire("c1", 1, "before", 0)).Token
				x.ok(&locktable.Request{Client: "c1", ID: 2, Op: locktable.OpBind, Lock: "before", Token: token, File: "f"})
				x.eventually("replica that stands where the primary does", func() bool { return l.r.LSN() == x.p.LSN() })
				first := l.took.Load()
				l.deaf.Store(true)
				s, err := x.p.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					x.ok(acquire("c2", cluster.RequestID(i+1), cluster.LockName(fmt.Sprint(i)), 0))
					x.ok(appendTo("c1", cluster.RequestID(i+3), "before", token, "f", "data"))
				}
				x.kill()
				l.deaf.Store(false)
				o := primary.Options{Replicas: map[cluster.ServerID]replication.Link{3: l}}
				if warm {
					o.Warm = &volume.WarmState{At: s.At, Table: s.Table}
				}
				y := serveLarge(t, d.Host(2, volumetest.ProfileLocal()), 2, o)
				defer y.end()
				y.eventually("replica that stands where the next primary does", func() bool { return l.r.LSN() == y.p.LSN() })
				if n := l.took.Load() - first; n > 0 {
					t.Errorf("it took %d chunks", n)
				}
				y.ok(acquire("c3", 1, "behind", 0))
				y.eventually("replica that goes on", func() bool { return l.r.LSN() == y.p.LSN() })
			})
		})
	}
}

// A replica whose own term ended takes its table back while the next primary sends it a snapshot:
// the rest of that is not sent, and what follows the table is.
func TestASnapshotEndsWhereTheReplicaHasItsTableAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		x.flood(3 * push.ChunkSize / 200) // the names alone are three chunks
		if err := x.p.Resign(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
		x.end() //nolint:errcheck // it has ended
		w := x.p.Warm()
		if w == nil {
			t.Fatal("no table is left")
		}
		r := replica.New()
		r.HandOver(x.p.Epoch())
		l := &laggard{r: r}
		var once sync.Once
		l.then = func(p push.Push) {
			if p.Chunk != nil {
				once.Do(func() { r.TakeBack(w, true) })
			}
		}
		y := serveLarge(t, d.Host(2, volumetest.ProfileLocal()), 2, primary.Options{Replicas: map[cluster.ServerID]replication.Link{1: l}})
		defer y.end() //nolint:errcheck // it is stopped
		y.ok(acquire("c", 1, "next", 0))
		y.eventually("replica that stands where the primary does", func() bool { return r.LSN() == y.p.LSN() })
		if n := l.took.Load(); n > 2 {
			t.Errorf("it took %d chunks", n)
		}
		if !r.Read(func(_ cluster.LSN, epoch cluster.Epoch, _ time.Duration, table *locktable.Table) {
			if table != w.Table || epoch != y.p.Epoch() {
				t.Errorf("it has its own table: %v, of epoch %d", table == w.Table, epoch)
			}
		}) {
			t.Error("its table is not read")
		}
	})
}

// A replica that has heard of a later term is a reason to look at once.
func TestReplicaThatKnowsAHigherEpochIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		f := &higher{}
		x := serve(t, d, 1, primary.Options{Replicas: map[cluster.ServerID]replication.Link{2: f}})
		defer x.end()                       //nolint:errcheck // it is fenced
		time.Sleep(1500 * time.Millisecond) // between two looks of its own
		x.ok(acquire("c1", 1, "l", 0))      // and long before the next push
		time.Sleep(600 * time.Millisecond)
		v, r := primarytest.Claim(t, d.Host(2, volumetest.ProfileLocal()), volume.Options{Server: 2, FirstSegment: 32 << 10, Segment: 64 << 10})
		defer v.Close() //nolint:errcheck // it only claimed
		if _, err := r.FenceOlder(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.epoch.Store(uint64(r.Epoch()))
		if x.p.State() != primary.StateServing {
			t.Fatal("it has looked already")
		}
		time.Sleep(600 * time.Millisecond)
		if x.p.State() != primary.StateEnded {
			t.Error("it serves on: it hears of a later term and does not look")
		}
	})
}

// higher is a follower that has heard of an epoch.
type higher struct {
	follower
	epoch atomic.Uint64
}

// Push implements replication.Link.
func (h *higher) Push(ctx context.Context, p push.Push) (push.Ack, error) {
	ack, err := h.follower.Push(ctx, p)
	ack.Epoch = max(ack.Epoch, cluster.Epoch(h.epoch.Load()))
	return ack, err
}

// stamped is a replica that says when it heard, by a clock of its own.
type stamped struct {
	follower
	clock, told atomic.Uint64 // told is the stamp that came back last
	asked       atomic.Int32  // how often it was asked for one
	restarts    atomic.Bool
}

// Push implements replication.Link.
func (s *stamped) Push(ctx context.Context, p push.Push) (push.Ack, error) {
	if s.restarts.CompareAndSwap(true, false) {
		return push.Ack{}, errors.New("it restarts")
	}
	s.told.Store(p.Stamp)
	if p.Asks {
		s.asked.Add(1)
	}
	ack, err := s.follower.Push(ctx, p)
	ack.Stamp = s.clock.Add(1)
	return ack, err
}

// A replica that restarted and lacks nothing learns at once how old that may be, and not with
// the next thing that happens.
func TestARestartedReplicaIsToldItsStampAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stamped{follower: follower{at: wal.Position{Chain: 1}}}
		x := serve(t, newDisk(t), 1, primary.Options{Replicas: map[cluster.ServerID]replication.Link{2: s}})
		defer x.end() //nolint:errcheck // it is stopped
		x.eventually("stamp", func() bool { return s.told.Load() > 0 })
		before := s.asked.Load()
		s.restarts.Store(true)
		x.eventually("question", func() bool { return s.asked.Load() > before })
		time.Sleep(500 * time.Millisecond) // nothing happens
		if s.told.Load() == 0 {
			t.Error("it was asked where it stands, and told no stamp")
		}
	})
}
