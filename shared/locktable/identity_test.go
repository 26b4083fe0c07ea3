// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const (
	alice = "user:alice"
	bob   = "user:bob"

	permissionDenied = cluster.StatusPermissionDenied
)

// by returns q as a request of this identity.
func by(identity string, q locktable.Request) locktable.Request {
	q.Identity = identity
	return q
}

func onFile(op locktable.Op, c cluster.ClientID, id cluster.RequestID, token cluster.Token) locktable.Request {
	return locktable.Request{Op: op, Client: c, ID: id, Lock: "db", Token: token, File: "log"}
}

// usesOfToken are the requests that use a token of lock db, and are executed in this order.
func usesOfToken(c cluster.ClientID, token cluster.Token) []locktable.Request {
	return []locktable.Request{
		appendTo(c, 101, "db", token, "log", "x"), onFile(locktable.OpBind, c, 102, token),
		onFile(locktable.OpSeal, c, 103, token), onFile(locktable.OpRotate, c, 104, token), onFile(locktable.OpUnbind, c, 105, token),
		{Op: locktable.OpMetadata, Client: c, ID: 106, Lock: "db", Token: token, Metadata: "m"},
		{Op: locktable.OpExtend, Client: c, ID: 107, Lock: "db", Token: token, TTL: time.Minute},
		downgrade(c, 108, "db", token), release(c, 109, "db", token),
	}
}

// usesOfClient are the requests that name a client.
func usesOfClient(c cluster.ClientID) []locktable.Request {
	return []locktable.Request{
		acquire(c, 50, "other", 0), acquire(c, 1, "db", 0), acquire(c, 2, "db", forever), cancel(c, 2), cancel(c, 60),
		release(c, 51, "db", 99), {Op: locktable.OpForget, Client: c},
		{Op: locktable.OpBreak, Client: c, ID: 52, LowWater: 52, Lock: "db"},
	}
}

// TestTokenOfAnotherIdentity wants every use of a token refused to all but the identity of its
// grant, and nothing left of it: the same requests then succeed.
func TestTokenOfAnotherIdentity(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, by(alice, acquire("a", 1, "db", 0))).Token
	facts := locktable.FileFacts{Inode: 7, Made: true}
	for _, stranger := range []string{bob, "", "user:alic", "user:Alice"} {
		for _, q := range usesOfToken("b", token) {
			dec, recs := h.do(by(stranger, q), facts)
			if out := dec.Outcome; out.Status != permissionDenied || len(recs) > 0 {
				t.Errorf("%v by %q: %v %s, %d records", q.Op, stranger, out.Status, out.Message, len(recs))
			} else if !strings.Contains(out.Message, `the lock "db" is held by another identity under this token, and you `) {
				t.Errorf("%v by %q: %s", q.Op, stranger, out.Message)
			}
		}
	}
	if _, known := h.table.Client("b"); known {
		t.Error("a refusal made a client known")
	}
	for i, q := range usesOfToken("b", token) { // her own token, under another client ID
		facts.Inode += uint64(i)
		h.wantFacts(ok, by(alice, q), facts)
	}
	h.reload()
}

// TestClientOfAnotherIdentity wants a client of an identity closed to all others: its receipts, its
// places and its low-water mark.
func TestClientOfAnotherIdentity(t *testing.T) {
	h := newHarness(t)
	h.want(ok, by(alice, acquire("a", 1, "db", 0)))
	h.want(pending, by(alice, acquire("a", 2, "db", forever)))
	opened := h.want(ok, by(alice, locktable.Request{Op: locktable.OpOpenClient, Nonce: 5})).Client
	h.want(permissionDenied, by(bob, locktable.Request{Op: locktable.OpOpenClient, Nonce: 5}))
	h.want(ok, by(alice, locktable.Request{Op: locktable.OpOpenClient, Nonce: 5}))
	was, _ := h.table.Client("a")
	for _, stranger := range []string{bob, ""} {
		for _, c := range []cluster.ClientID{"a", opened} {
			for _, q := range usesOfClient(c) {
				dec, recs := h.do(by(stranger, q), locktable.FileFacts{})
				if out := dec.Outcome; out.Status != permissionDenied || len(recs) > 0 || out.Repeat {
					t.Errorf("%v by %q: %v %s, %d records", q.Op, stranger, out.Status, out.Message, len(recs))
				}
			}
		}
	}
	if is, _ := h.table.Client("a"); is != was || is.Identity != alice {
		t.Errorf("the client is %+v, was %+v", is, was)
	}
	if out := h.want(ok, by(alice, acquire("a", 1, "db", 0))); !out.Repeat {
		t.Errorf("her repeat got %+v", out)
	}
	h.want(cluster.StatusCancelled, by(alice, cancel("a", 2)))
	h.reload()
}

// TestBreakNeedsNoIdentity wants a lock broken by whoever the front end lets.
func TestBreakNeedsNoIdentity(t *testing.T) {
	h := newHarness(t)
	h.want(ok, by(alice, acquire("a", 1, "db", 0)))
	h.want(ok, by(bob, locktable.Request{Op: locktable.OpBreak, Client: "b", ID: 1, Lock: "db", Actor: "bob"}))
}

// TestClientWithoutIdentity wants what belongs to nobody open to all, until the first request of an
// identity is executed for the client.
func TestClientWithoutIdentity(t *testing.T) {
	h := newHarness(t)
	first := h.want(ok, acquire("c", 1, "db", 0)).Token
	h.want(ok, by(bob, locktable.Request{Op: locktable.OpMetadata, Client: "b", ID: 1, Lock: "db", Token: first, Metadata: "m"}))
	h.want(cluster.StatusHeld, by(bob, acquire("c", 2, "db", 0))) // a refusal is not executed
	h.want(ok, acquire("c", 3, "b", 0))
	h.want(ok, by(alice, acquire("c", 4, "d", 0)))
	h.want(permissionDenied, acquire("c", 5, "e", 0))
	h.want(permissionDenied, release("x", 1, "db", first))
	if g, _ := h.table.Live("db", first); g.Identity != alice {
		t.Errorf("the older grant of the client is of %q", g.Identity)
	}
	h.want(ok, by(alice, release("x", 1, "db", first)))
	h.reload()

	h.apply(h.table.DecideForceClear(1, nil))
	h.apply(h.table.DecideForget("c", 1, nil))
	h.want(ok, by(bob, acquire("c", 1, "db", 0))) // it was not known any more
}

// TestGrantFromTheQueueIsOfItsClient wants the identity in the records of grants, for watches and
// the history, also where the request of another one began the turn.
func TestGrantFromTheQueueIsOfItsClient(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, by(alice, acquire("a", 1, "db", 0))).Token
	h.want(pending, by(bob, acquire("b", 1, "db", forever)))
	for w := range h.table.Waiters("db") {
		if w.Identity != bob {
			t.Errorf("the waiter is of %q", w.Identity)
		}
	}
	if out := h.want(cluster.StatusHeld, acquire("c", 1, "db", 0)); out.Holder.Identity != alice {
		t.Errorf("held by %+v", out.Holder)
	}
	_, recs := h.do(by(alice, release("a", 2, "db", token)), locktable.FileFacts{})
	if len(recs) != 2 || recs[0].Identity != alice || recs[1].Identity != bob {
		t.Errorf("records %+v", recs)
	}
	h.want(permissionDenied, by(alice, release("a", 3, "db", recs[1].LSN.Token())))
	h.reload()
}

// TestIdentityIsSkippable wants a table of an older binary, which skips the field and so decides as
// it always did, to agree on everything else.
func TestIdentityIsSkippable(t *testing.T) {
	h := newHarness(t)
	h.want(ok, by(alice, acquire("a", 1, "db", 0)))
	h.want(pending, by(bob, acquire("b", 1, "db", forever)))
	h.want(ok, by(alice, release("a", 2, "db", 1)))
	older := locktable.New()
	for i := range h.log {
		if err := level1(&h.log[i]); err != nil {
			t.Errorf("an older binary refuses it: %v", err)
		}
		r := h.log[i]
		r.Identity = ""
		if err := older.Apply(&r); err != nil {
			t.Fatal(err)
		}
	}
	if older.Hash() != h.table.Hash() || older.Check() != nil {
		t.Errorf("the older table has hash %#x, want %#x: %v", older.Hash(), h.table.Hash(), older.Check())
	}
	h.want(ok, by(bob, acquire("b", 2, "other", 0)))
	r := h.log[len(h.log)-1]
	if err := older.Apply(&r); err != nil {
		t.Fatal(err)
	}
	if c, _ := older.Client("b"); c.Identity != bob {
		t.Errorf("with the next request of the client it is of %q again", c.Identity)
	}
}

// TestIdentityBounds wants a text that can be shown, and no identity in what makes a repeat.
func TestIdentityBounds(t *testing.T) {
	q := acquire("a", 1, "db", 0)
	want := q.ContentHash()
	for identity, status := range map[string]cluster.Status{
		"": ok, alice: ok, "cert:CN with é": ok, strings.Repeat("x", cluster.MaxText): ok,
		strings.Repeat("x", cluster.MaxText+1): invalid, "user:a\nb": invalid, "user:\xff": invalid, "user:\x1b[2J": invalid,
	} {
		q := by(identity, q)
		if got, message := q.Validate(cluster.DefaultTiming()); got != status {
			t.Errorf("%q: %v %s, want %v", identity, got, message, status)
		}
		if q.ContentHash() != want {
			t.Errorf("%q is part of the content", identity)
		}
	}
}

// TestIdentityTakesNoMemory wants the sizes that a table without identities had: the allocator
// rounds that of a client, 152 bytes, up to 160.
func TestIdentityTakesNoMemory(t *testing.T) {
	if locktable.ClientSize > 160 || locktable.LockSize > 96 || locktable.ParamsSize > 80 {
		t.Errorf("a client has %d bytes, a lock %d, its parameters %d", locktable.ClientSize, locktable.LockSize, locktable.ParamsSize)
	}
}

// TestFirstIdentityOwns applies a record of another identity that names the client, as no primary
// decides it that knows identities.
func TestFirstIdentityOwns(t *testing.T) {
	h := newHarness(t)
	h.want(ok, by(alice, acquire("a", 1, "db", 0)))
	h.apply([]record{{LSN: 2, Epoch: 1, Kind: locktable.KindRelease, Client: "a", Request: 2, Lock: "db", Token: 1, Identity: bob}})
	if c, _ := h.table.Client("a"); c.Identity != alice {
		t.Errorf("the client belongs to %q", c.Identity)
	}
	h.reload()
}
