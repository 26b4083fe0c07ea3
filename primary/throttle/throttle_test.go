// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPaceRestsForItsOwnWorkOnly(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name             string
		took, idle, want time.Duration
		hurry            bool
	}{
		{"work", 2 * ms, 0, 6 * ms, false},
		{"work for long", 100 * ms, 0, restMost, false},
		{"work and waiting", 10 * ms, 8 * ms, 6 * ms, false},
		{"waiting", 10 * ms, 10 * ms, 0, false},
		{"work in a hurry", 10 * ms, 0, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := New(nil, func() bool { return test.hurry })
				time.Sleep(test.took)
				x.Waited(test.idle)
				began := time.Now()
				if x.Rest(); time.Since(began) != test.want || x.Rested() != test.want || x.idle != 0 {
					t.Errorf("rested %v, want %v", time.Since(began), test.want)
				}
			})
		})
	}
}

func TestARestEndsWithTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		x := New(done, nil)
		time.Sleep(time.Second)
		time.AfterFunc(time.Millisecond, func() { close(done) })
		if x.Rest(); x.Rested() != time.Millisecond {
			t.Errorf("rested %v, the work ended after 1ms", x.Rested())
		}
	})
}

func TestWithoutAThrottleNothingRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x *Throttle
		time.Sleep(time.Second)
		x.Waited(time.Millisecond)
		began := time.Now()
		if x.Rest(); time.Since(began) != 0 {
			t.Errorf("rested %v", time.Since(began))
		}
	})
}
