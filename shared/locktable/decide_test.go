// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const (
	ok      = cluster.StatusOK
	pending = cluster.StatusNone
	invalid = cluster.StatusInvalidArgument
	stale   = cluster.StatusStaleRequest
	forever = locktable.WaitForever
)

func TestAcquireReleaseIsFIFO(t *testing.T) {
	h := newHarness(t)
	first := h.want(ok, acquire("a", 1, "db", 0))
	if first.Token != 1 || first.TTL != 10*time.Second || first.LSN != 1 {
		t.Fatalf("first grant: %+v", first)
	}
	held := h.want(cluster.StatusHeld, acquire("b", 1, "db", 0))
	if held.Holder == nil || held.Holder.Client != "a" || held.Holder.Token != 1 || held.LSN != 0 {
		t.Fatalf("held: %+v", held)
	}
	h.want(pending, acquire("b", 2, "db", time.Minute))
	h.want(pending, acquire("a", 2, "db", forever)) // the holder queues like a stranger
	h.want(pending, acquire("c", 1, "db", forever))
	if held := h.want(cluster.StatusHeld, acquire("d", 1, "db", 0)); held.QueueLength != 3 {
		t.Fatalf("queue length %d, want 3", held.QueueLength)
	}
	h.reload()

	token := first.Token
	for _, next := range []cluster.ClientID{"b", "a", "c"} {
		dec, recs := h.do(release("x", cluster.RequestID(h.table.LSN()), "db", token), locktable.FileFacts{})
		if dec.Outcome.Status != ok || len(recs) != 2 || recs[1].Kind != locktable.KindGrant || recs[1].Client != next {
			t.Fatalf("release %d: %+v %+v, want a grant for %s", token, dec, recs, next)
		}
		out := locktable.OutcomeOf(&recs[1])
		if out.Status != ok || out.Token <= token || out.TTL != 10*time.Second {
			t.Fatalf("outcome of the grant: %+v", out)
		}
		token = out.Token
	}
	h.want(ok, release("x", 100, "db", token))
	if h.table.LockCount() != 0 {
		t.Fatal("a free lock stayed in the table")
	}
	h.reload()
}

func TestOwnershipIsLockAndToken(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(cluster.StatusInvalidToken, release("a", 2, "db", token+1))
	h.want(cluster.StatusInvalidToken, release("a", 2, "other", token))
	h.want(invalid, release("a", 2, "db", 0))
	h.want(ok, release("somebody", 1, "db", token))
	h.want(cluster.StatusInvalidToken, release("a", 2, "db", token))
	h.want(ok, acquire("b", 1, "db", 0))
	h.want(cluster.StatusInvalidToken, release("a", 2, "db", token))
}

func TestRepeats(t *testing.T) {
	h := newHarness(t)
	c := h.open(7)
	first := h.want(ok, acquire(c, 1, "db", 0))
	again := h.want(ok, acquire(c, 1, "db", 0))
	if again.Token != first.Token || !again.Repeat || first.Repeat || again.TTL != first.TTL || again.LSN != first.LSN {
		t.Fatalf("repeat: %+v, first %+v", again, first)
	}
	h.want(invalid, acquire(c, 1, "other", 0))
	h.want(invalid, release(c, 1, "db", first.Token))
	withHolder := acquire(c, 1, "db", 0)
	withHolder.Holder.Host = "elsewhere"
	h.want(ok, withHolder)

	h.want(pending, acquire("w", 1, "db", time.Minute))
	h.want(pending, acquire("w", 1, "db", time.Minute))
	h.want(invalid, acquire("w", 1, "db", time.Hour))
	if n := h.waiting("w"); n != 1 {
		t.Fatalf("%d places for one request", n)
	}

	h.want(ok, release(c, 2, "db", first.Token))
	if out := h.want(ok, release(c, 2, "db", first.Token)); !out.Repeat {
		t.Fatal("a repeated release is not marked")
	}
	if out := h.want(cluster.StatusLeaseExpired, acquire(c, 1, "db", 0)); out.Token != first.Token {
		t.Fatalf("ended grant: %+v", out)
	}
	h.reload()
}

func TestOpenClient(t *testing.T) {
	h := newHarness(t)
	c := h.open(7)
	if c != cluster.OpenedClientID(1, 0) || h.open(7) != c || h.table.LSN() != 1 {
		t.Fatalf("client %s at LSN %d", c, h.table.LSN())
	}
	if other := h.open(8); other == c {
		t.Fatal("two nonces, one client")
	}
	marked := locktable.Request{Op: locktable.OpOpenClient, Nonce: 9, Mark: 0xab}
	if out := h.want(ok, marked); out.Client != "@3-000000ab" {
		t.Fatalf("client %s", out.Client)
	}
	marked.Mark = 0
	if out := h.want(ok, marked); out.Client != "@3-000000ab" || out.LSN != 3 || !out.Repeat {
		t.Fatalf("asked again: %+v", out)
	}
	h.want(invalid, locktable.Request{Op: locktable.OpOpenClient})
	h.want(stale, acquire("@99", 1, "db", 0))
	h.want(stale, cancel("@99", 1))
	h.want(ok, acquire(c, 1, "db", 0))
	if recs := h.table.DecideForget(c, 1, nil); len(recs) != 0 {
		t.Fatal("a holder was forgotten")
	}
	h.want(ok, release(c, 2, "db", 4))
	h.apply(h.table.DecideForget(c, 1, nil))
	h.want(stale, acquire(c, 1, "db", 0))
	h.want(stale, acquire(c, 3, "db", 0))
	if again := h.open(7); again == c {
		t.Fatal("a forgotten client came back")
	}
}

func TestLowWaterMark(t *testing.T) {
	h := newHarness(t)
	c := h.open(7)
	for id := range cluster.RequestID(5) {
		h.want(ok, acquire(c, id+1, cluster.LockName(rune('a'+id)), 0))
	}
	q := acquire(c, 6, "f", 0)
	q.LowWater = 4
	h.want(ok, q)
	if v, _ := h.table.Client(c); v.Receipts != 3 || v.LowWater != 4 {
		t.Fatalf("after the mark: %+v", v)
	}
	h.want(stale, acquire(c, 3, "c", 0))
	h.want(stale, cancel(c, 2))
	h.want(ok, acquire(c, 4, "d", 0))
	q = acquire(c, 7, "g", 0)
	q.LowWater = 2 // marks never fall
	h.want(ok, q)
	h.want(stale, acquire(c, 3, "c", 0))
	q = acquire(c, 8, "h", 0)
	q.LowWater = 9
	h.want(invalid, q)

	// A waiter below the mark keeps its place; its grant leaves no receipt.
	h.want(pending, acquire(c, 20, "a", forever))
	q = acquire(c, 30, "z", 0)
	q.LowWater = 25
	h.want(ok, q)
	h.want(pending, acquire(c, 20, "a", forever))
	h.want(ok, release("x", 1, "a", 2))
	if state, _ := h.table.Lookup(c, 20); state != locktable.RequestStale {
		t.Fatalf("state %d, want stale", state)
	}
	h.reload()
}

func TestChosenClientsKeepTheirLatestReceipts(t *testing.T) {
	h := newHarness(t)
	h.want(ok, acquire("curl", 1000, "first", 0))
	h.want(pending, acquire("curl", 5, "first", forever))
	for id := cluster.RequestID(1); id <= 64; id++ {
		if id != 5 {
			h.want(ok, acquire("curl", 2000+id, cluster.LockName("l"+strings.Repeat("x", int(id))), 0))
		}
	}
	h.want(ok, acquire("curl", 1000, "first", 0))
	h.want(ok, acquire("curl", 3000, "last", 0)) // drops the receipt of 1000
	h.want(stale, acquire("curl", 1000, "first", 0))
	h.want(stale, acquire("curl", 999, "unused", 0)) // below the dropped mark: cannot be told from a dropped one
	h.want(ok, acquire("curl", 1001, "unused", 0))
	// The waiter is below the mark but keeps its place and gets a receipt.
	h.want(pending, acquire("curl", 5, "first", forever))
	h.want(ok, release("x", 1, "first", 1))
	h.want(ok, acquire("curl", 5, "first", forever))
	h.reload()
	if v, _ := h.table.Client("curl"); v.Receipts != locktable.MaxChosenReceipts || v.Dropped < 1001 {
		t.Fatalf("client: %+v", v)
	}
}

func TestAnonymousClientsLeaveNothing(t *testing.T) {
	h := newHarness(t)
	first := h.want(ok, acquire("~1", 1, "db", 0))
	if again := h.want(ok, acquire("~1", 1, "db", 0)); again.Token != first.Token || !again.Repeat {
		t.Fatalf("repeat while held: %+v", again)
	}
	if out := h.want(ok, cancel("~1", 1)); out.Token != first.Token {
		t.Fatalf("cancel of a held request: %+v", out)
	}
	h.want(pending, acquire("~2", 1, "db", time.Minute))
	h.reload()
	h.want(pending, acquire("~2", 1, "db", time.Minute))
	h.apply(h.table.DecideWaitTimeout("~2", 1, 1, nil))
	h.want(stale, cancel("~2", 1))
	h.want(pending, acquire("~3", 1, "db", time.Minute))
	h.want(ok, release("~4", 1, "db", first.Token))
	if h.table.HeldBy("~3") != 1 || h.table.HeldBy("~1") != 0 {
		t.Fatal("the waiter did not get the lock")
	}
	h.apply(h.table.DecideExpire("db", 6, "", 1, nil))
	for e := range h.table.Export() {
		t.Errorf("%+v stayed", e)
	}
	if h.table.Hash() != locktable.New().Hash() {
		t.Error("an empty table has the hash of another state")
	}
}

func TestCancel(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(pending, acquire("b", 1, "db", forever))
	h.want(pending, acquire("c", 1, "db", forever))
	h.want(cluster.StatusCancelled, cancel("b", 1))
	h.want(cluster.StatusCancelled, cancel("b", 1))
	h.want(cluster.StatusCancelled, acquire("b", 1, "db", forever))
	h.want(cluster.StatusCancelled, release("b", 1, "db", token)) // the content is not compared
	if out := h.want(ok, cancel("a", 1)); out.Token != token {
		t.Fatalf("cancel of an executed request: %+v", out)
	}
	h.want(cluster.StatusCancelled, cancel("new", 9)) // before the request came
	h.want(cluster.StatusCancelled, acquire("new", 9, "x", 0))
	if state, _ := h.table.Lookup("new", 9); state != locktable.RequestCancelled {
		t.Fatalf("state %d, want cancelled", state)
	}
	h.want(invalid, cancel("b", 0))
	h.want(ok, release("a", 2, "db", token))
	if h.table.HeldBy("c") != 1 {
		t.Fatal("the lock did not go to the waiter behind the cancelled one")
	}
	h.reload()
}

func TestTimeAndOperators(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(pending, acquire("b", 1, "db", time.Minute))
	h.want(pending, acquire("c", 1, "db", time.Minute))
	if recs := h.table.DecideExpire("db", token+1, "", 1, nil); len(recs) != 0 {
		t.Fatal("expired under a dead token")
	}
	recs := h.table.DecideExpire("db", token, "", 1, nil)
	h.apply(recs)
	if len(recs) != 2 || recs[1].Client != "b" || locktable.OutcomeOf(&recs[0]).Status != cluster.StatusNone {
		t.Fatalf("expiry: %+v", recs)
	}
	h.want(cluster.StatusLeaseExpired, acquire("a", 1, "db", 0))
	recs = h.table.DecideWaitTimeout("c", 1, 1, nil)
	h.apply(recs)
	if out := locktable.OutcomeOf(&recs[0]); out.Status != cluster.StatusWaitTimeout || out.Lock != "db" {
		t.Fatalf("timeout: %+v", out)
	}
	h.want(cluster.StatusWaitTimeout, acquire("c", 1, "db", time.Minute))
	if recs := h.table.DecideWaitTimeout("c", 1, 1, nil); len(recs) != 0 {
		t.Fatal("timed out twice")
	}

	breakLock := locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "db", Actor: "root", Reason: "stuck"}
	h.want(cluster.StatusInvalidToken, locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 2, Lock: "db", Token: 1})
	if out := h.want(ok, breakLock); out.Token == 0 {
		t.Fatalf("broken: %+v", out)
	}
	if out := h.want(ok, breakLock); !out.Repeat {
		t.Fatal("broke twice")
	}
	h.want(cluster.StatusInvalidToken, locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 2, Lock: "db"})
	h.reload()
}

func TestForceClear(t *testing.T) {
	h := newHarness(t)
	c := h.open(1)
	a := h.want(ok, acquire(c, 1, "db", 0))
	h.wantFacts(ok, appendTo(c, 2, "db", a.Token, "log", "x"), locktable.FileFacts{Inode: 5})
	h.want(pending, acquire("w", 1, "db", forever))
	h.want(pending, acquire("~w", 1, "db", forever))
	h.want(ok, acquire("~h", 1, "other", 0))
	h.apply(h.table.DecideForceClear(2, nil))
	if _, held := h.table.Live("db", a.Token); held || h.waiting("w") != 0 || h.table.LockCount() != 1 {
		t.Fatal("something is left")
	}
	h.want(cluster.StatusLeaseExpired, acquire(c, 1, "db", 0))
	h.want(ok, appendTo(c, 2, "db", a.Token, "log", "x")) // its receipt stays
	if out := h.want(ok, acquire("w", 1, "db", forever)); out.Token <= a.Token {
		t.Fatalf("tokens fell: %+v", out)
	}
	h.reload()
}

// An adopted log may end between a release and its grant. The next term grants.
func TestTermGrantsWhatIsOwed(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(pending, acquire("b", 1, "db", forever))
	h.want(pending, acquire("c", 1, "db", forever))
	q := release("a", 2, "db", token)
	recs, _ := h.table.Decide(&q, 1, locktable.FileFacts{}, nil)
	h.apply(recs[:1])
	h.reload()
	h.want(cluster.StatusHeld, acquire("d", 1, "db", 0)) // the queue comes first
	h.want(pending, acquire("d", 2, "db", forever))
	h.want(cluster.StatusCancelled, cancel("b", 1))
	h.apply(h.table.DecideTerm(2, 2, nil))
	if h.table.HeldBy("c") != 1 {
		t.Fatal("the lock stayed free with a queue")
	}
	if recs := h.table.DecideTerm(3, 3, nil); len(recs) != 1 {
		t.Fatalf("nothing is owed, but: %+v", recs)
	}
	h.apply(h.table.DecideHandover(strings.Repeat("é", 400), 2, nil))
}

// What waits below its client's low-water mark is not wanted any more.
func TestPlacesBelowTheMarkAreGivenUp(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(pending, acquire("b", 1, "db", forever))
	h.want(pending, acquire("b", 2, "db", forever))
	h.want(pending, acquire("b", 3, "db", forever))
	h.want(pending, acquire("c", 1, "db", forever))
	if recs := h.table.DecideGivenUp("b", 1, nil); len(recs) != 0 {
		t.Fatalf("nothing is below a mark, but: %+v", recs)
	}
	q := acquire("b", 4, "other", 0)
	q.LowWater = 3
	h.want(ok, q)
	for h.waiting("b") > 1 {
		recs := h.table.DecideGivenUp("b", 1, nil)
		if len(recs) != 1 {
			t.Fatalf("%d places, and: %+v", h.waiting("b"), recs)
		}
		h.apply(recs)
	}
	if recs := h.table.DecideGivenUp("b", 1, nil); len(recs) != 0 {
		t.Fatalf("at the mark: %+v", recs)
	}
	h.want(stale, acquire("b", 1, "db", forever))
	h.want(ok, release("a", 2, "db", token))
	if h.table.HeldBy("b") != 2 {
		t.Fatal("the place at the mark was not granted")
	}
	h.reload()
}

// The last waiter of a lock that is owed a grant may leave before it comes.
func TestOwedLockVanishesWithItsQueue(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(pending, acquire("b", 1, "db", forever))
	q := release("a", 2, "db", token)
	recs, _ := h.table.Decide(&q, 1, locktable.FileFacts{}, nil)
	h.apply(recs[:1])
	h.want(cluster.StatusCancelled, cancel("b", 1))
	if recs := h.table.DecideTerm(1, 2, nil); len(recs) != 1 || h.table.LockCount() != 0 {
		t.Fatalf("%d locks are left, and the term decides %+v", h.table.LockCount(), recs)
	}
}

func TestOutstandingLimit(t *testing.T) {
	table := locktable.New()
	apply := func(q locktable.Request) locktable.Decision {
		recs, dec := table.Decide(&q, 1, locktable.FileFacts{}, nil)
		for i := range recs {
			if err := table.Apply(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
		return dec
	}
	c := apply(locktable.Request{Op: locktable.OpOpenClient, Nonce: 1}).Outcome.Client
	for id := cluster.RequestID(1); id <= locktable.MaxOutstanding; id++ {
		if dec := apply(cancel(c, id)); dec.Outcome.Status != cluster.StatusCancelled {
			t.Fatalf("request %d: %+v", id, dec)
		}
	}
	q := acquire(c, locktable.MaxOutstanding+1, "db", 0)
	if dec := apply(q); dec.Outcome.Status != invalid || !strings.Contains(dec.Outcome.Message, "low-water") {
		t.Fatalf("over the limit: %+v", dec)
	}
	over := record{
		LSN: table.LSN() + 1, Epoch: 1, Kind: locktable.KindGrant, Client: c, Request: q.ID, Lock: "db", TTL: q.TTL,
	}
	if err := table.Apply(&over); !errors.Is(err, locktable.ErrIllegal) {
		t.Fatalf("apply over the limit: %v", err)
	}
	q.LowWater = 2
	if dec := apply(q); dec.Outcome.Status != ok {
		t.Fatalf("with a raised mark: %+v", dec)
	}
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestQueueLimit(t *testing.T) {
	table := locktable.New()
	for id := cluster.RequestID(1); id <= locktable.MaxQueue+2; id++ {
		q := acquire(cluster.ClientID("c"), id, "db", forever)
		recs, dec := table.Decide(&q, 1, locktable.FileFacts{}, nil)
		if id == locktable.MaxQueue+2 {
			if dec.Outcome.Status != cluster.StatusStorageUnavailable {
				t.Fatalf("over the limit: %+v", dec)
			}
			over := record{
				LSN: table.LSN() + 1, Epoch: 1, Kind: locktable.KindEnqueue, Client: "c", Request: id, Lock: "db", TTL: q.TTL, Wait: forever,
			}
			if err := table.Apply(&over); !errors.Is(err, locktable.ErrIllegal) {
				t.Fatalf("apply over the limit: %v", err)
			}
			break
		}
		if err := table.Apply(&recs[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestViews(t *testing.T) {
	h := newHarness(t)
	for i, name := range []cluster.LockName{"b/2", "a", "b/1", "c", "b"} {
		q := acquire("v", cluster.RequestID(i+1), name, 0)
		q.Holder = locktable.Holder{Host: "h", PID: 4, Command: "make"}
		h.want(ok, q)
	}
	h.want(pending, acquire("w", 1, "a", forever))
	names := func(prefix string, after cluster.LockName) (all []cluster.LockName) {
		for v := range h.table.Locks(prefix, after) {
			all = append(all, v.Name)
		}
		return all
	}
	for _, tc := range []struct {
		prefix string
		after  cluster.LockName
		want   []cluster.LockName
	}{
		{"", "", []cluster.LockName{"a", "b", "b/1", "b/2", "c"}},
		{"b/", "", []cluster.LockName{"b/1", "b/2"}},
		{"b", "b/1", []cluster.LockName{"b/2"}},
		{"b", "c", nil},
		{"x", "", nil},
	} {
		if got := names(tc.prefix, tc.after); !slices.Equal(got, tc.want) {
			t.Errorf("Locks(%q, %q) = %q, want %q", tc.prefix, tc.after, got, tc.want)
		}
	}
	var tokens []cluster.Token
	for g := range h.table.Held("v") {
		tokens = append(tokens, g.Token)
	}
	if !slices.Equal(tokens, []cluster.Token{1, 2, 3, 4, 5}) || h.table.HeldBy("v") != 5 {
		t.Errorf("held: %v", tokens)
	}
	g, live := h.table.Live("a", 2)
	if !live || g.Client != "v" || g.Request != 2 || g.Holder.Command != "make" {
		t.Errorf("live: %+v", g)
	}
	if v, _ := h.table.Lock("a"); v.QueueLength != 1 || v.Grant != g {
		t.Errorf("lock: %+v", v)
	}
	for w := range h.table.Waiters("a") {
		if w.Client != "w" || w.Wait != forever || w.LSN != 6 {
			t.Errorf("waiter: %+v", w)
		}
	}
	for w := range h.table.WaitsOf("w") {
		if w.Lock != "a" {
			t.Errorf("waits: %+v", w)
		}
	}
	if state, out := h.table.Lookup("w", 1); state != locktable.RequestPending || out.Lock != "a" {
		t.Errorf("lookup: %d %+v", state, out)
	}
	if state, _ := h.table.Lookup("v", 9); state != locktable.RequestNotSeen {
		t.Errorf("lookup of an unused ID: %d", state)
	}
	if state, out := h.table.Lookup("v", 1); state != locktable.RequestExecuted || out.Token != 1 {
		t.Errorf("lookup: %d %+v", state, out)
	}
}

// A token of a client that is known by name is that client's own, where the door says so; what
// names nobody uses any.
func TestTokenOfAnotherClient(t *testing.T) {
	for _, x := range []struct {
		holder, user cluster.ClientID
		own          bool
		want         cluster.Status
	}{
		{"a", "a", true, ok},
		{"a", "b", true, cluster.StatusInvalidToken},
		{"a", "b", false, ok},
		{"a", "~b", true, ok},
		{"a", "cli-b", true, ok},
		{"~a", "b", true, ok},
		{"cli-a", "b", true, ok},
		{"@1", "b", true, cluster.StatusInvalidToken},
		{"a", "@1", true, cluster.StatusInvalidToken},
	} {
		h := newHarness(t)
		h.open(7)
		token := h.want(ok, acquire(x.holder, 1, "db", 0)).Token
		say := locktable.Request{Op: locktable.OpMetadata, Client: x.user, ID: 2, Lock: "db", Token: token, Metadata: "m", Own: x.own}
		if out := h.want(x.want, say); x.want != ok && !strings.Contains(out.Message, "of client "+string(x.holder)) {
			t.Errorf("%s with the token of %s: %q", x.user, x.holder, out.Message)
		}
		let := release(x.user, 3, "db", token)
		let.Own = x.own
		h.want(x.want, let)
		if x.want == ok && !x.user.Anonymous() {
			if out := h.want(ok, let); !out.Repeat {
				t.Errorf("a repeat of %s is none", x.user)
			}
		}
	}
}

// Who asks nothing more has itself forgotten, with what is remembered for it.
func TestForget(t *testing.T) {
	h := newHarness(t)
	forget := func(c cluster.ClientID) locktable.Request {
		return locktable.Request{Op: locktable.OpForget, Client: c}
	}
	h.want(ok, forget("a"))
	if h.table.LSN() != 0 {
		t.Error("to forget nobody left a record")
	}
	token := h.want(ok, acquire("a", 1, "db", 0)).Token
	h.want(pending, acquire("b", 1, "db", forever))
	h.want(invalid, forget("a"))
	h.want(invalid, forget("b"))
	h.want(ok, release("a", 2, "db", token))
	h.want(ok, forget("a"))
	if state, _ := h.table.Lookup("a", 2); state != locktable.RequestNotSeen {
		t.Errorf("a is remembered: %v", state)
	}
	h.want(invalid, forget("b")) // it holds by now
	h.want(ok, release("x", 1, "db", token+3))
	h.want(ok, forget("b"))
	h.want(ok, forget("x"))
	if h.table.ClientCount() != 0 || h.table.LockCount() != 0 {
		t.Errorf("%d clients, %d locks are left", h.table.ClientCount(), h.table.LockCount())
	}
	opened := h.open(7)
	h.want(ok, forget(opened))
	h.want(stale, acquire(opened, 1, "db", 0)) // sent before, and late
	h.reload()
}

// TestExtend: a lease gets a longer TTL, once, where every server knows what that is.
func TestExtend(t *testing.T) {
	h := newHarness(t)
	token := h.want(ok, acquire("a", 1, "l", 0)).Token
	extend := func(id cluster.RequestID, ttl time.Duration, level uint32) locktable.Request {
		return locktable.Request{Op: locktable.OpExtend, Client: "a", ID: id, Lock: "l", Token: token, TTL: ttl, Level: level}
	}
	before := h.table.LSN()
	for _, level := range []uint32{1, 2} {
		h.want(cluster.StatusInvalidArgument, extend(2, time.Minute, level))
	}
	h.want(cluster.StatusInvalidArgument, extend(2, 9*time.Second, 3))
	if h.table.LSN() != before {
		t.Error("a refusal left a record")
	}
	if out := h.want(ok, extend(2, time.Minute, 3)); out.TTL != time.Minute || out.Token != token || out.LSN != h.table.LSN() {
		t.Errorf("the answer: %+v", out)
	}
	if l := h.table.Lease("l", token); l.TTL() != time.Minute {
		t.Errorf("the lease is of %v", l.TTL())
	}
	if out := h.want(ok, extend(2, time.Minute, 1)); !out.Repeat || out.TTL != time.Minute {
		t.Errorf("a repeat, also where an older server has come: %+v", out)
	}
	h.want(ok, release("a", 3, "l", token))
	h.want(cluster.StatusLeaseExpired, extend(2, time.Minute, 3))
	h.want(cluster.StatusInvalidToken, extend(4, time.Minute, 3))
	h.reload()

	timing := cluster.DefaultTiming()
	for ttl, want := range map[time.Duration]cluster.Status{
		0: cluster.StatusInvalidArgument, timing.MinTTL - 1: cluster.StatusInvalidArgument, timing.MinTTL: cluster.StatusOK,
		timing.MaxTTL: cluster.StatusOK, timing.MaxTTL + 1: cluster.StatusInvalidArgument,
	} {
		q := extend(5, ttl, 0)
		if got, message := q.Validate(timing); got != want {
			t.Errorf("a TTL of %v: %v %s", ttl, got, message)
		}
	}
}
