// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// socket is a client's connection over WebSocket.
type socket struct {
	t      *testing.T
	c      *websocket.Conn
	others []socketWord // what came while something else was waited for
}

// socketWord is what a server says.
type socketWord struct {
	ID      any    `json:"id"`
	Status  string `json:"status"`
	Message string `json:"message"`
	Token   uint64 `json:"token"`
	LSN     uint64 `json:"lsn"`
	Offset  int64  `json:"offset"`
	Repeat  bool   `json:"repeat"`
	Differs bool   `json:"differs"`
	Watch   any    `json:"watch"`
	Event   *struct {
		Kind, Lock string
		Token, LSN uint64
	} `json:"event"`
	Loss *struct {
		Lock, Reason, Actor string
		Token               uint64
		LastAppend          *struct{ Offset int64 } `json:"last_append"`
	} `json:"loss"`
	Missed bool `json:"missed"`
}

// socket connects to a server, as a page of an origin where that is not "".
func (w *world) socket(server uint32, origin string) (*socket, error) {
	w.t.Helper()
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	c, _, err := websocket.Dial(w.t.Context(), "ws://"+w.servers[server-1].Client+"/v1/ws", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(1 << 20)
	w.t.Cleanup(func() { c.CloseNow() }) //nolint:errcheck // it has ended
	return &socket{t: w.t, c: c}, nil
}

// connected is a connection of a client that has said hello.
func (w *world) connected(server uint32, client string, losses uint64) *socket {
	w.t.Helper()
	c, err := w.socket(server, "")
	if err != nil {
		w.t.Fatal(err)
	}
	c.ok(fmt.Sprintf(`"op":"hello","client_id":%q,"losses_after_lsn":%d`, client, losses))
	return c
}

func (c *socket) send(m string) {
	c.t.Helper()
	if err := c.c.Write(c.t.Context(), websocket.MessageText, []byte(m)); err != nil {
		c.t.Fatalf("send %s: %v", m, err)
	}
}

// hear waits for something; what comes before it is kept.
func (c *socket) hear(what string, is func(*socketWord) bool) socketWord {
	c.t.Helper()
	for i := range c.others {
		if x := c.others[i]; is(&x) {
			c.others = append(c.others[:i:i], c.others[i+1:]...)
			return x
		}
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		_, b, err := c.c.Read(ctx)
		if err != nil {
			c.t.Fatalf("%s: %v, after %+v", what, err, c.others)
		}
		var x socketWord
		if err := json.Unmarshal(b, &x); err != nil {
			c.t.Fatalf("%v in %s", err, b)
		}
		if is(&x) {
			return x
		}
		c.others = append(c.others, x)
	}
}

func (c *socket) answer(id string) socketWord {
	c.t.Helper()
	return c.hear("answer "+id, func(x *socketWord) bool { return x.ID == id })
}

// ok asks for something that must succeed.
func (c *socket) ok(fields string) socketWord {
	c.t.Helper()
	c.send(`{"id":"ok",` + fields + `}`)
	x := c.answer("ok")
	if x.Status != "OK" {
		c.t.Fatalf("%s: %+v", fields, x)
	}
	return x
}

// TestWebSocketFailover kills the primary under a client that holds a lock, waits for
// another and has an append on its way, and under one that is connected to a replica.
func TestWebSocketFailover(t *testing.T) {
	w := startDev(t, "--ws-origin", "http://a.example", "--ws-origin", "http://b.example")
	defer w.stopLeft()
	id, pid := w.primary(0)
	other := id%3 + 1
	c, o := w.connected(id, "c", 0), w.connected(other, "o", 0)
	mine := c.ok(`"op":"acquire","lock":"mine","ttl":"1m","request_id":1`)
	theirs := o.ok(`"op":"acquire","lock":"theirs","ttl":"1m","request_id":1`)
	o.send(`{"id":"w","op":"watch"}`)
	o.answer("w")
	wait := `{"id":"wait","op":"acquire","lock":"theirs","ttl":"1m","wait":"forever","client_id":"c","request_id":2}`
	c.send(wait)
	await(t, "the queue", func() bool { return strings.Contains(w.try("", "show", "theirs").out, "waiting 1") })
	write := fmt.Sprintf(`{"id":"write","op":"append","lock":"mine","token":%d,"file":"mine.log","data":"once\n","client_id":"c","request_id":3}`, mine.Token)
	c.send(write)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for { // the append may have been answered
		if _, _, err := c.c.Read(t.Context()); err != nil {
			break
		}
	}
	// The client comes back elsewhere, and asks again.
	c = w.connected(other, "c", mine.Token)
	c.send(wait)
	c.send(write)
	if x := c.answer("write"); x.Status != "OK" || x.Offset != 0 {
		t.Errorf("the append again: %+v", x)
	}
	if x := c.ok(`"op":"acquire","lock":"mine","ttl":"1m","request_id":1`); x.Token != mine.Token || !x.Repeat {
		t.Errorf("the acquire again: %+v, want token %d", x, mine.Token)
	}
	if x := c.ok(`"op":"keepalive","held":1`); x.Differs {
		t.Errorf("keepalive: %+v", x)
	}
	c.send(write)
	if x := c.answer("write"); x.Status != "OK" || x.Offset != 0 || !x.Repeat {
		t.Errorf("the append once more: %+v", x)
	}
	equal(t, "file", w.file("mine.log"), "once\n")
	// The other one's connection outlives the term, and so does its watch.
	o.ok(fmt.Sprintf(`"op":"release","lock":"theirs","token":%d,"request_id":2`, theirs.Token))
	granted := c.answer("wait")
	if granted.Status != "OK" || granted.Token <= theirs.Token {
		t.Errorf("granted: %+v", granted)
	}
	o.hear("the event", func(x *socketWord) bool {
		return x.Event != nil && x.Event.Kind == "grant" && x.Event.Token == granted.Token
	})
	now, _ := w.primary(id)
	w.socketsAreTold(c, 6-id-now, mine.Token)
}

// socketsAreTold breaks a lock whose holder listens at two servers, the second of which is a
// replica and then stops.
func (w *world) socketsAreTold(c *socket, at uint32, token uint64) {
	t := w.t
	t.Helper()
	r := w.connected(at, "c", 0)
	w.do("", "break", "mine", "--actor", "ann", "--reason", "a test")
	for who, x := range map[string]*socket{"the replica": r, "the other": c} {
		l := x.hear("the loss at "+who, func(x *socketWord) bool { return x.Loss != nil }).Loss
		if l.Lock != "mine" || l.Token != token || l.Reason != "broken" || l.Actor != "ann" || l.LastAppend == nil || l.LastAppend.Offset != 0 {
			t.Errorf("%s told %+v", who, l)
		}
	}
	for origin, ok := range map[string]bool{"http://a.example": true, "http://b.example": true, "http://c.example": false} {
		if _, err := w.socket(at, origin); (err == nil) != ok {
			t.Errorf("a page of %s: %v", origin, err)
		}
	}
	// A server that stops says so.
	for _, s := range w.status().Servers {
		if s.ID == at {
			syscall.Kill(s.PID, syscall.SIGTERM) //nolint:errcheck // it runs
		}
	}
	for {
		if _, _, err := r.c.Read(t.Context()); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusGoingAway {
				t.Errorf("ended with %v", err)
			}
			break
		}
	}
}

// stopLeft is stop where servers were killed.
func (w *world) stopLeft() {
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		w.t.Error(err)
	}
	w.cmd.Wait() //nolint:errcheck // some have died
}
