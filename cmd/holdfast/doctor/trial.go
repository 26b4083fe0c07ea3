// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Progress is the progress of a trial of two mounts.
type Progress struct {
	Check         string
	Round, Rounds int
}

// DefaultRounds is how often a trial repeats each probe, unless Options say otherwise.
const DefaultRounds = 300

// MaxRounds is the most rounds of a trial, which makes some files in every round.
const MaxRounds = 10_000

// trial tests whether two agents on one directory see the same. Every round
// fills the caches of both mounts first, since an empty cache never shows old data.
type trial struct {
	a, b     mountAgent
	rounds   int
	mend     []string // commands for this kind of mount
	coherent bool     // whether no old data is shown after them
	progress func(Progress)
	waiting  func(why string) // called when the share gives out no locks for a while; may be nil
	add      func(Finding)
	patience time.Duration // how long to wait for a change that is not seen at once

	checks, appends []time.Duration // how long they took
	staleness       time.Duration   // the longest that was seen
	refused         bool            // something was
}

// counters counts the rounds of one probe.
type counters struct {
	check       string
	rounds, bad int
	first       string // describes the first bad round
	note        string // added to the finding
	fix         []string
	// lenient makes bad rounds a warning: nothing is lost by them.
	lenient bool
}

func (t *counters) fail(format string, args ...any) {
	t.bad++
	if t.first == "" {
		t.first = fmt.Sprintf(format, args...)
	}
}

// finding turns the counts into a finding.
func (t *counters) finding(mend []string) Finding {
	f := Finding{Check: t.check, Verdict: OK, Fix: []string{}, Rounds: t.rounds, Bad: t.bad}
	switch {
	case t.bad == 0:
		f.Detail = fmt.Sprintf("right in %d rounds", t.rounds)
		if t.rounds == 0 {
			f.Verdict, f.Detail = Info, "not tried"
		}
	case t.lenient:
		f.Verdict, f.Fix = Warn, mend
	default:
		f.Verdict, f.Fix = Refuse, mend
	}
	if t.bad > 0 {
		f.Detail = fmt.Sprintf("wrong in %d of %d rounds; the first: %s", t.bad, t.rounds, t.first)
	}
	if t.note != "" {
		f.Detail += "; " + t.note
	}
	if t.fix != nil {
		f.Fix = t.fix
	}
	if f.Fix == nil {
		f.Fix = []string{}
	}
	return f
}

// surprise is an error: an answer with which a probe cannot continue.
type surprise struct {
	hand   string
	call   call
	answer reply
}

func (s *surprise) Error() string {
	return fmt.Sprintf("%s on %s: %s: %s", s.call, s.hand, s.answer.Outcome, s.answer.Error)
}

// ask makes a call. It returns a *surprise unless the outcome is done or one of also.
func (t *trial) ask(ctx context.Context, h mountAgent, c call, also ...outcome) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, context.Cause(ctx)
	}
	var r reply
	var err error
	if c.Op.locks() {
		attend(t.waiting, lateLock, func() { r, err = h.do(ctx, c) })
	} else {
		r, err = h.do(ctx, c)
	}
	if err != nil {
		return r, fmt.Errorf("%s on %s: %w", c, h, err)
	}
	if r.Outcome == done || slices.Contains(also, r.Outcome) {
		return r, nil
	}
	return r, &surprise{h.String(), c, r}
}

// run runs all probes, first those on which the others depend. The error is an agent's;
// faults of the filesystem are findings.
func (t *trial) run(ctx context.Context) error {
	for _, x := range []struct {
		try   func(context.Context, *counters) error
		check string
	}{
		{t.same, "same directory"}, {t.inodes, "inode numbers"}, {t.newNames, "new names"},
		{t.raceRename, "rename race"}, {t.raceCreate, "create race"}, {t.raceLink, "link race"},
		{t.sharing, "false sharing"}, {t.flocks, "flock between mounts"}, {t.killed, "flock of a killed process"},
	} {
		n := &counters{check: x.check}
		if err := t.conclude(n, x.try(ctx, n)); err != nil {
			return err
		}
		if x.check == "same directory" && n.bad > 0 {
			return nil // nothing else can be right
		}
	}
	if err := t.takeovers(ctx); err != nil {
		return err
	}
	views := &counters{check: "replaced and removed names", lenient: true}
	if err := t.conclude(views, t.views(ctx, views)); err != nil {
		return err
	}
	t.add(t.staleFinding())
	t.add(t.latency())
	return nil
}

// conclude turns a surprise into a bad round and adds the finding.
func (t *trial) conclude(n *counters, err error) error {
	if s, ok := errors.AsType[*surprise](err); ok {
		n.rounds = max(n.rounds, 1)
		n.lenient = false
		n.fail("%v", s)
		err = nil
	}
	if err == nil {
		f := n.finding(t.mend)
		t.refused = t.refused || f.Verdict == Refuse
		t.add(f)
	}
	return err
}

// each runs the rounds of a probe, with the agents in turns.
func (t *trial) each(ctx context.Context, n *counters, rounds int, round func(ctx context.Context, i int, one, other mountAgent) error) error {
	one, other := t.a, t.b
	for i := range max(rounds, 2) {
		t.progress(Progress{n.check, i, max(rounds, 2)})
		n.rounds++
		if err := round(ctx, i, one, other); err != nil {
			return err
		}
		one, other = other, one
	}
	return nil
}

// settleSamples is how many bad rounds of a probe measure how long the wrong answer lasts.
const settleSamples = 3

// settles waits until a stale view is right and notes how long it took.
func (t *trial) settles(ctx context.Context, n *counters, right func() (bool, error)) error {
	if n.bad > settleSamples {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	var broken error
	took, _ := poll(ctx, func() error {
		ok, err := right()
		broken = err
		if ok || err != nil {
			return nil
		}
		return errStillThere
	})
	t.staleness = max(t.staleness, took)
	return broken
}

// together lets both agents act at the same moment, as far as possible.
func (t *trial) together(ctx context.Context, one, other mountAgent, c, d call) (r, s reply, err error) {
	// Sometimes one is earlier and sometimes the other.
	ahead := other.distance() - one.distance() + time.Duration(rand.Int64N(int64(200*time.Microsecond))) - 100*time.Microsecond
	var errR, errS error
	var both sync.WaitGroup
	both.Go(func() {
		after(ctx, ahead)
		r, errR = one.do(ctx, c)
	})
	both.Go(func() {
		after(ctx, -ahead)
		s, errS = other.do(ctx, d)
	})
	both.Wait()
	return r, s, errors.Join(errR, errS)
}

// after waits for d, or until ctx ends. It returns at once if d is negative.
func after(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// same proves that both agents are on one filesystem, by the cluster ID of
// a volume that one makes and both open.
func (t *trial) same(ctx context.Context, n *counters) error {
	n.rounds = 1
	made, err := t.ask(ctx, t.a, call{Op: opInit})
	if err != nil {
		return err
	}
	for i, h := range []mountAgent{t.a, t.b} {
		r, err := t.ask(ctx, h, call{Op: opOpen, Number: uint64(i + 1)})
		if err != nil {
			return err
		}
		if string(r.Data) != string(made.Data) {
			n.fail("%s has the volume %x where %s made %x", h, r.Data, t.a, made.Data)
		}
	}
	n.note = fmt.Sprintf("nonce %x", made.Data)
	for _, dir := range []string{"inodes", "names", "race", "create", "link", "pages", "locks", "views"} {
		if _, err := t.ask(ctx, t.a, call{Op: opMkdir, Name: dir}); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) staleFinding() Finding {
	n := counters{check: "staleness", rounds: t.rounds, lenient: !t.coherent}
	if t.staleness == 0 {
		f := n.finding(nil)
		f.Detail = "no old name, attribute or byte was seen: --staleness 0s is right"
		return f
	}
	s := t.staleness.Round(time.Millisecond)
	text := fmt.Sprintf("changes of the other mount were seen up to %v late", s)
	if t.staleness >= t.patience {
		text = fmt.Sprintf("changes of the other mount were not seen within %v", t.patience)
	}
	n.fail("%s", text)
	f := n.finding(t.mend)
	f.Detail = fmt.Sprintf("%s: correct that, or start every server with --staleness %v --fencing-period %v", text, s, 2*s)
	if t.refused || t.coherent {
		f.Detail = text + ": correct that; no waiting time makes up for it"
	}
	return f
}

// latency sums up how long fence checks and log writes took on both mounts.
func (t *trial) latency() Finding {
	n := counters{check: "latency", rounds: len(t.checks)}
	f := n.finding(nil)
	if len(t.checks) == 0 || len(t.appends) == 0 {
		return f
	}
	f.Detail = fmt.Sprintf("check p50 %v p99 %v, append with fdatasync p50 %v p99 %v: every commit waits for one of each",
		percentile(t.checks, 50), percentile(t.checks, 99), percentile(t.appends, 50), percentile(t.appends, 99))
	if percentile(t.appends, 50) > slowSync {
		f.Verdict = Warn
	}
	return f
}

func percentile(all []time.Duration, p int) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*p/100)].Round(time.Microsecond)
}
