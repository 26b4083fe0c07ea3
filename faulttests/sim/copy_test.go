// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// tells is what a server says of itself.
func (c *Cluster) tells(id cluster.ServerID) serving.ServerStatus {
	for _, s := range c.server(id).node.Status().Servers {
		if s.Member.ID == id {
			return s
		}
	}
	return serving.ServerStatus{}
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
		onCopy := func(s serving.ServerStatus) bool {
			return slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "a copy of the volume") })
		}
		if s := c.tells(3); s.Able || !onCopy(s) {
			t.Errorf("server 3 has a copy: able %v, it warns of %q", s.Able, s.Warnings)
		}
		if s := c.tells(2); !s.Able || onCopy(s) {
			t.Errorf("server 2 has the volume: able %v, it warns of %q", s.Able, s.Warnings)
		}
		if err := c.server(3).node.HandleHandover(c.epochOf(1)); !errors.Is(err, node.ErrNotAble) {
			t.Errorf("named to follow, server 3 says %v", err)
		}
		if _, err := c.server(1).node.Handover(t.Context(), 3); !errors.Is(err, node.ErrNoSuccessor) {
			t.Errorf("a handover to server 3: %v", err)
		}
		c.Kill(1)
		if id, took, err := c.AwaitPrimary(30 * time.Second); err == nil {
			t.Errorf("with the vote of a server that has a copy, server %d is primary after %v", id, took)
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

// startOnCopy starts a process that has a copy of the volume, and reaches the servers by the
// addresses in it, which are not its own. It returns what kills it.
func (c *Cluster) startOnCopy(t *testing.T, d *volumetest.Disk, id cluster.ServerID) (*node.Node, func()) {
	t.Helper()
	host := d.Host(int(id), c.Profile)
	n, err := node.New(node.Options{
		Server: id, FS: host, Timing: c.Timing, Peers: c.Net.Peers(id), Log: c.Log, Path: "/copy",
		Random: c.Random, Rand: rand.New(rand.NewPCG(c.Rand.Uint64(), uint64(id))), FirstSegment: firstSegment, Segment: segment,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.Run(ctx)
	}()
	return n, func() {
		host.Kill()
		stop(errKilled)
		windUp(done)
	}
}

// Servers on a copy of the volume that is served somewhere else depose nobody, hinder no
// takeover and count for nobody; the servers whose IDs they use tell of them.
func TestServersOnACopyCountForNothing(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		d := c.Disk.Clone()
		var copies [4]*node.Node
		for id := cluster.ServerID(1); id <= 3; id++ {
			n, kill := c.startOnCopy(t, d, id)
			defer kill()
			copies[id] = n
		}
		epoch := c.epoch()
		for range 60 {
			time.Sleep(time.Second)
			if got := c.Primaries(); len(got) != 1 || got[0] != 1 {
				t.Errorf("servers %v are primary beside the copy, want 1", got)
				break
			}
		}
		if c.epoch() != epoch {
			t.Errorf("%d epochs became %d beside the copy", epoch, c.epoch())
		}
		for id := cluster.ServerID(1); id <= 3; id++ {
			for _, x := range c.server(id).node.Status().Servers {
				if x.Conflict {
					t.Errorf("server %d says that server %d is in conflict", id, x.Member.ID)
				}
			}
			s := c.tells(id)
			told := slices.ContainsFunc(s.Warnings, func(w string) bool {
				return strings.Contains(w, fmt.Sprintf("USES SERVER ID %d AND DOES NOT WRITE", id)) && strings.Contains(w, "/copy")
			})
			if id != 1 && !s.Able || !told {
				t.Errorf("server %d: able %v, it warns of %q", id, s.Able, s.Warnings)
			}
		}
		c.Kill(1)
		if id, took, err := c.AwaitPrimary(time.Second); err != nil || id != 2 {
			t.Errorf("server 1 is dead, beside a copy: after %v server %d is primary, %v", took, id, err)
		}
		c.Kill(3)
		time.Sleep(c.Timing.MajorityWindow + c.Timing.QuorumTimeout + c.Timing.Suspicion)
		if got := c.Primaries(); len(got) > 0 {
			t.Errorf("%v are primary with the votes of a copy", got)
		}
		for id, n := range copies[1:] {
			if n.Role() != election.RoleReplica {
				t.Errorf("server %d on the copy is %v", id+1, n.Role())
			}
		}
	})
}

// Two processes with one ID on one volume are a conflict, also where each was seen to write to
// it: neither is able, and both servers that are alone with their IDs go on.
func TestTwoProcessesOnOneVolumeAreAConflict(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		c.server(3).host.LoseLocks()
		twin, kill := c.startOnCopy(t, c.Disk, 3)
		time.Sleep(10 * time.Second)
		for id := cluster.ServerID(1); id <= 2; id++ {
			for _, s := range c.server(id).node.Status().Servers {
				if both := s.Member.ID == 3; s.Conflict != both || both != strings.Contains(strings.Join(s.Warnings, " "), "/copy") {
					t.Errorf("server %d says of server %d: conflict %v, warnings %q", id, s.Member.ID, s.Conflict, s.Warnings)
				}
			}
		}
		if s := c.tells(3); !s.Conflict || !strings.Contains(strings.Join(s.Warnings, " "), "/copy") {
			t.Errorf("server 3 says of itself: conflict %v, warnings %q", s.Conflict, s.Warnings)
		}
		for name, n := range map[string]*node.Node{"the first": c.server(3).node, "the second": twin} {
			if n.HandlePing(election.Ping{From: 9}).Status.Able {
				t.Errorf("%s process under ID 3 calls itself able", name)
			}
		}
		if got := c.Primaries(); len(got) != 1 || got[0] != 1 {
			t.Errorf("servers %v are primary, want 1", got)
		}
		kill()
		time.Sleep(12 * time.Second)
		if s := c.server(1).node.Status().Servers[2]; s.Conflict || !s.Able {
			t.Errorf("the second process has ended: %+v", s)
		}
	})
}

// What somebody sends in a server's name, from elsewhere, makes nobody think that it has a copy.
func TestBeatFromElsewhereIsNoneOfThePrimary(t *testing.T) {
	quiet(t, func(t *testing.T, c *Cluster) {
		nonce := (&Forger{c: c}).nonce(2) // that of the server, which everybody can hear
		c.Net.Cut(2, 3)                   // nor does the server itself say anything for a while
		for seq := range uint64(10) {
			c.server(3).node.HandlePing(election.Ping{
				From: 2, Nonce: nonce, Seq: seq + 1, Status: election.Status{Role: election.RolePrimary, Epoch: 99, Beat: 1 << 62},
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

// keepBelow gives all servers data directories below dir, or none if that is "".
func (c *Cluster) keepBelow(t *testing.T, dir string) {
	t.Helper()
	c.DataDirs = map[cluster.ServerID]string{}
	for _, m := range Members() {
		if dir == "" {
			return
		}
		c.DataDirs[m.ID] = filepath.Join(dir, fmt.Sprint(m.ID))
		if err := os.MkdirAll(c.DataDirs[m.ID], 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// A replica that nobody but the volume told how far the log was notices that a backup is in its
// place: it says so beside servers that know nothing, and does not take over.
func TestReplicaNoticesABackup(t *testing.T) {
	dir := t.TempDir()
	quiet(t, func(t *testing.T, c *Cluster) {
		c.keepBelow(t, dir)
		c.restartAll(t)
		c.grant(t, "a")
		backup := c.Disk.Clone()
		first := c.Primaries()[0]
		other := first%3 + 1
		var lsn cluster.LSN
		for i := range 5 {
			lsn = c.grant(t, cluster.LockName(fmt.Sprint("b", i)))
		}
		time.Sleep(3 * time.Second) // the canary is a second old, and what is known is kept each second
		k, err := replica.ReadKnown(filepath.Join(dir, fmt.Sprint(other)))
		if err != nil || k.LSN < lsn {
			t.Errorf("server %d, a replica, knows %+v (%v) three seconds after LSN %d", other, k, err, lsn)
		}
		c.Shutdown()
		c.Disk = backup
		forgetful := dir + "-new"
		c.keepBelow(t, forgetful)
		defer os.RemoveAll(forgetful) //nolint:errcheck // a test
		third := 6 - first - other
		for _, id := range []cluster.ServerID{first, third} {
			if err := c.Start(id); err != nil {
				t.Fatal(err)
			}
		}
		c.one(t, "servers that know nothing")
		c.keepBelow(t, dir)
		if err := c.Start(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		older := func(w string) bool { return strings.Contains(w, "OLDER") && strings.Contains(w, fmt.Sprint(k.LSN)) }
		if s := c.tells(other); !slices.ContainsFunc(s.Warnings, older) {
			t.Errorf("server %d knows LSN %d, stands at %d and warns of %q", other, k.LSN, s.LSN, s.Warnings)
		}
		if _, err := c.server(c.Primaries()[0]).node.Handover(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if id, _ := c.one(t, "behind a handover"); id == other {
			t.Errorf("server %d, which knows LSN %d, is primary on a backup", id, k.LSN)
		}
		for range 20 { // the terms go on beyond what it knows
			c.grant(t, cluster.LockName(fmt.Sprint("c", c.Rand.Uint64())))
		}
		time.Sleep(3 * time.Second)
		if s := c.tells(other); slices.ContainsFunc(s.Warnings, older) {
			t.Errorf("server %d stands at LSN %d and warns of %q", other, s.LSN, s.Warnings)
		}
	})
}
