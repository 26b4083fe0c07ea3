// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestLargeAppendsThatComeTogetherAreAllCommitted(t *testing.T) {
	for _, test := range []struct {
		name string
		size int
		n    int
		idle time.Duration
	}{
		{"the largest, to a verified file", 1 << 20, 4, 0},
		{"the largest, to one that rests", 1 << 20, 4, 2 * time.Second},
		{"many parked at once", 64 << 10, 70, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
				defer x.end()
				g := x.ok(acquire("c1", 1, "l", 0))
				x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
				time.Sleep(test.idle)
				data := strings.Repeat("x", test.size)
				var qs []*locktable.Request
				for i := range test.n {
					qs = append(qs, appendTo("c1", cluster.RequestID(i+3), "l", g.Token, "f", data))
				}
				for i, out := range x.together(qs...) {
					if out.Status != cluster.StatusOK {
						t.Errorf("append %d: %v %s", i, out.Status, out.Message)
					}
				}
				if got, want := len(content(d, "f")), 4+test.n*test.size; got != want {
					t.Errorf("file has %d bytes, want %d", got, want)
				}
				if x.p.State() != primary.StateServing {
					t.Errorf("the term is over: %v", x.end())
				}
			})
		})
	}
}

func TestTakeoverLogsMoreAgainThanOneSegmentHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serveLarge(t, d.Host(1, volumetest.ProfileLocal()), 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		data := strings.Repeat("x", 300<<10)
		for i := range 12 {
			x.ok(appendTo("c1", cluster.RequestID(i+2), "l", g.Token, "f", data))
		}
		x.kill()
		for id := cluster.ServerID(2); id <= 3; id++ {
			y := serveLarge(t, d.Host(int(id), volumetest.ProfileLocal()), id, primary.Options{})
			if out := y.ok(appendTo("c1", 13, "l", g.Token, "f", data)); !out.Repeat {
				t.Errorf("server %d appended a repeat again", id)
			}
			y.kill()
		}
		if got, want := len(content(d, "f")), 12*len(data); got != want {
			t.Errorf("file has %d bytes, want %d", got, want)
		}
	})
}
