// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// remove has the primary remove a server.
func (x *server) remove(t *testing.T, request cluster.RequestID, id cluster.ServerID) {
	t.Helper()
	q := &locktable.Request{Op: locktable.OpMembers, Client: "operator", ID: request, Members: &locktable.MembersRequest{Change: cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: id}}}}
	if out, err := x.Do(t.Context(), q); err != nil || out.Status != cluster.StatusOK {
		t.Fatalf("remove server %d: %v %q, %v", id, out.Status, out.Message, err)
	}
}

// ended waits for the end of a server's process, and returns why it ended.
func (x *server) ended(t *testing.T) error {
	t.Helper()
	select {
	case <-x.done:
		return x.err
	case <-time.After(healing):
		t.Fatal("the server goes on")
		return nil
	}
}

// TestRemovedReplicaEnds: it learns from the primary's pushes that it was removed, and never starts again.
func TestRemovedReplicaEnds(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		epoch := c.epoch()
		c.server(1).remove(t, 1, 3)
		if err := c.server(3).ended(t); !errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("server 3 ended: %v", err)
		}
		c.Kill(3)
		if err := c.Start(3); !errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("it starts again: %v", err)
		}
		if ids := c.Primaries(); len(ids) != 1 || ids[0] != 1 || c.epoch() != epoch {
			t.Errorf("%v are primary, in epoch %d", ids, c.epoch())
		}
	})
}

// TestRemovedServerWakesUp: servers 2 and 3 were cut off when server 2 was removed, and come back when nobody reigns. Neither knows, so server 2
// has a majority and is the one to claim. It reads MEMBERS and ends without a claim. Where MEMBERS is lost, it claims, finds itself missing
// in the log that it is about to adopt, and ends: its number is used up, and the others go on.
func TestRemovedServerWakesUp(t *testing.T) {
	for _, lost := range []bool{false, true} {
		quiet(t, func(t *testing.T, c *Cluster) {
			var asleep []*volumetest.Gate
			for id := cluster.ServerID(2); id <= 3; id++ {
				c.Net.Isolate(id, true)
				asleep = append(asleep, c.Hang(id))
			}
			c.server(1).remove(t, 1, 2)
			time.Sleep(500 * time.Millisecond) // MEMBERS shows it, and the term goes on without a majority
			c.Kill(1)
			epoch := c.epoch()
			if lost {
				if err := c.Disk.Remove("MEMBERS"); err != nil {
					t.Fatal(err)
				}
				epoch++
			}
			for i, gate := range asleep {
				c.Net.Isolate(cluster.ServerID(2+i), false)
				gate.Resume()
			}
			if err := c.server(2).ended(t); !errors.Is(err, cluster.ErrRemoved) {
				t.Errorf("MEMBERS is lost: %t: server 2 ended: %v", lost, err)
			}
			if c.epoch() != epoch {
				t.Errorf("MEMBERS is lost: %t: epoch %d was claimed, want %d", lost, c.epoch(), epoch)
			}
			c.Kill(2)
			if err := c.Start(1); err != nil {
				t.Fatal(err)
			}
			c.one(t, "server 1 is back")
		})
	}
}

// TestDamagedMembersStopNobody: MEMBERS that cannot be read delays no takeover; the next primary writes it again.
func TestDamagedMembersStopNobody(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		q := &locktable.Request{Op: locktable.OpMembers, Client: "operator", ID: 1, Members: &locktable.MembersRequest{Change: cluster.MemberChange{
			Kind: cluster.AddServer, Server: cluster.Member{ID: 4, Client: "h4:1", Peer: "h4:3"},
		}}}
		if out, err := c.server(1).Do(t.Context(), q); err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("add a server: %v %q, %v", out.Status, out.Message, err)
		}
		time.Sleep(time.Second)
		c.Kill(1)
		if err := c.Disk.Write("MEMBERS", 0, []byte("????")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.AwaitPrimary(healing); err != nil {
			t.Errorf("nobody is primary: %v", err)
		}
		time.Sleep(time.Second)
		if b, err := c.Disk.ReadFile("MEMBERS"); err != nil || b[0] == '?' {
			t.Errorf("MEMBERS is %.20q, %v", b, err)
		}
		if err := c.Start(1); err != nil {
			t.Fatal(err)
		}
	})
}
