// SPDX-License-Identifier: Apache-2.0

package session

import (
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func message(m *pb.SessionRequest) []byte {
	b, _ := proto.Marshal(m)
	return frames.Append(nil, frames.Message, b)
}

// connected returns the client's end of a connection whose settings are exchanged.
func connected(t *testing.T, v *Server) (net.Conn, *frames.Reader) {
	t.Helper()
	here, there := net.Pipe()
	v.ServeConn(there)
	b, _ := proto.Marshal(&pb.Settings{Version: 1})
	if _, err := here.Write(frames.Append([]byte(frames.Preface), frames.Settings, b)); err != nil {
		t.Fatal(err)
	}
	r := frames.NewReader(here, 64<<20)
	if kind, _, _, err := r.Next(); kind != frames.Settings || err != nil {
		t.Fatal(kind, err)
	}
	return here, r
}

func (v *Server) connections() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.mu.conns)
}

// The memory of an outbox does not grow with what was sent, even if there is always one frame more to write.
func TestOutboxForgetsWhatIsSent(t *testing.T) {
	b := newOutbox()
	b.putFrame(frames.Pong, nil)
	for range 200_000 {
		b.putFrame(frames.Pong, nil)
		b.sentFrame(b.take())
	}
	if n := cap(b.mu.waiting); n > 1000 {
		t.Errorf("one frame waits, in room for %d", n)
	}
}

// Frames of a few bytes cost more than those: a client that reads nothing and pings is not read for ever.
func TestSmallFramesCountAsWhatTheyCost(t *testing.T) {
	b := newOutbox()
	n := 0
	for ; b.unread(maxUnread) == nil && n < maxUnread; n++ {
		b.putFrame(frames.Pong, nil)
	}
	if n > maxUnread/100 {
		t.Errorf("%d pongs wait", n)
	}
}

// A client that is stopped is noticed, also if the server has paused reading because of it.
func TestStoppedClientThatLeftMuchUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(service.New(&roleless{t: newTerm()}, service.Options{}), zerolog.Nop())
		defer v.Close()
		here, r := connected(t, v)
		defer here.Close()
		here.Write(message(&pb.SessionRequest{Hello: &pb.SessionHello{}}))
		if _, _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		var x *conn
		v.mu.Lock()
		for x = range v.mu.conns {
		}
		v.mu.Unlock()
		for range 20 { // answers
			x.put(&pb.SessionResponse{Answers: []*pb.Answer{{Message: strings.Repeat("x", 2<<20)}}}, false)
		}
		here.Write(message(&pb.SessionRequest{Unwatch: []uint64{1}})) // the last that it said
		time.Sleep(time.Hour)
		if v.connections() > 0 || !x.gone.Load() {
			t.Error("a client that has been stopped for an hour still keeps its places in queues")
		}
	})
}

// "endWait is how long a client may take to read the end of its session and to close."
func TestEndedConnectionIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := newTerm()
		v := New(service.New(&roleless{t: term}, service.Options{}), zerolog.Nop())
		defer v.Close()
		here, r := connected(t, v)
		defer here.Close()
		here.Write(message(&pb.SessionRequest{Hello: &pb.SessionHello{}}))
		if _, _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		close(term.over)
		for range 120 { // it sends and does not read
			time.Sleep(5 * time.Second)
			if _, err := here.Write(frames.Append(nil, 200, nil)); err != nil {
				return
			}
		}
		t.Error("the session has ended, and its connection is open ten minutes later")
	})
}

// A connection on which bytes move is not silent.
func TestSlowTransfersAreNoSilence(t *testing.T) {
	open := func(t *testing.T) (*Server, *conn, net.Conn, *frames.Reader) {
		v := New(service.New(&roleless{t: newTerm()}, service.Options{}), zerolog.Nop())
		here, r := connected(t, v)
		here.Write(message(&pb.SessionRequest{Hello: &pb.SessionHello{}}))
		if _, _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		for x := range v.mu.conns {
			return v, x, here, r
		}
		panic("no connection")
	}
	t.Run("an append of 1 MiB comes at 400 kbit/s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, _, here, r := open(t)
			defer v.Close()
			defer here.Close()
			pings := make(chan struct{}, 100)
			go func() {
				for {
					if kind, _, _, err := r.Next(); err != nil {
						return
					} else if kind == frames.Ping {
						pings <- struct{}{} // answered behind the append: one frame at a time
					}
				}
			}()
			b := frames.Append(nil, 200, make([]byte, 1<<20))
			for len(b) > 0 {
				n := min(len(b), 50_000)
				if _, err := here.Write(b[:n]); err != nil {
					t.Fatalf("closed with %d bytes to go: %v", len(b), err)
				}
				b = b[n:]
				time.Sleep(time.Second)
			}
		})
	})
	t.Run("an answer of 12 MiB is read at 6 Mbit/s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, x, here, _ := open(t)
			defer v.Close()
			defer here.Close()
			x.put(&pb.SessionResponse{Answers: []*pb.Answer{{Message: strings.Repeat("x", 12<<20)}}}, false)
			b := make([]byte, 750_000)
			for left := 12 << 20; left > 0; {
				time.Sleep(time.Second)
				for read := 0; read < len(b) && left > 0; {
					n, err := here.Read(b[read:])
					if err != nil {
						t.Fatalf("closed with %d bytes to go: %v", left, err)
					}
					read, left = read+n, left-n
				}
			}
		})
	})
}

// endingTerm ends while a session is welcomed. It counts what is handed in.
type endingTerm struct {
	*term
	v     *Server
	taken atomic.Int64
}

// LSN is asked for the welcome. A session that the term could end by then is ended when it returns.
func (t *endingTerm) LSN() cluster.LSN {
	t.v.mu.Lock()
	_, joined := t.v.mu.terms[t]
	t.v.mu.Unlock()
	close(t.over)
	for over := !joined; !over; runtime.Gosched() {
		t.v.mu.Lock()
		for x := range t.v.mu.conns { // there is this one
			x.out.mu.Lock()
			over = x.out.mu.over
			x.out.mu.Unlock()
		}
		t.v.mu.Unlock()
	}
	return 1
}
func (t *endingTerm) Submit(all []*serving.AsyncRequest) { t.taken.Add(int64(len(all))) }

// ending is a backend whose term ends so.
type ending struct {
	*roleless
	t *endingTerm
}

func (e ending) Term() serving.Term { return e.t }

// A session that is refused hands nothing in: its client takes SECONDARY_MODE before a welcome for "did nothing", and
// what is handed in to a term may be executed.
func TestRefusedSessionHandsNothingIn(t *testing.T) {
	for i := range 2000 {
		term := &endingTerm{term: newTerm()}
		v := New(service.New(ending{&roleless{}, term}, service.Options{}), zerolog.Nop())
		term.v = v
		here, r := connected(t, v)
		here.Write(message(&pb.SessionRequest{Hello: &pb.SessionHello{}, Operations: []*pb.Operation{
			{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{ClientId: "c", RequestId: 1, Lock: "l", TtlMs: 30000}}},
		}}))
		welcome, status := false, pb.Status(0)
		for {
			kind, b, _, err := r.Next()
			if err != nil {
				break
			}
			m := &pb.SessionResponse{}
			if kind == frames.Message && proto.Unmarshal(b, m) == nil {
				welcome = welcome || m.Welcome != nil
				status = max(status, m.GetEnd().GetStatus())
			}
		}
		here.Close()
		v.Close()
		if !welcome && term.taken.Load() > 0 {
			t.Fatalf("connection %d: refused with %v, and %d operations were handed in", i, status, term.taken.Load())
		}
	}
}
