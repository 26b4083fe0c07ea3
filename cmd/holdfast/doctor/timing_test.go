// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// slowCall takes as long as it is told, its n-th time from 0.
func slowCall(calls *int, takes func(n int) time.Duration) func() error {
	return func() error {
		time.Sleep(takes(*calls))
		*calls++
		return nil
	}
}

func always(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// except takes 30 ms each time that comes behind so many others, and else 1 ms.
func except(each int) func(int) time.Duration {
	return func(n int) time.Duration {
		if n%each == each-1 {
			return 30 * time.Millisecond
		}
		return time.Millisecond
	}
}

// TestMeasuredTiming: what is measured is what calls take but for outliers, and a slow share is not asked for long.
func TestMeasuredTiming(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		effort       effort
		write, check func(int) time.Duration
		rounds       int
		want         cluster.Latency
		most         time.Duration
	}{
		{"a fast one", thorough(), always(5 * ms), always(ms), 40, cluster.Latency{Check: ms, Write: 5 * ms}, 240 * ms},
		{"a slow one", thorough(), always(100 * ms), always(200 * ms), 7, cluster.Latency{Check: 200 * ms, Write: 100 * ms}, 2100 * ms},
		{"a terrible one", thorough(), always(3 * time.Second), always(2 * time.Second), 3, cluster.Latency{Check: 2 * time.Second, Write: 3 * time.Second}, 15 * time.Second},
		{"a fast one at a start", quick(), always(ms), always(ms), 20, cluster.Latency{Check: ms, Write: ms}, 40 * ms},
		{"a slow one at a start", quick(), always(100 * ms), always(200 * ms), 3, cluster.Latency{Check: 200 * ms, Write: 100 * ms}, 900 * ms},
		{"one outlier", quick(), except(20), always(0), 20, cluster.Latency{Write: ms}, 60 * ms},
		{"many of them", thorough(), except(10), always(0), 40, cluster.Latency{Write: 30 * ms}, 200 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var writes, checks int
				began := time.Now()
				got, err := c.effort.measure(slowCall(&writes, c.write), slowCall(&checks, c.check))
				if err != nil || got.Latency != c.want || got.Rounds != c.rounds || writes != c.rounds || checks != c.rounds {
					t.Errorf("got %+v in %d and %d calls, %v; want %+v in %d", got, writes, checks, err, c.want, c.rounds)
				}
				if took := time.Since(began); took > c.most+timerEvery {
					t.Errorf("it took %v, more than %v", took, c.most)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		if got, err := thorough().measure(func() error { return syscall.EIO }, func() error { return nil }); !errors.Is(err, syscall.EIO) {
			t.Errorf("a write that fails: got %+v, %v", got, err)
		}
	})
}

// TestTimingSaysWhatServersNeed, or that they need nothing.
func TestTimingSaysWhatServersNeed(t *testing.T) {
	slow := NewTiming(cluster.Latency{Check: 200 * time.Millisecond, Write: 100 * time.Millisecond}, 20)
	if got := slow.String() + slow.advice(); got != "a check takes up to 200ms, a synced write up to 100ms: the default timing of servers is too tight, start all of them with --suspicion 900ms --min-ttl 1.8s" {
		t.Errorf("got %s", got)
	}
	late := NewTiming(cluster.Latency{Check: 1234567, Late: 150 * time.Millisecond}, 20)
	if got := late.String(); got != "a check takes up to 1.2ms, a synced write up to 0s, and timers on this machine are up to 150ms late" || !slices.Contains(late.Flags, "--heartbeat 100ms") {
		t.Errorf("got %s, %q", got, late.Flags)
	}
	fast := NewTiming(cluster.Latency{Check: time.Millisecond}, 20)
	if got := fast.advice(); got != ": the default timing of servers suffices" || fast.Flags == nil {
		t.Errorf("got %s, %v", got, fast.Flags)
	}
}

// TestMeasure measures a directory of this machine, and leaves nothing in it.
func TestMeasure(t *testing.T) {
	dir := makeVolume(t, "h")
	for name, measure := range map[string]func() (*Timing, error){
		"by a person": func() (*Timing, error) { return Measure(dir) },
		"by a server": func() (*Timing, error) { return MeasureAgain(dir, 1) },
	} {
		got, err := measure()
		if err != nil || got.Rounds < 3 || got.Latency.Check <= 0 || got.Latency.Write <= 0 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	for _, pattern := range []string{probePrefix + "*", "servers/*.trash"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	}
	if got, err := Measure(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nowhere: got %+v, %v", got, err)
	}
	all, err := Examine(t.Context(), []string{dir}, Options{})
	if err != nil || all[0].Timing == nil || !slices.Contains(verdicts(all[0], "timing"), Info) {
		t.Fatalf("doctor: %+v, %v", all, err)
	}
	if f := all[0].Findings[len(all[0].Findings)-1]; !strings.Contains(f.Detail, "a check takes up to ") {
		t.Errorf("doctor says %+v", f)
	}
	if r, err := AtStart(dir, 1, nil); err != nil || r.Timing == nil {
		t.Errorf("at start: %+v, %v", r, err)
	}
}
