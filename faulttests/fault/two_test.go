// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// ofTwoSoon bounds how long the other one of two servers may take to be primary: three beats of the canary, and what a busy machine needs.
const ofTwoSoon = 8 * time.Second

// battleOfTwo is one with two servers.
func battleOfTwo(t *testing.T, opt cluster.Options) *battle {
	t.Helper()
	opt.Servers = 2
	b := newBattleOn(t, cluster.Start(t, opt), sourceText(t, 2<<20), 3, *faultSeed)
	for _, w := range b.workers {
		w.Pace = 30 * time.Millisecond
	}
	return b
}

// awaitOther waits until the other one of two servers is primary, and returns its epoch.
func (b *battle) awaitOther(t *testing.T, than *cluster.Server, behind hf.Epoch) (epoch hf.Epoch, took time.Duration) {
	t.Helper()
	began := time.Now()
	other := b.c.Server(3 - than.Member.ID)
	cluster.Await(t, cluster.Patience, "the other one of two servers to be primary", func() bool {
		own, err := other.PrimaryEpoch(t.Context())
		epoch = hf.Epoch(own)
		return err == nil && epoch > behind
	})
	return epoch, time.Since(began)
}

// TestEachOfTwo ends each of two servers in turn, by SIGKILL and by SIGSTOP: the other one follows after seconds, and the primary does
// not notice that its replica is gone.
func TestEachOfTwo(t *testing.T) {
	needFaults(t)
	b := battleOfTwo(t, options())
	_, stop := b.work(t.Context())
	var killed, paused []time.Duration
	for round := range 8 {
		b.c.AwaitReplicas(cluster.Patience)
		traffic.Rest(t.Context(), time.Duration(200+137*round)*time.Millisecond)
		p, epoch := b.awaitTerm(t, 0)
		replica := b.c.Server(3 - p.Member.ID)
		b.nemesis.kill(replica)
		traffic.Rest(t.Context(), 3*time.Second)
		if now, err := p.PrimaryEpoch(t.Context()); err != nil || hf.Epoch(now) != epoch {
			t.Errorf("the replica is gone, and epoch %d became %d (%v)", epoch, now, err)
		}
		replica.Start()
		b.c.AwaitReplicas(cluster.Patience)
		if round%2 == 0 {
			b.strike(strikePrimary, epoch)
			b.nemesis.kill(p)
			b.nemesis.Primaries++
			_, took := b.awaitOther(t, p, epoch)
			killed = append(killed, took)
			p.Start()
			continue
		}
		b.strike("SIGSTOP", epoch)
		p.Stop()
		_, took := b.awaitOther(t, p, epoch)
		paused = append(paused, took)
		p.Cont()
	}
	b.c.AwaitReplicas(cluster.Patience)
	stop()
	b.end(t)
	for what, all := range map[string][]time.Duration{"killed": killed, "stopped": paused} {
		slices.Sort(all)
		t.Logf("primary %s: the other one is primary after %v (median), %v (longest)", what, all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
		if longest := all[len(all)-1]; longest > ofTwoSoon {
			t.Errorf("I15: primary %s: the other one needed %v", what, longest)
		}
	}
}

// TestCutBetweenTwo cuts the network between two servers, and leaves it so: the primary goes on, nobody claims, and clients are served.
// When it then dies, the other one follows, and keeps its term when the first one is back.
func TestCutBetweenTwo(t *testing.T) {
	needFaults(t)
	if !cluster.Inside(t, "-faults.binary="+*binaryToTest) {
		return
	}
	opt := options()
	opt.Net = cluster.NewNet(t)
	b := battleOfTwo(t, opt)
	_, stop := b.work(t.Context())
	b.c.AwaitReplicas(cluster.Patience)
	traffic.Rest(t.Context(), time.Second)
	old, epoch := b.awaitTerm(t, 0)
	opt.Net.Cut(1, 2)
	opt.Net.Cut(2, 1)
	stays := func(what string, claims hf.Epoch) {
		t.Helper()
		began := time.Now()
		terms := b.watch(t, 20*time.Second)
		if now := lastClaim(t, b.c); len(terms) != 1 || now != claims {
			t.Errorf("I15: %s: primaries %v, epoch %d claimed, want one and %d", what, terms, now, claims)
		}
		partition{}.judgeService(t, b.ledger, began, time.Now().Add(-2*time.Second)) // the last moments stand for the time after it
	}
	stays("cut", epoch)
	lone := b.c.Server(3 - old.Member.ID)
	if s, err := lone.Status(t.Context()); err != nil || !strings.Contains(strings.Join(s.Servers[lone.Member.ID-1].Volume.Warnings, "; "), "writes to the volume as primary") {
		t.Errorf("the server that is cut off says %+v, %v", s.Servers, err)
	}
	b.strike("SIGKILL behind a cut", epoch)
	b.nemesis.kill(old)
	b.nemesis.Primaries++
	next, took := b.awaitOther(t, old, epoch)
	t.Logf("behind the cut the other one is primary after %v", took.Round(time.Millisecond))
	old.Start()
	stays("the first one is back, and cut off", next)
	opt.Net.MendAll()
	b.c.AwaitReplicas(cluster.Patience)
	traffic.Rest(t.Context(), time.Second)
	if _, now := b.awaitTerm(t, 0); now != next {
		t.Errorf("mended, epoch %d became %d", next, now)
	}
	stop()
	b.end(t)
}

// TestTakeoverOfTheLastServer has an operator permit the last of three servers to serve.
func TestTakeoverOfTheLastServer(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	says := func(want string, args ...string) error {
		t.Helper()
		out, err := c.Run(args...)
		if !strings.Contains(out, want) {
			t.Errorf("holdfast %s: %v, %s; want %q", strings.Join(args, " "), err, out, want)
		}
		return err
	}
	if says("gone for good", "takeover") == nil {
		t.Error("takeover needs no --yes")
	}
	cluster.Await(t, cluster.Patience, "server 3 to hear of the primary", func() bool {
		body, err := c.Server(3).Status(t.Context())
		return err == nil && body.Primary != nil
	})
	if says("is primary, and there is nothing to take over", "takeover", "--yes", "--server", "3") == nil {
		t.Error("a takeover beside a primary is done")
	}
	if out, err := c.Run("acquire", "a", "--ttl", "5m"); err != nil {
		t.Errorf("acquire: %v, %s", err, out)
	}
	c.Server(1).Kill()
	c.Server(2).Kill()
	traffic.Rest(t.Context(), 8*time.Second)
	if p, epoch := c.Primary(t.Context()); p != nil {
		t.Fatalf("one of three is primary in epoch %d", epoch)
	}
	says("holdfast takeover --yes", "status")
	began := time.Now()
	if err := says("server 3 is primary, without a majority", "takeover", "--yes", "--reason", "the others burned"); err != nil {
		t.Fatal(err)
	}
	t.Logf("it is primary %v after it was permitted", time.Since(began).Round(time.Millisecond))
	says("server 3 is primary", "status")
	says("a", "ls")
	traffic.Rest(t.Context(), 5*time.Second)
	if p, _ := c.Primary(t.Context()); p == nil {
		t.Error("it is not primary five seconds later")
	}
	cluster.Await(t, cluster.Patience, "the audit to tell of it", func() bool {
		out, err := c.Run("audit", "--volume", c.Dir(), "-o", "json")
		return err == nil && strings.Contains(out, `"takeover"`) && strings.Contains(out, "the others burned")
	})
	c.StartAll()
	c.AwaitReplicas(cluster.Patience)
	c.TermAll()
	if _, err := c.Fsck(); err != nil {
		t.Error(err)
	}
}
