// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/why"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Clients that wait for each other are told of by status, and by why of each of their locks, to who may read all of them.
func TestRingsAreTold(t *testing.T) {
	d := newDoors(t)
	d.g.set(t, &access.File{Rules: []access.Rule{
		{Who: []string{"user:alice"}, May: []access.Verb{access.Read}, Locks: []string{"left", "right"}},
		{Who: []string{"user:bob"}, May: []access.Verb{access.Read}, Locks: []string{"left"}},
	}})
	ask := func(client cluster.ClientID, id cluster.RequestID, lock cluster.LockName, wait time.Duration) {
		q := &locktable.Request{Op: locktable.OpAcquire, Client: client, ID: id, Lock: lock, TTL: time.Minute, Wait: wait}
		if wait != 0 {
			go d.b.p.Do(context.Background(), q) //nolint:errcheck // it ends with the term
			eventually(t, "it waits", func() bool { return d.b.lockAt(t, lock).QueueLength == 1 })
			return
		}
		if out, err := d.b.p.Do(t.Context(), q); err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("%s: %v, %v", lock, out, err)
		}
	}
	ask("ann", 1, "left", 0)
	ask("ben", 1, "right", 0)
	ask("ann", 2, "right", time.Minute)
	tells := func(who, lock string) (inStatus, inWhy string) {
		t.Helper()
		ctx := serving.WithCaller(t.Context(), d.g.callers[who])
		r, err := d.s.Status(ctx, &pb.StatusRequest{})
		b, failed := why.Ask(ctx, d.s, lock, false)
		if err != nil || failed != nil || b.Status != "OK" {
			t.Fatalf("%s asks: %v, %v, %s %s", who, err, failed, b.Status, b.Message)
		}
		for _, ring := range wire.StatusBodyOf(r).Rings {
			for _, x := range ring {
				inStatus += " " + x.ClientID + ">" + x.Lock
			}
		}
		for _, x := range b.Ring {
			inWhy += " " + x.ClientID + ">" + x.Lock
		}
		if told := strings.Contains(b.Advice, "wait for each other"); told != (inWhy != "") {
			t.Errorf("%s is advised: %s", who, b.Advice)
		}
		return inStatus, inWhy
	}
	if s, w := tells("alice", "left"); s != "" || w != "" {
		t.Errorf("one waits for another: %q, %q", s, w)
	}
	ask("ben", 2, "left", time.Minute)
	for lock, want := range map[string]string{"left": " ann>right ben>left", "right": " ben>left ann>right"} {
		for _, who := range []string{"alice", "root"} {
			if s, w := tells(who, lock); s != " ann>right ben>left" || w != want {
				t.Errorf("%s, of %s: %q, %q", who, lock, s, w)
			}
		}
	}
	if s, w := tells("bob", "left"); s != "" || w != "" {
		t.Errorf("who may read one lock only is told %q, %q", s, w)
	}
}
