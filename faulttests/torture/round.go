// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// porcupineLimit bounds one decision. What is undecided by then is a failure.
const porcupineLimit = 5 * time.Minute

// thickHistory is how many answers a history has to have before some of every kind are wanted: a
// round with a fault or two is shorter.
const thickHistory = 1000

// Round is the result of one round.
type Round struct {
	Site      string
	Seed      uint64
	Took      time.Duration
	Rate      float64 // calls a second while nothing was wrong
	Counted   bool    // the rate was not below the floor
	Strikes   []Result
	Failovers map[string][]time.Duration // by fault, sorted
	Gap       time.Duration              // the longest time without an answer to any client
	Appends   int
	Grants    int
	Bytes     int64
	Operations,
	Indeterminate int
	Partitions int           // of the history
	Unknown    int           // that porcupine could not decide
	Epoch      hf.Epoch      // the last
	LSN        hf.LSN        // the last
	Lines      check.Verdict // of the files
	Warnings   []string      // of fsck
	Violations []string      // with the number of the invariant
	Invariants []check.Result
	Most       check.Usage // of one server, or of the volume
}

// RunRound lets clients work at a site while faults are injected, until the limit, and judges the
// round. It fails the test for each violation.
func RunRound(t *testing.T, site *Site, lines [][]byte, faults []Fault, seed uint64, limit time.Duration) Round {
	random := rand.New(rand.NewPCG(seed, 1))
	x := NewTraffic(t, site.Cluster, random)
	c := &Campaign{T: t, Site: site, Traffic: x, Rand: random, Floor: site.Floor}
	var verdict check.Report
	o := observe(t, site, &verdict)
	began := time.Now()
	x.Start(t.Context(), lines)
	c.Run(t.Context(), faults, limit)
	x.End()
	r := Round{Site: site.Name, Seed: seed, Took: time.Since(began), Rate: c.Rate(), Strikes: c.Strikes}
	if r.Counted = r.Rate >= site.Floor; !r.Counted {
		t.Errorf("%.1f calls/s while nothing was wrong, below the floor of %.1f: this round does not count", r.Rate, site.Floor)
	}
	site.Cluster.TermAll()
	var err error
	if r.Most, err = o.stop(); err != nil {
		r.bad("%v", err)
	}
	r.judge(t, site, x, o.archive, &verdict)
	r.Invariants, r.Violations = verdict.Results(), append(r.Violations, verdict.Violations()...)
	for _, bad := range r.Violations {
		t.Error(bad)
	}
	return r
}

// judge gives every verdict, when no server runs any more.
func (r *Round) judge(t *testing.T, site *Site, x *Traffic, archive string, verdict *check.Report) {
	t.Helper()
	dir, err := site.Settle()
	if err != nil {
		r.bad("settle the volume: %v", err)
		return
	}
	report, err := site.Cluster.Fsck()
	check.CheckFsck(report, err, verdict)
	r.Epoch, r.LSN = report.Epoch, report.LSN
	for _, f := range report.Findings {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s %s: %s", f.Severity, f.Path, f.Problem))
	}
	path := func(name hf.FileName) string { return filepath.Join(dir, "files", filepath.FromSlash(string(name))) }
	read := func(name hf.FileName) ([]byte, error) { return os.ReadFile(path(name)) }
	r.Lines = x.Ledger.Check(read, verdict)
	if _, err := check.CheckLog(check.LogOptions{Dir: archive, Ledger: x.Ledger, File: read, Stuck: healing + callLimit}, verdict); err != nil {
		r.bad("the log as it was collected: %v", err)
	}
	check.CheckHolds(x.Ledger.Holds(), verdict)
	check.CheckLiveness(r.deposed(), x.Ledger, healing, verdict)
	verdict.NotApplicable(check.I13, "the log was too short for a checkpoint") // counts only where none was compared
	verdict.NotApplicable(check.I10, "clients never rest; TestPausedPrimary of faulttests/fault proves it")
	r.count(x.Ledger)
	r.history(t, x.Lockers, path, verdict)
	for _, n := range verdict.Unchecked() {
		r.bad("%v was not checked", n)
	}
}

func (r *Round) bad(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

// deposed are the strikes that no term survives.
func (r *Round) deposed() (all []check.Strike) {
	for _, s := range r.Strikes {
		if s.Deposes {
			all = append(all, check.Strike{Kind: s.Fault, At: s.At, Epoch: s.Epoch})
		}
	}
	return all
}

// count sums up the answers to clients, and the longest time without any.
func (r *Round) count(l *check.Ledger) {
	appends, grants, _ := l.Entries()
	r.Appends, r.Grants, r.Indeterminate, r.Bytes = l.Count()
	r.Failovers = check.Failovers(r.deposed(), appends, grants)
	var told []time.Time
	for _, a := range appends {
		if a.Acked {
			told = append(told, a.Answered)
		}
	}
	for _, g := range grants {
		told = append(told, g.Answered)
	}
	slices.SortFunc(told, time.Time.Compare)
	for i := 1; i < len(told); i++ {
		r.Gap = max(r.Gap, told[i].Sub(told[i-1]))
	}
}

// history has porcupine decide about the lockers.
func (r *Round) history(t *testing.T, l *traffic.Lockers, path func(hf.FileName) string, verdict *check.Report) {
	t.Helper()
	if err := l.Read(path); err != nil {
		r.bad("%v", err)
	}
	o := check.HistoryOptions{Limit: porcupineLimit, Pictures: t.ArtifactDir(), Linger: linger, Landed: traffic.Landed(path)}
	if l.Answered() >= thickHistory {
		o.Least = l.Least()
	}
	v := l.History.Check(o, verdict)
	r.Operations, r.Indeterminate = v.Operations, r.Indeterminate+v.Indeterminate
	r.Partitions, r.Unknown = v.Windows, v.Undecided
}
