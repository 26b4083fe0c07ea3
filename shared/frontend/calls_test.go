// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A client that keeps to 64 calls at once, as the library does, is refused none.
func TestSixtyFourCallsAtOnce(t *testing.T) {
	replica := &backend{self: 3, members: primarytest.Members()}
	replica.elect(2, 7)
	s := connect(t, dialGRPC(t, replica))
	const calls, atOnce = 3000, 64
	m := &pb.SessionRequest{}
	for n := range uint64(atOnce) {
		m.Calls = append(m.Calls, statusCall(n+1))
	}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	refused, why := 0, ""
	for done := 0; done < calls; {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		m := &pb.SessionRequest{}
		for _, x := range r.Returns {
			if done++; x.Code != 0 {
				refused, why = refused+1, x.Message
			}
			m.Calls = append(m.Calls, statusCall(uint64(done+atOnce)))
		}
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if refused > 0 {
		t.Errorf("%d of %d calls were refused: %s", refused, calls, why)
	}
}

// Calls that a client has given up do not keep it from others: while the volume stalls a server says that it is there.
func TestCallsThatWereGivenUp(t *testing.T) {
	for name, serve := range map[string]func(net.Listener, *service.Service) *fronttest.Port{
		"frames": fronttest.Serve,
		"gRPC":   func(l net.Listener, s *service.Service) *fronttest.Port { return fronttest.ServeOlder(l, s) },
	} {
		t.Run(name, func(t *testing.T) {
			b := startPrimary(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := serve(l, service.New(b, service.Options{}))
			defer port.Close()
			c, err := clientlib.New(clientlib.Options{Endpoints: []string{l.Addr().String()}, Budget: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			held, err := c.Acquire(t.Context(), "a", clientlib.AcquireOptions{TTL: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			gate := volumetest.NewGate()
			b.host.SetHook(func(x volumetest.Call) volumetest.Action {
				if x.Op == volumetest.OpDatasync {
					return volumetest.Pause(gate)
				}
				return volumetest.Proceed()
			})
			defer gate.Resume()
			defer b.host.SetHook(nil)
			go held.Append(t.Context(), "f", []byte("x")) // the answers behind it wait for the volume
			for range 70 {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				if _, err := c.Get(ctx, "a"); err == nil {
					t.Log("the volume does not stall")
				}
				cancel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			s, err := c.Status(ctx)
			t.Logf("%+v %v", s.Role, err)
			if err != nil {
				t.Errorf("a server that is there is told as gone: %v", err)
			}
		})
	}
}

// fencing is a server whose takeover does not end.
type fencing struct{ *backend }

func (f fencing) Term() serving.Term { return fencingTerm{f.backend.Term(), make(chan struct{})} }

type fencingTerm struct {
	serving.Term
	never chan struct{}
}

func (f fencingTerm) Serving() <-chan struct{} { return f.never }

// A server that is becoming primary says so at once, also to a client that waits for it with a session.
func TestStatusBesideAHelloThatWaits(t *testing.T) {
	s := connect(t, dialGRPC(t, fencing{startPrimary(t)}))
	if err := s.Send(&pb.SessionRequest{Hello: &pb.SessionHello{ClientId: "c1"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.SessionRequest{Calls: []*pb.Call{statusCall(7)}}); err != nil {
		t.Fatal(err)
	}
	m := next(t, s, func(m *pb.SessionResponse) bool { return len(m.Returns) > 0 || m.End != nil })
	if m.End != nil {
		t.Errorf("no answer, and then the end: %v", m.End)
	}
}

// Each append has its own data in the file, once if it was answered, and not at all if it is known not to be executed,
// whenever the contexts of calls end.
func TestAppendsWhoseContextsEnd(t *testing.T) {
	b := startPrimary(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fronttest.Serve(l, service.New(b, service.Options{}))
	defer port.Close()
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	held, err := c.Acquire(t.Context(), "a", clientlib.AcquireOptions{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	told := map[string]string{}
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			for i := range 60 {
				name := fmt.Sprintf("<%d.%d>", g, i)
				data := name + strings.Repeat(string(rune('a'+(g+i)%26)), rand.IntN(1500)) + "\n"
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30_000))*time.Microsecond)
				_, err := held.Append(ctx, "f", []byte(data))
				cancel()
				say := "once"
				if e, ok := errors.AsType[*clientlib.CallError](err); ok && !e.Unknown {
					say = "never"
				} else if err != nil {
					say = "maybe"
				}
				mu.Lock()
				told[data] = say
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if _, err := held.Append(t.Context(), "f", []byte("end\n")); err != nil {
		t.Fatal(err)
	}
	c.Close() // what was given up is cancelled
	c, err = clientlib.New(clientlib.Options{Endpoints: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	times := linesOf(t, c, "f")
	counts := map[string]int{}
	for data, say := range told {
		counts[say]++
		n := times[data]
		delete(times, data)
		if say == "once" && n != 1 || say == "never" && n != 0 || n > 1 {
			t.Errorf("%.20q was told %q and is in the file %d times", data, say, n)
		}
	}
	delete(times, "end\n")
	delete(times, "")
	for line := range times {
		t.Errorf("nobody wrote %.40q", line)
	}
	t.Log(counts)
}

// linesOf returns how often each line is in a file.
func linesOf(t *testing.T, c *clientlib.Client, name clientlib.FileName) map[string]int {
	t.Helper()
	var file []byte
	for o := int64(0); ; {
		p, err := c.ReadFile(t.Context(), name, clientlib.ReadOptions{Offset: o})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Data) == 0 {
			break
		}
		file, o = append(file, p.Data...), o+int64(len(p.Data))
	}
	times := map[string]int{}
	for line := range strings.SplitAfterSeq(string(file), "\n") {
		times[line]++
	}
	return times
}
