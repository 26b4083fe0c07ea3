// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	historyClients = 6
	historyLocks   = 3
	historyKills   = 12
	// checkLimit bounds porcupine; what it cannot decide by then is a failure.
	checkLimit = 2 * time.Minute
	// historyLinger bounds what is left of an acquire without an answer: a wait, and a lease that
	// each term counts afresh, until a keep-alive of its client finds that nobody knows of it.
	historyLinger = 2 * (longTTL + cluster.Patience)
)

// TestHistoryIsLinearizable has porcupine decide whether what clients saw of
// locks under kills is what one lock after the other could have shown them: locks that are had
// alone, shared, and by permits. The log that the servers wrote meanwhile is judged as well.
func TestHistoryIsLinearizable(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	archive, h := t.TempDir(), check.NewHistory()
	collector := check.StartCollector(t.Context(), c.Dir(), archive)
	lockers := &traffic.Lockers{History: h, Locks: historyLocks, TTL: longTTL, Pace: 3 * time.Millisecond, Limit: cluster.Patience, Log: t.Logf}
	stop := make(chan struct{})
	var working sync.WaitGroup
	for i := range historyClients {
		w := &traffic.Locker{All: lockers, Client: newClient(t, c), Number: i, Rand: rand.New(rand.NewPCG(*faultSeed, uint64(i)))}
		working.Go(func() { w.Run(t.Context(), func() bool { return allClosed([]chan struct{}{stop}) }) })
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
	path := func(name hf.FileName) string { return c.File(string(name)) }
	if err := lockers.Read(path); err != nil {
		t.Error(err)
	}
	var report check.Report
	v := h.Check(check.HistoryOptions{Limit: checkLimit, Pictures: t.ArtifactDir(), Linger: historyLinger, Landed: traffic.Landed(path), Least: lockers.Least()}, &report)
	t.Logf("%+v over %d kills", v, n.Primaries)
	if v.Operations < 500 {
		t.Errorf("only %d operations: a run in which nothing happens proves nothing", v.Operations)
	}
	c.TermAll()
	if err := collector.Stop(); err != nil {
		t.Error(err)
	}
	read := func(name hf.FileName) ([]byte, error) { return os.ReadFile(path(name)) }
	log, err := check.CheckLog(check.LogOptions{Dir: archive, File: read}, &report)
	if t.Logf("%+v", log); err != nil || log.Permits < 50 {
		t.Errorf("%d grants of permits in the log, at least 50 are wanted; %v", log.Permits, err)
	}
	for _, bad := range report.Violations() {
		t.Error(bad)
	}
}
