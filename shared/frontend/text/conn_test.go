// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// send sends bytes on a pipe, as far as somebody reads.
func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Errorf("send %.40q: %v", s, err)
	}
}

// receive is what comes until there is nothing more to wait for, and whether the connection is open then.
func receive(c net.Conn) (string, bool) {
	var b bytes.Buffer
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := b.ReadFrom(c)
	_ = c.SetReadDeadline(time.Time{})
	e, ok := errors.AsType[net.Error](err)
	return b.String(), ok && e.Timeout()
}

// TestLineEnds: an answer ends as its line did, and what is too long is one line all the same, and
// the last.
func TestLineEnds(t *testing.T) {
	full := "OWN," + strings.Repeat("n", maxLine-len("OWN,")) // the longest line, and a lock name that is too long
	name := strings.Repeat("n", cluster.MaxLockName)
	for _, x := range []struct{ sent, want string }{
		{"OWN,a\n", "NONE\n"},
		{"OWN,a\r\n", "NONE\r\n"},
		{"OWN,a\r\r\n", "INVALID_FORMAT\r\n"},
		{"\n\r\n", "INVALID_FORMAT\nINVALID_FORMAT\r\n"},
		{"OWN,a\rOWN,b\n", "INVALID_FORMAT\n"},
		{"OWN," + name + "\r\nOWN," + name + "n\n", "NONE\r\nINVALID_FORMAT\n"},
		{full + "\r\nOWN,a\n", "INVALID_FORMAT\r\nNONE\n"},
		{full + "n\nLOCK,a,me\n", "INVALID_FORMAT\n"}, // too long, and what is too long is the last
		{full + "n\r\nLOCK,a,me\n", "INVALID_FORMAT\r\n"},
		{full + "nn\r\nLOCK,a,me\n", "INVALID_FORMAT\r\n"},
		{strings.Repeat("x", 10*maxLine) + "\nLOCK,a,me\n", "INVALID_FORMAT\n"},
		{strings.Repeat("x", 2*maxLine+4) + "\r\nLOCK,a,me\n", "INVALID_FORMAT\r\n"}, // two full buffers
		{strings.Repeat("x", 2*maxLine+3) + "\r\nLOCK,a,me\n", "INVALID_FORMAT\r\n"}, // CR and LF in two
		{"POST /" + strings.Repeat("A", 1100) + " HTTP/1.1\r\nHost: localhost:8001\r\n\r\nLOCK,a,me\n", "INVALID_FORMAT\r\n"},
		{"\x16\x03\x01\x02\x00\x01\nLOCK,a,me\n", "INVALID_FORMAT\n"}, // a record of TLS
		{"\xff\xf4\xff\xfd\x06\r\nOWN,a\r\n", "INVALID_FORMAT\r\nNONE\r\n"},
		{"OWN,a", ""},
		{"OWN,a\nLOCK,a,me", "NONE\n"},
		{"QUIT\nOWN,a\n", "SUCCESS\n"},
		{"POST / HTTP/1.1\r\nHost: localhost:8001\r\n\r\nLOCK,a,me\n", "INVALID_COMMAND\r\n"},
		{"OWN,a HTTP/1.0\nLOCK,a,me\n", "NONE\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newStage(t)
			defer g.end()
			c := g.l.dial()
			go send(t, c, x.sent)
			synctest.Wait()
			if got, _ := receive(c); got != x.want {
				t.Errorf("%.40q: got %q, want %q", x.sent, got, x.want)
			}
			if got := g.s.line("a"); got != none {
				t.Errorf("%.40q: a is held by %s", x.sent, got)
			}
			c.Close() //nolint:errcheck // a pipe
		})
	}
}

// TestBounds: who is silent, slow or too far ahead is cut, and not before.
func TestBounds(t *testing.T) {
	for _, x := range []struct {
		name string
		play func(t *testing.T, g *stage, c net.Conn)
		open time.Duration // how long the connection stays
	}{
		{"silence", func(*testing.T, *stage, net.Conn) {}, idleWait},
		{"silence behind a line", func(t *testing.T, _ *stage, c net.Conn) {
			time.Sleep(time.Minute)
			send(t, c, "OWN,a\n")
			receive(c)
		}, time.Minute + idleWait},
		{"silence of ours", waitLong, 76*time.Minute + idleWait},
		{"half a line", func(t *testing.T, _ *stage, c net.Conn) { send(t, c, "OWN,a") }, lineWait},
		{"a byte now and then", func(t *testing.T, _ *stage, c net.Conn) {
			for range 9 {
				send(t, c, "x")
				time.Sleep(time.Second)
			}
		}, lineWait},
		{"a long line for ever", func(t *testing.T, _ *stage, c net.Conn) {
			go func() {
				for err := error(nil); err == nil; time.Sleep(time.Millisecond) {
					_, err = io.WriteString(c, strings.Repeat("x", 100))
				}
			}()
		}, lineWait},
		{"answers that nobody takes", func(t *testing.T, _ *stage, c net.Conn) { send(t, c, "OWN,a\n") }, answerWait},
		{"too far ahead of one that waits", func(t *testing.T, g *stage, c net.Conn) {
			g.s.hold("a", "c1")
			send(t, c, "LOCK,a,me,30,1m\n"+strings.Repeat("OWN,a\n", maxAhead+1))
		}, aheadWait},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newStage(t)
				defer g.end()
				c := g.l.dial()
				began := time.Now()
				x.play(t, g, c)
				time.Sleep(time.Until(began.Add(x.open - 2*time.Millisecond)))
				synctest.Wait()
				if n := g.open(); n != 1 {
					t.Errorf("%d connections before the time", n)
				}
				time.Sleep(4 * time.Millisecond)
				synctest.Wait()
				if n := g.open(); n != 0 {
					t.Errorf("%d connections behind the time", n)
				}
				if got := g.s.line("a"); got == "me" || strings.HasSuffix(got, " me") {
					t.Errorf("left behind: %s", got)
				}
			})
		})
	}
}

// waitLong waits for a lock whose holder renews it for 75 minutes.
func waitLong(t *testing.T, g *stage, c net.Conn) {
	g.s.hold("a", "c1")
	send(t, c, "LOCK,a,me,30,2h\n")
	go func() {
		for range 150 {
			time.Sleep(30 * time.Second)
			g.s.renew("a", 1)
		}
	}()
	time.Sleep(76 * time.Minute)
	synctest.Wait()
	if got, open := receive(c); got != "SUCCESS\n" || !open {
		t.Errorf("got %q %v", got, open)
	}
}

func (g *stage) open() int {
	g.x.mu.Lock()
	defer g.x.mu.Unlock()
	return len(g.x.mu.conns)
}

// TestManyLinesAhead: a client may send whatever it has, as long as it takes the answers.
func TestManyLinesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		defer g.end()
		c := g.l.dial()
		const n = 1000
		go func() {
			for i := range n {
				send(t, c, fmt.Sprintf("LOCK,l/%d,me\n", i%10))
			}
			send(t, c, "QUIT\n")
		}()
		b, err := io.ReadAll(c)
		if want := strings.Repeat("SUCCESS\n", n+1); string(b) != want || err != nil {
			t.Errorf("%d bytes, want %d, %v", len(b), len(want), err)
		}
	})
}

func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		defer g.end()
		all := make([]net.Conn, maxConns)
		for i := range all {
			all[i] = g.l.dial()
			defer all[i].Close() //nolint:errcheck // a pipe
		}
		one := g.l.dial()
		if b, err := io.ReadAll(one); string(b) != "ERROR\n" || err != nil {
			t.Errorf("one too many: %q, %v", b, err)
		}
		all[7].Close() //nolint:errcheck // a pipe
		synctest.Wait()
		one = g.l.dial()
		defer one.Close() //nolint:errcheck // a pipe
		send(t, one, "OWN,a\n")
		if got, open := receive(one); got != "NONE\n" || !open {
			t.Errorf("in its place: %q", got)
		}
	})
}

// TestStop: what was read is answered, for a while, and nothing is left.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(newService(t))
		x.Stop(t.Context())
		if err := x.Serve(newPipes()); !errors.Is(err, ErrStopped) {
			t.Errorf("Serve behind Stop: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		g.s.hold("a", "c1")
		idle, waits, deaf := g.l.dial(), g.l.dial(), g.l.dial()
		send(t, waits, "LOCK,a,me,30,1m\n")
		send(t, deaf, "OWN,a\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		go g.x.Stop(ctx)
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if b, err := io.ReadAll(idle); len(b) != 0 || err != nil {
			t.Errorf("idle: %q, %v", b, err)
		}
		if got, open := receive(waits); got != "" || !open {
			t.Errorf("who waits: %q, %v", got, open)
		}
		if b, _ := io.ReadAll(waits); string(b) != "ERROR\n" {
			t.Errorf("who waits, then: %q", b)
		}
		g.x.Stop(ctx) // waits like the first
		if took := time.Since(began); took != time.Second+closeWait || g.open() != 0 {
			t.Errorf("ended after %v with %d connections", took, g.open())
		}
		if got := g.s.line("a"); got != "=c1 me" {
			t.Errorf("the place: %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) { // in time
		g := newStage(t)
		g.s.hold("a", "c1")
		waits := g.l.dial()
		send(t, waits, "LOCK,a,me,30,1m\n")
		synctest.Wait()
		go g.x.Stop(t.Context())
		synctest.Wait()
		g.s.apply(g.s.table.DecideExpire("a", 1, "", 1, nil))
		if b, _ := io.ReadAll(waits); string(b) != "SUCCESS\n" {
			t.Errorf("who waited: %q", b)
		}
	})
}

// TestOwnIsNotBehindItsConnection: a replica that is behind is given a moment.
func TestOwnIsNotBehindItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		defer g.end()
		g.s.lag = 40
		if got := g.do("a > LOCK,db,alice␤OWN,db"); got != "a < SUCCESS\n" {
			t.Errorf("behind: %q", got)
		}
		time.Sleep(40 * pause)
		if got := g.heard(); got != "a < alice\n" {
			t.Errorf("caught up: %q", got)
		}
		g.s.lag = 4000
		if got := g.do("b > OWN,db"); got != "b < NONE\n" { // it was told of nothing
			t.Errorf("another: %q", got)
		}
		g.do("a > UNLOCK,db,alice␤OWN,db")
		time.Sleep(catchUp)
		if got := g.heard(); got != "a < ERROR\n" {
			t.Errorf("too far behind: %q", got)
		}
		g.s.hold("web", "c1")
		g.s.lag = 40
		g.do("c > LOCK,web,alice␤OWN,web")
		time.Sleep(40 * pause)
		if got := g.heard(); got != "c < =c1\n" { // who hears FAIL knows of the holder
			t.Errorf("behind a FAIL: %q", got)
		}
		g.s.lag, g.s.age = 0, maxAge+time.Millisecond
		if got := g.do("a > OWN,db"); got != "a < ERROR\n" {
			t.Errorf("too old: %q", got)
		}
	})
}

// TestOwnIsNotBehindAnEnd: who was told that its grant has ended is not shown it, and a token that the
// user made up puts nothing off.
func TestOwnIsNotBehindAnEnd(t *testing.T) {
	for _, x := range []struct{ during, line, want string }{
		{"renew", "RENEW,db,alice", fail},
		{"release", "UNLOCK,db,alice", fail},
		{"", "UNLOCK,db,alice,18446744073709551615", fail},
		{"", "RENEW,db,alice,18446744073709551615", fail},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newStage(t)
			defer g.end()
			g.do("a > LOCK,db,alice")
			met := false
			g.s.tell(func(name string) (cluster.Status, bool) {
				if name == x.during && !met {
					met = true
					g.s.mu.Lock()
					defer g.s.mu.Unlock()
					g.s.apply(g.s.table.DecideExpire("db", 1, "", 1, nil))
				}
				return 0, false
			}, nil)
			if got := g.do("a > " + x.line); got != "a < "+x.want+"\n" {
				t.Errorf("%s: %q", x.line, got)
			}
			g.do("a > OWN,db")
			if got, want := g.s.minLSN, uint64(g.s.table.LSN()); got != want {
				t.Errorf("%s: OWN wants the table of LSN %d, want %d", x.line, got, want)
			}
		})
	}
}

// script is a connection that hears some bytes and, once it is over, an error with each read. Its peer
// takes no answer.
type script struct {
	net.Conn
	sent   *strings.Reader
	over   chan struct{}
	errors []error
}

func newScript(sent string, errs ...error) *script {
	here, there := net.Pipe()
	there.Close() //nolint:errcheck // a pipe
	return &script{Conn: here, sent: strings.NewReader(sent), over: make(chan struct{}), errors: errs}
}

// SetReadDeadline implements net.Conn. A script ends by itself.
func (s *script) SetReadDeadline(time.Time) error { return nil }

// Read implements net.Conn.
func (s *script) Read(b []byte) (int, error) {
	if s.sent.Len() > 0 {
		return s.sent.Read(b)
	}
	<-s.over
	err := s.errors[0]
	if len(s.errors) > 1 {
		s.errors = s.errors[1:]
	}
	return 0, err
}

// TestHostThatVanished: what the system says of it is no deadline of ours. Behind the error of a connection
// there is its end.
func TestHostThatVanished(t *testing.T) {
	timedOut := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
	for _, sent := range []string{
		"LOCK,a,me,30,1h\nLOCK,b,me\n", "LOCK,a,me,30,1h\nLOCK,b,me\nQUIT\n", "LOCK,a,me,30,1h\nLOCK,b,me\nhalf a line",
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newStage(t)
			defer g.end()
			g.s.hold("a", "c1")
			c := newScript(sent, timedOut, io.EOF)
			g.l.in <- c
			synctest.Wait()
			if got := g.s.line("a"); got != "=c1 me" {
				t.Fatalf("%q: it does not wait: %s", sent, got)
			}
			close(c.over)
			synctest.Wait()
			if a, b := g.s.line("a"), g.s.line("b"); a != "=c1" || b != none {
				t.Errorf("%q: left behind: %s, %s", sent, a, b)
			}
		})
	}
}

// TestNobodyListensToTheRest: who sends nothing more and then takes no answer is as gone as who is cut.
func TestNobodyListensToTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		defer g.end()
		g.do("a > LOCK,one,me␤LOCK,two,me")
		gate := make(chan struct{})
		g.s.tell(func(string) (cluster.Status, bool) { <-gate; return 0, false }, nil)
		c := newScript("RENEW,one,me\nLOCK,three,me\nUNLOCK,two,me\nUNLOCK,one,me,1\n", io.EOF)
		close(c.over)
		g.l.in <- c
		synctest.Wait() // the end is known
		close(gate)
		synctest.Wait()
		if one, two, three := g.s.line("one"), g.s.line("two"), g.s.line("three"); one != none || two != "me" || three != none {
			t.Errorf("one %s, two %s, three %s", one, two, three)
		}
	})
}

// TestStopBeginsNothing: when Stop has no more time, what was read and not begun is an ERROR.
func TestStopBeginsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		g.s.hold("a", "c1")
		c := g.l.dial()
		send(t, c, "LOCK,a,me,30,1m\nLOCK,b,me\n")
		synctest.Wait()
		g.s.tell(func(name string) (cluster.Status, bool) {
			t.Errorf("%s is called", name)
			return 0, false
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go g.x.Stop(ctx)
		if b, _ := io.ReadAll(c); string(b) != "ERROR\nERROR\n" {
			t.Errorf("got %q", b)
		}
		g.x.Stop(ctx)
	})
}

// TestHeldUntilAnotherLine: a line may be held until another one is read, or its client is gone.
func TestHeldUntilAnotherLine(t *testing.T) {
	held := func(enough <-chan struct{}) bool {
		select {
		case <-enough:
			return false
		default:
			return true
		}
	}
	left, leave := context.WithCancelCause(t.Context())
	x := newScript("OWN,a\nOWN,b\n", errCut)
	defer x.Close() //nolint:errcheck // a pipe
	c := newConn(x, newService(t))
	next := func() {
		t.Helper()
		if err := c.enqueue(left, queuedLine{}); err != nil {
			t.Fatal(err)
		}
	}
	next()
	enough := c.holdUntil(left)
	if !held(enough) {
		t.Error("nothing waits for it")
	}
	if next(); held(enough) {
		t.Error("another line waits for it")
	}
	c.answered()
	next()
	if held(c.holdUntil(left)) {
		t.Error("another line waits since before it began")
	}
	c.answered()
	c.answered()
	next()
	enough = c.holdUntil(left)
	x.sent.Reset("") // the client is gone
	close(x.over)
	if c.read(left, leave); held(enough) || held(c.holdUntil(left)) {
		t.Error("its client is gone")
	}
}
