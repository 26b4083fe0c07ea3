// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A deposed primary may still say that it is primary, of its older epoch.
func TestTheNewerEpochIsBelieved(t *testing.T) {
	older, newer := &server{addr: "s1"}, &server{addr: "s2"}
	for _, c := range []struct {
		name string
		all  []finding
		want *server
	}{
		{"nobody", []finding{{}, {}}, nil},
		{"an old primary and a newer one", []finding{{to: older, epoch: 1, rank: rankPrimary}, {to: newer, epoch: 2, rank: rankPrimary}}, newer},
		{"an old primary and a newer one by hearsay", []finding{{to: older, epoch: 1, rank: rankPrimary}, {to: newer, epoch: 2, rank: rankNamed}}, newer},
		{"the primary and hearsay of one epoch", []finding{{to: newer, epoch: 2, rank: rankPrimary}, {to: older, epoch: 2, rank: rankNamed}}, newer},
		{"a newer epoch of nobody", []finding{{to: older, epoch: 1, rank: rankPrimary}, {epoch: 2}}, older},
	} {
		t.Run(c.name, func(t *testing.T) {
			var forth, back finding
			for i := range c.all {
				forth, back = forth.merge(c.all[i]), back.merge(c.all[len(c.all)-1-i])
			}
			if forth.to != c.want || back.to != c.want {
				t.Errorf("found %+v and %+v, want %+v", forth.to, back.to, c.want)
			}
		})
	}
	s := &servers{}
	s.belief.Store(&belief{})
	for _, step := range []struct {
		v     *server
		epoch cluster.Epoch
		want  *server
	}{
		{older, 1, older}, {newer, 2, newer},
		{older, 1, newer}, // a late answer of the older term
		{older, 2, older},
	} {
		if s.believe(step.v, step.epoch); s.primary() != step.want {
			t.Errorf("after %s of epoch %d: %s", step.v.addr, step.epoch, s.primary().addr)
		}
	}
	s.doubt(older)
	if s.believe(newer, 1); s.primary() != newer { // better than nobody
		t.Error("with nobody left, an older epoch is not tried")
	}
}

// A client that works learns of servers that came after it, without a failover: those that it was given may be gone at the next.
func TestNewServersAreLearned(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("l", AcquireOptions{TTL: 10 * time.Second})
		w.mu.Lock()
		w.fakeCluster.mu.members = []string{"s1:1", "s4:1"}
		w.mu.Unlock()
		time.Sleep(2 * learnEvery)
		all, _ := w.c.servers.list()
		if len(all) != 4 || all[3].addr != "s4:1" {
			t.Errorf("%d servers are known", len(all))
		}
		if got := w.c.servers.addresses(); len(got) != 3 {
			t.Errorf("the user gave %v", got)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A client that comes through gateways stays with them, whatever servers their answers name: these may be out of its reach.
func TestAClientStaysWithItsGateways(t *testing.T) {
	inBubble(t, Options{Budget: time.Minute}, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.fakeCluster.mu.gateway, w.fakeCluster.mu.members = true, []string{"s4:1"}
		w.mu.Unlock()
		l := w.acquire("l", AcquireOptions{TTL: 30 * time.Second})
		w.setPrimary(w.server("s4:1")) // which no gateway reaches yet
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		watching, stop := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() {
			watched <- w.c.WatchBatches(watching, WatchOptions{Lock: "l", Bookmark: time.Second}, func(WatchBatch) error { return nil })
		}()
		time.Sleep(5 * time.Second)
		w.setPrimary(w.servers[1])
		if err := <-released; err != nil {
			t.Error(err)
		}
		stop()
		<-watched
		all, _ := w.c.servers.list()
		for _, v := range all[3:] {
			t.Errorf("the client goes around its gateways, to %s", v.addr)
		}
	})
}
