// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Turns are given in order of arrival, so many at a time, and neither waiting nor a turn lasts for ever. A script has a
// time in milliseconds, then who comes (+a) or leaves (-a); what it leads to is who gets a turn, who gets none (!), and
// when to look again.
func TestTurns(t *testing.T) {
	for _, x := range []struct {
		name   string
		most   int
		script []string
		want   string
	}{
		{"alone", 2, []string{"0 +a"}, "0: a"},
		{"in order", 2, []string{"0 +a +b +c +d", "5 -b", "6 -a"}, "0: a b again 1000, 5: c again 1000, 6: d"},
		{"one leaves while it waits", 1, []string{"0 +a +b +c", "7 -b", "9 -a"}, "0: a again 1000, 7: again 1000, 9: c"},
		{"leaving twice", 1, []string{"0 +a +b +c", "1 -a", "2 -a"}, "0: a again 1000, 1: b again 1001, 2: again 1001"},
		{"a turn is over", 2, []string{"0 +a", "10 +b +c +d", "1000", "1010 -a"}, "0: a, 10: b again 1000, 1000: c again 1010, 1010: d"},
		{"nobody waits", 2, []string{"0 +a", "5000", "5001 +b +c"}, "0: a, 5000:, 5001: b c"},
		{"all turns last", 1, []string{"0 +a +b +c +d", "1000", "1999", "2000"}, "0: a again 1000, 1000: b again 2000, 1999: again 2000, 2000: !c !d"},
		{"too long", 1, []string{"0 +a", "900 +b", "950 +c", "2900 +d"}, "0: a, 900: again 1000, 950: again 1000, 2900: !b c again 3900"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var q turns
			begun, all, said := time.Now(), map[string]*turn{}, []string{}
			for _, step := range x.script {
				words := strings.Fields(step)
				after, err := time.ParseDuration(words[0] + "ms")
				if err != nil {
					t.Fatal(err)
				}
				now := begun.Add(after)
				for _, w := range words[1:] {
					if w[0] == '-' {
						q.leave(all[w[1:]])
						continue
					}
					all[w[1:]] = &turn{since: now, told: make(chan bool, 1)}
					q.add(all[w[1:]])
				}
				next := q.pass(now, x.most)
				said = append(said, words[0]+":"+told(all)+again(next, begun))
			}
			if got := strings.Join(said, ", "); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
		})
	}
}

// told says who was told what since the last time.
func told(all map[string]*turn) (s string) {
	for _, name := range []string{"a", "b", "c", "d"} {
		if x := all[name]; x != nil && len(x.told) > 0 {
			s += map[bool]string{true: " ", false: " !"}[<-x.told] + name
		}
	}
	return s
}

func again(next, begun time.Time) string {
	if next.IsZero() {
		return ""
	}
	return fmt.Sprintf(" again %d", next.Sub(begun).Milliseconds())
}

// comes has clients connect one after the other, each of which says its number.
func comes(t *testing.T, s *site, from, to int) (all []net.Conn) {
	for i := from; i < to; i++ {
		c := s.dial()
		say(t, c, fmt.Sprintf("%d,\n", i))
		synctest.Wait()
		all = append(all, c)
	}
	return all
}

// number is what the client of a connection said.
func number(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	b := make([]byte, 64)
	k, err := c.Read(b)
	if _, scanned := fmt.Sscanf(string(b[:k]), "%d,", &n); err != nil || scanned != nil {
		t.Errorf("%q, %v", b[:k], err)
	}
	return n
}

// turnsAre wants so many turns taken, and so many connections waiting for one.
func (s *site) turnsAre(taken, waiting int) {
	s.t.Helper()
	synctest.Wait()
	s.admission.mu.Lock()
	defer s.admission.mu.Unlock()
	if len(s.admission.mu.taken) != taken || len(s.admission.mu.waiting) != waiting {
		s.t.Errorf("%d turns are taken and %d wait, want %d and %d", len(s.admission.mu.taken), len(s.admission.mu.waiting), taken, waiting)
	}
}

// So many connections are set up at a time, in the order in which they came; the next one comes when a front end has
// begun with one and reads on.
func TestConnectionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.stuck.Store(true)
		comes(t, s, 0, 3*mostTurns)
		s.turnsAre(mostTurns, 2*mostTurns)
		for i := range 3 * mostTurns {
			x := s.next()
			if got := number(t, x.conn); got != i {
				t.Fatalf("client %d is the next, want %d", got, i)
			}
			s.turnsAre(min(mostTurns, 3*mostTurns-i), max(0, 2*mostTurns-i))
			go x.conn.Read(make([]byte, 1)) //nolint:errcheck // it waits until the end
			s.turnsAre(min(mostTurns, 3*mostTurns-i-1), max(0, 2*mostTurns-i-1))
			if i%2 == 0 {
				x.conn.Close() //nolint:errcheck // a pipe
			}
		}
		s.turnsAre(0, 0)
	})
}

// A turn comes back however its connection ends, and so does a place among those that wait.
func TestTurnsComeBack(t *testing.T) {
	for name, end := range map[string]func(s *site, all []taken){
		"closed by its front end": func(s *site, all []taken) {
			for _, x := range all {
				x.conn.Close() //nolint:errcheck // a pipe
				x.conn.Close() //nolint:errcheck // twice is once
			}
		},
		"left by its client": func(s *site, all []taken) {
			for _, x := range all {
				if _, err := io.ReadAll(x.conn); err != nil {
					s.t.Error(err)
				}
			}
		},
		"its front end has ended": func(s *site, all []taken) {
			for c := range Class(served) {
				s.Listener(c).Close() //nolint:errcheck // never fails
			}
			for _, x := range all {
				x.conn.Close() //nolint:errcheck // a pipe
			}
		},
		"the port is closed": func(s *site, all []taken) {
			s.Close() //nolint:errcheck // never fails
			for _, x := range all {
				x.conn.Close() //nolint:errcheck // a pipe
			}
		},
		"time": func(s *site, _ []taken) { time.Sleep(turnTime + turnWait) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				s.stuck.Store(true)
				clients := comes(t, s, 0, 2*mostTurns)
				s.stuck.Store(false)
				var all []taken
				for range mostTurns {
					all = append(all, s.next())
				}
				s.turnsAre(mostTurns, mostTurns)
				for _, c := range clients {
					c.Close() //nolint:errcheck // a pipe
				}
				end(s, all)
				s.turnsAre(0, 0)
			})
		})
	}
}

// A server that is late sets up fewer connections at a time, and as many as ever when it is not.
func TestLateServerTakesFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.stuck.Store(true)
		s.late.Store(true)
		comes(t, s, 0, mostTurns+2)
		s.turnsAre(fewTurns, mostTurns+2-fewTurns)
		s.next().conn.Close() //nolint:errcheck // a pipe
		s.turnsAre(fewTurns, mostTurns+1-fewTurns)
		s.late.Store(false)
		s.next().conn.Close() //nolint:errcheck // a pipe
		s.turnsAre(mostTurns, 0)
		s.late.Store(true) // takes no turn away
		comes(t, s, 0, 1)
		s.turnsAre(mostTurns, 1)
	})
}

// Whoever says what a session begins with, and no more, takes no turn from others: the front end waits for it without.
func TestHalfAGreetingHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.stuck.Store(true)
		reading := make(chan taken, 2000)
		go func() {
			for x := range s.taken { // as every front end does
				reading <- x
				go io.Copy(io.Discard, x.conn) //nolint:errcheck // until the end of the test
			}
		}()
		begun := time.Now()
		for range 1000 {
			say(t, s.dial(), frames.Preface)
		}
		say(t, s.dial(), "QUIT\n")
		for class := Sessions; class != Text; {
			select {
			case x := <-reading:
				class = x.class
			case <-time.After(turnTime):
				t.Fatal("a client was not taken")
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("a client was taken after %v", took)
		}
		s.turnsAre(0, 0)
		close(s.taken)
	})
}

// A front end that does not begin keeps others waiting for a second, and not for longer.
func TestStuckFrontEndKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.stuck.Store(true)
		for range mostTurns {
			say(t, s.dial(), frames.Preface)
			s.next()
		}
		begun := time.Now()
		say(t, s.dial(), "QUIT\n")
		if x := <-s.taken; x.class != Text || time.Since(begun) != turnTime {
			t.Errorf("class %d after %v", x.class, time.Since(begun))
		}
	})
}

// refusal is how the port refused a connection: what it said, and when it closed.
func refusal(c net.Conn) (m *pb.Settings, err error) {
	kind, b, _, err := frames.NewReader(c, 1<<10).Next()
	if err != nil {
		return nil, err
	}
	m = &pb.Settings{}
	rest, ended := io.ReadAll(c)
	if err := errors.Join(proto.Unmarshal(b, m), ended); err != nil || kind != frames.Settings || len(rest) > 0 {
		return nil, fmt.Errorf("a frame of kind %d, and %d bytes: %w", kind, len(rest), err)
	}
	return m, nil
}

// Who waited for too long is told when to come again, if it is a client library, and others are closed. Neither waits
// for a client that does not read.
func TestWaitingForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.stuck.Store(true)
		for range 2 * mostTurns { // for the first two seconds
			say(t, s.dial(), "QUIT\n")
			synctest.Wait()
		}
		begun := time.Now()
		library, deaf, lines := s.dial(), s.dial(), s.dial()
		library.SetReadDeadline(begun.Add(3 * turnWait)) //nolint:errcheck // a pipe
		say(t, library, frames.Preface)
		say(t, deaf, frames.Preface)
		say(t, lines, "QUIT\n")
		if m, err := refusal(library); err != nil || m.GetRetryAfterMs() != comeAgain.Milliseconds() || m.GetVersion() == 0 || time.Since(begun) != turnWait {
			t.Errorf("a client library: %v, %v after %v", m, err, time.Since(begun))
		}
		if synctest.Wait(); !gone(lines) {
			t.Error("a client for lines is not refused")
		}
		time.Sleep(refusalWait)
		if synctest.Wait(); !gone(deaf) {
			t.Error("a client that does not read is open")
		}
		if n := bytes.Count(s.said.Bytes(), []byte("\n")); n != 1 || !strings.Contains(s.said.String(), `"refused":1,`) {
			t.Errorf("said %s", &s.said)
		}
		s.turnsAre(0, 0)
	})
}

// Where too many wait, the next one is refused at once.
func TestTooManyWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.stuck.Store(true)
		for range mostTurns + maxWaiting {
			say(t, s.dial(), frames.Preface)
		}
		s.turnsAre(mostTurns, maxWaiting)
		begun := time.Now()
		c := s.dial()
		say(t, c, frames.Preface)
		if m, err := refusal(c); err != nil || m.GetRetryAfterMs() == 0 || time.Since(begun) > 0 {
			t.Errorf("%v, %v after %v", m, err, time.Since(begun))
		}
	})
}

// greeting is a connection whose client has sent a line.
type greeting struct{ *mute }

func (g greeting) Read(b []byte) (int, error) { return copy(b, "QUIT\n"), nil }

// crowd is a listener that has so many connections at once.
type crowd struct {
	net.Listener
	left     int
	accepted func()
	over     chan struct{}
}

func (c *crowd) Accept() (net.Conn, error) {
	if c.left == 0 {
		<-c.over
		return nil, net.ErrClosed
	}
	c.left--
	c.accepted()
	return greeting{&mute{closed: make(chan struct{})}}, nil
}

func (c *crowd) Close() error { return nil }

// streak is how many events of a kind there were at most before others came to run.
type streak struct {
	ran          *atomic.Int64 // how often they did
	last         int64
	now, longest int
}

func (s *streak) event() {
	if ran := s.ran.Load(); ran > s.last {
		s.last, s.now = ran, 0
	}
	s.now++
	s.longest = max(s.longest, s.now)
}

// While a crowd is accepted, and while it gets its turns, others come to run again and again: else a heartbeat would
// wait until the whole crowd is through. (There is one processor, and nothing here takes so long that it is interrupted.)
func TestCrowdLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const clients = 20 * mostTurns
		var ran atomic.Int64
		accepts, turns := streak{ran: &ran}, streak{ran: &ran}
		l := &crowd{left: clients, accepted: accepts.event, over: make(chan struct{})}
		p := New(zerolog.Nop(), nil)
		var over atomic.Bool
		var all sync.WaitGroup
		all.Go(func() { p.Serve(l) }) //nolint:errcheck // it is closed
		all.Go(func() {
			for !over.Load() {
				ran.Add(1)
				runtime.Gosched()
			}
		})
		for waiting := 0; waiting < clients-mostTurns; runtime.Gosched() {
			p.admission.mu.Lock()
			waiting = len(p.admission.mu.waiting)
			p.admission.mu.Unlock()
		}
		for range clients {
			c, err := p.Listener(Text).Accept()
			if err != nil {
				t.Fatal(err)
			}
			turns.event()
			c.Close() //nolint:errcheck // a turn for the next
		}
		over.Store(true)
		close(l.over)
		p.Close() //nolint:errcheck // never fails
		all.Wait()
		if accepts.longest > 2 || turns.longest > 2*mostTurns {
			t.Errorf("%d connections were accepted, and %d got their turns, before others came to run", accepts.longest, turns.longest)
		}
	})
}
