// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// learned is longer than clients take to learn where the servers are.
const learned = 12 * time.Second

// TestServersAreReplaced replaces each of three servers by a new one, in turn, and gives the last one another address, under load. Clients that know the
// first three only find the new ones, also when their primary is killed.
func TestServersAreReplaced(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		for old := hf.ServerID(1); old <= 3; old++ {
			_, epoch := b.awaitTerm(t, 0)
			b.strike(fmt.Sprintf("server %d is replaced", old), epoch)
			began := time.Now()
			b.putNew(t, old)
			t.Logf("server %d is replaced after %v", old, time.Since(began).Round(time.Millisecond))
			b.c.AwaitReplicas(cluster.Patience)
			traffic.Rest(t.Context(), learned)
		}
		p, epoch := b.awaitTerm(t, 0)
		if p.Member.ID < 4 {
			t.Errorf("server %d is primary, which was removed", p.Member.ID)
		}
		b.strike(strikePrimary, epoch)
		b.nemesis.kill(p)
		b.nemesis.Primaries++
		b.awaitTerm(t, epoch)
		p.Start()
		b.c.AwaitReplicas(cluster.Patience)
		b.move(t, b.c.Server(6))
		traffic.Rest(t.Context(), time.Second)
	})
}

// putNew puts a new server, which is started first, in the place of another one.
func (b *battle) putNew(t *testing.T, old hf.ServerID) {
	t.Helper()
	added := b.c.Add()
	added.Start() // it waits until it is added
	out, err := b.c.Run("member", "replace", fmt.Sprintf("%d=%s,%s", old, added.Member.Client, added.Member.Peer), "--wait", "2m")
	if err != nil || !strings.Contains(out, fmt.Sprintf("server %d is in the place of server %d", added.Member.ID, old)) {
		t.Fatalf("replace server %d: %v: %s", old, err, out)
	}
	endsRemoved(t, b.c.Server(old))
}

// endsRemoved demands that a server ends by itself with the exit code of a removed one.
func endsRemoved(t *testing.T, s *cluster.Server) {
	t.Helper()
	err, ended := s.Ended(cluster.Patience)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ended || !ok || exit.ExitCode() != 78 {
		t.Errorf("server %d was removed; ended: %t, %v", s.Member.ID, ended, err)
	}
}

// move gives a server other addresses; the others are not started again.
func (b *battle) move(t *testing.T, s *cluster.Server) {
	t.Helper()
	if p, epoch := b.awaitTerm(t, 0); p == s {
		p.Term()
		b.awaitTerm(t, epoch)
	} else {
		s.Term()
	}
	base := cluster.FreePorts(t)
	s.Member.Client, s.Member.Peer = fmt.Sprintf("127.0.0.1:%d", base), fmt.Sprintf("127.0.0.1:%d", base+1)
	if out, err := b.c.Run("member", "set", fmt.Sprintf("%d=%s,%s", s.Member.ID, s.Member.Client, s.Member.Peer)); err != nil {
		t.Fatalf("set server %d: %v: %s", s.Member.ID, err, out)
	}
	s.Start()
	cluster.Await(t, cluster.Patience, "the server that has moved is reached", func() bool {
		p, _ := b.c.Primary(t.Context())
		if p == nil {
			return false
		}
		body, err := p.Status(t.Context())
		for _, x := range body.Servers {
			if err == nil && x.ID == uint32(s.Member.ID) && x.Client == s.Member.Client && x.Role == "replica" && x.Able {
				return true
			}
		}
		return false
	})
}

// TestLoneSurvivor removes two of three servers that are gone for good, by the volume alone, and the third serves.
func TestLoneSurvivor(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		p, epoch := b.awaitTerm(t, 0)
		b.strike(strikeAll, epoch)
		remove := func(id hf.ServerID) (string, error) {
			return b.c.Run("member", "remove", fmt.Sprint(id), "--volume", b.c.Dir())
		}
		if out, err := remove(2); err == nil || !strings.Contains(out, "a server runs: stop it") {
			t.Errorf("removed beside a primary: %v: %s", err, out)
		}
		b.c.KillAll()
		b.nemesis.Kills += 3
		for _, id := range []hf.ServerID{2, 3, 3} {
			if out, err := remove(id); err != nil || !strings.Contains(out, fmt.Sprintf("server %d is removed, for good", id)) {
				t.Fatalf("remove server %d: %v: %s", id, err, out)
			}
		}
		b.c.Server(1).Start()
		if now, _ := b.awaitTerm(t, epoch); now.Member.ID != 1 {
			t.Errorf("server %d is primary, and was %d", now.Member.ID, p.Member.ID)
		}
		b.c.Server(2).Start()
		endsRemoved(t, b.c.Server(2))
		added := b.c.Add()
		added.Start()
		if out, err := b.c.Run("member", "add", fmt.Sprintf("%d=%s,%s", added.Member.ID, added.Member.Client, added.Member.Peer)); err != nil {
			t.Errorf("add: %v: %s", err, out)
		}
		cluster.Await(t, cluster.Patience, "it is a member", func() bool {
			out, err := b.c.Run("member", "ls")
			return err == nil && !strings.Contains(out, "joining") && strings.Contains(out, added.Member.Client)
		})
	})
}
