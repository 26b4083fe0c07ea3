// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

var electionSeeds = flag.Int("sim.elections", 2, "how many seeds of elections to run")

const (
	candidateTTL   = 6 * time.Second
	candidateGrace = 1500 * time.Millisecond
)

// terms judges who leads, by one clock.
type terms struct {
	t *testing.T

	mu     sync.Mutex
	all    []*leader.Leadership
	begun  []time.Time
	newest *candidate
}

// begin notes a new leader: no other may lead any more, and its token is the highest.
func (x *terms) begin(m *candidate, l *leader.Leadership) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newest = m
	for i, old := range x.all {
		if old.Context().Err() == nil && l.Context().Err() == nil {
			x.t.Errorf("token %d leads and token %d, since %v, does too", l.Token(), old.Token(), time.Since(x.begun[i]))
		}
		if old.Token() >= l.Token() {
			x.t.Errorf("token %d leads after token %d", l.Token(), old.Token())
		}
	}
	x.all, x.begun = append(x.all, l), append(x.begun, time.Now())
}

func (x *terms) last() (token cluster.Token, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n = len(x.all); n > 0 {
		token = x.all[n-1].Token()
	}
	return token, n
}

// candidate is one that campaigns for as long as ctx lasts. Its work takes almost all of
// its grace to stop.
type candidate struct {
	*machine
	slept atomic.Bool // from then on its work may overrun
}

func (m *candidate) run(ctx context.Context, t *testing.T, x *terms, rng *rand.Rand) error {
	e, err := leader.NewElection(m.client, "svc", leader.Options{TTL: candidateTTL, Grace: candidateGrace, OnOverrun: func(l *leader.Leadership) {
		if !m.slept.Load() {
			t.Errorf("token %d: the work overran %v after it was told to stop", l.Token(), context.Cause(l.Context()))
		}
	}})
	if err != nil {
		return err
	}
	term := 4*candidateTTL + time.Duration(rng.IntN(int(4*candidateTTL)))
	return e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
		x.begin(m, l)
		select {
		case <-ctx.Done():
			// A machine's clock may go faster than its timers.
			time.Sleep(min(candidateGrace*98/100, time.Until(l.Deadline())))
		case <-time.After(term): // it resigns
		}
		return nil
	})
}

// TestElections lets candidates on machines with clocks of their own lead over faults of
// servers, cuts and machines that sleep: at most one leads at any moment.
func TestElections(t *testing.T) {
	scenarios(t, *electionSeeds, electionScenario)
}

// scenarios tells one with each seed from the first on, in a bubble each.
func scenarios(t *testing.T, seeds int, tell func(t *testing.T, seed uint64)) {
	for seed := *first; seed < *first+uint64(seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tell(t, seed) })
		})
	}
}

func electionScenario(t *testing.T, seed uint64) {
	const candidates, faults = 4, 12
	c := electionCluster(t, seed)
	c.one(t, "start")
	f := newFronts(c)
	x := &terms{t: t}
	ctx, stop := context.WithCancel(context.Background())
	var all []*candidate
	var ended sync.WaitGroup
	for i := range candidates {
		m := &candidate{machine: f.machine(t)}
		all = append(all, m)
		ended.Go(func() {
			if err := m.run(ctx, t, x, rand.New(rand.NewPCG(seed, uint64(i)))); ctx.Err() == nil {
				t.Errorf("candidate %d gave up: %v", i, err)
			}
		})
	}
	var scenario []string
	watching := &watchman{machine: f.machine(t)}
	ended.Go(func() { watching.run(ctx, t) })
	for range faults {
		time.Sleep(time.Duration(c.Rand.IntN(6000)) * time.Millisecond)
		name, heal := f.draw(t, all, x)
		scenario = append(scenario, name)
		time.Sleep(time.Duration(c.Rand.IntN(10000)) * time.Millisecond)
		heal()
		c.one(t, name)
	}
	_, before := x.last()
	time.Sleep(healing + 10*candidateTTL)
	if token, n := x.last(); n == before {
		t.Errorf("when all is well nobody has led after token %d", token)
	}
	watching.judge(t, x)
	stop()
	ended.Wait()
	for _, m := range all {
		m.client.Close() //nolint:errcheck // it cannot fail
	}
	watching.client.Close() //nolint:errcheck // it cannot fail
	c.Shutdown()
	_, n := x.last()
	t.Logf("%d terms, over: %s", n, strings.Join(scenario, ", "))
}

// electionCluster is three servers that run.
func electionCluster(t *testing.T, seed uint64) *Cluster {
	t.Helper()
	disk := volumetest.New(seed)
	s := newScenario(t, disk, volumetest.ProfileLocal())
	s.Random, s.Clocks = chacha(seed), seed
	members := cluster.Members{memberAt(1), memberAt(2), memberAt(3)}
	if _, err := volume.Init(t.Context(), disk.Host(9, s.Profile), members, chacha(seed+1)); err != nil {
		t.Fatal(err)
	}
	c := NewCluster(s, rand.New(rand.NewPCG(seed, 4)))
	for _, m := range members {
		if err := c.Start(m.ID); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// leader is who led last, or another one.
func (x *terms) leader(other *candidate) *candidate {
	x.mu.Lock()
	defer x.mu.Unlock()
	return cmp.Or(x.newest, other)
}

// draw injects a fault of a server, a machine or the way between, and returns what heals it.
func (f *fronts) draw(t *testing.T, all []*candidate, x *terms) (name string, heal func()) {
	m := all[f.c.Rand.IntN(len(all))]
	if f.c.Rand.IntN(2) == 0 {
		m = x.leader(m)
	}
	id := cluster.ServerID(1 + f.c.Rand.IntN(3))
	switch f.c.Rand.IntN(6) {
	case 0:
		m.net.Cut()
		return "cut a machine off", m.net.Mend
	case 1: // all of them, whoever leads is among them
		for _, m := range all {
			m.net.Cut()
		}
		return "cut all machines off", func() {
			for _, m := range all {
				m.net.Mend()
			}
		}
	case 2: // it is stopped, as far as anybody can see
		gate := f.c.Hang(id)
		f.c.Net.Isolate(id, true)
		f.gates[id].Cut()
		return fmt.Sprintf("stop server %d", id), func() {
			gate.Resume()
			f.c.Net.Heal()
			f.gates[id].Mend()
		}
	case 3:
		m.slept.Store(true)
		m.net.Cut() // while it sleeps nothing reaches it
		m.clock.sleep(time.Duration(f.c.Rand.IntN(3600)) * time.Second)
		return "a machine sleeps", m.net.Mend
	default:
		return f.c.draw(t)
	}
}

// watchman observes all the time.
type watchman struct {
	*machine
	mu   sync.Mutex
	told []leader.Info
}

func (w *watchman) run(ctx context.Context, t *testing.T) {
	e, err := leader.NewElection(w.client, "svc", leader.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil { // an outage may be longer than the Budget
		for l, err := range e.Observe(ctx) {
			if err != nil {
				break
			}
			w.mu.Lock()
			w.told = append(w.told, l)
			w.mu.Unlock()
		}
	}
}

// judge wants what was told to be who led, in order, and the last to be true.
func (w *watchman) judge(t *testing.T, x *terms) {
	e, err := leader.NewElection(w.client, "svc", leader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	is, err := e.Leader(t.Context())
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.told[len(w.told)-1]; last.Token != is.Token || err != nil {
		t.Errorf("the last that was told is %+v, and it is %+v, %v", last, is, err)
	}
	var top cluster.Token
	for _, l := range w.told {
		if l.Present() && l.Token < top {
			t.Errorf("token %d was told after token %d", l.Token, top)
		}
		top = max(top, l.Token)
	}
	t.Logf("%d changes were told", len(w.told))
}

var _ clientlib.Clock = (*driftingClock)(nil)
