// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// short is what a history says, in few words.
func short(b wire.HistoryBody) string {
	var words []string
	for _, g := range b.Grants {
		words = append(words, fmt.Sprintf("%s:%d %s", g.Lock, g.Token, g.Why))
	}
	return strings.Join(words, ", ")
}

// past asks for a history over HTTP.
func (s *site) past(query string) wire.HistoryBody {
	s.t.Helper()
	var b wire.HistoryBody
	if code, _ := s.call("GET", "/v1/history?"+query, "", &b); code != 200 || b.Status != "OK" {
		s.t.Fatalf("%s: %d %+v", query, code, b)
	}
	return b
}

func TestHistory(t *testing.T) {
	b := startPrimary(t)
	s := serveHTTP(t, b)
	begun := time.Now().UnixMilli()
	var tokens []uint64
	for i := range 3 {
		g := s.ok("/v1/acquire", fmt.Sprintf(`{"lock":"a/b","ttl":"30s","client_id":"c1","request_id":%d}`, 2*i+1))
		tokens = append(tokens, g.Token)
		if i < 2 {
			s.ok("/v1/release", fmt.Sprintf(`{"lock":"a/b","token":%d,"client_id":"c1","request_id":%d}`, g.Token, 2*i+2))
		}
	}
	s.ok("/v1/break", `{"lock":"a/b","actor":"ann","reason":"it hangs"}`)
	live := s.ok("/v1/acquire", `{"lock":"a/b","ttl":"30s","client_id":"c2","request_id":1}`)
	other := s.ok("/v1/acquire", `{"lock":"a/c","ttl":"30s","client_id":"c2","request_id":2}`)

	ended := fmt.Sprintf("a/b:%d broken, a/b:%d released, a/b:%d released", tokens[2], tokens[1], tokens[0])
	held := fmt.Sprintf("a/b:%d held", live.Token)
	for query, want := range map[string]string{
		"lock=a/b": held + ", " + ended,
		"prefix=a": held + fmt.Sprintf(", a/c:%d held, ", other.Token) + ended,
		"prefix=":  held + fmt.Sprintf(", a/c:%d held, ", other.Token) + ended,
		"lock=a/c": fmt.Sprintf("a/c:%d held", other.Token),
		"lock=a":   "",
		fmt.Sprintf("lock=a/b&token=%d", tokens[1]):                          fmt.Sprintf("a/b:%d released", tokens[1]),
		fmt.Sprintf("lock=a/b&token=%d", live.Token):                         held,
		fmt.Sprintf("lock=a/b&after_lsn=%d", tokens[2]):                      held + fmt.Sprintf(", a/b:%d broken", tokens[2]),
		fmt.Sprintf("lock=a/b&at=%d", begun-1000):                            "",
		fmt.Sprintf("lock=a/b&at=%d", time.Now().Add(time.Hour).UnixMilli()): held,
		"lock=a/b&since=" + url.QueryEscape("2100-01-02T03:04:05+01:00"):     held,
	} {
		if got := short(s.past(query)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	// Page by page, from memory and, later, from the files.
	for _, from := range []string{"memory", "files"} {
		var pages []string
		query := "lock=a/b&limit=2"
		for range 5 {
			p := s.past(query)
			pages = append(pages, short(p))
			if p.NextLSN == 0 {
				break
			}
			query = fmt.Sprintf("lock=a/b&limit=2&before_lsn=%d&before_token=%d", p.NextLSN, p.NextToken)
		}
		if got := strings.Join(pages, ", "); got != held+", "+ended || len(pages) != 2 {
			t.Errorf("from %s: %d pages: %s", from, len(pages), got)
		}
		eventually(t, "written", func() bool { return len(b.p.Recent().Ends) == 0 })
	}
	g := s.past("lock=a/b").Grants[1]
	if g.Actor != "ann" || g.Reason != "it hangs" || g.ClientID != "c1" || g.Since == 0 || g.Ended < g.Since || g.LSN <= g.Token || g.Epoch == 0 || g.GrantEpoch == 0 {
		t.Errorf("the broken one: %+v", g)
	}
	r, err := dialGRPC(t, b).History(t.Context(), &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: "a/b"}})
	if err != nil || short(wire.HistoryBodyOf(r)) != held+", "+ended || r.Lsn == 0 || r.FromLsn != 0 {
		t.Errorf("over gRPC: %v %v", r, err)
	}
}

func TestHistoryBadInput(t *testing.T) {
	s := serveHTTP(t, startPrimary(t))
	for query, want := range map[string]string{
		"":                    "name a lock",
		"lock=/a":             "lock",
		"lock=a&prefix=b":     "either",
		"lock=a&at=yesterday": "no time",
		"lock=a&at=-5":        "1970",
		"lock=a&token=x":      "whole number",
		"lock=a&colour=red":   "unknown parameter",
	} {
		code, body := 0, wire.Body{}
		var h wire.HistoryBody
		if want == "name a lock" || want == "1970" || query == "lock=/a" {
			code, _ = s.call("GET", "/v1/history?"+query, "", &h)
			body.Status, body.Message = h.Status, h.Message
		} else {
			code, _ = s.call("GET", "/v1/history?"+query, "", &body)
		}
		if code != 400 || body.Status != "INVALID_ARGUMENT" || !strings.Contains(body.Message, want) {
			t.Errorf("%q: %d %s %s, want %q", query, code, body.Status, body.Message, want)
		}
	}
}

// A share that hangs under the history holds up nobody for long: what is in memory is told,
// and what was not looked at.
func TestHistoryOfAShareThatHangs(t *testing.T) {
	b := startPrimary(t)
	hang := make(chan struct{})
	defer close(hang)
	b.search = func(context.Context, history.Query, history.Recent, cluster.LSN) (historydir.Result, error) {
		<-hang
		return historydir.Result{}, errors.New("too late")
	}
	s := serveHTTP(t, b)
	s.ok("/v1/acquire", `{"lock":"before","ttl":"30s"}`)
	eventually(t, "written", func() bool { return b.p.Recent().From > 0 })
	g := s.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`)
	s.ok("/v1/break", `{"lock":"l","actor":"ann","reason":"it hangs"}`)
	for range 3 { // the third finds the others there
		began := time.Now()
		h := s.past("lock=l")
		if !strings.Contains(h.Message, "only what the server has in memory") || time.Since(began) > 10*time.Second {
			t.Errorf("after %v: %q", time.Since(began), h.Message)
		}
		if h.KeptLSN != 0 {
			t.Errorf("told that nothing is kept up to LSN %d, by who did not look", h.KeptLSN)
		}
		if h.FromLSN == 0 && short(h) != fmt.Sprintf("l:%d broken", g.Token) {
			t.Errorf("from LSN %d: %s", h.FromLSN, short(h))
		}
	}
	failing := startPrimary(t)
	failing.search = func(context.Context, history.Query, history.Recent, cluster.LSN) (historydir.Result, error) {
		return historydir.Result{}, errors.New("input/output error")
	}
	if h := serveHTTP(t, failing).past("lock=l"); !strings.Contains(h.Message, "input/output error") {
		t.Errorf("a failing share: %q", h.Message)
	}
}

func TestHistoryOfAServerWithoutATable(t *testing.T) {
	b := &backend{self: 2, members: primarytest.Members(), term: 1}
	var h wire.HistoryBody
	s := serveHTTP(t, b)
	if code, _ := s.call("GET", "/v1/history?lock=l", "", &h); code != 503 || h.Status != "SECONDARY_MODE" {
		t.Errorf("%d %+v", code, h)
	}
}
