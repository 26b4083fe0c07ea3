// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// partition is one fault of the network, which lasts without a change. The
// volume stays within reach of everybody.
type partition struct {
	name string
	cut  func(n *cluster.Net, primary, one, two hf.ServerID) // the others are replicas
	last time.Duration
	// term is what must become of the primary's.
	term outcome
	// silent says that clients reach nobody who serves.
	silent bool
}

// outcome is what becomes of the term that a partition befalls, for as long as it lasts.
type outcome int

const (
	stays   outcome = iota // nobody even claims
	moves                  // another server is primary, after one claim or two
	ends                   // it ends and no server is primary
	anybody                // whoever it is, clients are served
)

func partitions() []partition {
	const permanent = 20 * time.Second
	return []partition{
		{"primary isolated", func(n *cluster.Net, p, _, _ hf.ServerID) { n.Isolate(p) }, permanent, moves, false},
		{"replica isolated", func(n *cluster.Net, _, r, _ hf.ServerID) { n.Isolate(r) }, permanent, stays, false},
		{"primary to one replica", func(n *cluster.Net, p, r, _ hf.ServerID) { n.Cut(p, r) }, permanent, stays, false},
		{"one replica to primary", func(n *cluster.Net, p, r, _ hf.ServerID) { n.Cut(r, p) }, permanent, stays, false},
		{"primary to both replicas", func(n *cluster.Net, p, r, q hf.ServerID) { n.Cut(p, r); n.Cut(p, q) }, permanent, moves, false},
		{"both replicas to primary", func(n *cluster.Net, p, r, q hf.ServerID) { n.Cut(r, p); n.Cut(q, p) }, permanent, moves, false},
		{"primary and one replica", func(n *cluster.Net, p, r, _ hf.ServerID) { n.Cut(p, r); n.Cut(r, p) }, permanent, stays, false},
		{"in a ring", func(n *cluster.Net, p, r, q hf.ServerID) { n.Cut(p, r); n.Cut(r, q); n.Cut(q, p) }, 10 * time.Second, ends, true},
		{"between replicas", func(n *cluster.Net, _, r, q hf.ServerID) { n.Cut(r, q); n.Cut(q, r) }, permanent, stays, false},
		{"everybody isolated", func(n *cluster.Net, p, r, q hf.ServerID) { n.Isolate(p); n.Isolate(r); n.Isolate(q) }, 14 * time.Second, ends, true},
		{"clients to primary", func(n *cluster.Net, p, _, _ hf.ServerID) { n.CutClients(p) }, 6 * time.Second, stays, true},
		{"loses 10 percent", lossy(0.10), 10 * time.Second, anybody, false},
		{"loses 20 percent", lossy(0.20), 10 * time.Second, anybody, false},
		{"loses 30 percent", lossy(0.30), 10 * time.Second, anybody, false},
	}
}

// lossy makes the way between any two servers lose about this share of its
// packets, half of it where they are sent, half where they come; that to clients, half.
func lossy(share float64) func(*cluster.Net, hf.ServerID, hf.ServerID, hf.ServerID) {
	return func(n *cluster.Net, p, r, q hf.ServerID) {
		for _, id := range []hf.ServerID{p, r, q} {
			n.Lose(id, share/2)
		}
	}
}

// TestPartitions cuts the network between real servers in every way that keeps
// the volume, and leaves it so: one stable primary, served clients, nothing lost.
func TestPartitions(t *testing.T) {
	needFaults(t)
	if !cluster.Inside(t, "-faults.binary="+*binaryToTest, fmt.Sprintf("-faults.seed=%d", *faultSeed), "-test.parallel=5") {
		return
	}
	lines := sourceText(t, 2<<20)
	for _, row := range partitions() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // they mostly wait, each on a network of its own
			row.run(t, lines)
		})
	}
}

func (row partition) run(t *testing.T, lines [][]byte) {
	opt := options()
	opt.Net = cluster.NewNet(t)
	b := newBattleOn(t, cluster.Start(t, opt), lines, 3, *faultSeed)
	for _, w := range b.workers {
		w.Pace = 30 * time.Millisecond
	}
	_, stop := b.work(t.Context())
	b.c.AwaitReplicas(cluster.Patience)
	traffic.Rest(t.Context(), time.Second)
	old, epoch := b.awaitTerm(t, 0)
	id := old.Member.ID
	claimed := lastClaim(t, b.c)

	if row.term == moves || row.term == ends {
		b.strike(row.name, epoch)
	}
	began := time.Now()
	row.cut(opt.Net, id, id%3+1, (id+1)%3+1)
	if row.term == moves || row.term == ends {
		cluster.Await(t, 5*time.Second, "the old primary to step down by itself or by its fence", func() bool {
			own, err := old.PrimaryEpoch(t.Context())
			return err == nil && own != uint64(epoch)
		})
		t.Logf("the old primary stepped down after %v", time.Since(began).Round(time.Millisecond))
	}
	if row.silent && row.term == stays {
		throughReplica(t, b.c.Server(id%3+1))
	}
	terms := b.watch(t, time.Until(began.Add(row.last)))
	ended := time.Now()
	claims := lastClaim(t, b.c) - claimed
	opt.Net.MendAll()

	b.c.AwaitReplicas(cluster.Patience)
	healed := time.Since(ended)
	traffic.Rest(t.Context(), time.Second)
	stop()
	row.judge(t, terms, claims)
	row.judgeService(t, b.ledger, began, ended)
	t.Logf("claims during the fault: %d; primaries in its second half: %v; one primary with able replicas %v after the mending",
		claims, terms, healed.Round(time.Millisecond))
	b.end(t)
}

// judge compares which servers were primary with which should have been.
func (row partition) judge(t *testing.T, terms map[string]int, claims hf.Epoch) {
	t.Helper()
	want, most, primaries := hf.Epoch(0), hf.Epoch(0), 1
	switch row.term {
	case moves:
		want, most = 1, 2
	case ends:
		primaries = 0
	case anybody:
		return
	}
	if claims < want || claims > most {
		t.Errorf("I15: %d claims under a permanent fault, want %d to %d", claims, want, most)
	}
	if len(terms) != primaries {
		t.Errorf("I15: %d stable primaries wanted: %v", primaries, terms)
	}
}

// servedSoon bounds the time from the mending to the next answer. It is shorter
// than a connection that has been cut for long takes to send again by itself.
const servedSoon = 7 * time.Second

// judgeService wants clients to be served in the second half of the fault.
func (row partition) judgeService(t *testing.T, l *check.Ledger, began, ended time.Time) {
	t.Helper()
	half := began.Add(ended.Sub(began) / 2)
	all, _, _ := l.Entries()
	served, gap, last, again := 0, time.Duration(0), began, servedSoon
	for _, a := range all { // in order of their end
		if !a.Acked || a.Answered.Before(began) {
			continue
		}
		gap, last = max(gap, a.Answered.Sub(last)), a.Answered
		if a.Answered.After(ended) {
			again = min(again, a.Answered.Sub(ended))
		}
		if a.Answered.After(half) && a.Answered.Before(ended) {
			served++
		}
	}
	t.Logf("%d appends acknowledged in the second half of the fault; nobody got an answer for at most %v; the next one %v after the mending",
		served, gap.Round(time.Millisecond), again.Round(time.Millisecond))
	switch {
	case again >= servedSoon:
		t.Errorf("I15: nobody was served within %v after the mending", servedSoon)
	case row.silent && served > 0:
		t.Errorf("%d appends were served through a cut: the fault is no fault", served)
	case !row.silent && served < 5:
		t.Errorf("I15: only %d appends were served in the second half of a permanent fault", served)
	}
}

// watch notes which server is primary in which epoch during the second half of this time, and
// how often it was seen.
func (b *battle) watch(t *testing.T, last time.Duration) map[string]int {
	t.Helper()
	traffic.Rest(t.Context(), last/2)
	seen := map[string]int{}
	for end := time.Now().Add(last / 2); time.Now().Before(end); traffic.Rest(t.Context(), 100*time.Millisecond) {
		if s, epoch := b.c.Primary(t.Context()); s != nil {
			seen[fmt.Sprintf("server %d in epoch %d", s.Member.ID, epoch)]++
		}
	}
	return seen
}

// lastClaim is the highest epoch that was claimed, whether its term began or not.
func lastClaim(t *testing.T, c *cluster.Cluster) (last hf.Epoch) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(c.Dir(), "epochs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		n, err := strconv.ParseUint(e.Name(), 10, 64)
		if err != nil {
			t.Errorf("a foreign name in epochs: %s", e.Name())
		}
		last = max(last, hf.Epoch(n))
	}
	return last
}

// throughReplica acquires over HTTP from a server that is not primary, which
// forwards: that is the way for clients that the primary cannot hear.
func throughReplica(t *testing.T, s *cluster.Server) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Post("http://"+s.Member.HTTPAddress()+"/v1/acquire", "application/json", strings.NewReader(`{"lock":"forwarded","ttl":"1s"}`))
	if err != nil {
		t.Errorf("acquire through server %d: %v", s.Member.ID, err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // only its status counts
	if resp.StatusCode != http.StatusOK {
		t.Errorf("acquire through server %d: %s", s.Member.ID, resp.Status)
	}
}
