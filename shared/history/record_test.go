// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// scribe is a table whose ends are noted.
type scribe struct {
	t     *testing.T
	table *locktable.Table
	limit history.Limiter
	batch history.Batch
	ring  *history.Ring
	now   int64
	ids   map[cluster.ClientID]cluster.RequestID
}

func newScribe(t *testing.T, rate int) *scribe {
	return &scribe{
		t: t, table: locktable.New(), limit: history.NewLimiter(rate), ring: history.NewRing(rate, 0), now: 10_000,
		ids: map[cluster.ClientID]cluster.RequestID{},
	}
}

func (s *scribe) apply(recs []locktable.Record) {
	s.t.Helper()
	for i := range recs {
		recs[i].Time = s.now
		s.limit.Observe(s.table, &recs[i], &s.batch)
		s.ring.Observe(s.table, &recs[i])
		if err := s.table.Apply(&recs[i]); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scribe) do(q locktable.Request) locktable.Outcome {
	s.t.Helper()
	s.ids[q.Client]++
	q.ID, q.Identity = s.ids[q.Client], "user:ops"
	if q.Op == locktable.OpAcquire {
		q.TTL, q.Holder = time.Minute, locktable.Holder{Host: "h", PID: 7, Command: "cmd"}
	}
	recs, d := s.table.Decide(&q, 3, locktable.FileFacts{Inode: 5}, nil)
	s.apply(recs)
	return d.Outcome
}

func (s *scribe) acquire(client cluster.ClientID, lock cluster.LockName, wait time.Duration) cluster.Token {
	return s.do(locktable.Request{Op: locktable.OpAcquire, Client: client, Lock: lock, Wait: wait, Metadata: "m-" + string(client)}).Token
}

func (s *scribe) release(client cluster.ClientID, lock cluster.LockName, token cluster.Token) {
	s.t.Helper()
	if out := s.do(locktable.Request{Op: locktable.OpRelease, Client: client, Lock: lock, Token: token}); out.Status != cluster.StatusOK {
		s.t.Fatalf("release: %v", out)
	}
}

func short(ends []history.End) (words []string) {
	for _, e := range ends {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s %d %v %s", e.Lock, e.Token, e.Why, e.Actor)))
	}
	return words
}

func TestObserve(t *testing.T) {
	s := newScribe(t, 0)
	own := s.acquire("c1", "own", 0)
	s.now = 20_000
	s.release("c1", "own", own)
	handed := s.acquire("c1", "handed", 0)
	s.acquire("c2", "handed", time.Minute)
	s.release("c1", "handed", handed)
	other := s.acquire("c1", "other", 0)
	s.release("c3", "other", other)
	expired := s.acquire("c1", "expired", 0)
	s.do(locktable.Request{Op: locktable.OpMetadata, Client: "c1", Lock: "expired", Token: expired, Metadata: "new"})
	s.do(locktable.Request{Op: locktable.OpAppend, Client: "c1", Lock: "expired", Token: expired, File: "log", Data: []byte("hello")})
	s.apply(s.table.DecideExpire("expired", expired, "max-hold", 4, nil))
	s.acquire("c1", "broken", 0)
	s.do(locktable.Request{Op: locktable.OpBreak, Client: "op", Lock: "broken", Actor: "ann", Reason: "it hangs"})
	s.acquire("c1", "cleared", 0)
	s.apply(s.table.DecideForceClear(5, nil))

	if got, want := strings.Join(short(s.batch.Ends), ", "),
		"own 1 released, handed 3 released, other 7 released_by_other c3, expired 9 expired, broken 14 broken ann, cleared 16 cleared, handed 6 cleared"; !same(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	e := s.batch.Ends[0]
	want := history.End{
		LSN: 2, Epoch: 3, Time: 20_000, Why: history.WhyReleased, Lock: "own", Token: 1, Granted: 3, Since: 10_000, Client: "c1", Request: 1, TTL: time.Minute,
		Holder: locktable.Holder{Host: "h", PID: 7, Command: "cmd"}, Identity: "user:ops", Metadata: "m-c1",
	}
	if e != want {
		t.Errorf("got  %+v\nwant %+v", e, want)
	}
	if e := s.batch.Ends[1]; e.Successor != cluster.Token(e.LSN)+1 {
		t.Errorf("successor %d of %+v", e.Successor, e)
	}
	if e := s.batch.Ends[3]; e.Epoch != 4 || e.Metadata != "new" || e.Append.File != "log" || e.Append.Length != 5 || e.Append.LSN >= e.LSN || e.Append.LSN <= cluster.LSN(e.Token) || e.Successor != 0 || e.Reason != "max-hold" {
		t.Errorf("the expired one: %+v", e)
	}
	if e := s.batch.Ends[4]; e.Reason != "it hangs" || e.Append.Length != 0 {
		t.Errorf("the broken one: %+v", e)
	}
	if r := s.ring.Recent(); r.From != 0 || strings.Join(short(r.Ends), ", ") != strings.Join(short(s.batch.Ends), ", ") {
		t.Errorf("the ring has %v from %d", short(r.Ends), r.From)
	}
}

// Who lets go of what it does not hold is told by what it says of itself. Who names nobody was
// handed the token by its holder.
func TestWhoLetGo(t *testing.T) {
	s := newScribe(t, 0)
	for _, id := range []cluster.ClientID{"c2", "~x", "cli-x"} {
		s.release(id, "a", s.acquire("c1", "a", 0))
	}
	s.acquire("c3", "b", 0)
	s.release("c3", "a", s.acquire("c1", "a", 0))
	want := "a 1 released_by_other c2, a 3 released, a 5 released, a 8 released_by_other cmd (pid 7 on h, client c3)"
	if got := strings.Join(short(s.batch.Ends), ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// same compares, whatever the order of the grants that one record cleared.
func same(got, want string) bool {
	a, b := strings.Split(got, ", "), strings.Split(want, ", ")
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		if !strings.Contains(want, x) {
			return false
		}
	}
	return a[0] == b[0] && a[4] == b[4]
}

// A grant that nobody waited for is no successor, even if it comes next.
func TestWhoCameByIsNoSuccessor(t *testing.T) {
	s := newScribe(t, 0)
	s.release("c1", "l", s.acquire("c1", "l", 0))
	s.acquire("c2", "l", 0)
	if e := s.batch.Ends[0]; e.Successor != 0 {
		t.Errorf("successor %d", e.Successor)
	}
}

func TestLimiter(t *testing.T) {
	s := newScribe(t, 10)
	for range 15 {
		s.release("c1", "l", s.acquire("c1", "l", 0))
	}
	s.acquire("c1", "l", 0)
	s.do(locktable.Request{Op: locktable.OpBreak, Client: "op", Lock: "l", Actor: "a", Reason: "r"})
	if len(s.batch.Ends) != 11 || len(s.batch.Skips) != 1 || s.batch.Skips[0].Count != 5 {
		t.Errorf("%d told, %+v", len(s.batch.Ends), s.batch.Skips)
	}
	if k := s.batch.Skips[0]; k.From != 22 || k.To != 30 {
		t.Errorf("skipped %+v", k)
	}
	s.now += 500
	for range 6 {
		s.release("c1", "l", s.acquire("c1", "l", 0))
	}
	s.now -= 5000 // a clock that was set back
	s.release("c1", "l", s.acquire("c1", "l", 0))
	if len(s.batch.Ends) != 16 || len(s.batch.Skips) != 2 || s.batch.Skips[0].Count != 6 || s.batch.Skips[1].Count != 1 {
		t.Errorf("later %d told, %+v", len(s.batch.Ends), s.batch.Skips)
	}
	none := newScribe(t, -1)
	none.release("c1", "l", none.acquire("c1", "l", 0))
	if len(none.batch.Ends) != 0 || none.batch.Skips[0].Count != 1 {
		t.Errorf("rate -1: %+v", none.batch)
	}
}

func TestRingIsBounded(t *testing.T) {
	s := newScribe(t, 1<<30)
	large := strings.Repeat("x", cluster.MaxMetadata)
	seen := s.ring.Recent()
	for i := range 8000 {
		token := s.do(locktable.Request{Op: locktable.OpAcquire, Client: "c1", Lock: "l", Metadata: large}).Token
		s.release("c1", "l", token)
		s.batch.Reset()
		if i == 10 {
			seen = s.ring.Recent()
		}
	}
	r := s.ring.Recent()
	if n := len(r.Ends); n < 3000 || n*len(large) > 20<<20 {
		t.Errorf("%d large ones are kept", n)
	}
	if r.From != r.Ends[0].LSN-2 {
		t.Errorf("from %d, the first is at %d", r.From, r.Ends[0].LSN)
	}
	if len(seen.Ends) != 11 || seen.From != 0 || seen.Ends[10].LSN != 22 {
		t.Errorf("a view has changed: from %d %v", seen.From, short(seen.Ends))
	}
	var none *history.Ring
	none.Observe(s.table, &locktable.Record{})
	if r := none.Recent(); r.From < 1<<62 || len(r.Ends) > 0 {
		t.Errorf("no ring at all: %+v", r)
	}
}

// BenchmarkObserve is what an end costs whoever applies records, above the rate and below it.
func BenchmarkObserve(b *testing.B) {
	for name, rate := range map[string]int{"skipped": -1, "told": 1 << 40} {
		b.Run(name, func(b *testing.B) {
			table := locktable.New()
			recs, _ := table.Decide(&locktable.Request{Op: locktable.OpAcquire, Client: "c1", ID: 1, Lock: "l", TTL: time.Minute}, 1, locktable.FileFacts{}, nil)
			if err := table.Apply(&recs[0]); err != nil {
				b.Fatal(err)
			}
			r := locktable.Record{LSN: 2, Epoch: 1, Kind: locktable.KindRelease, Client: "c1", Request: 2, Lock: "l", Token: 1}
			limit := history.NewLimiter(rate)
			var batch history.Batch
			for b.Loop() {
				r.Time++
				limit.Observe(table, &r, &batch)
				if len(batch.Ends) == 100 {
					batch.Reset()
				}
			}
		})
	}
}

func BenchmarkAppendLine(b *testing.B) {
	e := sample()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendLine(buf[:0])
	}
}
