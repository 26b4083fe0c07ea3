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

// Progress says how far a trial of two mounts is.
type Progress struct {
	Check         string
	Round, Rounds int
}

// DefaultRounds is how often a trial tries each thing.
const DefaultRounds = 300

// MaxRounds bounds it: a trial makes some files in every round.
const MaxRounds = 10_000

// trial asks two hands on one directory whether they see the same. Every round
// fills the caches of both mounts first, since an empty cache never lies.
type trial struct {
	a, b     hand
	rounds   int
	mend     []string // commands for this kind of mount
	coherent bool     // and after which nothing old is shown
	progress func(Progress)
	add      func(Finding)
	patience time.Duration // how long to wait for what is not seen at once

	checks, appends []time.Duration // how long they took
	staleness       time.Duration   // the longest that was seen
	refused         bool            // something was
}

// tally counts the rounds of one probe.
type tally struct {
	check       string
	rounds, bad int
	first       string // what the first bad round was like
	note        string // what else there is to say
	fix         []string
	// lenient makes bad rounds a warning: nothing is lost by them.
	lenient bool
}

func (t *tally) fail(format string, args ...any) {
	t.bad++
	if t.first == "" {
		t.first = fmt.Sprintf(format, args...)
	}
}

// finding makes the count a verdict.
func (t *tally) finding(mend []string) Finding {
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

// surprise is an answer that no probe can go on from.
type surprise struct {
	hand   string
	call   call
	answer reply
}

func (s *surprise) Error() string {
	return fmt.Sprintf("%s on %s: %s: %s", s.call, s.hand, s.answer.Outcome, s.answer.Error)
}

// ask makes a call that must be done, or come to one of the other outcomes.
func (t *trial) ask(ctx context.Context, h hand, c call, also ...outcome) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, context.Cause(ctx)
	}
	r, err := h.do(ctx, c)
	if err != nil {
		return r, fmt.Errorf("%s on %s: %w", c, h, err)
	}
	if r.Outcome == done || slices.Contains(also, r.Outcome) {
		return r, nil
	}
	return r, &surprise{h.String(), c, r}
}

// run tries everything, what the rest stands on first. The error is a hand's:
// what the filesystem did wrong is in the findings.
func (t *trial) run(ctx context.Context) error {
	for _, x := range []struct {
		try   func(context.Context, *tally) error
		check string
	}{
		{t.same, "same directory"}, {t.inodes, "inode numbers"}, {t.newNames, "new names"},
		{t.raceRename, "rename race"}, {t.raceCreate, "create race"}, {t.raceLink, "link race"},
		{t.sharing, "false sharing"}, {t.flocks, "flock between mounts"}, {t.killed, "flock of a killed process"},
	} {
		n := &tally{check: x.check}
		if err := t.conclude(n, x.try(ctx, n)); err != nil {
			return err
		}
		if x.check == "same directory" && n.bad > 0 {
			return nil // nothing else can be right
		}
	}
	if err := t.reigns(ctx); err != nil {
		return err
	}
	views := &tally{check: "replaced and removed names", lenient: true}
	if err := t.conclude(views, t.views(ctx, views)); err != nil {
		return err
	}
	t.add(t.staleFinding())
	t.add(t.latency())
	return nil
}

// conclude turns a surprise into a bad round and adds the finding.
func (t *trial) conclude(n *tally, err error) error {
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

// each runs the rounds of a probe, with the hands in turns.
func (t *trial) each(ctx context.Context, n *tally, rounds int, round func(ctx context.Context, i int, one, other hand) error) error {
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

// settleSamples is in how many bad rounds of a probe it is measured how long the
// wrong answer lasts.
const settleSamples = 3

// settles waits until a stale view is right and notes how long it took.
func (t *trial) settles(ctx context.Context, n *tally, right func() (bool, error)) error {
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

// together lets both hands act at one moment, as far as that can be done.
func (t *trial) together(ctx context.Context, one, other hand, c, d call) (r, s reply, err error) {
	// Sometimes the one is earlier and sometimes the other.
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

// after waits; a negative time is none.
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

// same proves by a nonce that both hands are on one filesystem: the cluster ID of
// a volume that one makes and both open.
func (t *trial) same(ctx context.Context, n *tally) error {
	n.rounds = 1
	made, err := t.ask(ctx, t.a, call{Op: opInit})
	if err != nil {
		return err
	}
	for i, h := range []hand{t.a, t.b} {
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
	n := tally{check: "staleness", rounds: t.rounds, lenient: !t.coherent}
	if t.staleness == 0 {
		f := n.finding(nil)
		f.Detail = "no old name, attribute or byte was seen: --staleness 0s is right"
		return f
	}
	s := t.staleness.Round(time.Millisecond)
	text := fmt.Sprintf("what others changed was seen up to %v late", s)
	if t.staleness >= t.patience {
		text = fmt.Sprintf("what others changed was not seen within %v", t.patience)
	}
	n.fail("%s", text)
	f := n.finding(t.mend)
	f.Detail = fmt.Sprintf("%s: mend it, or start every server with --staleness %v --fencing-period %v", text, s, 2*s)
	if t.refused || t.coherent {
		f.Detail = text + ": mend it; no waiting makes up for this"
	}
	return f
}

// latency sums up what the fence checks and the log took on both mounts.
func (t *trial) latency() Finding {
	n := tally{check: "latency", rounds: len(t.checks)}
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
