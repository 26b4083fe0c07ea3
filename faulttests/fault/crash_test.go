// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// during runs clients under what f does, then judges.
func during(t *testing.T, f func(*battle)) *battle {
	t.Helper()
	b := newBattle(t, sourceText(t, 2<<20), 4, *faultSeed)
	_, stop := b.work(t.Context())
	f(b)
	stop()
	b.end(t)
	return b
}

// awaitTerm waits for a primary of a later epoch, and returns it and its epoch.
func (b *battle) awaitTerm(t *testing.T, behind hf.Epoch) (*cluster.Server, hf.Epoch) {
	t.Helper()
	p, epoch, ok := b.nemesis.primary(t.Context(), behind)
	if !ok {
		t.Fatalf("I15: no primary of an epoch behind %d within %v", behind, cluster.Patience)
	}
	return p, epoch
}

func (b *battle) strike(kind string, epoch hf.Epoch) {
	b.nemesis.Strikes = append(b.nemesis.Strikes, check.Strike{Kind: kind, At: time.Now(), Epoch: epoch})
}

// TestCrashPrimary kills the primary ten times, with all servers up each time.
func TestCrashPrimary(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		for range 10 {
			b.c.AwaitReplicas(cluster.Patience)
			traffic.Rest(t.Context(), 300*time.Millisecond)
			p, epoch := b.awaitTerm(t, 0)
			b.strike(strikePrimary, epoch)
			b.nemesis.kill(p)
			b.nemesis.Primaries++
			b.awaitTerm(t, epoch)
			b.c.StartAll()
		}
	})
}

// TestCrashEach kills each server in turn and starts it again.
func TestCrashEach(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		for range 2 {
			for _, s := range b.c.Servers() {
				if p, epoch := b.awaitTerm(t, 0); p == s {
					b.strike("each in turn", epoch)
				}
				b.nemesis.kill(s)
				traffic.Rest(t.Context(), 500*time.Millisecond)
				b.awaitTerm(t, 0)
				s.Start()
				b.c.AwaitReplicas(cluster.Patience)
			}
		}
	})
}

// TestCrashAll kills all three at once, and starts them in every order.
func TestCrashAll(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		for _, order := range [][]hf.ServerID{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
			_, epoch := b.awaitTerm(t, 0)
			b.strike(strikeAll, epoch)
			b.c.KillAll()
			b.nemesis.Kills += 3
			for _, id := range order {
				traffic.Rest(t.Context(), 100*time.Millisecond)
				b.c.Server(id).Start()
			}
			b.awaitTerm(t, epoch)
			traffic.Rest(t.Context(), 500*time.Millisecond)
		}
	})
}

// TestHandover stops the primary in good order, again and again: it hands over.
func TestHandover(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		for range 6 {
			b.c.AwaitReplicas(cluster.Patience)
			p, epoch := b.awaitTerm(t, 0)
			b.strike("SIGTERM", epoch)
			p.Term()
			b.awaitTerm(t, epoch)
			p.Start()
		}
	})
}

// TestStutters freezes one server after the other for a moment, shorter and
// longer than the suspicion.
func TestStutters(t *testing.T) {
	needFaults(t)
	random := rand.New(rand.NewPCG(*faultSeed, 99))
	during(t, func(b *battle) {
		for range 15 {
			s := b.c.Servers()[random.IntN(3)]
			if p, _ := b.awaitTerm(t, 0); random.IntN(2) == 0 {
				s = p
			}
			s.Stop()
			traffic.Rest(t.Context(), time.Duration(50+random.IntN(1400))*time.Millisecond)
			s.Cont()
			traffic.Rest(t.Context(), time.Duration(random.IntN(600))*time.Millisecond)
		}
		b.c.AwaitReplicas(cluster.Patience)
	})
}
