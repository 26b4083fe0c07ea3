// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// A Jump ends the leases of its lock, or those of which no more is left; a read after it shows that. Without a quorum
// leases are not counted, and so none ends.
func TestJump(t *testing.T) {
	for _, test := range []struct {
		name        string
		jump        primary.Jump
		quorum      bool
		first, last bool // whether the leases of locks a and b live afterwards
	}{
		{"one lock", primary.Jump{Lock: "a"}, true, false, true},
		{"a lock that is free", primary.Jump{Lock: "c"}, true, true, true},
		{"less than is left", primary.Jump{By: 20 * time.Second}, true, true, true},
		{"more than is left of one", primary.Jump{By: 40 * time.Second}, true, false, true},
		{"more than is left of any", primary.Jump{By: time.Hour}, true, false, false},
		{"without a quorum", primary.Jump{By: time.Hour, Lock: "a"}, false, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				jumps := make(chan primary.Jump)
				x := serve(t, newDisk(t), 1, primary.Options{Jumps: jumps})
				defer x.end()
				short, long := acquire("c1", 1, "a", 0), acquire("c2", 1, "b", 0)
				short.TTL, long.TTL = 30*time.Second, 5*time.Minute
				first, last := x.ok(short).Token, x.ok(long).Token
				x.p.SetQuorum(test.quorum)
				jumps <- test.jump
				synctest.Wait()
				x.p.SetQuorum(true)
				for lock, want := range map[*locktable.Request]bool{short: test.first, long: test.last} {
					token := map[cluster.LockName]cluster.Token{"a": first, "b": last}[lock.Lock]
					if _, live := x.remaining(lock.Lock, token); live != want {
						t.Errorf("lock %s: live is %v", lock.Lock, live)
					}
				}
			})
		})
	}
}

// Who waits for a lock gets it when a Jump ends the grant before.
func TestJumpGrantsTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jumps := make(chan primary.Jump)
		x := serve(t, newDisk(t), 1, primary.Options{Jumps: jumps})
		defer x.end()
		x.ok(acquire("c1", 1, "a", 0))
		next := x.later(acquire("c2", 1, "a", time.Hour))
		synctest.Wait()
		jumps <- primary.Jump{Lock: "a"}
		if out := <-next; out.Status != cluster.StatusOK {
			t.Errorf("the next in the queue gets %v", out.Status)
		}
	})
}
