// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Timing is how long a filesystem takes for the calls of a server, and the flags that servers need
// for that.
type Timing struct {
	// Rounds is how many checks and synced writes were measured.
	Rounds int `json:"rounds"`
	// Check, Write and Late are a cluster.Latency, as Go durations.
	Check string `json:"check"`
	Write string `json:"write"`
	Late  string `json:"timer_late"`
	// Flags are the flags that all servers need; empty if the defaults suffice.
	Flags []string `json:"flags"`

	// Latency has the same values as Check, Write and Late.
	Latency cluster.Latency `json:"-"`
}

// NewTiming returns the flags that servers with the default timing need for a latency.
func NewTiming(l cluster.Latency, rounds int) *Timing {
	t := cluster.DefaultTiming()
	return &Timing{
		Rounds: rounds, Check: short(l.Check), Write: short(l.Write), Late: short(l.Late),
		Flags: t.Flags(t.Covering(l)), Latency: l,
	}
}

func short(d time.Duration) string {
	if d >= time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// String describes what was measured.
func (t *Timing) String() string {
	text := fmt.Sprintf("a check takes up to %s, a synced write up to %s", t.Check, t.Write)
	if t.Latency.Late > lateWorthAWord {
		text += fmt.Sprintf(", and timers on this machine are up to %s late", t.Late)
	}
	return text
}

// lateWorthAWord is how late timers must be for String to mention it.
const lateWorthAWord = 20 * time.Millisecond

// Measure measures the timing of a directory. It takes at most about two seconds, or longer if a
// single call does.
func Measure(dir string) (*Timing, error) { return measureBelow(dir, probePrefix, thorough()) }

func measureBelow(dir, pattern string, e effort) (t *Timing, err error) {
	tmp, err := os.MkdirTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	return measureIn(tmp, e)
}

// timing measures, and adds a finding with the flags that servers need.
func (p *probe) timing() {
	t, err := measureIn(p.dir, thorough())
	if err != nil {
		p.failed("timing", err)
		return
	}
	p.report.Timing = t
	p.report.add("timing", Info, t.String()+t.advice())
}

// advice describes, for people, what follows from the measurement.
func (t *Timing) advice() string {
	if len(t.Flags) == 0 {
		return ": the default timing of servers suffices"
	}
	return ": the default timing of servers is too tight, start all of them with " + strings.Join(t.Flags, " ")
}

// timingAtStart measures for a moment. A failed measurement does not keep a server from starting.
func (p *probe) timingAtStart() {
	if t, err := measureIn(p.dir, quick()); err == nil {
		p.report.Timing = t
	}
}

// MeasureAgain measures for about a second, for a server that found its share slow when it
// started: one slow call proves nothing. It writes to the same directory as AtStart.
func MeasureAgain(dir string, id cluster.ServerID) (*Timing, error) {
	return measureBelow(filepath.Join(dir, "servers"), startPattern(id), again())
}

// effort bounds a measurement.
type effort struct {
	rounds, least int           // the most rounds, and the fewest, in any time
	most          time.Duration // after it no further round begins
}

// thorough is the effort for a user who waits.
func thorough() effort { return effort{rounds: 40, least: 3, most: 2 * time.Second} }

// quick is the effort for a server that starts.
func quick() effort { return effort{rounds: 20, least: 3, most: 50 * time.Millisecond} }
func again() effort { return effort{rounds: 40, least: 5, most: time.Second} }

// measureIn measures with a file in a directory that the caller made. It makes the calls of a term.
func measureIn(dir string, e effort) (t *Timing, err error) {
	fsys, err := osfs.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	const name = "timing"
	f, err := fsys.Open(name, vfs.FlagCreate|vfs.FlagDirect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), fsys.Remove(name)) }()
	block := vfs.AlignedBuffer(vfs.BlockSize)
	return e.measure(func() error {
		_, err := f.WriteAt(block, 0)
		return errors.Join(err, f.Datasync())
	}, func() error {
		_, err := f.ReadAt(block, 0)
		_, statErr := f.Stat()
		return errors.Join(err, statErr)
	})
}

// measure makes rounds of one synced write and one check, while it watches a timer.
func (e effort) measure(write, check func() error) (*Timing, error) {
	ctx, stop := context.WithCancel(context.Background())
	var late, writes, checks []time.Duration
	var watching sync.WaitGroup
	watching.Go(func() { late = lateness(ctx) })
	began := time.Now()
	var err error
	for n := 0; err == nil && n < e.rounds && (n < e.least || time.Since(began) < e.most); n++ {
		if err = timed(write, &writes); err == nil {
			err = timed(check, &checks)
		}
	}
	stop()
	watching.Wait()
	if err != nil {
		return nil, err
	}
	return NewTiming(cluster.Latency{Check: slowest(checks), Write: slowest(writes), Late: slowest(late)}, len(checks)), nil
}

func timed(do func() error, took *[]time.Duration) error {
	began := time.Now()
	err := do()
	*took = append(*took, time.Since(began))
	return err
}

const (
	// timerEvery is the duration of the timer that is measured, timerTimes and timerMost how often
	// it runs at least and at most.
	timerEvery = 2 * time.Millisecond
	timerTimes = 20
	timerMost  = 1000
)

// lateness returns how late a timer was each time, until ctx ends and there are enough of them.
func lateness(ctx context.Context) (all []time.Duration) {
	t := time.NewTimer(timerEvery)
	defer t.Stop()
	for len(all) < timerTimes || len(all) < timerMost && ctx.Err() == nil {
		due := time.Now().Add(timerEvery)
		t.Reset(timerEvery)
		<-t.C
		all = append(all, max(0, time.Since(due)))
	}
	return all
}

// slowest returns the longest time, without the longest of each twenty: outliers do not count.
func slowest(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)-1-len(all)/20]
}
