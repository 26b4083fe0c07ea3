// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// listen serves on loopback until the test ends.
func listen(t testing.TB, s Service) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := New(s)
	served := make(chan error, 1)
	go func() { served <- x.Serve(l) }()
	t.Cleanup(func() {
		x.Stop(t.Context())
		if err := <-served; !errors.Is(err, ErrStopped) {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// say sends lines and reads as many answers.
func say(t testing.TB, c net.Conn, lines ...string) string {
	t.Helper()
	if _, err := io.WriteString(c, strings.Join(lines, "\n")+"\n"); err != nil {
		t.Fatalf("send: %v", err)
	}
	var all []string
	r := bufio.NewReaderSize(c, 16)
	for range lines {
		s, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("answer to %q: %v", lines, err)
		}
		all = append(all, strings.TrimSuffix(s, "\n"))
	}
	return strings.Join(all, " ")
}

// eventually looks until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	over := time.After(time.Minute)
	for !so() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestHalfAConnection is `printf … | nc -N`: everything is answered, and nobody waits.
func TestHalfAConnection(t *testing.T) {
	s := newService(t)
	addr := listen(t, s)
	s.hold("taken", "c1")
	c := dial(t, addr)
	if _, err := io.WriteString(c, "LOCK,db,me\nOWN,db\nLOCK,taken,me,30,1h\nUNLOCK,db,me\nOWN,ta"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != "SUCCESS\nme\nTIMEOUT\nSUCCESS\n" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if got := s.line("taken"); got != "=c1" {
		t.Errorf("left behind: %s", got)
	}
}

// TestWhoLeavesLeavesNoPlace: closed, reset, or behind a QUIT.
func TestWhoLeavesLeavesNoPlace(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed": func(c *net.TCPConn) error { return c.Close() },
		"reset": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
		"half": func(c *net.TCPConn) error { return c.CloseWrite() },
		"closed behind a QUIT": func(c *net.TCPConn) error {
			_, err := io.WriteString(c, "QUIT\n")
			return errors.Join(err, c.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			addr := listen(t, s)
			s.hold("a", "c1")
			c := dial(t, addr)
			if _, err := io.WriteString(c, "LOCK,a,me,30,1h\n"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the place", func() bool { return s.line("a") == "=c1 me" })
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			eventually(t, "no place", func() bool { return s.line("a") == "=c1" })
		})
	}
}

// TestNobodyListens: what has arrived is executed, but a LOCK that nobody would know of, and an UNLOCK that
// may mean a grant of long ago.
func TestNobodyListens(t *testing.T) {
	s := newService(t)
	addr := listen(t, s)
	if got := say(t, dial(t, addr), "LOCK,a,me", "LOCK,b,me"); got != success+" "+success {
		t.Fatal(got)
	}
	gate := make(chan struct{})
	s.tell(func(name string) (cluster.Status, bool) {
		if name == "verify" {
			<-gate
		}
		return 0, false
	}, nil)
	c := dial(t, addr)
	if _, err := io.WriteString(c, "RENEW,a,me\nUNLOCK,b,me\nLOCK,c,me\nUNLOCK,a,me,1\n"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil { // a reset
		t.Fatal(err)
	}
	close(gate)
	eventually(t, "the UNLOCK", func() bool { return s.line("a") == none })
	if got := say(t, dial(t, addr), "OWN,b", "OWN,c"); got != "me NONE" {
		t.Errorf("b and c are held by %s", got)
	}
}

// TestGrantOfTheLastMoment: the lock comes when its client is leaving. It stays, for the
// repeat of the line was told of it.
func TestGrantOfTheLastMoment(t *testing.T) {
	s := newService(t)
	addr := listen(t, s)
	holder, other := dial(t, addr), dial(t, addr)
	if got := say(t, holder, "LOCK,a,first"); got != success {
		t.Fatal(got)
	}
	c := dial(t, addr)
	if _, err := io.WriteString(c, "LOCK,a,me,30,1h\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the place", func() bool { return s.line("a") == "first me" })
	var told sync.Once
	s.tell(func(name string) (cluster.Status, bool) {
		if name == "cancel" {
			told.Do(func() {
				if got := say(t, holder, "UNLOCK,a,first") + say(t, other, "LOCK,a,me"); got != success+success {
					t.Error(got)
				}
			})
		}
		return 0, false
	}, nil)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != "SUCCESS\n" || err != nil {
		t.Errorf("who left: %q, %v", b, err)
	}
	if got := say(t, other, "OWN,a", "UNLOCK,a,me"); got != "me SUCCESS" {
		t.Errorf("the other: %s", got)
	}
}

// TestUnlockNeverEndsALaterGrant: the release is under way when the grant ends and the same
// name has another one.
func TestUnlockNeverEndsALaterGrant(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := newService(t)
		addr := listen(t, s)
		c, other := dial(t, addr), dial(t, addr)
		if got := say(t, c, "LOCK,a,me", "TOKEN,a,me"); got != "SUCCESS 1" {
			t.Fatal(got)
		}
		var met atomic.Bool
		again := func(name string) bool {
			if name != "release" || met.Swap(true) {
				return false
			}
			if got := say(t, other, "UNLOCK,a,me", "LOCK,a,me", "TOKEN,a,me"); got != "SUCCESS SUCCESS 3" && got != "FAIL SUCCESS 3" {
				t.Error(got)
			}
			return true
		}
		want := fail
		if lost { // it was executed, and its answer comes to nobody
			s.tell(nil, again)
			want = success
		} else {
			s.tell(func(name string) (cluster.Status, bool) { again(name); return 0, false }, nil)
		}
		if got := say(t, c, "UNLOCK,a,me"); got != want {
			t.Errorf("lost %v: got %s, want %s", lost, got, want)
		}
		if got := say(t, other, "TOKEN,a,me"); got != "3" {
			t.Errorf("lost %v: the later grant has token %s", lost, got)
		}
	}
}

// TestManyClients: whatever many do at once, one holds the lock.
func TestManyClients(t *testing.T) {
	s := newService(t)
	addr := listen(t, s)
	var all sync.WaitGroup
	inside := make(chan struct{}, 1)
	for i := range 16 {
		c := dial(t, addr)
		all.Go(func() {
			r := bufio.NewReader(c)
			for range 20 {
				fmt.Fprintf(c, "LOCK,a,c%d,30,1h\n", i)
				if s, err := r.ReadString('\n'); s != "SUCCESS\n" {
					t.Errorf("LOCK: %q, %v", s, err)
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					t.Error("two hold the lock")
				}
				<-inside
				fmt.Fprintf(c, "UNLOCK,a,c%d\n", i)
				if s, err := r.ReadString('\n'); s != "SUCCESS\n" {
					t.Errorf("UNLOCK: %q, %v", s, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// FuzzConnection: whatever is sent, each line has one answer, which is a word or a name. (Fuzz with
// -fuzzminimizetime 1x: what is covered differs from run to run.)
func FuzzConnection(f *testing.F) {
	for _, s := range []string{
		"LOCK,a,me\nOWN,a\nUNLOCK,a,me\n", "\n\r\n\r\r\n", "QUIT\nOWN,a\n", "LOCK,a,me,30,1\r\nlock,a,you,5s,1ms\nTOKEN,a,you\n",
		strings.Repeat("x", 3*maxLine) + "\nOWN,a\n", "\x16\x03\nOWN,a\n", "\xff\xfd\x06\n", "OWN,a\nRENEW,a,me\n" + strings.Repeat("\n", maxAhead/2),
	} {
		f.Add([]byte(s))
	}
	s := newService(f)
	addr := listen(f, s)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 || bytes.Count(b, []byte("\n")) > maxAhead {
			t.Skip("too far ahead: it may be cut")
		}
		c := dial(t, addr)
		go func() {
			_, _ = c.Write(b)
			_ = c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil && !bytes.Contains(bytes.ToUpper(b), []byte("QUIT")) && !bytes.Contains(b, []byte("HTTP/1")) &&
			len(b) <= maxLine && !bytes.Contains(b, []byte{tlsRecord}) { // bytes behind these may reset it
			t.Fatal(err)
		}
		sent := bytes.SplitAfter(b, []byte("\n"))
		answers := bytes.SplitAfter(got, []byte("\n"))
		sent, answers = sent[:len(sent)-1], answers[:len(answers)-1] // what has no end
		for i, line := range sent {
			end := "\n"
			if bytes.HasSuffix(line, []byte("\r\n")) {
				end = "\r\n"
			}
			if i >= len(answers) {
				t.Fatalf("no answer to line %d, %.60q", i, line)
			}
			word := strings.TrimSuffix(string(answers[i]), end)
			if word == "" || strings.ContainsAny(word, "\r\n") {
				t.Fatalf("line %d, %.60q: answer %q", i, line, answers[i])
			}
			if l, _ := parse([]byte(strings.TrimSuffix(string(line), end))); l.command == "QUIT" || notALine(bytes.TrimSuffix(line, []byte(end))) {
				sent = sent[:i+1]
				break
			}
		}
		if len(answers) != len(sent) {
			t.Fatalf("%d answers to %d lines", len(answers), len(sent))
		}
	})
}
