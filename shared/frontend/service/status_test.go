// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// What is counted of a large table is kept for a while, of a small one never.
func TestLargeTableIsNotCountedForEverybody(t *testing.T) {
	for pages, want := range map[int]int{1: 100, 2: 5} {
		synctest.Test(t, func(t *testing.T) {
			var l lastCount
			n := 0
			for range 100 {
				c := l.of(countedFor{}, func() counts {
					n++
					time.Sleep(5 * time.Millisecond)
					return counts{pages: pages, held: uint64(n)}
				})
				if c.held != uint64(n) {
					t.Errorf("%d held, want what was counted last, %d", c.held, n)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if n != want {
				t.Errorf("with %d pages it was counted %d times, want %d", pages, n, want)
			}
		})
	}
}

// A new primary does not tell what it counted as a replica: that it had to hear nobody.
func TestNewPrimaryCountsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lastCount
		slowly := func(unheard uint64) func() counts {
			return func() counts {
				time.Sleep(time.Second)
				return counts{pages: 2, unheard: unheard}
			}
		}
		for i, by := range []countedFor{{pb.Role_ROLE_REPLICA, 1}, {pb.Role_ROLE_PRIMARY, 2}, {pb.Role_ROLE_REPLICA, 3}, {pb.Role_ROLE_REPLICA, 4}} {
			if c := l.of(by, slowly(uint64(i))); c.unheard != uint64(i) {
				t.Errorf("%v: %d unheard, want %d", by, c.unheard, i)
			}
		}
	})
}

// What a server knows of itself is told.
func TestServerTellsOfItself(t *testing.T) {
	x := serverProto(&serving.ServerStatus{Member: cluster.Member{ID: 1}, Role: rolePrimary, Full: true, Version: "v1", Uptime: time.Minute, Path: "/mnt"}, 1)
	if v := x.GetVolume(); !v.GetFull() || v.GetPath() != "/mnt" || x.GetVersion() != "v1" || x.GetUptimeMs() != 60_000 {
		t.Errorf("got %v", x)
	}
}
