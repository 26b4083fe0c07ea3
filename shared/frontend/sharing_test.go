// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// share has clients share a lock and returns their tokens.
func (s *site) share(lock string, clients ...string) (tokens []uint64) {
	s.t.Helper()
	for _, c := range clients {
		tokens = append(tokens, s.ok("/v1/acquire", fmt.Sprintf(`{"lock":%q,"ttl":"30s","mode":"shared","client_id":%q,"request_id":1}`, lock, c)).Token)
	}
	return tokens
}

// TestHistoryTellsEverySharer: who holds a lock is each who shares it, and not the oldest only.
func TestHistoryTellsEverySharer(t *testing.T) {
	s := serveHTTP(t, startPrimary(t))
	shared := s.share("a/b", "c1", "c2", "c3")
	alone := s.ok("/v1/acquire", `{"lock":"a/c","ttl":"30s","client_id":"c4","request_id":1}`).Token
	held := func(tokens ...uint64) (words string) {
		for i, token := range tokens {
			if i > 0 {
				words += ", "
			}
			lock := "a/b"
			if token == alone {
				lock = "a/c"
			}
			words += fmt.Sprintf("%s:%d held", lock, token)
		}
		return words
	}
	for query, want := range map[string]string{
		"lock=a/b": held(shared...),
		"prefix=a": held(append(shared, alone)...),
		fmt.Sprintf("lock=a/b&token=%d", shared[2]):                          held(shared[2]),
		fmt.Sprintf("prefix=&token=%d", shared[1]):                           held(shared[1]),
		fmt.Sprintf("lock=a/b&at=%d", time.Now().Add(time.Hour).UnixMilli()): held(shared...),
		fmt.Sprintf("lock=a/b&before_lsn=%d", 1000):                          "",
	} {
		if got := short(s.past(query)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if p := s.past("lock=a/b&limit=2"); short(p) != held(shared[:2]...) || p.Message == "" {
		t.Errorf("two of them: %s %q", short(p), p.Message)
	}
	if p := s.past("lock=a/b&limit=3"); short(p) != held(shared...) || p.Message != "" {
		t.Errorf("as many as there are: %s %q", short(p), p.Message)
	}
}

// TestHistoryTellsTheMode, that of the end for a grant that was downgraded.
func TestHistoryTellsTheMode(t *testing.T) {
	s := serveHTTP(t, startPrimary(t))
	for i, lock := range []string{"alone", "downgraded", "shared"} {
		mode := map[bool]string{true: "shared", false: "exclusive"}[lock == "shared"]
		g := s.ok("/v1/acquire", fmt.Sprintf(`{"lock":%q,"ttl":"30s","mode":%q,"client_id":"c","request_id":%d}`, lock, mode, 3*i+1))
		if lock == "downgraded" {
			s.ok("/v1/downgrade", fmt.Sprintf(`{"lock":%q,"token":%d,"client_id":"c","request_id":%d}`, lock, g.Token, 3*i+2))
			mode = "shared"
		}
		if p := s.past("lock=" + lock).Grants; len(p) != 1 || p[0].Mode != mode || p[0].Why != "held" {
			t.Errorf("%s is held as %+v", lock, p)
		}
		s.ok("/v1/release", fmt.Sprintf(`{"lock":%q,"token":%d,"client_id":"c","request_id":%d}`, lock, g.Token, 3*i+3))
		if p := s.past("lock=" + lock).Grants; len(p) != 1 || p[0].Mode != mode || p[0].Why != "released" {
			t.Errorf("%s was held as %+v", lock, p)
		}
	}
}

// TestHistoryTellsTheTTL of a grant that is held and of one that ended.
func TestHistoryTellsTheTTL(t *testing.T) {
	s := serveHTTP(t, startPrimary(t))
	g := s.ok("/v1/acquire", `{"lock":"l","ttl":"12.5s","client_id":"c","request_id":1}`)
	if p := s.past("lock=l").Grants; len(p) != 1 || p[0].TTL != "12.5s" {
		t.Errorf("it is held as %+v", p)
	}
	s.ok("/v1/release", fmt.Sprintf(`{"lock":"l","token":%d,"client_id":"c","request_id":2}`, g.Token))
	if p := s.past("lock=l").Grants; len(p) != 1 || p[0].TTL != "12.5s" || p[0].Why != "released" {
		t.Errorf("it was held as %+v", p)
	}
}

// TestVerifyTellsTheMode: whoever acts on a holder's word has to know that a token which
// is live may be one of several.
func TestVerifyTellsTheMode(t *testing.T) {
	b := startPrimary(t)
	s, c := serveHTTP(t, b), dialGRPC(t, b)
	shared := s.share("l", "c1", "c2")
	alone := s.ok("/v1/acquire", `{"lock":"m","ttl":"30s","client_id":"c3","request_id":1}`).Token
	verify := func(lock string, token uint64, status pb.Status, mode string) {
		t.Helper()
		a, err := c.Verify(t.Context(), &pb.VerifyRequest{Lock: lock, Token: token})
		if err != nil || a.Status != status || wire.BodyOf(a).Mode != mode {
			t.Errorf("token %d of %s: %v %v, want %q", token, lock, a, err, mode)
		}
		if _, body := s.post("/v1/verify", fmt.Sprintf(`{"lock":%q,"token":%d}`, lock, token)); body.Mode != mode {
			t.Errorf("token %d of %s over HTTP: %+v, want %q", token, lock, body, mode)
		}
	}
	verify("l", shared[0], pb.Status_STATUS_OK, "shared")
	verify("l", shared[1], pb.Status_STATUS_OK, "shared")
	verify("l", alone, pb.Status_STATUS_INVALID_TOKEN, "")
	verify("m", alone, pb.Status_STATUS_OK, "exclusive")
	s.ok("/v1/downgrade", fmt.Sprintf(`{"lock":"m","token":%d,"client_id":"c3","request_id":2}`, alone))
	verify("m", alone, pb.Status_STATUS_OK, "shared")
}

// quiet is a primary that has heard but one of its clients.
type quiet struct {
	fedReplica
	heard cluster.ClientID
}

func (q *quiet) Read(_ context.Context, f func(serving.View)) (serving.Reading, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(serving.View{
		Table: q.table, Heard: func(c cluster.ClientID) bool { return c == q.heard },
		Remaining: func(cluster.LockName, cluster.Token) time.Duration { return time.Second },
	})
	return serving.Reading{Status: cluster.StatusOK, LSN: q.at.LSN, Epoch: 7}, nil
}

// TestEverySharerCountsAsUnheard that was not heard in this term.
func TestEverySharerCountsAsUnheard(t *testing.T) {
	q := &quiet{fedReplica: *newFedReplica(t), heard: "c1"} //nolint:govet // nobody uses the other
	for _, c := range []cluster.ClientID{"c1", "c2", "c3"} {
		q.ask(locktable.Request{Op: locktable.OpAcquire, Client: c, Lock: "l", TTL: time.Minute, Mode: locktable.ModeShared})
	}
	q.ask(locktable.Request{Op: locktable.OpAcquire, Client: "c4", Lock: "m", TTL: time.Minute})
	var body wire.StatusBody
	if code, _ := serveHTTP(t, q).call("GET", "/v1/status", "", &body); code != 200 || body.Table == nil || body.Table.Held != 2 || body.Table.Unheard != 3 {
		t.Errorf("%d %+v", code, body.Table)
	}
}

// TestAResetOfManySharersLosesNoLock: a reset lists so many sharers, and no more. The one that
// is shown may leave while the rest of the table is read; who is shown then is read again.
func TestAResetOfManySharersLosesNoLock(t *testing.T) {
	r := newFedReplica(t).run()
	share := func(lock string, n int) {
		for range n {
			c := cluster.ClientID(fmt.Sprintf("~%s%d", lock, r.ids))
			r.ask(locktable.Request{Op: locktable.OpAcquire, Client: c, Lock: cluster.LockName(lock), TTL: time.Minute, Mode: locktable.ModeShared})
		}
	}
	r.mu.Lock()
	share("a", 1001) // all that one page lists
	share("b", 3)
	first, _ := r.table.Lock("b")
	r.mu.Unlock()
	for i := range service.ResetPage {
		r.grants(fmt.Sprintf("c%04d", i))
	}
	reads := 0
	r.reading = func() {
		if reads++; reads == 3 { // the first one finds the table large, and begins anew
			r.ask(locktable.Request{Op: locktable.OpRelease, Client: "~x", Lock: "b", Token: first.Grant.Token})
		}
	}
	told := map[string]*pb.Lock{}
	s := watchFor(t, dialGRPC(t, r), &pb.WatchRequest{})
	for last := false; !last; {
		x := recv(t, s).GetReset_()
		for _, l := range x.GetLocks() {
			told[l.GetName()] = l
		}
		last = x.GetLast()
	}
	if l := told["b"]; l.GetHolders() != 2 || l.GetGrant().GetToken() <= uint64(first.Grant.Token) {
		t.Errorf("%d reads, told %v", reads, l)
	}
	if l := told["a"]; l.GetHolders() != 1001 || len(l.GetSharedHolders()) != 1000 {
		t.Errorf("of the one with many sharers: %d, %d listed", l.GetHolders(), len(l.GetSharedHolders()))
	}
}
