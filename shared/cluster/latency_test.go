// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const ms = time.Millisecond

// TestTimingCoversALatency: the defaults where they suffice, else no more than what a rule asks for.
func TestTimingCoversALatency(t *testing.T) {
	for _, c := range []struct {
		name string
		l    cluster.Latency
		want string
	}{
		{"nothing measured", cluster.Latency{}, ""},
		{"a local disk", cluster.Latency{Check: 10 * time.Microsecond, Write: 2 * ms, Late: 3 * ms}, ""},
		{"a share in the same room", cluster.Latency{Check: 6 * ms, Write: 30 * ms, Late: 5 * ms}, ""},
		{"just fast enough", cluster.Latency{Check: 40 * ms, Write: 60 * ms, Late: 100 * ms}, ""},
		{"a claim does not fit", cluster.Latency{Check: 41 * ms, Write: 60 * ms}, "--suspicion 400ms"},
		{"a slow share", cluster.Latency{Check: 200 * ms, Write: 100 * ms}, "--suspicion 900ms --min-ttl 1.8s"},
		{"slow checks alone", cluster.Latency{Check: 300 * ms}, "--suspicion 900ms --min-ttl 1.8s"},
		{"slow writes alone", cluster.Latency{Write: 300 * ms}, "--suspicion 900ms --min-ttl 1.8s"},
		{"a very slow share", cluster.Latency{Check: 500 * ms, Write: 500 * ms}, "--suspicion 3s --majority-window 3s --quorum-timeout 3s --storage-timeout 10s --min-ttl 6s"},
		{"timers are a bit late", cluster.Latency{Late: 101 * ms}, "--heartbeat 100ms --suspicion 600ms --majority-window 2s --quorum-timeout 2s --push-ack-timeout 1s"},
		{"a machine that sleeps", cluster.Latency{Late: time.Second}, "--heartbeat 500ms --suspicion 3s --majority-window 10s --quorum-timeout 10s --storage-timeout 6s --push-ack-timeout 5s"},
		{"both", cluster.Latency{Check: 200 * ms, Write: 100 * ms, Late: 150 * ms}, "--heartbeat 100ms --suspicion 900ms --majority-window 2s --quorum-timeout 2s --min-ttl 1.8s --push-ack-timeout 1s"},
	} {
		is := cluster.DefaultTiming()
		be := is.Covering(c.l)
		if got := strings.Join(is.Flags(be), " "); got != c.want || (c.want == "") != (be == is) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if again := be.Covering(c.l); again != be {
			t.Errorf("%s: what was proposed does not suffice: %q", c.name, be.Flags(again))
		}
	}
}

// TestTimingSuffices where what was measured is not clearly too much: what was proposed for a latency
// also suffices for one that is measured a little higher.
func TestTimingSuffices(t *testing.T) {
	slow := cluster.Latency{Check: 200 * ms, Write: 100 * ms}
	is := cluster.DefaultTiming()
	for _, c := range []struct {
		name string
		t    cluster.Timing
		l    cluster.Latency
		want bool
	}{
		{"nothing measured", is, cluster.Latency{}, true},
		{"within the margin", is, cluster.Latency{Check: 100 * ms, Write: 100 * ms, Late: 200 * ms}, true},
		{"beyond it", is, cluster.Latency{Check: 101 * ms, Write: 100 * ms}, false},
		{"timers beyond it", is, cluster.Latency{Late: 201 * ms}, false},
		{"slow", is, slow, false},
		{"as was proposed", is.Covering(slow), slow, true},
		{"as was proposed, and slower", is.Covering(slow), cluster.Latency{Check: 390 * ms, Write: 200 * ms}, true},
	} {
		if got := c.t.Suffices(c.l); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

// TestTimingThatCoversIsValid: whatever a server is told, and whatever is measured, what is proposed
// can be told to a server, covers what the rules name, and is never less for more latency.
func TestTimingThatCoversIsValid(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	some := func(most time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(most))) }
	for range 20_000 {
		base := cluster.DefaultTiming()
		if rng.IntN(2) == 0 {
			base.Heartbeat = ms + some(time.Second)
			base.Suspicion = 3*base.Heartbeat + some(time.Second)
			base.MajorityWindow = base.Suspicion + some(time.Second)
			base.QuorumTimeout = base.Suspicion + some(time.Second)
			base.StorageTimeout = 2*base.Suspicion + some(10*time.Second)
			base.MinTTL = 100*ms + some(time.Second)
			base.MaxTTL = base.MinTTL + some(time.Minute)
		}
		if err := base.Validate(); err != nil {
			t.Fatal(err)
		}
		l := cluster.Latency{Check: some(time.Second), Write: some(time.Second), Late: some(time.Second)}
		more := l
		more.Check += some(time.Minute)
		more.Write += some(time.Minute)
		more.Late += some(time.Minute)
		less, be, most := base, base.Covering(l), base.Covering(more)
		for _, x := range []cluster.Timing{be, most} {
			if err := x.Validate(); err != nil {
				t.Fatalf("%+v for %+v: %v", x, l, err)
			}
			if at, ok := nowhereLess(less, x); !ok {
				t.Fatalf("%s is less: %+v, %+v for %+v and %+v", at, less, x, l, more)
			}
			less = x
		}
		pair := l.Check + l.Write
		if be.StorageTimeout < 2*(time.Second+4*pair) || be.Suspicion < 3*pair || be.MinTTL < min(6*pair, base.MaxTTL) || be.Heartbeat < l.Late/2 {
			t.Fatalf("%+v does not cover %+v", be, l)
		}
	}
}

// nowhereLess compares all durations.
func nowhereLess(a, b cluster.Timing) (string, bool) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if d, ok := x.Field(i).Interface().(time.Duration); ok && y.Field(i).Interface().(time.Duration) < d {
			return x.Type().Field(i).Name, false
		}
	}
	return "", true
}
