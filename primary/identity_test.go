// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	alice = "user:alice"
	bob   = "user:bob"
)

// by returns q as a request of this identity.
func by(identity string, q *locktable.Request) *locktable.Request {
	q.Identity = identity
	return q
}

// callOf returns the context of a call by this identity, "" for a caller without a credential.
func callOf(identity string) context.Context {
	if identity == "" {
		return context.Background()
	}
	return serving.WithCaller(context.Background(), &access.Caller{Identity: identity})
}

// strangers has whatever another identity can send to keep alive, renew or use what alice has.
func strangers(t *testing.T, x *term, identity string, token cluster.Token) {
	t.Helper()
	ctx := callOf(identity)
	if out, err := x.p.Renew(ctx, "db", token); err != nil || out.Status != cluster.StatusPermissionDenied || out.TTL != 0 {
		t.Errorf("a renewal by %q: %+v, %v", identity, out, err)
	}
	for _, b := range []serving.Belief{{Held: 1}, {Held: 7}, {PlacesOnly: true}} {
		grants, asks, out, err := x.p.KeepAlive(ctx, "a", b)
		if err != nil || out.Status != cluster.StatusPermissionDenied || grants != nil || asks != nil {
			t.Errorf("a keep-alive by %q: %v %v %+v, %v", identity, grants, asks, out, err)
		}
	}
	x.sees(by(identity, acquire("a", 1, "db", 0)), cluster.StatusPermissionDenied)
	x.sees(by(identity, acquire("a", 2, "q", locktable.WaitForever)), cluster.StatusPermissionDenied)
	x.sees(by(identity, &locktable.Request{Op: locktable.OpCancel, Client: "a", Target: 2}), cluster.StatusPermissionDenied)
	x.sees(by(identity, release("x", 1, "db", token)), cluster.StatusPermissionDenied)
	x.sees(by(identity, appendTo("x", 2, "db", token, "log", "x")), cluster.StatusPermissionDenied)
	x.sees(by(identity, appendTo("a", 9, "db", token, "log", "x")), cluster.StatusPermissionDenied)
}

// TestStrangersKeepNothingAlive has strangers send all they can every second: the lease and the
// place of a client that is silent end as if nobody had sent anything, and its file is not made.
func TestStrangersKeepNothingAlive(t *testing.T) {
	for _, identity := range []string{bob, ""} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(t)
			x := serve(t, d, 1, primary.Options{})
			defer x.end() //nolint:errcheck // it is stopped
			held := x.ok(by(alice, acquire("a", 1, "db", 0)))
			other := x.ok(by(bob, acquire("b", 1, "q", 0)))
			waits, gone := context.WithCancel(callOf(alice))
			go x.p.Do(waits, by(alice, acquire("a", 2, "q", locktable.WaitForever))) //nolint:errcheck // it is given up
			synctest.Wait()
			gone()
			for range 35 {
				strangers(t, x, identity, held.Token)
				if out, err := x.p.Renew(callOf(bob), "q", other.Token); err != nil || out.Status != cluster.StatusOK {
					t.Fatalf("bob renews his own: %+v, %v", out, err)
				}
				time.Sleep(time.Second)
				if len(x.grants("db")) == 0 {
					break
				}
			}
			if g := x.grants("db"); len(g) != 0 {
				t.Errorf("%q kept %+v alive", identity, g)
			}
			if q := x.queue("q"); len(q) != 0 {
				t.Errorf("%q kept the place of %v alive", identity, q)
			}
			if _, made := d.Files("files/")["files/log"]; made {
				t.Error("a request that was refused made a file")
			}
		})
	}
}

// TestIdentityKeepsItsOwnAlive over a failover too.
func TestIdentityKeepsItsOwnAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		held := x.ok(by(alice, acquire("a", 1, "db", 0)))
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		strangers(t, y, bob, held.Token)
		for range 35 {
			if _, _, out, err := y.p.KeepAlive(callOf(alice), "a", serving.Belief{Held: 1}); err != nil || out.Status != cluster.StatusOK {
				t.Fatalf("keep-alive: %+v, %v", out, err)
			}
			time.Sleep(time.Second)
		}
		if out, err := y.p.Renew(callOf(alice), "db", held.Token); err != nil || out.Status != cluster.StatusOK {
			t.Errorf("renewal: %+v, %v", out, err)
		}
		if g := y.grants("db"); len(g) != 1 || g[0].Identity != alice {
			t.Errorf("held by %+v", g)
		}
		y.ok(by(alice, release("a2", 1, "db", held.Token)))
	})
}
