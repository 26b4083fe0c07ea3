// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	errs   chan error // what Accept returns now and then
	once   sync.Once
	closed chan struct{}
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), errs: make(chan error), closed: make(chan struct{})}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.errs:
		return nil, err
	case <-l.closed:
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// site is a port in memory, and what its front ends were given.
type site struct {
	t *testing.T
	*Port
	l     *pipes
	taken chan taken
	said  bytes.Buffer
	// stuck is set while the front ends begin nothing: then turns last. late is whether the server is.
	stuck, late atomic.Bool
}

type taken struct {
	class Class
	conn  net.Conn
}

// open opens a port until the end of a test in a bubble.
func open(t *testing.T) *site {
	s := &site{t: t, l: newPipes(), taken: make(chan taken, 4*maxSilent)}
	s.Port = New(zerolog.New(&s.said), s.late.Load)
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := s.Serve(s.l); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	for c := range Class(served) {
		ended.Go(func() {
			for {
				x, err := s.Listener(c).Accept()
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("class %d: %v", c, err)
					}
					return
				}
				if !s.stuck.Load() {
					if c, secured := x.(*tlsConn); secured {
						c.turn.end()
					} else {
						x.(*conn).turn.end()
					}
				}
				s.taken <- taken{c, x}
			}
		})
	}
	t.Cleanup(func() {
		s.Close() //nolint:errcheck // never fails
		ended.Wait()
		for len(s.taken) > 0 {
			(<-s.taken).conn.Close() //nolint:errcheck // a pipe
		}
	})
	return s
}

// dial connects, as soon as the port accepts.
func (s *site) dial() net.Conn {
	here, there := net.Pipe()
	s.t.Cleanup(func() { here.Close() }) //nolint:errcheck // a pipe
	select {
	case s.l.conns <- there:
	case <-s.l.closed:
		there.Close() //nolint:errcheck // a pipe
	}
	return here
}

// gone reports whether a connection was closed by the port.
func gone(c net.Conn) bool {
	c.SetReadDeadline(time.Now()) //nolint:errcheck // a pipe
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// has wants so many silent connections, and as many places taken.
func (s *site) has(n int) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.silent.Len() != n || len(s.places) != n {
		s.t.Errorf("%d silent connections, %d places are taken, want %d", s.mu.silent.Len(), len(s.places), n)
	}
}

// next is what a front end was given.
func (s *site) next() taken {
	s.t.Helper()
	synctest.Wait()
	select {
	case x := <-s.taken:
		return x
	default:
		s.t.Fatal("no front end has a connection")
		return taken{}
	}
}

// However a client's first bytes come, one front end gets all of them, and what follows.
func TestSplitFirstBytes(t *testing.T) {
	for class, all := range map[Class]string{
		Sessions: frames.Preface + "\x00\x00\x00\x05hello", GRPC: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP: "POST /v1/acquire HTTP/1.1\r\n\r\n", Text: "UNLOCK,db,me\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t)
			for a := range len(all) {
				for b := a; b <= len(all); b++ {
					c := s.dial()
					go func() {
						for _, piece := range []string{all[:a], all[a:b], all[b:]} {
							io.WriteString(c, piece) //nolint:errcheck // the reader would miss it
							time.Sleep(10 * time.Millisecond)
						}
						c.Close() //nolint:errcheck // a pipe
					}()
					x := <-s.taken
					from := io.Reader(x.conn)
					if (a+b)%2 == 1 {
						from = iotest.OneByteReader(from)
					}
					if got, err := io.ReadAll(from); x.class != class || string(got) != all || err != nil {
						t.Fatalf("%q, %q, %q: class %d read %q, %v", all[:a], all[a:b], all[b:], x.class, got, err)
					}
					x.conn.Close() //nolint:errcheck // a pipe
				}
			}
		})
	}
}

// say sends bytes, which the port reads at once.
func say(t *testing.T, c net.Conn, b string) {
	t.Helper()
	if _, err := io.WriteString(c, b); err != nil {
		t.Errorf("%q: %v", b, err)
	}
}

// A client has a minute to show what it speaks, however it dribbles, and then all the time that its front end gives it.
func TestSilenceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		mute, dribbles, speaks, leaves := s.dial(), s.dial(), s.dial(), s.dial()
		say(t, speaks, "QUIT\n"[:2])
		leaves.Close() //nolint:errcheck // a pipe
		time.Sleep(firstWait - time.Millisecond)
		say(t, dribbles, "G")
		say(t, speaks, "IT\n")
		x := s.next()
		if gone(mute) || gone(dribbles) {
			t.Error("cut before the minute was over")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if !gone(mute) || !gone(dribbles) {
			t.Error("a silent connection lives on")
		}
		time.Sleep(time.Hour)
		go io.WriteString(speaks, "more") //nolint:errcheck // the reader would miss it
		got := make([]byte, 9)
		if _, err := io.ReadFull(x.conn, got); err != nil || string(got) != "QUIT\nmore" {
			t.Errorf("an hour later: %q, %v", got, err)
		}
		s.has(0)
	})
}

// Whoever says nothing keeps nobody out: the oldest of the silent is closed, when it had its second, and no other.
func TestSilentConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		var mute []net.Conn
		for range maxSilent {
			mute = append(mute, s.dial())
		}
		synctest.Wait()
		begun := time.Now()
		for i := range 3 {
			c := s.dial()
			go say(t, c, "QUIT\n")
			if x := <-s.taken; x.class != Text {
				t.Errorf("class %d", x.class)
			}
			if took := time.Since(begun); took != leastWait { // each of them leaves its place to the next
				t.Errorf("client %d was taken after %v", i+1, took)
			}
		}
		for i, c := range mute {
			if gone(c) != (i == 0) {
				t.Fatalf("silent connection %d is closed: %v", i+1, i != 0)
			}
		}
		for range 10 { // silent ones make each other go
			mute = append(mute, s.dial())
		}
		synctest.Wait()
		for i, c := range mute {
			if gone(c) != (i < 10) {
				t.Fatalf("then silent connection %d is closed: %v", i+1, i >= 10)
			}
		}
		s.has(maxSilent)
		time.Sleep(firstWait)
		s.has(0)
	})
}

// Many that come at once are not cut because they were not heard yet: the port accepts no more until they are.
func TestManyThatComeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		const clients = 3 * maxSilent
		for range clients {
			go func() {
				c := s.dial()
				time.Sleep(leastWait / 2) // what a busy server takes to read
				say(t, c, "QUIT\n")
			}()
		}
		for i := range clients {
			select {
			case <-s.taken:
			case <-time.After(time.Minute):
				t.Fatalf("%d of %d were taken", i, clients)
			}
		}
	})
}

// TLS is refused, and that is logged once in a while.
func TestTLSIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		for range 5 {
			c := s.dial()
			say(t, c, "\x16\x03\x01\x02\x00\x01")
			if synctest.Wait(); !gone(c) {
				t.Error("it is not closed")
			}
		}
		time.Sleep(saidEvery)
		say(t, s.dial(), "\x16\x03")
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(s.said.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"refused":1,`) || !strings.Contains(lines[1], `"refused":5,`) || !strings.Contains(lines[1], "no certificate authority") {
			t.Errorf("said %q", lines)
		}
		if len(s.taken) > 0 {
			t.Error("a front end was given one")
		}
	})
}

// Too many open files are no reason to stop, or to try without a pause.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		begun := time.Now()
		var pauses []time.Duration
		for range 10 {
			s.l.errs <- errors.New("too many open files")
			pauses = append(pauses, time.Since(begun).Round(time.Millisecond))
			begun = time.Now()
		}
		if got := fmt.Sprint(pauses); got != "[0s 5ms 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1s]" {
			t.Error(got)
		}
		c := s.dial()
		say(t, c, "QUIT\n")
		s.next()
		begun = time.Now()
		s.l.errs <- errors.New("too many open files")
		s.l.errs <- errors.New("too many open files")
		if got := time.Since(begun); got != 5*time.Millisecond {
			t.Errorf("after a connection the pause is %v", got)
		}
		synctest.Wait()
		if n := strings.Count(s.said.String(), "too many open files"); n != 12 {
			t.Errorf("logged %d times", n)
		}
	})
}

// The end of the port is that of all its listeners and of the connections that no front end has; the end of a class
// leaves the others.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.Listener(Sessions).Close() //nolint:errcheck // never fails
		refused, silent, ours := s.dial(), s.dial(), s.dial()
		say(t, refused, frames.Preface)
		say(t, ours, "GET ")
		x := s.next()
		if !gone(refused) || x.class != HTTP {
			t.Errorf("a session is refused: %v, and the other is of class %d", gone(refused), x.class)
		}
		second := newPipes()
		over := make(chan error, 2)
		go func() { over <- s.Serve(second) }()
		synctest.Wait()
		for range 2 {
			s.Close() //nolint:errcheck // never fails
		}
		if err := <-over; !errors.Is(err, net.ErrClosed) || !gone(silent) || gone(ours) {
			t.Errorf("%v, the silent one is gone: %v, the one that is served: %v", err, gone(silent), gone(ours))
		}
		third := newPipes()
		if err := s.Serve(third); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		for _, l := range []*pipes{s.l, second, third} {
			select {
			case <-l.closed:
			default:
				t.Error("a listener is open")
			}
		}
	})
}

// A port that closes while it waits for a place takes nobody any more.
func TestCloseOfAFullPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		for range maxSilent {
			s.dial()
		}
		c := s.dial()
		synctest.Wait()
		s.Close() //nolint:errcheck // never fails
		if synctest.Wait(); !gone(c) {
			t.Error("it is open")
		}
	})
}

// mute is a connection without a client.
type mute struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (m *mute) Read([]byte) (int, error)        { <-m.closed; return 0, io.EOF }
func (m *mute) Close() error                    { m.once.Do(func() { close(m.closed) }); return nil }
func (m *mute) SetReadDeadline(time.Time) error { return nil }

// What is kept for a connection that says nothing is small, beside its goroutine.
func TestSilentConnectionsAreSmall(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p := New(zerolog.Nop(), nil)
	before := heap()
	for range maxSilent {
		p.take(&mute{closed: make(chan struct{})})
	}
	if each := (int64(heap()) - int64(before)) / maxSilent; each > 1024 {
		t.Errorf("%d bytes", each)
	} else {
		t.Logf("%d bytes of heap each", each)
	}
	p.Close() //nolint:errcheck // never fails
}

// answers says what a server over a real connection answers.
func answers(t *testing.T, addr, asked string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()                                //nolint:errcheck // it was read to its end
	c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // Read would say so
	say(t, c, asked)
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%q: %v", asked, err)
	}
	return string(b)
}

// The servers of the standard library and of gRPC work behind a real port, and a connection keeps what TCP has beside
// net.Conn.
func TestServersBehindAPort(t *testing.T) {
	p := New(zerolog.Nop(), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "web ", r.URL.Path) })}
	var ended sync.WaitGroup
	ended.Go(func() { p.Serve(l) })                  //nolint:errcheck // it is closed
	ended.Go(func() { g.Serve(p.Listener(GRPC)) })   //nolint:errcheck // it is stopped
	ended.Go(func() { web.Serve(p.Listener(HTTP)) }) //nolint:errcheck // it is closed
	ended.Go(func() { echo(t, p.Listener(Text)) })
	t.Cleanup(func() {
		p.Close()   //nolint:errcheck // never fails
		web.Close() //nolint:errcheck // it has no listener any more
		g.Stop()
		ended.Wait()
	})
	addr := l.Addr().String()
	if got := answers(t, addr, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "web /x") {
		t.Errorf("over HTTP: %q", got)
	}
	if got := answers(t, addr, "LOCK db\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("a request without a version: %q", got)
	}
	if got := answers(t, addr, "OWN,db\n"); got != "OWN,db\n" {
		t.Errorf("a line: %q", got)
	}
	client, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is in flight
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := client.Invoke(ctx, "/no.Such/Method", nil, nil, grpc.ForceCodec(empty{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("over gRPC: %v", err)
	}
}

// echo answers each connection with its first line.
func echo(t *testing.T, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		beneath := func() net.Conn { return c.(interface{ NetConn() net.Conn }).NetConn() }
		if _, ok := c.(tcp); !ok || beneath() != c {
			t.Errorf("a connection of type %T, and %T beneath", c, beneath())
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		if _, ok := beneath().(*net.TCPConn); !ok || err != nil {
			t.Errorf("%T beneath, %v", beneath(), err)
		}
		c.Write(b[:n]) //nolint:errcheck // the client would miss it
		c.Close()      //nolint:errcheck // it was answered
	}
}

// empty is a codec of nothing.
type empty struct{}

func (empty) Marshal(any) ([]byte, error) { return nil, nil }
func (empty) Unmarshal([]byte, any) error { return nil }
func (empty) Name() string                { return "empty" }
