// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
)

// clients is how many append in the main scenario.
const clients = 8

// TestMainScenario is the promise of Holdfast under fire: eight clients append
// the lines of a real text to protected files while primaries are killed about
// every second, and in the end each line is there exactly once.
func TestMainScenario(t *testing.T) {
	needFaults(t)
	lines := sourceText(t, *textBytes)
	began := time.Now()
	for round := 1; round == 1 || time.Since(began) < *minDuration; round++ {
		seed := *faultSeed + uint64(round)
		t.Run(fmt.Sprintf("round-%d", round), func(t *testing.T) {
			t.Logf("seed: -faults.seed %d", seed-1)
			b := newBattle(t, lines, clients, seed)
			b.fight(t, *minKills, 20*time.Minute)
			b.end(t)
		})
		if t.Failed() {
			return
		}
	}
}

// TestSmoke is the main scenario in a few seconds, with one kill.
func TestSmoke(t *testing.T) {
	b := newBattle(t, sourceText(t, 100<<10), 3, 1)
	b.nemesis.Every = 100 * time.Millisecond
	b.fight(t, 1, time.Minute)
	b.end(t)
}

func sourceText(t *testing.T, size int) [][]byte {
	t.Helper()
	lines, err := check.GoSource(size)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// battle is one run of clients against a nemesis.
type battle struct {
	c       *cluster.Cluster
	nemesis *Nemesis
	workers []*traffic.Worker
	ledger  *check.Ledger
	took    time.Duration
	// archive has what the collector keeps of the log.
	archive   string
	collector *check.Collector
}

func newBattle(t *testing.T, lines [][]byte, clients int, seed uint64) *battle {
	t.Helper()
	return newBattleOn(t, cluster.Start(t, options()), lines, clients, seed)
}

// newBattleOn is one over a cluster that runs.
func newBattleOn(t *testing.T, c *cluster.Cluster, lines [][]byte, clients int, seed uint64) *battle {
	t.Helper()
	b := &battle{c: c, ledger: &check.Ledger{}, archive: t.TempDir()}
	b.collector = check.StartCollector(t.Context(), c.Dir(), b.archive)
	b.nemesis = &Nemesis{Cluster: c, Rand: rand.New(rand.NewPCG(seed, 1)), Every: time.Second}
	for i := range clients {
		b.workers = append(b.workers, &traffic.Worker{
			Client: newClientAs(t, c, holderName(i)), Holder: holderName(i), Speaker: check.NewSpeaker(lines, i, clients), Places: places(i, clients), Ledger: b.ledger,
			Rand: rand.New(rand.NewPCG(seed, uint64(i)+2)), TTL: time.Minute, Pace: 5 * time.Millisecond, Limit: time.Minute, Sharing: true,
		})
	}
	return b
}

// newClient is a client that looks for a primary for as long as a test may last.
func newClient(t *testing.T, c *cluster.Cluster) *clientlib.Client {
	t.Helper()
	return newClientAs(t, c, "")
}

// holderName is what a client calls itself, so that the log tells whose grant it is.
func holderName(client int) string { return fmt.Sprintf("client-%d", client) }

// newClientAs is newClient with a name of its own.
func newClientAs(t *testing.T, c *cluster.Cluster, holder string) *clientlib.Client {
	t.Helper()
	client, err := clientlib.New(clientlib.Options{
		Endpoints: c.Endpoints(), Budget: 2 * cluster.Patience, Holder: clientlib.Holder{Command: holder},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the servers may be gone
	return client
}

// permits is the limit of the lock of which the clients take permits.
const permits = 4

// places are those of one client: a file of its own, one of its half, one of all, and permits.
func places(client, clients int) []traffic.Place {
	half := "first-half"
	if client >= clients/2 {
		half = "second-half"
	}
	return []traffic.Place{
		{Lock: hf.LockName(fmt.Sprintf("own/%d", client)), File: hf.FileName(fmt.Sprintf("own/%d.txt", client))},
		{Lock: hf.LockName("shared/" + half), File: hf.FileName(half + ".txt")},
		{Lock: "all", File: "deep/er/all.txt"},
		{Lock: "permits", Limit: permits},
	}
}

// fight goes on until the whole text is in the files and enough primaries were killed.
func (b *battle) fight(t *testing.T, kills int, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	through, stop := b.work(ctx)
	began := time.Now()
	said := began
	for ctx.Err() == nil && (b.nemesis.Primaries < kills || !allClosed(through)) {
		b.nemesis.Rest(ctx)
		if !b.nemesis.Strike(ctx) {
			t.Errorf("I15: no primary within %v", cluster.Patience)
			break
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			b.progress(t, time.Since(began))
		}
	}
	if ctx.Err() != nil {
		t.Errorf("not done after %v", limit)
	}
	stop()
	b.progress(t, b.took)
}

// work starts the clients. Each closes its channel when its share of the text is
// through, and goes on until stop is called, which waits for them.
func (b *battle) work(ctx context.Context) (through []chan struct{}, stop func()) {
	var working sync.WaitGroup
	over := make(chan struct{})
	for _, w := range b.workers {
		done := make(chan struct{})
		through = append(through, done)
		working.Go(func() { toTheEnd(ctx, w, done, over) })
	}
	began := time.Now()
	return through, func() {
		close(over)
		working.Wait()
		b.took += time.Since(began)
	}
}

// toTheEnd works until stop is closed, and tells when the text is through.
func toTheEnd(ctx context.Context, w *traffic.Worker, through chan struct{}, stop <-chan struct{}) {
	told := false
	w.Run(ctx, func() bool {
		if !told && w.Speaker.Through() {
			told = true
			close(through)
		}
		select {
		case <-stop:
			return true
		default:
			return false
		}
	})
}

func allClosed(all []chan struct{}) bool {
	for _, c := range all {
		select {
		case <-c:
		default:
			return false
		}
	}
	return true
}

func (b *battle) progress(t *testing.T, since time.Duration) {
	appends, grants, unknown, bytes := b.ledger.Count()
	t.Logf("%4.0f s: %d primaries killed (%d processes), %d appends, %d grants, %.1f MB, %d without an answer",
		since.Seconds(), b.nemesis.Primaries, b.nemesis.Kills, appends, grants, float64(bytes)/1e6, unknown)
}

// end stops the servers, judges and reports: the volume, what clients were told,
// the log and what they believed to hold.
func (b *battle) end(t *testing.T) *check.Report {
	t.Helper()
	b.c.TermAll()
	if err := b.collector.Stop(); err != nil {
		t.Error(err)
	}
	r := &check.Report{}
	report, err := b.c.Fsck()
	check.CheckFsck(report, err, r)
	for _, f := range report.Findings {
		t.Logf("fsck: %s %s: %s", f.Severity, f.Path, f.Problem)
	}
	read := func(name hf.FileName) ([]byte, error) { return os.ReadFile(b.c.File(string(name))) }
	v := b.ledger.Check(read, r)
	if _, err := check.CheckLog(check.LogOptions{Dir: b.archive, Ledger: b.ledger, File: read}, r); err != nil {
		t.Error(err)
	}
	check.CheckHolds(b.ledger.Holds(), r)
	for _, bad := range r.Violations() {
		t.Error(bad)
	}
	b.figures(t, report, v)
	return r
}

// figures tells what was done and how long failovers took.
func (b *battle) figures(t *testing.T, report fsck.Report, v check.Verdict) {
	t.Helper()
	appends, grants, unknown, bytes := b.ledger.Count()
	all, granted, _ := b.ledger.Entries()
	repeats := 0
	for _, a := range all {
		if a.Repeat {
			repeats++
		}
	}
	t.Logf(`%d clients, %v, %d primaries killed (%d processes), last epoch %d, last LSN %d
  lines acknowledged %d, found %d; lost %d, duplicate %d, out of order %d, foreign %d
  appends %d (%.1f/s, %.1f MB), of them told late by a repeat %d; grants %d; without an answer %d, of their lines %d are there
kill to the first grant or append that a later term acknowledged:
%s`,
		len(b.workers), b.took.Round(time.Second), b.nemesis.Primaries, b.nemesis.Kills, report.Epoch, report.LSN,
		v.LinesIn, v.LinesOut, v.Lost, v.Duplicate, v.Misordered, v.Foreign,
		appends, float64(appends)/b.took.Seconds(), float64(bytes)/1e6, repeats, grants, unknown, v.Uncertain,
		check.Describe(check.Failovers(b.nemesis.Strikes, all, granted)))
}
