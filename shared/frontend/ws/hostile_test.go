// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
)

// Who answers a close frame with a message that it never finishes is cut like one who
// answers with nothing.
func TestAMessageInsteadOfAClose(t *testing.T) {
	s := open(t, startPrimary(t), Options{})
	c, r := s.raw()
	c.Write([]byte{0x82, 0x80, 0, 0, 0, 0}) //nolint:errcheck // it is open
	if opcode, payload, err := frame(r); err != nil || opcode != 8 {
		t.Fatalf("%d %v %v", opcode, payload, err)
	}
	begun := time.Now()
	c.Write([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // it is open
	eventually(t, "the end", func() bool { return len(s.connections()) == 0 })
	if took := time.Since(begun); took > 2*closeWait {
		t.Errorf("it took %v", took)
	}
}

// One message may be larger than what may be left unread: who reads gets it.
func TestALargeMessageIsTold(t *testing.T) {
	c := open(t, startPrimary(t), Options{Limits: Limits{Unread: 4000}}).dial()
	const locks = 20
	for i := range locks {
		c.ok(fmt.Sprintf(`{"op":"acquire","lock":"a%d","ttl":"30s","client_id":"c","request_id":%d,"metadata":%q}`, i, i+1, strings.Repeat("x", 300)))
	}
	if x := c.ok(`{"op":"keepalive","client_id":"c","held":0}`); len(x.Grants) != locks {
		t.Errorf("%d grants", len(x.Grants))
	}
	c.send(`{"id":"w","op":"watch"}`)
	for range 5 { // answers that come behind what is large
		c.send(`{"id":1,"op":"ping"}`)
	}
	if e := c.event(`"w"`); e.Reset == nil || len(e.Reset.Locks) != locks {
		t.Errorf("%+v", e)
	}
	for range 5 {
		c.answer("1")
	}
}

// What is larger than half of the outbox counts as half: it goes in, and an answer behind
// it. All that is left unread is bounded nonetheless.
func TestTheOutboxTakesWhatIsLarge(t *testing.T) {
	large, small := make([]byte, 1000), make([]byte, 10)
	for _, x := range []struct {
		name string
		tell [][]byte
		full bool
	}{
		{"one", [][]byte{large}, false},
		{"one, and answers behind it", [][]byte{large, small, small}, false},
		{"answers before it", [][]byte{small, small, large}, false},
		{"two", [][]byte{large, large}, false},
		{"two and an answer", [][]byte{large, large, small}, true},
		{"three", [][]byte{large, large, large}, true},
	} {
		b := newOutbox(100)
		for _, m := range x.tell {
			b.put(m)
		}
		if b.ending() != x.full {
			t.Errorf("%s: it ends: %v", x.name, b.ending())
		}
		for m, _ := b.take(); m != nil; m, _ = b.take() {
			b.sent(len(m))
		}
		if !x.full && b.mu.bytes != 0 {
			t.Errorf("%s: %d bytes are left of nothing", x.name, b.mu.bytes)
		}
	}
}

// Every byte of a message counts while its operation has no answer.
func TestWhatWaitsIsCounted(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{Limits: Limits{Bytes: 10_000}}).dial()
	token := c.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`).Token
	full := func(id, m string) {
		t.Helper()
		c.send(m)
		if x := c.answer(id); x.Status != "STORAGE_UNAVAILABLE" || !strings.Contains(x.Message, "bytes in flight") {
			t.Errorf("%s: %+v", id, x)
		}
	}
	wait := func(id int) string {
		return fmt.Sprintf(`{"id":%d,"op":"acquire",%s"lock":"a","ttl":"30s","wait":"forever"}`, id, strings.Repeat(" ", 6000))
	}
	c.send(wait(1))
	eventually(t, "one waits", func() bool { return b.held(t, "a").QueueLength == 1 })
	full("2", wait(2))
	full("3", fmt.Sprintf(`{"id":3,"op":"append","lock":"a","token":%d,"file":%q,"data":"x"}`, token, strings.Repeat("f", 5000)))
	c.ok(fmt.Sprintf(`{"op":"append","lock":"a","token":%d,"file":"f","data":"x"}`, token))
}

// What is no data is as short as over HTTP.
func TestRequestsAreBounded(t *testing.T) {
	c := open(t, startPrimary(t), Options{}).dial()
	for _, x := range []struct{ name, status string }{
		{strings.Repeat("f", maxBody+1), "TOO_LARGE"}, {strings.Repeat("f", maxBody/2), "INVALID_ARGUMENT"},
	} {
		if got := c.ask(`{"op":"append","lock":"a","token":1,"file":"` + x.name + `","data":"x"}`); got.Status != x.status {
			t.Errorf("%d bytes: %.200v", len(x.name), got)
		}
	}
	if got := c.ask(`{"op":"watch","kinds":["grant"` + strings.Repeat(`,"grant"`, maxBody/8) + `]}`); got.Status != "TOO_LARGE" {
		t.Errorf("a watch: %.200v", got)
	}
}

// White space is not kept for as long as an acquire waits.
func TestAnAcquireThatWaitsKeepsLittle(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{}).dial()
	c.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const waiters = 200
	before := heap()
	pad := strings.Repeat(" ", 60_000)
	for i := range waiters {
		c.send(fmt.Sprintf(`{"id":%d,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"c","request_id":%d,"holder":{%s"host":"h"}}`, i, i+1, pad))
	}
	eventually(t, "all wait", func() bool { return b.held(t, "a").QueueLength == waiters })
	if grown := int64(heap()) - int64(before); grown > waiters*20_000 {
		t.Errorf("%d bytes are kept for each", grown/waiters)
	}
}

// meddled has something happen when its hub is asked for next.
type meddled struct {
	*backend
	meddle atomic.Pointer[func()]
}

func (m *meddled) Hub() *watch.Hub {
	if meddle := m.meddle.Swap(nil); meddle != nil {
		(*meddle)()
	}
	return m.backend.Hub()
}

// A hello that is said again loses nothing that happens meanwhile.
func TestHelloAgain(t *testing.T) {
	b := &meddled{backend: startPrimary(t)}
	c := open(t, b, Options{}).dial()
	c.ok(`{"op":"hello","client_id":"c"}`)
	token := c.ok(`{"op":"acquire","lock":"a","ttl":"30s","request_id":1}`).Token
	meddle := func() {
		told := make(chan struct{}, 1)
		stop := b.hub.Losses("c", 0, func([]watch.Loss) { told <- struct{}{} })
		defer stop()
		q := locktable.Request{Op: locktable.OpBreak, Client: "o", ID: 1, Lock: "a", Actor: "bob"}
		if out, err := b.Do(t.Context(), &q); err != nil || out.Status != cluster.StatusOK {
			t.Errorf("break: %+v %v", out, err)
		}
		<-told
	}
	b.meddle.Store(&meddle)
	c.ok(`{"op":"hello","client_id":"c"}`)
	c.ok(`{"op":"ping"}`)
	if len(c.others) != 1 || c.others[0].Loss == nil || c.others[0].Loss.Token != token {
		t.Errorf("told %+v", c.others)
	}
	// From now on it is told once.
	c.others = nil
	again := c.ok(`{"op":"acquire","lock":"b","ttl":"30s","request_id":2}`).Token
	c.ok(`{"op":"break","lock":"b","actor":"bob"}`)
	if x := c.hear("the loss", func(x *said) bool { return x.Loss != nil }); x.Loss.Token != again {
		t.Errorf("told %+v", x.Loss)
	}
	c.nothing()
}

// Losses of IDs that servers make are collected for nobody.
func TestHelloOfAMadeID(t *testing.T) {
	c := open(t, startPrimary(t), Options{}).dial()
	for _, id := range []string{"~x", "~text/me/0"} {
		if x := c.ask(fmt.Sprintf(`{"op":"hello","client_id":%q}`, id)); x.Status != "INVALID_ARGUMENT" || !strings.Contains(x.Message, "choose") {
			t.Errorf("%s: %+v", id, x)
		}
	}
}
