// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// An NFS server gives delegations, and a machine loses its power: nobody waits until its lease
// is over, neither at once nor later.
func TestNobodyWaitsForADeadMachinesDelegations(t *testing.T) {
	for _, write := range []bool{false, true} {
		for victim, who := range []string{"the primary", "a replica", "another replica", "who read all files", "who read all files, then the primary"} {
			t.Run(fmt.Sprintf("%s, for writing %v", who, write), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playDelegations(t, write, victim) })
			})
		}
	}
}

// playDelegations takes the power from the machine of a server, counted from the primary, or from
// one that has only read the volume.
func playDelegations(t *testing.T, write bool, victim int) {
	const rounds = 90
	const most = pace + 3*time.Second
	c := newClusterOn(t, volumetest.ProfileNetwork(), 1, rounds)
	c.Disk.Delegate(volumetest.Delegations{Lease: 90 * time.Second, Write: write})
	first, _ := c.one(t, "start")
	time.Sleep(20 * time.Second) // checkpoints, and segments that are closed
	var off *volumetest.Host     // a server's, whose locks the NFS server drops with its lease
	if victim < 3 {
		off = c.server((first+cluster.ServerID(victim)-1)%3 + 1).host
		c.PowerOff((first+cluster.ServerID(victim)-1)%3 + 1)
	} else {
		reader := c.Disk.Host(8, volumetest.ProfileNetwork())
		for name := range c.Disk.Files("") {
			must(t, reader.Browse(vfs.FlagRead, name))
		}
		reader.PowerOff()
	}
	if victim == 4 {
		time.Sleep(4 * time.Second)
		c.Kill(first)
	}
	seen, at := c.progress.Load(), time.Now()
	for began := time.Now(); time.Since(began) < 100*time.Second && !t.Failed(); time.Sleep(10 * time.Millisecond) {
		if now := c.progress.Load(); now != seen {
			seen, at = now, time.Now()
		}
		if time.Since(at) > most {
			t.Errorf("%v after the power went nothing was acknowledged for %v", time.Since(began), most)
		}
		for id := cluster.ServerID(1); id <= 3; id++ {
			if x := c.server(id); x != nil {
				if calls := slices.DeleteFunc(x.host.Waiting(), mayWait); len(calls) > 0 {
					t.Errorf("%v after the power went server %d waits in %q", time.Since(began), id, calls)
				}
			}
		}
	}
	c.one(t, "a lease later")
	if off != nil {
		off.LoseLocks()
	}
	c.finish(t, rounds)
}

// mayWait reports whether nothing depends on a call: views are late then, and what nobody needs
// any more stays for a while.
func mayWait(call string) bool {
	_, what, _ := strings.Cut(call, " ")
	return strings.HasPrefix(what, "replace-rename .lock_state.json") || strings.HasPrefix(what, "replace-rename .processed_requests.log") ||
		strings.HasPrefix(what, "remove epochs/")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
