// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// piped speaks frames over pipes: it is a primary that answers Status. serve says what the n-th connection does
// instead, if it returns true.
type piped struct {
	mu    sync.Mutex
	conns []net.Conn
	serve func(n int, c net.Conn) bool
}

func (s *piped) dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.conns)
	s.conns = append(s.conns, there)
	go func() {
		if s.serve == nil || !s.serve(n, there) {
			s.talk(there)
		}
	}()
	return here, nil
}

func (s *piped) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}

// exchangeSettings reads the settings of a client and sends those of a server.
func exchangeSettings(c net.Conn) (*frames.Reader, error) {
	r := frames.NewReader(c, 64<<20)
	if err := r.Skip(frames.Preface); err != nil {
		return nil, err
	}
	if _, _, _, err := r.Next(); err != nil {
		return nil, err
	}
	b, _ := proto.Marshal(&pb.Settings{Version: 1, ServerId: 1, ClusterId: "c"})
	_, err := c.Write(frames.Append(nil, frames.Settings, b))
	return r, err
}

func (s *piped) talk(c net.Conn) {
	s.talkTo(c, 1<<30)
	c.Close()
}

// talkTo answers so many messages.
func (s *piped) talkTo(c net.Conn, messages int) {
	r, err := exchangeSettings(c)
	for ; err == nil && messages > 0; messages-- {
		var b []byte
		var kind frames.Kind
		if kind, b, _, err = r.Next(); err != nil || kind != frames.Message {
			continue
		}
		m, out := &pb.SessionRequest{}, &pb.SessionResponse{}
		if err = proto.Unmarshal(b, m); err != nil {
			return
		}
		for _, q := range m.GetCalls() {
			a, _ := proto.Marshal(&pb.StatusResponse{Status: pb.Status_STATUS_OK, Role: pb.Role_ROLE_PRIMARY, Epoch: 1, ClusterId: "c"})
			out.Returns = append(out.Returns, &pb.Return{Correlation: q.Correlation, Response: a})
		}
		o, _ := proto.Marshal(out)
		_, err = c.Write(frames.Append(nil, frames.Message, o))
	}
}

func pipedClient(t *testing.T, s *piped) (*Client, *server) {
	t.Helper()
	c, err := New(Options{Endpoints: []string{"s:1"}, Dialer: s.dial, ClientID: "me"})
	if err != nil {
		t.Fatal(err)
	}
	return c, c.servers.mu.all[0]
}

func (c *Client) askOnce(v *server) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	return c.servers.ask(ctx, v).err
}

// A connection over which nothing comes back any more is given up some time, whatever goes over it. (Linux breaks one
// over TCP to a host that vanished, but not one through a proxy or a tunnel, and other systems break none.)
func TestHalfOpenConnectionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{serve: func(n int, c net.Conn) bool {
			if n > 0 {
				return false
			}
			r, err := exchangeSettings(c)
			for err == nil { // what comes from now on is lost
				_, _, _, err = r.Next()
			}
			return true
		}}
		c, v := pipedClient(t, s)
		defer c.Close()
		defer s.close()
		began := time.Now()
		var err error
		for time.Since(began) < time.Hour {
			if err = c.askOnce(v); err == nil {
				t.Logf("given up after %v", time.Since(began))
				return
			}
			time.Sleep(time.Second)
		}
		t.Errorf("the server can be connected to, and for an hour a connection was used that is dead: %v", err)
	})
}

// A question ends with its context, also if the server does not read.
func TestContextEndsWhileSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{serve: func(n int, c net.Conn) bool {
			_, err := exchangeSettings(c) // and reads nothing from now on
			return err == nil
		}}
		c, v := pipedClient(t, s)
		done := make(chan struct{})
		go func() {
			c.askOnce(v)
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("a question that may take %v goes on after a minute", probeTime)
		}
		s.close()
		c.Close()
	})
}

// Close ends, also if a server does not read.
func TestCloseWhileSending(t *testing.T) {
	for name, settles := range map[string]bool{"a connection": true, "a connection that is being made": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &piped{}
				s.serve = func(n int, c net.Conn) bool {
					if settles {
						s.talkTo(c, 1)
					}
					return true
				}
				c, _ := pipedClient(t, s)
				var returned sync.WaitGroup
				returned.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					began := time.Now()
					_, err := c.Status(ctx)
					t.Logf("Status, within a second: %v after %v", err, time.Since(began))
				})
				defer returned.Wait()
				time.Sleep(2 * time.Second)
				done := make(chan struct{})
				go func() {
					c.Close()
					close(done)
				}()
				select {
				case <-done:
				case <-time.After(time.Minute):
					t.Error("Close has not returned after a minute")
				}
				s.close()
				<-done
			})
		})
	}
}

// A connection that broke before the server said a word is no server without sessions.
func TestBrokenBeforeTheSettings(t *testing.T) {
	for name, first := range map[string]func(c *Client, v *server, x net.Conn){
		"the server is stopped, and its connections with it": func(_ *Client, _ *server, x net.Conn) {
			frames.NewReader(x, 1<<20).Skip(frames.Preface)
			x.Close()
		},
		"the server was paused": func(_ *Client, _ *server, x net.Conn) {
			go func() {
				b := make([]byte, 1024)
				for {
					if _, err := x.Read(b); err != nil {
						return
					}
				}
			}()
			time.Sleep(settingsTime) // making the connection has timed out
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &piped{}
				c, v := pipedClient(t, s)
				s.serve = func(n int, x net.Conn) bool {
					if n == 0 {
						first(c, v, x)
					}
					return n == 0
				}
				defer c.Close()
				defer s.close()
				c.askOnce(v)
				time.Sleep(settingsTime)
				if _, err := c.connect(t.Context(), v); err != nil {
					t.Errorf("three seconds later: %v", err)
				}
			})
		})
	}
}

// tardy is a server's end of a connection on which it says nothing for some time.
type tardy struct {
	net.Conn
	after time.Duration
	once  sync.Once
}

func (c *tardy) Write(b []byte) (int, error) {
	c.once.Do(func() { time.Sleep(c.after) })
	return c.Conn.Write(b)
}

// A server that has many new connections gets no second one from a client while the first one waits there.
func TestServerMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{}
		s.serve = func(_ int, c net.Conn) bool {
			s.talk(&tardy{Conn: c, after: settingsTime - 100*time.Millisecond})
			return true
		}
		c, v := pipedClient(t, s)
		defer c.Close()
		defer s.close()
		for range 5 { // each gives up before the answer
			c.askOnce(v)
		}
		time.Sleep(settingsTime)
		if err := c.askOnce(v); err != nil || len(s.conns) != 1 {
			t.Errorf("%v, over %d connections", err, len(s.conns))
		}
	})
}

// takesNone is a server that takes no connection now, and asks to come again after some time.
func takesNone(c net.Conn, after time.Duration) {
	defer c.Close()
	r := frames.NewReader(c, 1<<10)
	if err := r.Skip(frames.Preface); err == nil {
		r.Next()
	}
	b, _ := proto.Marshal(&pb.Settings{Version: 1, RetryAfterMs: after.Milliseconds()})
	c.Write(frames.Append(nil, frames.Settings, b))
}

// A server that asks to come again later is left alone until then, and for a random time more: thousands of clients
// must not come again together. It is no server without sessions because of that, and nothing was sent to it.
func TestBusyServerIsLeftAlone(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: maxBusy} {
		random := map[string]struct {
			rand uint64
			more time.Duration
		}{"soonest": {0, 0}, "in the middle": {uint64(want / 2), want / 2}, "latest": {uint64(want - 1), want - 1}}
		for name, r := range random {
			t.Run(fmt.Sprint(asked, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &piped{serve: func(n int, x net.Conn) bool {
						if n == 0 {
							takesNone(x, asked)
						}
						return n == 0
					}}
					c, v := pipedClient(t, s)
					defer c.Close()
					defer s.close()
					c.opt.Rand = func() uint64 { return r.rand }
					began := time.Now()
					_, err := c.connect(t.Context(), v)
					for ; err != nil; _, err = c.connect(t.Context(), v) {
						if retry.OfError(err) != retry.Unsent || status.Code(err) != codes.Unavailable {
							t.Fatal(err)
						}
						time.Sleep(10 * time.Millisecond)
					}
					if took := time.Since(began); took < want+r.more || took > want+r.more+10*time.Millisecond || len(s.conns) != 2 {
						t.Errorf("connected after %v, with %d connections", took, len(s.conns))
					}
				})
			})
		}
	}
}

// While a server wants to be left alone, those who wait for it do not ask the others all the time.
func TestBusyPrimaryMakesNoQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &piped{serve: func(_ int, x net.Conn) bool { takesNone(x, time.Second); return true }}
		asked := 0
		replica := &piped{serve: func(_ int, c net.Conn) bool {
			r, err := exchangeSettings(c)
			for err == nil {
				var b []byte
				m, out := &pb.SessionRequest{}, &pb.SessionResponse{}
				if _, b, _, err = r.Next(); err != nil || proto.Unmarshal(b, m) != nil {
					break
				}
				for _, q := range m.GetCalls() {
					asked++
					a, _ := proto.Marshal(&pb.StatusResponse{Status: pb.Status_STATUS_OK, Role: pb.Role_ROLE_REPLICA, Epoch: 1, ClusterId: "c", Primary: &pb.Primary{Id: 1, Client: "s:1"}})
					out.Returns = append(out.Returns, &pb.Return{Correlation: q.Correlation, Response: a})
				}
				o, _ := proto.Marshal(out)
				_, err = c.Write(frames.Append(nil, frames.Message, o))
			}
			return true
		}}
		c, err := New(Options{Endpoints: []string{"s:1", "s:2"}, ClientID: "me", Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			return map[string]*piped{"s:1": busy, "s:2": replica}[addr].dial(ctx, addr)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer replica.close()
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = c.Acquire(ctx, "a", AcquireOptions{})
		if n := len(busy.conns); err == nil || n < 4 || n > 11 || asked > 3*n {
			t.Errorf("in ten seconds %d connections were refused, and the other server was asked %d times: %v", n, asked, err)
		}
	})
}

// An operation at a server without sessions is not in doubt because of that: nothing of it was sent.
func TestOlderServerLeavesNoDoubt(t *testing.T) {
	f, fakes, _ := onLoopback(t) // gRPC only
	c := dialLoopback(t, fakes, Options{})
	if _, err := c.Acquire(t.Context(), "mine", AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.grant(fakeKey{"other", 1}, "a", 100_000)
	f.mu.Unlock()
	c.servers.primary().sessionless.Store(0) // it is tried again every 15 s
	if _, err := c.Acquire(t.Context(), "a", AcquireOptions{}); !errors.Is(err, wire.ErrHeld) {
		t.Error(err)
	}
	c.Close()
	if n := len(f.attempts("cancel")); n > 0 {
		t.Errorf("%d cancels of a request that was refused", n)
	}
}

// A server without sessions answers the first question.
func TestOlderServerAnswersAtOnce(t *testing.T) {
	_, fakes, _ := onLoopback(t) // gRPC only
	c := dialLoopback(t, fakes, Options{})
	v := c.servers.mu.all[0]
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i := range 2 {
		if err := c.servers.ask(ctx, v).err; err != nil {
			t.Errorf("question %d: %v", i, err)
		}
	}
}

// A session that has ended is not used for ever, also if it was begun while it ended: begin takes the mutex between
// what fail does before and behind.
func TestSessionBegunWhileItEnds(t *testing.T) {
	w := &world{t: t, fakeCluster: newFakeCluster(), clock: &fakeClock{start: time.Now()}}
	for i := range 3 {
		w.servers = append(w.servers, w.server(fmt.Sprintf("s%d:1", i+1)))
		w.servers[i].mu.sessions = true
	}
	w.c = w.client(Options{Budget: 3 * time.Second})
	defer w.c.Close()
	if _, err := w.c.ID(t.Context()); err != nil {
		t.Fatal(err)
	}
	to := w.c.servers.primary()
	for range 5000 {
		s, err := w.c.connect(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		for w.servers[0].stream() == nil {
			time.Sleep(time.Millisecond)
		}
		go w.servers[0].stream().fail(status.Error(codes.Unavailable, "the connection was reset"))
		for { // another operation has the mutex when fail comes
			s.mu.Lock()
			if to.link.Load() != s {
				break
			}
			s.mu.Unlock()
		}
		s.mu.Unlock()
		begun := s.begin(w.c.main.current()) // of an operation that got s from connect
		for ended := false; !ended; {
			s.mu.Lock()
			ended = s.mu.err != nil
			s.mu.Unlock()
		}
		if to.session.Load() != s {
			continue
		}
		t.Errorf("begin returned %v, and the session that has ended is the server's", begun)
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		_, err = w.c.Acquire(t.Context(), "a", AcquireOptions{})
		t.Errorf("acquire after %v: %v", time.Since(began), err)
		break
	}
}

func (s *fakeServer) stream() (x *fakeStream) {
	s.set(func() { x = s.mu.stream })
	return x
}

// A server that is named as the primary and is none, as the old one for a moment at each handover, is asked again and
// again. That costs no connection each time.
func TestRefusedHelloCostsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{}
		s.serve = func(_ int, c net.Conn) bool {
			defer c.Close()
			r, err := exchangeSettings(c)
			for err == nil {
				var b []byte
				if _, b, _, err = r.Next(); err != nil {
					break
				}
				m, out := &pb.SessionRequest{}, &pb.SessionResponse{}
				proto.Unmarshal(b, m)
				if m.Hello != nil { // as shared/frontend/session does
					out.Refused = &pb.ErrorDetail{Status: pb.Status_STATUS_SECONDARY_MODE}
				}
				for _, q := range m.GetCalls() {
					a, _ := proto.Marshal(&pb.StatusResponse{Status: pb.Status_STATUS_OK, Role: pb.Role_ROLE_REPLICA, Epoch: 1, ClusterId: "c", Primary: &pb.Primary{Id: 1, Client: "s:1"}})
					out.Returns = append(out.Returns, &pb.Return{Correlation: q.Correlation, Response: a})
				}
				o, _ := proto.Marshal(out)
				_, err = c.Write(frames.Append(nil, frames.Message, o))
			}
			return true
		}
		c, _ := pipedClient(t, s)
		defer c.Close()
		defer s.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.Acquire(ctx, "a", AcquireOptions{})
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.conns); n > 20 {
			t.Errorf("%d connections in a second", n)
		}
	})
}

// An operation ends with its context, also if the server does not read, and it is the one that sends.
func TestOperationEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{}
		s.serve = func(n int, c net.Conn) bool {
			if n == 0 {
				s.talkTo(c, 1)
			} else {
				exchangeSettings(c)
			}
			return true
		}
		c, _ := pipedClient(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		c.Acquire(ctx, "a", AcquireOptions{Wait: Forever})
		if d := time.Since(began); d > 200*time.Millisecond {
			t.Errorf("an acquire with 100 ms returned after %v", d)
		}
		s.close()
		c.Close()
	})
}

// A question that cannot be sent keeps nobody from asking again, over a connection that works.
func TestQuestionThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{serve: func(n int, c net.Conn) bool {
			if n == 0 {
				exchangeSettings(c) // and reads nothing from now on
			}
			return n == 0
		}}
		c, v := pipedClient(t, s)
		asked := make(chan error, 1)
		go func() {
			began := time.Now()
			err := c.askOnce(v)
			for err != nil && time.Since(began) < time.Hour {
				time.Sleep(time.Second)
				err = c.askOnce(v)
			}
			asked <- err
		}()
		select {
		case err := <-asked:
			if err != nil {
				t.Errorf("for an hour: %v", err)
			}
		case <-time.After(2 * time.Hour):
			t.Error("a question goes on for two hours")
		}
		s.close()
		c.Close()
	})
}

// A new primary with very many new connections takes its time with each. Its clients wait for their turn, and do not
// begin anew, at the dead primary first.
func TestRoundWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turn = 2 * time.Second
		s := &piped{serve: func(int, net.Conn) bool { time.Sleep(turn); return false }}
		defer s.close()
		var dead atomic.Int64
		c, err := New(Options{Endpoints: []string{"dead:1", "new:1"}, ClientID: "me", Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "dead:1" {
				dead.Add(1)
				return nil, syscall.ECONNREFUSED
			}
			return s.dial(ctx, addr)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		if f := c.servers.locate(t.Context()); f.rank != rankPrimary {
			t.Errorf("after %v: rank %d, error %v", time.Since(began), f.rank, f.err)
		}
		if n := dead.Load(); n > 1 {
			t.Errorf("the dead primary was asked %d times meanwhile", n)
		}
	})
}

// Where no connection is being made, a round does not wait for an answer for long: the server may be paused, and another one
// be primary soon.
func TestRoundDoesNotWaitForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{serve: func(_ int, c net.Conn) bool {
			r, err := exchangeSettings(c)
			for err == nil { // and answers nothing
				_, _, _, err = r.Next()
			}
			return true
		}}
		defer s.close()
		c, _ := pipedClient(t, s)
		defer c.Close()
		began := time.Now()
		f := c.servers.locate(t.Context())
		if took := time.Since(began); took > 2*probeTime {
			t.Errorf("it took %v", took)
		}
		if f.err == nil || !strings.Contains(f.err.Error(), "s:1") {
			t.Errorf("the error is %v, and does not name the silent server", f.err)
		}
	})
}
