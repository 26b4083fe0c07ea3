// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary/api"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// tells is what a server says of itself.
func (c *Cluster) tells(id cluster.ServerID) api.ServerStatus {
	for _, s := range c.server(id).node.Status().Servers {
		if s.Member.ID == id {
			return s
		}
	}
	return api.ServerStatus{}
}

// A replica that has a copy of the volume neither follows nor votes, and says so; given the
// volume, it does both.
func TestServerOnACopyNeitherFollowsNorVotes(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.Kill(3)
		c.Copies = map[cluster.ServerID]*volumetest.Disk{3: c.Disk.Clone()}
		start := func(id cluster.ServerID) {
			t.Helper()
			if err := c.Start(id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.Timing.StorageTimeout + 3*time.Second)
		}
		start(3)
		onCopy := func(s api.ServerStatus) bool {
			return slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "a copy of the volume") })
		}
		if s := c.tells(3); s.Able || !onCopy(s) {
			t.Errorf("server 3 has a copy: able %v, it warns of %q", s.Able, s.Warnings)
		}
		if s := c.tells(2); !s.Able || onCopy(s) {
			t.Errorf("server 2 has the volume: able %v, it warns of %q", s.Able, s.Warnings)
		}
		if err := c.server(3).node.HandleHandover(c.reigning(1)); !errors.Is(err, node.ErrNotAble) {
			t.Errorf("named to follow, server 3 says %v", err)
		}
		if _, err := c.server(1).node.Handover(t.Context(), 3); !errors.Is(err, node.ErrNoSuccessor) {
			t.Errorf("a handover to server 3: %v", err)
		}
		c.Kill(1)
		if id, took, err := c.AwaitPrimary(30 * time.Second); err == nil {
			t.Errorf("with the vote of a server that has a copy, server %d reigns after %v", id, took)
		}
		c.Kill(3)
		c.Copies = nil
		start(3)
		if s := c.tells(3); onCopy(s) {
			t.Errorf("server 3 has the volume, and warns of %q", s.Warnings)
		}
		c.one(t, "with the vote of a server that has the volume")
	})
}

// What somebody sends in a server's name, from elsewhere, makes nobody think that it has a copy.
func TestBeatFromElsewhereIsNoneOfThePrimary(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.Net.Cut(2, 3) // nor does the server itself say anything for a while
		for seq := range uint64(10) {
			c.server(3).node.HandlePing(election.Ping{
				From: 2, Nonce: 4711, Seq: seq + 1, Status: election.Status{Role: election.RolePrimary, Epoch: 99, Beat: 1 << 62},
			})
			time.Sleep(c.Timing.Heartbeat)
		}
		c.Net.Heal()
		time.Sleep(20 * time.Second)
		if s := c.tells(3); !s.Able || len(s.Warnings) > 0 {
			t.Errorf("server 3: able %v, it warns of %q", s.Able, s.Warnings)
		}
	})
}
