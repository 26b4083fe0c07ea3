// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Every operation answers as HTTP does, at the primary and at another server.
func TestOperations(t *testing.T) {
	b := startPrimary(t)
	for _, x := range []*backend{b, b.replica()} {
		t.Run(fmt.Sprintf("server %d", x.self), func(t *testing.T) {
			c := open(t, x, Options{}).dial()
			lock := fmt.Sprintf("lock%d", x.self)
			got := c.ok(fmt.Sprintf(`{"op":"acquire","lock":%q,"ttl":"30s","client_id":"%s","request_id":1}`, lock, lock))
			if got.Token == 0 || !got.Protected || got.Lock != lock || got.TTL != "30s" {
				t.Errorf("acquire: %+v", got)
			}
			held := fmt.Sprintf(`"lock":%q,"token":%d`, lock, got.Token)
			if x := c.ask(fmt.Sprintf(`{"op":"acquire","lock":%q,"ttl":"30s"}`, lock)); x.Status != "HELD" || x.Holder == nil || x.Holder.Token != cluster.Token(got.Token) {
				t.Errorf("held: %+v", x)
			}
			c.ok(`{"op":"renew",` + held + `}`)
			c.ok(`{"op":"verify",` + held + `}`)
			c.ok(`{"op":"metadata",` + held + `,"metadata":"m"}`)
			c.send(`{"id":"ä","op":"append",` + held + `,"file":"` + lock + `.log","data":"one\n"}`)
			if x := c.answer(`"ä"`); x.Status != "OK" || x.Offset != 0 || x.Length != 4 || x.CRC32C == 0 {
				t.Errorf("append: %+v", x)
			}
			if x := c.ok(`{"op":"append",` + held + `,"file":"` + lock + `.log","data_base64":"AP8K"}`); x.Offset != 4 || x.Length != 3 {
				t.Errorf("append: %+v", x)
			}
			if got := b.file(t, lock+".log"); got != "one\n\x00\xff\n" {
				t.Errorf("the file holds %q", got)
			}
			if x := c.ok(`{"op":"keepalive","client_id":"` + lock + `","held":5}`); !x.Differs || len(x.Grants) != 1 {
				t.Errorf("keepalive: %+v", x)
			}
			c.ok(`{"op":"open"}`)
			c.ok(`{"op":"release",` + held + `}`)
			for _, m := range []string{
				`{"op":"nonsense"}`, `{"op":"acquire","lock":"a","ttl":"30s","what":1}`, `{"op":"ping","what":1}`,
				`{"op":"append","lock":"a","what":1}`, `{"op":"release","lock":"a"}`, `{"op":"unwatch","watch":9}`, `{"op":"hello"}`,
			} {
				if x := c.ask(m); x.Status != "INVALID_ARGUMENT" || x.Message == "" {
					t.Errorf("%s: %+v", m, x)
				}
			}
			c.send(`{"op":"ping"}`)
			if x := c.answer("null"); x.Status != "INVALID_ARGUMENT" || !strings.Contains(x.Message, `"id"`) {
				t.Errorf("no id: %+v", x)
			}
			if x := c.ask(`{"op":"metadata",` + held + `,"metadata":"` + strings.Repeat("m", maxBody) + `"}`); x.Status != "TOO_LARGE" {
				t.Errorf("a long request: %+v", x)
			}
		})
	}
}

// A grant that is waited for is pushed, and waiting holds up nothing else.
func TestGrantsArePushed(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{}).dial()
	c.ok(`{"op":"hello","client_id":"c"}`)
	last := c.ok(`{"op":"acquire","lock":"a","ttl":"30s","request_id":1}`).Token
	const waiters = 50
	for i := range waiters {
		c.send(fmt.Sprintf(`{"id":%d,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"w%d","request_id":1}`, 100+i, i))
		eventually(t, "it waits", func() bool { return b.held(t, "a").QueueLength == i+1 })
	}
	c.ok(`{"op":"acquire","lock":"b","ttl":"30s","request_id":2}`)
	if x := c.ok(`{"op":"acquire","lock":"a","ttl":"30s","request_id":1}`); !x.Repeat || x.Token != last {
		t.Errorf("the repeat: %+v", x)
	}
	c.nothing()
	for i := range waiters {
		c.ok(fmt.Sprintf(`{"op":"release","lock":"a","token":%d}`, last))
		x := c.answer(fmt.Sprint(100 + i))
		if x.Status != "OK" || x.Token <= last {
			t.Fatalf("waiter %d: %+v", i, x)
		}
		last = x.Token
	}
}

// Losses and asks are pushed to who said hello, and told again to who comes back.
func TestLossesArePushed(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{})
	c, other := s.dial(), s.dial()
	if x := c.ok(`{"op":"hello","client_id":"c"}`); x.ClientID != "c" {
		t.Errorf("hello: %+v", x)
	}
	other.ok(`{"op":"hello","client_id":"other"}`)
	token := c.ok(`{"op":"acquire","lock":"a","ttl":"30s","request_id":1}`).Token
	receipt := c.ok(fmt.Sprintf(`{"op":"append","lock":"a","token":%d,"file":"f","data":"x"}`, token))
	other.send(`{"id":7,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","request_id":1}`)
	eventually(t, "the queue", func() bool { return b.held(t, "a").QueueLength == 1 })
	other.ok(`{"op":"break","lock":"a","actor":"ann","reason":"it hangs","grace":"30s"}`)
	ask := c.hear("the ask", func(x *said) bool { return x.Ask != nil }).Ask
	if ask.Lock != "a" || ask.Token != token || ask.Actor != "ann" || ask.Grace != "30s" {
		t.Errorf("asked %+v", ask)
	}
	other.ok(`{"op":"break","lock":"a","actor":"bob","reason":"now"}`)
	lost := func(x *said) bool { return x.Loss != nil }
	loss := c.hear("the loss", lost).Loss
	next := other.answer("7")
	if loss.Lock != "a" || loss.Token != token || loss.Reason != "broken" || loss.Actor != "bob" || loss.Message != "now" || loss.RequestID != 1 ||
		loss.SuccessorToken != next.Token || next.Token == 0 || loss.LastAppend == nil || uint64(loss.LastAppend.LSN) != receipt.LSN {
		t.Errorf("lost %+v, next %+v", loss, next)
	}
	c.nothing()
	// Its own release is no loss, and other clients' losses are not its own.
	other.ok(fmt.Sprintf(`{"op":"release","lock":"a","token":%d,"request_id":2}`, next.Token))
	c.nothing()
	other.nothing()
	short := c.ok(`{"op":"acquire","lock":"short","ttl":"1s","request_id":2}`)
	c.c.CloseNow() //nolint:errcheck // that is the point
	eventually(t, "the expiry", func() bool { return b.held(t, "short").Grant.Token == 0 })
	c = s.dial()
	c.ok(fmt.Sprintf(`{"op":"hello","client_id":"c","losses_after_lsn":%d}`, token))
	if x := c.hear("the old loss", lost).Loss; x.Lock != "a" || x.Token != token {
		t.Errorf("told again: %+v", x)
	}
	if x := c.hear("the newer loss", lost).Loss; x.Reason != "expired" || x.Token != short.Token {
		t.Errorf("told again: %+v", x)
	}
	for i := range maxClients - 1 {
		c.ok(fmt.Sprintf(`{"op":"hello","client_id":"c%d"}`, i))
	}
	c.ok(`{"op":"hello","client_id":"c"}`) // it was said before
	if x := c.ask(`{"op":"hello","client_id":"more"}`); x.Status != "STORAGE_UNAVAILABLE" {
		t.Errorf("one client more: %+v", x)
	}
}

// An open connection renews nothing: whether the page lives, only the page can say.
func TestAConnectionRenewsNothing(t *testing.T) {
	c := open(t, startPrimary(t), Options{Limits: Limits{Idle: 600 * time.Millisecond}}).dial()
	c.ok(`{"op":"hello","client_id":"c"}`)
	c.ok(`{"op":"acquire","lock":"a","ttl":"1s","request_id":1}`)
	begun := time.Now()
	for lost := false; !lost; {
		x, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		lost = x.Loss != nil && x.Loss.Lock == "a" && x.Loss.Reason == "expired"
	}
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("lost after %v", took)
	}
	// What says keepalive is renewed, for one client and all it holds.
	kept := c.ok(`{"op":"acquire","lock":"b","ttl":"1s","client_id":"d","request_id":1}`)
	for range 15 {
		<-time.After(100 * time.Millisecond)
		if x := c.ok(`{"op":"keepalive","client_id":"d","held":1}`); x.Differs {
			t.Fatalf("it holds %+v", x.Grants)
		}
	}
	c.ok(fmt.Sprintf(`{"op":"release","lock":"b","token":%d}`, kept.Token))
}

// Losses that nobody can tell any more are said to be missed.
func TestLossesAreMissed(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{}).dial()
	c.ok(`{"op":"acquire","lock":"a","ttl":"30s","client_id":"c","request_id":1}`)
	c.ok(`{"op":"hello","client_id":"c"}`)
	gone := b.hub.Feed(true)
	gone.Begin(positionFarAhead(), 2)
	c.hear("that some may be missed", func(x *said) bool { return x.Missed })
}

func TestWatches(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{}).dial()
	one := c.ok(`{"op":"acquire","lock":"w/1","ttl":"30s"}`)
	c.send(`{"id":"w","op":"watch","prefix":"w/"}`)
	if x := c.answer(`"w"`); x.Status != "OK" {
		t.Fatalf("watch: %+v", x)
	}
	if e := c.event(`"w"`); e.Kind != "reset" || len(e.Reset.Locks) != 1 || e.Reset.Locks[0].Token != one.Token {
		t.Errorf("reset: %+v", e)
	}
	two := c.ok(`{"op":"acquire","lock":"w/2","ttl":"30s"}`)
	c.ok(`{"op":"acquire","lock":"x","ttl":"30s"}`)
	if e := c.event(`"w"`); e.Kind != "grant" || e.Lock != "w/2" || e.Token != two.Token || e.LSN != two.LSN {
		t.Errorf("event: %+v", e)
	}
	if x := c.ask(`{"op":"watch","lock":"a","prefix":"b"}`); x.Status != "INVALID_ARGUMENT" {
		t.Errorf("refused: %+v", x)
	}
	c.send(`{"id":"w","op":"watch"}`)
	if x := c.answer(`"w"`); x.Status != "INVALID_ARGUMENT" {
		t.Errorf("a second watch of that id: %+v", x)
	}
	c.ok(`{"op":"unwatch","watch":"w"}`)
	c.ok(fmt.Sprintf(`{"op":"release","lock":"w/2","token":%d}`, two.Token))
	c.nothing()
	// It goes on where it was, over another connection too, and only with what was asked for.
	c.send(fmt.Sprintf(`{"id":"w","op":"watch","prefix":"w/","after":%d,"kinds":["release"],"bookmark":"200ms"}`, one.LSN))
	if x := c.answer(`"w"`); x.Status != "OK" {
		t.Fatalf("watch again: %+v", x)
	}
	if e := c.event(`"w"`); e.Kind != "release" || e.Token != two.Token {
		t.Errorf("resumed: %+v", e)
	}
	if e := c.event(`"w"`); e.Kind != "bookmark" || e.LSN == 0 {
		t.Errorf("bookmark: %+v", e)
	}
	// A hub that is fed no more ends it, with a reason, and refuses others. Who looks between its new beginning and its end finds a table
	// that is behind.
	end := b.hub.Feed(true)
	end.Begin(positionFarAhead(), 2)
	end.End("this server stops")
	var last *said
	for last == nil || last.Event.Kind != "end" {
		x := c.hear("the end", func(x *said) bool { return string(x.Watch) == `"w"` })
		last = &x
	}
	if w := last.Event.Status; w != "SECONDARY_MODE" && w != "STORAGE_UNAVAILABLE" || last.Event.Message == "" {
		t.Errorf("end: %+v", last.Event)
	}
	c.send(fmt.Sprintf(`{"id":"v","op":"watch","after":%d}`, one.LSN))
	if x := c.answer(`"v"`); x.Status != "SECONDARY_MODE" {
		t.Errorf("nobody is watched here: %+v", x)
	}
}

// An acquire under IDs that the server made ends with its connection; one under IDs of the
// client's keeps its place.
func TestPlacesInTheQueue(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{})
	c := s.dial()
	token := c.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`).Token
	w := s.dial()
	w.send(`{"id":1,"op":"acquire","lock":"a","ttl":"30s","wait":"forever"}`)
	w.send(`{"id":2,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"w","request_id":1}`)
	eventually(t, "both wait", func() bool { return b.held(t, "a").QueueLength == 2 })
	w.c.CloseNow() //nolint:errcheck // that is the point
	eventually(t, "one waits", func() bool { return b.held(t, "a").QueueLength == 1 })
	c.ok(fmt.Sprintf(`{"op":"release","lock":"a","token":%d}`, token))
	if l := b.held(t, "a"); l.Grant.Client != "w" {
		t.Errorf("held: %+v", l.Grant)
	}
}

// A connection that is cut in the middle of an acquire and of an append: the client comes
// back at another server, gets the answers that it missed, and nothing happened twice.
func TestReconnect(t *testing.T) {
	b := startPrimary(t)
	first, second := open(t, b, Options{}), open(t, b.replica(), Options{})
	c := first.dial()
	c.ok(`{"op":"hello","client_id":"c"}`)
	token := c.ok(`{"op":"acquire","lock":"mine","ttl":"30s","request_id":1}`).Token
	blocker := first.dial()
	blocking := blocker.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`)
	acquire := `"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"c","request_id":2`
	write := fmt.Sprintf(`"op":"append","lock":"mine","token":%d,"file":"f","data":"once\n","client_id":"c","request_id":3`, token)
	// The append is executed, and its answer does not leave.
	executed, lost := make(chan struct{}), make(chan struct{})
	hold := func(q *locktable.Request, done bool) {
		if q.Op == locktable.OpAppend && q.ID == 3 && done {
			select {
			case <-executed: // the repeat
			default:
				close(executed)
				<-lost
			}
		}
	}
	b.hold.Store(&hold)
	c.send(`{"id":1,` + acquire + `}`)
	eventually(t, "it waits", func() bool { return b.held(t, "a").QueueLength == 1 })
	c.send(`{"id":2,` + write + `}`)
	<-executed
	c.c.CloseNow() //nolint:errcheck // that is the point
	close(lost)
	// While nobody is there the grant comes.
	blocker.ok(fmt.Sprintf(`{"op":"release","lock":"a","token":%d}`, blocking.Token))
	granted := b.held(t, "a").Grant
	if granted.Client != "c" || granted.Token == 0 {
		t.Fatalf("granted: %+v", granted)
	}
	c = second.dial()
	c.ok(`{"op":"hello","client_id":"c"}`)
	for range 2 {
		c.send(`{"id":1,` + acquire + `}`)
		if x := c.answer("1"); x.Status != "OK" || !x.Repeat || cluster.Token(x.Token) != granted.Token {
			t.Errorf("the acquire again: %+v, want token %d", x, granted.Token)
		}
		c.send(`{"id":2,` + write + `}`)
		if x := c.answer("2"); x.Status != "OK" || !x.Repeat || x.Offset != 0 || x.Length != 5 {
			t.Errorf("the append again: %+v", x)
		}
	}
	if got := b.file(t, "f"); got != "once\n" {
		t.Errorf("the file holds %q", got)
	}
	if x := c.ok(`{"op":"keepalive","held":2}`); x.Differs {
		t.Errorf("it holds %+v", x.Grants)
	}
}

func TestOrigins(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{Pages: origins.New([]string{"https://*.example.com", "http://localhost:3000"})})
	for _, x := range []struct {
		origin, site string
		ok           bool
	}{
		{"", "", true}, // no browser
		{"http://" + s.addr, "", true},
		{"http://" + s.addr, "same-origin", true},
		{"https://app.example.com", "cross-site", true},
		{"https://APP.example.com", "", true},
		{"http://localhost:3000", "same-site", true},
		{"http://localhost:3001", "same-site", false},
		{"http://app.example.com", "cross-site", false},
		{"https://example.com", "", false},
		{"https://example.com.evil.org", "cross-site", false},
		{"https://app.example.com.evil.org", "cross-site", false},
		{"https://evil.org/.example.com", "cross-site", false},
		{"null", "cross-site", false},
		{"", "cross-site", false},
	} {
		header := http.Header{}
		if x.origin != "" {
			header.Set("Origin", x.origin)
		}
		if x.site != "" {
			header.Set("Sec-Fetch-Site", x.site)
		}
		c, r, err := websocket.Dial(t.Context(), "ws://"+s.addr+Path, &websocket.DialOptions{HTTPHeader: header})
		if (err == nil) != x.ok {
			t.Errorf("%+v: %v", x, err)
		}
		if err == nil {
			c.CloseNow() //nolint:errcheck // it was let in
			continue
		}
		var body said
		if json.NewDecoder(r.Body).Decode(&body) != nil || r.StatusCode != 403 || body.Status != "PERMISSION_DENIED" || !strings.Contains(body.Message, "--web-origins") {
			t.Errorf("%+v: %d %+v", x, r.StatusCode, body)
		}
	}
}

// A server that stops lets what is under way be answered, but for acquires that wait, and
// says that it goes away.
func TestStop(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{})
	c := s.dial()
	token := c.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`).Token
	c.send(`{"id":1,"op":"acquire","lock":"a","ttl":"30s","wait":"forever"}`)
	begun, let := make(chan struct{}), make(chan struct{})
	hold := func(q *locktable.Request, done bool) {
		if q.Op == locktable.OpRelease && !done {
			close(begun)
			<-let
		}
	}
	b.hold.Store(&hold)
	idle := s.dial()
	idle.ok(`{"op":"ping"}`)
	eventually(t, "it waits", func() bool { return b.held(t, "a").QueueLength == 1 })
	c.send(fmt.Sprintf(`{"id":2,"op":"release","lock":"b","token":%d}`, token))
	<-begun
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Stop(ctx)
	}()
	idle.closed(websocket.StatusGoingAway, "another one")
	select {
	case <-stopped:
		t.Error("it did not wait for what is under way")
	default:
	}
	close(let)
	if x := c.answer("2"); x.Status == "" {
		t.Errorf("%+v", x)
	}
	c.closed(websocket.StatusGoingAway, "another one")
	<-stopped
	if _, r, err := websocket.Dial(t.Context(), "ws://"+s.addr+Path, nil); err == nil || r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("it still takes connections: %v", err)
	}
}

// What is not answered in time is told the end all the same, and cut then.
func TestStopInTime(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{})
	c, deaf := s.dial(), s.dial()
	deaf.ok(`{"op":"ping"}`)
	let := make(chan struct{})
	hold := func(q *locktable.Request, done bool) {
		if q.Op == locktable.OpRelease && !done {
			<-let
		}
	}
	b.hold.Store(&hold)
	c.send(`{"id":2,"op":"release","lock":"b","token":7}`)
	c.ok(`{"op":"ping"}`)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.closed(websocket.StatusGoingAway, "another one")
	}()
	s.Stop(ctx)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	<-told
	close(let)
	// Before it serves, a server may be stopped as well.
	early := New(httpapi.New(service.New(b, service.Options{}), httpapi.Options{}).Door(), Options{})
	early.Stop(t.Context())
	w := httptest.NewRecorder()
	if early.ServeHTTP(w, httptest.NewRequest("GET", Path, nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
