// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestEventSourceOverAPrimary(t *testing.T) {
	b := startPrimary(t)
	h := serveHTTP(t, b)
	held := h.ok("/v1/acquire", `{"lock":"p/held","ttl":"30s","client_id":"c1","request_id":1,"holder":{"host":"n1","pid":7,"command":"make"}}`)
	x := newEventSource(t, h.url+"/v1/watch?prefix=p/")
	m, e := x.event()
	if e.Kind != "reset" || !e.Reset.Last || e.Reset.Part != 0 || e.Reset.Reason != "" || len(e.Reset.Locks) != 1 || m.id != strconv.FormatUint(e.LSN, 10) || e.LSN < held.LSN {
		t.Fatalf("reset: %s", m.data)
	}
	if l := e.Reset.Locks[0]; l.Lock != "p/held" || l.Token != held.Token || l.Holder.Host != "n1" || l.Remaining == "" || l.LSN != e.LSN {
		t.Errorf("the lock in the reset: %+v", l)
	}
	if x.retry < 500*time.Millisecond || x.retry > 1500*time.Millisecond {
		t.Errorf("it is told to come back after %v", x.retry)
	}
	x.retry = time.Millisecond
	begun := e.LSN
	h.ok("/v1/acquire", `{"lock":"q","ttl":"30s"}`)
	l := h.ok("/v1/acquire", `{"lock":"p/<l>","ttl":"20s","client_id":"c2","request_id":1,"holder":{"host":"n2","pid":8,"command":"x"},"metadata":"at n2"}`)
	h.ok(fmt.Sprintf("/v1/append?lock=p/%%3Cl%%3E&token=%d&file=f", l.Token), "line\n")
	m, e = x.event()
	if e.Kind != "grant" || e.Lock != "p/<l>" || e.Token != l.Token || e.LSN != l.LSN || e.ClientID != "c2" || e.RequestID != 1 || e.TTL != "20s" ||
		*e.Holder != (wire.Holder{Client: "c2", Token: cluster.Token(l.Token), Host: "n2", PID: 8, Command: "x", Since: e.Time, Mode: "exclusive"}) || e.Metadata != "at n2" {
		t.Errorf("grant: %s", m.data)
	}
	h.ok("/v1/release", fmt.Sprintf(`{"lock":"p/<l>","token":%d}`, l.Token))
	h.ok("/v1/break", `{"lock":"p/held","actor":"me","reason":"a\nb"}`)
	if got, want := x.words(2), " bind:p/<l> release:p/<l>"; got != want {
		t.Errorf("told%s, want%s", got, want)
	}
	if _, e := x.event(); e.Kind != "break" || e.Actor != "me" || e.Reason != "a\nb" || e.Token != held.Token || e.Holder != nil {
		t.Errorf("break: %+v", e)
	}
	one := newEventSource(t, fmt.Sprintf("%s/v1/watch?lock=p/%%3Cl%%3E&after=%d&kinds=append,release", h.url, begun))
	if _, e := one.event(); e.Kind != "append" || e.File != "f" || e.Length != 5 || e.CRC32C == 0 || e.Token != l.Token {
		t.Errorf("append: %+v", e)
	}
	if got := one.words(1); got != " release:p/<l>" {
		t.Errorf("told%s", got)
	}
	free := newEventSource(t, h.url+"/v1/watch?lock=nobody")
	if m, e := free.event(); len(e.Reset.Locks) != 0 || !strings.Contains(m.data, `"locks":[]`) {
		t.Errorf("a free lock: %s", m.data)
	}
	b.elect(2, 9)
	b.p.End(errors.New("enough"))
	if m, e := x.event(); e.Kind != "end" || e.Status != "SECONDARY_MODE" || e.Message == "" || e.Primary.Client != "h2:1" || m.id != strconv.FormatUint(uint64(b.p.LSN()), 10) {
		t.Errorf("the end: %s", m.data)
	}
	// A browser is kept waiting; whoever looks at HTTP codes gets one.
	if m, e := x.event(); e.Kind != "end" || e.Status != "SECONDARY_MODE" || m.id != strconv.FormatUint(uint64(b.p.LSN()), 10) {
		t.Errorf("when it came back: %s", m.data)
	}
	var body wire.Body
	if code, header := h.call("GET", "/v1/watch", "", &body); code != 503 || body.Status != "SECONDARY_MODE" || body.Primary == nil || header.Get("Retry-After") == "" {
		t.Errorf("without a browser: %d %+v", code, body)
	}
}

// fedTogether are replicas that apply the same log.
func fedTogether(t *testing.T, n int) []*fedReplica {
	all := []*fedReplica{newFedReplica(t).run()}
	for range n - 1 {
		all = append(all, newFedReplica(t).run())
	}
	all[0].also = all[1:]
	return all
}

// A client whose server is gone goes on at another one, with the header that
// browsers send. It misses nothing and hears nothing twice.
func TestEventSourceGoesOnElsewhere(t *testing.T) {
	replicas := fedTogether(t, 3)
	var urls []string
	var sites []*site
	for _, r := range replicas {
		h := serveHTTP(t, r)
		sites, urls = append(sites, h), append(urls, h.url+"/v1/watch?prefix=l/")
	}
	x := newEventSource(t, urls...)
	if _, e := x.event(); e.Kind != "reset" {
		t.Fatalf("first %+v", e)
	}
	x.retry = time.Millisecond
	next := 0
	for round := range 6 {
		var names []string
		for range 5 {
			names = append(names, fmt.Sprintf("l/%d", next), "elsewhere/"+fmt.Sprint(next))
			next++
		}
		replicas[0].grants(names...)
		for i := next - 5; i < next; i++ {
			if got, want := x.words(1), fmt.Sprintf(" grant:l/%d", i); got != want {
				t.Fatalf("round %d: told%s, want%s", round, got, want)
			}
		}
		x.retry = time.Millisecond
		if round == 2 {
			sites[(x.opened-1)%3].stop() // for good
			continue
		}
		x.close()
	}
	if x.opened < 6 {
		t.Errorf("%d connections", x.opened)
	}
}

// Whoever was cut within a reset has half a state: it has to hear it from the start,
// though it has an old ID and its address says after which LSN to begin.
func TestResetThatWasCutBeginsAnew(t *testing.T) {
	r := newFedReplica(t).run()
	var names []string
	for i := range 2300 {
		names = append(names, fmt.Sprintf("l/%04d", i))
	}
	r.grants(names...)
	r.mu.Lock()
	r.at.LSN, r.at.Chain = r.at.LSN+10, 1 // a snapshot came
	r.feed.Begin(r.at, 8)
	r.mu.Unlock()
	h := serveHTTP(t, r)
	x := newEventSource(t, h.url+"/v1/watch?after=7")
	x.lastID = "9"
	m, e := x.event()
	if e.Kind != "reset" || e.Reset.Last || e.LSN != 0 || m.id != "reset" || len(e.Reset.Locks) != 1000 || !strings.Contains(e.Reset.Reason, "LSN 9") {
		t.Fatalf("first piece: %.200s", m.data)
	}
	x.close()
	got := 0
	for part := uint32(0); ; part++ {
		m, e := x.event()
		if e.Reset == nil || e.Reset.Part != part || e.Reset.Reason != "" {
			t.Fatalf("part %d: %+v of %.200s", part, e.Reset.Part, m.data[len(m.data)-200:])
		}
		if got += len(e.Reset.Locks); e.Reset.Last {
			if e.LSN != uint64(r.at.LSN) || m.id != fmt.Sprint(r.at.LSN) {
				t.Errorf("the last piece is of LSN %d, id %s", e.LSN, m.id)
			}
			break
		}
	}
	if got != len(names) {
		t.Errorf("%d locks", got)
	}
}

func TestWatchQueryIsRefused(t *testing.T) {
	h := serveHTTP(t, newFedReplica(t))
	for query, want := range map[string]string{
		"lock=a&prefix=b":                    "not both",
		"lock=":                              "lock",
		"lock=a//b":                          "lock",
		"lock=a&lock=b":                      "2 times",
		"prefix=" + strings.Repeat("x", 513): "512 bytes",
		"after=-1":                           "neither an LSN nor reset",
		"after=soon":                         "neither an LSN nor reset",
		"kinds=grants":                       `no event kind "grants": use grant, enqueue`,
		"kinds=grant,":                       `no event kind ""`,
		"kinds=GRANT":                        `no event kind "GRANT"`,
		"kinds=open_client":                  "no event kind",
		"bookmark=5":                         "such as 5s",
		"bookmark=1ms":                       "from 100ms to 1h0m0s",
		"bookmark=2562047h":                  "from 100ms to 1h0m0s",
		"locks=a":                            `unknown parameter "locks"`,
	} {
		var b wire.Body
		if code, _ := h.call("GET", "/v1/watch?"+query, "", &b); code != 400 || b.Status != "INVALID_ARGUMENT" || !strings.Contains(b.Message, want) {
			t.Errorf("%s: %d %+v", query, code, b)
		}
	}
	x := newEventSource(t, h.url+"/v1/watch")
	x.lastID = "nonsense"
	if err := x.open(); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), "Last-Event-ID") {
		t.Errorf("an ID that is none: %v", err)
	}
	var b wire.Body
	if code, _ := h.call("POST", "/v1/watch", "", &b); code != 405 {
		t.Errorf("POST: %d", code)
	}
	resp, err := http.Head(h.url + "/v1/watch")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %v", resp)
	}
}

// A replica serves watches itself: whoever asked the primary for it would fail here.
func TestWatchIsNotForwarded(t *testing.T) {
	r := newFedReplica(t).run()
	h := serveHTTPWith(t, r, httpapi.Options{Transport: refusing{}})
	x := newEventSource(t, h.url+"/v1/watch?after=0")
	r.grants("a")
	if got := x.words(1); got != " grant:a" {
		t.Errorf("told%s", got)
	}
}

// refusing is a way to the primary that must not be taken.
type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("forwarded %s", r.URL)
}

func TestTooManyWatchers(t *testing.T) {
	r := newFedReplica(t).run()
	served := service.New(r, service.Options{MaxWatches: 1})
	h := serveFront(t, httpapi.New(served, httpapi.Options{}))
	first := newEventSource(t, h.url+"/v1/watch")
	if _, e := first.event(); e.Kind != "reset" {
		t.Fatalf("told %+v", e)
	}
	var b wire.Body
	if code, _ := h.call("GET", "/v1/watch", "", &b); code != 503 || b.Status != "SECONDARY_MODE" || !strings.Contains(b.Message, "watch at another one") {
		t.Errorf("%d %+v", code, b)
	}
	x := newEventSource(t, h.url+"/v1/watch")
	if _, e := x.event(); e.Kind != "end" || e.Status != "SECONDARY_MODE" {
		t.Errorf("told %+v", e)
	}
	first.close()
	eventually(t, "nobody watches", func() bool { return served.Watchers() == 0 })
	x.retry = time.Millisecond
	if _, e := x.event(); e.Kind != "reset" {
		t.Errorf("told %+v", e)
	}
	x.close()
	eventually(t, "nobody watches", func() bool { return served.Watchers() == 0 })
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not here")
	}
	r := newFedReplica(t).run()
	h := serveHTTP(t, r)
	r.grants("a")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, curl, "-sN", h.url+"/v1/watch?after=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line := func(prefix string) string {
		t.Helper()
		s, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(s, prefix) {
			t.Fatalf("got %q, %v, want %q", s, err, prefix)
		}
		return strings.TrimPrefix(s, prefix)
	}
	line("retry: ")
	line("\n")
	for i, name := range []string{"a", "b"} { // each comes when it happens, not when a buffer is full
		line("event: grant\n")
		line(fmt.Sprintf("id: %d\n", i+1))
		var e wire.EventBody
		if err := json.Unmarshal([]byte(line("data: ")), &e); err != nil || e.Lock != name || e.Holder == nil {
			t.Errorf("%+v, %v", e, err)
		}
		line("\n")
		r.grants(string(rune('b' + i)))
	}
	cancel()
	_, _ = io.Copy(io.Discard, lines)
	cmd.Wait() //nolint:errcheck // it was killed
}
