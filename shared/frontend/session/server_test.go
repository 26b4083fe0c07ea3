// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	hub "github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// roleless is the backend of a server that may have a term, and nothing else that these tests ask.
type roleless struct {
	serving.Backend
	t *term
}

func (r *roleless) Term() serving.Term {
	if r.t == nil {
		return nil
	}
	return r.t
}

func (r *roleless) Timing() cluster.Timing { return cluster.DefaultTiming() }
func (r *roleless) Status() serving.ClusterStatus {
	return serving.ClusterStatus{Server: 1, ClusterID: "c"}
}
func (r *roleless) Hub() *hub.Hub { return hub.New(time.Minute) }
func (r *roleless) Primary() (cluster.Member, cluster.Epoch, bool) {
	return cluster.Member{}, 0, false
}

// term is one that serves, and answers nothing.
type term struct {
	serving.Term
	ready, over chan struct{}
}

func newTerm() *term {
	t := &term{ready: make(chan struct{}), over: make(chan struct{})}
	close(t.ready)
	return t
}

func (t *term) Epoch() cluster.Epoch           { return 3 }
func (t *term) LSN() cluster.LSN               { return 7 }
func (t *term) Serving() <-chan struct{}       { return t.ready }
func (t *term) Ended() <-chan struct{}         { return t.over }
func (t *term) Submit([]*serving.AsyncRequest) {}

// peer is the client's end of a connection.
type peer struct {
	t *testing.T
	net.Conn
	r     *frames.Reader
	heard chan frames.Kind // closed when the connection ended
	last  *pb.SessionResponse
}

// dial connects to a server, says settings and what else, and reads all that comes until the end.
func dial(t *testing.T, v *Server, then ...*pb.SessionRequest) *peer {
	t.Helper()
	here, there := net.Pipe()
	v.ServeConn(there)
	p := &peer{t: t, Conn: here, r: frames.NewReader(here, 1<<20), heard: make(chan frames.Kind, 100)}
	go func() {
		defer close(p.heard)
		for {
			kind, b, _, err := p.r.Next()
			if err != nil {
				return
			}
			if kind == frames.Message {
				p.last = &pb.SessionResponse{}
				if err := proto.Unmarshal(b, p.last); err != nil {
					t.Error(err)
				}
			}
			p.heard <- kind
		}
	}()
	settings, err := proto.Marshal(&pb.Settings{Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.say(frames.Append([]byte(frames.Preface), frames.Settings, settings))
	for _, m := range then {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		p.say(frames.Append(nil, frames.Message, b))
	}
	synctest.Wait()
	return p
}

func (p *peer) say(b []byte) {
	if _, err := p.Write(b); err != nil {
		p.t.Error(err)
	}
}

// kinds returns what was heard since the last time, and whether the connection has ended.
func (p *peer) kinds() (all []frames.Kind, ended bool) {
	synctest.Wait()
	for {
		select {
		case k, ok := <-p.heard:
			if !ok {
				return all, true
			}
			all = append(all, k)
		default:
			return all, false
		}
	}
}

// inBubble runs a test with a server in virtual time; every goroutine has to end with the server.
func inBubble(t *testing.T, term *term, f func(t *testing.T, v *Server)) {
	synctest.Test(t, func(t *testing.T) {
		b := &roleless{}
		if term != nil {
			b.t = newTerm() // of this bubble
			term.over = b.t.over
		}
		v := New(service.New(b, service.Options{}), zerolog.Nop())
		f(t, v)
		v.Close()
	})
}

func hello() *pb.SessionRequest {
	return &pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c1"}}
}

// Whoever vanished is pinged, and then keeps no place in a queue alive.
func TestSilentConnectionsAreClosed(t *testing.T) {
	inBubble(t, &term{}, func(t *testing.T, v *Server) {
		answers, silent := dial(t, v, hello()), dial(t, v, hello())
		answers.kinds()
		silent.kinds()
		for range 60 {
			time.Sleep(time.Second)
			for _, k := range first(answers.kinds()) {
				if k == frames.Ping {
					answers.say(frames.Append(nil, frames.Pong, nil))
				}
			}
		}
		if got, ended := silent.kinds(); !ended || len(got) != 1 || got[0] != frames.Ping {
			t.Errorf("the silent one heard %v, ended: %v", got, ended)
		}
		if _, ended := answers.kinds(); ended {
			t.Error("one that answers was closed")
		}
		answers.Close()
	})
}

func first(kinds []frames.Kind, _ bool) []frames.Kind { return kinds }

// A connection that was made to look for the primary is not kept.
func TestConnectionsWithoutASessionAreNotKept(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, v *Server) {
		p := dial(t, v)
		for range 2 * idle {
			time.Sleep(time.Second)
			all, ended := p.kinds()
			for _, k := range all {
				if k == frames.Ping {
					p.say(frames.Append(nil, frames.Pong, nil))
				}
			}
			if ended {
				return
			}
		}
		if _, ended := p.kinds(); !ended {
			t.Error("it was kept")
		}
	})
}

// All sessions of a term end with it, with the reason; what has no session stays.
func TestSessionsEndWithTheirTerm(t *testing.T) {
	var ends term
	inBubble(t, &ends, func(t *testing.T, v *Server) {
		var in []*peer
		for range 20 {
			in = append(in, dial(t, v, hello()))
		}
		out := dial(t, v)
		close(ends.over)
		for _, p := range in {
			if _, ended := p.kinds(); !ended || p.last.GetEnd().GetStatus() != pb.Status_STATUS_SECONDARY_MODE {
				t.Errorf("ended: %v, the last word is %v", ended, p.last)
			}
		}
		if _, ended := out.kinds(); ended {
			t.Error("a connection without a session ended with the term")
		}
		late := dial(t, v, hello())
		if _, ended := late.kinds(); ended || late.last.GetRefused().GetStatus() != pb.Status_STATUS_SECONDARY_MODE {
			t.Errorf("a session that begins behind the end: %v", late.last)
		}
		late.Close()
		out.Close()
	})
}

// Stop leaves sessions the time to be ended by their term.
func TestStopWaitsForTheEndOfTheTerm(t *testing.T) {
	var ends term
	inBubble(t, &ends, func(t *testing.T, v *Server) {
		in, out := dial(t, v, hello()), dial(t, v)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() { close(ends.over) })
		began := time.Now()
		v.Stop(ctx)
		if d := time.Since(began); d < time.Second || d > 2*time.Second {
			t.Errorf("stopped after %v", d)
		}
		if in.kinds(); in.last.GetEnd() == nil {
			t.Errorf("the last word is %v", in.last)
		}
		out.kinds()
		here, there := net.Pipe()
		v.ServeConn(there)
		if _, err := here.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection behind the end: %v", err)
		}
	})
}

// A client that says nothing at all is not waited for.
func TestSettingsAreNotWaitedForLong(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, v *Server) {
		here, there := net.Pipe()
		began := time.Now()
		v.ServeConn(there)
		if _, err := here.Read(make([]byte, 1)); err == nil || time.Since(began) > settingsWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
