// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// raw is a connection whose reading the test has in its hands: a handshake, and then frames.
func (s *site) raw() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })          //nolint:errcheck // it has ended
	c.SetDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // it is open
	if err := c.(*net.TCPConn).SetReadBuffer(kept); err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", Path, s.addr)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("handshake: %v %v", resp, err)
	}
	return c, r
}

// text is a masked frame of a client; its mask is zero, so that it reads as it is.
func text(s string) []byte {
	n := len(s)
	return append([]byte{0x81, 0x80 | 127, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0, 0, 0, 0}, s...)
}

// frame reads a frame of the server: its opcode, and its payload in full.
func frame(r *bufio.Reader) (opcode byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	if size := map[uint64]int{126: 2, 127: 8}[n]; size > 0 {
		more := make([]byte, size)
		if _, err := io.ReadFull(r, more); err != nil {
			return 0, nil, errors.Join(errHalf, err)
		}
		n = 0
		for _, b := range more {
			n = n<<8 | uint64(b)
		}
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, errors.Join(errHalf, err)
	}
	return head[0] & 15, payload, nil
}

var errHalf = errors.New("half a frame")

func TestMessagesAreBounded(t *testing.T) {
	s := open(t, startPrimary(t), Options{Limits: Limits{Message: 1000}})
	c := s.dial()
	fits := `{"id":1,"op":"ping"}` + strings.Repeat(" ", 980)
	c.send(fits)
	c.answer("1")
	c.send(fits + " ")
	c.closed(websocket.StatusMessageTooBig, "")
	c = s.dial()
	if err := c.c.Write(t.Context(), websocket.MessageBinary, []byte(`{"id":1,"op":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	c.closed(websocket.StatusUnsupportedData, "JSON")
}

// A message that a connection has at once takes nothing from the largest append there is.
func TestTheLargestAppendFits(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{}).dial()
	held := fmt.Sprintf(`"lock":"a","token":%d`, c.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`).Token)
	if x := c.ok(`{"op":"append",` + held + `,"file":"f","data_base64":"` + strings.Repeat("AAAA", (1<<20)/3) + `AA=="}`); x.Length != 1<<20 {
		t.Errorf("%+v", x)
	}
	if x := c.ask(`{"op":"append",` + held + `,"file":"f","data_base64":"` + strings.Repeat("AAAA", (1<<20)/3) + `AAAA"}`); x.Status != "TOO_LARGE" {
		t.Errorf("a byte more: %+v", x)
	}
}

func TestOperationsInFlightAreBounded(t *testing.T) {
	b := startPrimary(t)
	c := open(t, b, Options{Limits: Limits{InFlight: 2, Waiting: 2, Bytes: 1000}}).dial()
	token := c.ok(`{"op":"acquire","lock":"a","ttl":"30s"}`).Token
	begun, held := make(chan struct{}, 10), make(chan struct{})
	let := sync.OnceFunc(func() { close(held) })
	defer let()
	hold := func(q *locktable.Request, done bool) {
		if !done && (q.Op == locktable.OpRelease || q.Op == locktable.OpAppend) {
			begun <- struct{}{}
			<-held
		}
	}
	b.hold.Store(&hold)
	wait := func(id int) {
		c.send(fmt.Sprintf(`{"id":%d,"op":"acquire","lock":"a","ttl":"30s","wait":"forever"}`, id))
	}
	refused := func(id, why string) {
		t.Helper()
		if x := c.answer(id); x.Status != "STORAGE_UNAVAILABLE" || !strings.Contains(x.Message, why) {
			t.Fatalf("%s: %+v", id, x)
		}
	}
	wait(1)
	wait(2)
	eventually(t, "two wait", func() bool { return b.held(t, "a").QueueLength == 2 })
	wait(3)
	refused("3", "2 acquires that wait")
	write := func(id int, data string) {
		c.send(fmt.Sprintf(`{"id":%d,"op":"append","lock":"a","token":%d,"file":"f","data":%q}`, id, token, data))
	}
	half := strings.Repeat("x", 500)
	write(4, half)
	<-begun
	write(5, half)
	refused("5", "bytes in flight")
	c.send(fmt.Sprintf(`{"id":6,"op":"release","lock":"a","token":%d}`, token))
	<-begun
	write(7, "")
	refused("7", "2 operations in flight")
	c.ok(`{"op":"ping"}`) // that takes no room
	c.nothing()
	let()
	for _, id := range []string{"4", "6"} {
		c.answer(id)
	}
	// There is room again. The two that wait are granted in the order in which they came to be.
	first := c.hear("a grant", func(x *said) bool { return string(x.ID) == "1" || string(x.ID) == "2" })
	c.ok(fmt.Sprintf(`{"op":"verify","lock":"a","token":%d}`, first.Token))
	c.ok(fmt.Sprintf(`{"op":"append","lock":"a","token":%d,"file":"f","data":%q}`, first.Token, half))
}

func TestWatchesAreBounded(t *testing.T) {
	c := open(t, startPrimary(t), Options{Limits: Limits{Watches: 2}}).dial()
	c.ok(`{"op":"watch","lock":"a"}`)
	c.send(`{"id":1,"op":"watch","lock":"a"}`)
	c.answer("1")
	c.send(`{"id":2,"op":"watch","lock":"a"}`)
	if x := c.answer("2"); x.Status != "STORAGE_UNAVAILABLE" {
		t.Errorf("%+v", x)
	}
	c.send(`{"id":3,"op":"unwatch","watch":1}`)
	c.answer("3")
	c.send(`{"id":2,"op":"watch","lock":"a"}`)
	if x := c.answer("2"); x.Status != "OK" {
		t.Errorf("%+v", x)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := open(t, startPrimary(t), Options{Limits: Limits{Connections: 2}})
	one := s.dial()
	s.dial()
	dial := func() (*http.Response, error) {
		c, r, err := websocket.Dial(t.Context(), "ws://"+s.addr+Path, nil)
		if err == nil {
			c.CloseNow() //nolint:errcheck // it was let in
		}
		return r, err
	}
	r, err := dial()
	if err == nil || r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Fatalf("a third: %v %v", r, err)
	}
	var body said
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Status != "STORAGE_UNAVAILABLE" {
		t.Errorf("%+v, %v", body, err)
	}
	// What is no handshake leaves no trace.
	for range 3 {
		if r, err := http.Get("http://" + s.addr + Path); err != nil || r.StatusCode == http.StatusSwitchingProtocols {
			t.Errorf("no handshake: %v %v", r, err)
		}
	}
	one.c.Close(websocket.StatusNormalClosure, "") //nolint:errcheck // it has ended
	eventually(t, "room for one", func() bool { _, err := dial(); return err == nil })
}

// Who does not read is cut with the reason, gets nothing half, and holds up nobody: neither
// those who hand events out nor other connections.
func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{Limits: Limits{Unread: 256 << 10, InFlight: 1 << 20}})
	c, r := s.raw()
	stop := make(chan struct{})
	sent := make(chan int, 1)
	go func() {
		defer close(stop)
		n := 0
		for ; ; n++ {
			if _, err := c.Write(text(fmt.Sprintf(`{"id":%d,"op":"%s"}`, n, strings.Repeat("x", 4000)))); err != nil || n == 400 {
				break
			}
		}
		sent <- n
	}()
	other := s.dial()
	other.ok(`{"op":"hello","client_id":"o"}`)
	other.ok(`{"op":"watch","prefix":""}`)
	for i := range 20 {
		x := other.ok(fmt.Sprintf(`{"op":"acquire","lock":"a%d","ttl":"30s"}`, i))
		if e := other.hear("the grant", func(x *said) bool { return x.Event != nil && x.Event.Kind == "grant" }); e.Event.Token != x.Token {
			t.Fatalf("%+v", e.Event)
		}
	}
	if n := <-sent; n < 200 {
		t.Fatalf("only %d messages were taken", n)
	}
	eventually(t, "it is cut", func() bool {
		all := s.connections()
		return len(all) == 1 || slices.ContainsFunc(all, func(x *conn) bool { return x.out.ending() })
	})
	whole, last := 0, []byte(nil)
	for last == nil {
		opcode, payload, err := frame(r)
		switch {
		case err != nil:
			t.Fatalf("after %d messages: %v", whole, err)
		case opcode == 8:
			last = payload
		case opcode == 1 && !json.Valid(payload):
			t.Fatalf("half a message: %s", payload)
		default:
			whole++
		}
	}
	if code := websocket.StatusCode(int(last[0])<<8 | int(last[1])); code != websocket.StatusPolicyViolation || !strings.Contains(string(last[2:]), "were not read") {
		t.Errorf("ended with %d %s", code, last[2:])
	}
	<-stop
}

// A watch of a client that does not read waits, and nothing else of it is held up or cut.
func TestAWatchThatIsNotReadWaits(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{Limits: Limits{Unread: 64 << 10}})
	c, r := s.raw()
	other := s.dial()
	c.Write(text(`{"id":"w","op":"watch","prefix":"a"}`)) //nolint:errcheck // it is open
	if _, payload, err := frame(r); err != nil || !strings.Contains(string(payload), `"OK"`) {
		t.Fatalf("%s %v", payload, err)
	}
	const locks = 250 // more than the kernel's buffers take
	last := uint64(0)
	for i := range locks {
		last = other.ok(fmt.Sprintf(`{"op":"acquire","lock":"a/%d","ttl":"30s","metadata":%q}`, i, strings.Repeat("x", cluster.MaxMetadata))).Token
	}
	told := 0
	for {
		opcode, payload, err := frame(r)
		var x said
		if err != nil || opcode != 1 || json.Unmarshal(payload, &x) != nil {
			t.Fatalf("after %d events: opcode %d %s, %v", told, opcode, payload, err)
		}
		if x.Event.Kind != "grant" {
			continue
		}
		if told++; x.Event.Token == last {
			break
		}
	}
	if told != locks {
		t.Errorf("told %d events of %d", told, locks)
	}
}

// Who takes nothing at all is cut without a word in the time of a write.
func TestAClientThatTakesNothingIsCut(t *testing.T) {
	b := startPrimary(t)
	s := open(t, b, Options{Limits: Limits{Write: 50 * time.Millisecond, Unread: 64 << 20, InFlight: 1 << 20, Idle: time.Hour}})
	c, _ := s.raw()
	for i := range 1 << 20 {
		if _, err := c.Write(text(fmt.Sprintf(`{"id":%d,"op":"%s"}`, i, strings.Repeat("x", 1000)))); err != nil {
			break
		}
	}
	eventually(t, "it is cut", func() bool { return len(s.connections()) == 0 })
}

// A client that answers pings may be silent for as long as it likes; one that does not is cut.
func TestSilenceIsBounded(t *testing.T) {
	s := open(t, startPrimary(t), Options{Limits: Limits{Idle: 60 * time.Millisecond}})
	alive := s.dial()
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		_, _, err := alive.c.Read(ctx)
		read <- err
	}()
	c, r := s.raw()
	c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // it is open
	pinged := false
	for {
		opcode, _, err := frame(r)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("who answers no ping is not cut")
		}
		if err != nil {
			break
		}
		pinged = pinged || opcode == 9
	}
	if !pinged {
		t.Error("it was cut without a ping")
	}
	select {
	case err := <-read:
		t.Errorf("who answers was cut: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if n := len(s.connections()); n != 1 {
		t.Errorf("%d connections", n)
	}
	cancel()
	<-read
}

// A connection that does not answer a close frame ends all the same.
func TestACloseThatIsNotAnswered(t *testing.T) {
	s := open(t, startPrimary(t), Options{})
	c, r := s.raw()
	c.Write([]byte{0x82, 0x80, 0, 0, 0, 0}) //nolint:errcheck // it is open
	if opcode, payload, err := frame(r); err != nil || opcode != 8 || payload[0] != 3 || payload[1] != 1003-3*256 {
		t.Fatalf("%d %v %v", opcode, payload, err)
	}
	begun := time.Now()
	if _, _, err := frame(r); err == nil {
		t.Error("it goes on")
	}
	if took := time.Since(begun); took > 2*closeWait {
		t.Errorf("it took %v", took)
	}
	eventually(t, "the end", func() bool { return len(s.connections()) == 0 })
}

// A server that stops in the middle of a client's message tells it the end behind that.
func TestStopWithinAMessage(t *testing.T) {
	s := open(t, startPrimary(t), Options{})
	c, r := s.raw()
	m := text(`{"id":1,"op":"ping"}`)
	c.Write(m[:20]) //nolint:errcheck // it is open
	eventually(t, "the connection", func() bool { return len(s.connections()) == 1 })
	x := s.connections()[0]
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Stop(ctx)
	}()
	eventually(t, "the end", x.out.ending)
	c.Write(append(m[20:], text(`{"id":2,"op":"ping"}`)...)) //nolint:errcheck // it is open
	for {
		opcode, payload, err := frame(r)
		if err != nil {
			t.Fatal(err)
		}
		if opcode == 8 {
			if code := int(payload[0])<<8 | int(payload[1]); code != int(websocket.StatusGoingAway) {
				t.Errorf("ended with %d", code)
			}
			break
		}
	}
	c.Write([]byte{0x88, 0x82, 0, 0, 0, 0, 3, 0xe9}) //nolint:errcheck // it is open
	<-stopped
}
