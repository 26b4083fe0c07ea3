// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// inSession runs a test whose client has a session with the first server.
func inSession(t *testing.T, o Options, f func(*testing.T, *world)) {
	bubble(t, o, true, func(t *testing.T, w *world) {
		w.acquire("first", AcquireOptions{})
		synctest.Wait()
		if w.c.servers.primary().session.Load() == nil {
			t.Fatal("there is no session")
		}
		f(t, w)
	})
}

// streamed is how many operations a server got in sessions.
func (s *fakeServer) streamed() (n int) {
	s.set(func() { n = s.mu.streamed })
	return n
}

// tell sends something on the newest session of a server.
func (s *fakeServer) tell(m *pb.SessionResponse) {
	var x *fakeStream
	s.set(func() { x = s.mu.stream })
	x.tell(m)
}

func TestOperationsTakeTheSession(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		before := w.servers[0].streamed()
		l := w.acquire("a", AcquireOptions{})
		if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
			t.Fatal(err)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.servers[0].streamed() - before; n != 4 {
			t.Errorf("%d of 4 operations went through the session", n)
		}
	})
}

func TestServerWithoutSessionsIsAskedOnce(t *testing.T) {
	bubble(t, Options{}, false, func(t *testing.T, w *world) {
		for i := range 3 {
			w.acquire(cluster.LockName(fmt.Sprintf("l%d", i)), AcquireOptions{})
			synctest.Wait()
		}
		if w.c.servers.primary().sessionless.Load() == 0 {
			t.Error("it would be asked again")
		}
	})
}

// What was sent on a session may have been executed, whether its welcome came or not.
func TestSentBeforeTheWelcomeMayBeExecuted(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.InvalidArgument, codes.ResourceExhausted} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, Options{Budget: 2 * time.Second}, false, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{})
				appends := 0
				w.servers[0].set(func() {
					w.servers[0].mu.sessions, w.servers[0].mu.reset = true, code
					w.servers[0].mu.refuse = func(op string) error {
						if op == "append" {
							appends++
						}
						if op == "append" && appends > 1 || op == "cancel" {
							return (&wire.Error{Status: cluster.StatusNoQuorum}).GRPCStatus().Err()
						}
						return nil
					}
				})
				w.c.servers.primary().sessionless.Store(0)
				_, err := l.Append(t.Context(), "f", []byte("once"))
				if a := w.attempts("append"); len(a) != 1 || !a[0].executed || w.servers[0].streamed() == 0 {
					t.Fatalf("%d appends in sessions, executed: %+v", w.servers[0].streamed(), a)
				}
				if !errors.Is(err, wire.ErrUnknown) {
					t.Errorf("the append is in the file, and its caller is told %v", err)
				}
			})
		})
	}
}

// A session that breaks with an operation under way: the operation is repeated under
// its ID, and was executed once.
func TestBrokenSessionRepeatsTheRequest(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		w.servers[0].dropOnce("acquire")
		l := w.acquire("a", AcquireOptions{})
		tries := w.attempts("acquire")
		last, before := tries[len(tries)-1], tries[len(tries)-2]
		if last.id != before.id || last.client != before.client {
			t.Errorf("the repeat has another name: %+v, %+v", before, last)
		}
		if _, token := w.holder("a"); tokenOf(token) != l.Token() {
			t.Errorf("the grant is %d, held is %d", l.Token(), token)
		}
		synctest.Wait()
		w.acquire("b", AcquireOptions{})
		var opened int
		w.servers[0].set(func() { opened = w.servers[0].mu.opened })
		if opened != 2 {
			t.Errorf("%d sessions were opened", opened)
		}
	})
}

func TestSessionMovesWithTheTerm(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		w.setPrimary(w.servers[1])
		w.acquire("a", AcquireOptions{})
		synctest.Wait()
		w.acquire("b", AcquireOptions{})
		if n := w.servers[1].streamed(); n == 0 {
			t.Error("the new primary got nothing through a session")
		}
	})
}

// A call that ends leaves its place in the session to the next, whose answer is not
// mixed up with the late one.
func TestLateAnswerFindsNobody(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		w.others("taken")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := w.c.Acquire(ctx, "taken", AcquireOptions{Wait: Forever}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait() // it is cancelled in the background
		w.end("taken")
		l := w.acquire("taken", AcquireOptions{})
		if _, token := w.holder("taken"); tokenOf(token) != l.Token() {
			t.Errorf("the grant is %d, held is %d", l.Token(), token)
		}
	})
}

// The place of an operation in a session is used again; the number that it had is not.
func TestNumberIsUsedOnce(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		s := w.c.servers.primary().session.Load()
		var used []uint64
		for _, f := range *s.calls.Load() {
			used = append(used, f.last) // all have ended
		}
		resume := w.servers[0].pause()
		appended := make(chan error, 1)
		go func() {
			_, err := l.Append(t.Context(), "f", []byte("data"))
			appended <- err
		}()
		synctest.Wait()
		if n := len(*s.calls.Load()); n != len(used) {
			t.Fatalf("%d places, there were %d", n, len(used))
		}
		for _, number := range used {
			w.servers[0].tell(&pb.SessionResponse{Answers: []*pb.Answer{{Correlation: number, Status: pb.Status_STATUS_INVALID_TOKEN}}})
		}
		synctest.Wait()
		resume()
		if err := <-appended; err != nil {
			t.Errorf("a late answer to another operation was taken for its own: %v", err)
		}
	})
}

func TestLongMessagesAreSplit(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		data := make([]byte, 200<<10)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := l.Append(t.Context(), "f", data); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.servers[0].set(func() {
			if n := w.servers[0].mu.longest; n > maxMessage+1<<10 {
				t.Errorf("a message has %d bytes", n)
			}
		})
	})
}

// With nothing under way nobody looks at the time.
func TestIdleSessionRests(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		if err := w.acquire("a", AcquireOptions{}).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * sessionRest * sessionTick)
		s := w.c.servers.primary().session.Load()
		s.mu.Lock()
		looking := s.mu.ticking
		s.mu.Unlock()
		if looking {
			t.Error("somebody still looks")
		}
		w.acquire("b", AcquireOptions{})
	})
}

// The service says at once that a grant has ended; keep-alives would find out later.
func TestLossIsToldAtOnce(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		other := w.acquire("b", AcquireOptions{})
		w.servers[0].tell(&pb.SessionResponse{Losses: []*pb.Loss{
			{Lock: "b", Token: uint64(l.Token()), Reason: pb.LossReason_LOSS_REASON_BROKEN}, // another lock's: not meant
			{Lock: "a", Token: uint64(l.Token()), Reason: pb.LossReason_LOSS_REASON_BROKEN, Actor: "ann", Message: "it hangs"},
		}})
		<-l.Context().Done()
		lost, ok := errors.AsType[*LostError](context.Cause(l.Context()))
		if !ok || lost.Reason != LossBroken || !errors.Is(lost, wire.ErrInvalidToken) || !strings.Contains(lost.Error(), "ann") {
			t.Errorf("cause: %v", context.Cause(l.Context()))
		}
		if other.Context().Err() != nil {
			t.Error("the other lock was lost too")
		}
	})
}

// The cause of an ended context is no answer of the service, whatever it wraps.
func TestCauseIsNoAnswer(t *testing.T) {
	for _, why := range []error{wire.Err(cluster.StatusInvalidToken), &wire.Error{Status: cluster.StatusInvalidToken}} {
		inSession(t, Options{}, func(t *testing.T, w *world) {
			w.others("taken")
			l := w.acquire("a", AcquireOptions{})
			resume := w.servers[0].pause()
			defer resume()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(fmt.Errorf("elsewhere: %w", why)) })
			_, err := l.Append(ctx, "f", []byte("data"))
			if e, ok := errors.AsType[*CallError](err); !ok || !e.Unknown {
				t.Errorf("%T: the append may have been executed: %v", why, err)
			}
			if l.Context().Err() != nil {
				t.Errorf("%T: the lock was taken for lost: %v", why, context.Cause(l.Context()))
			}
		})
	}
}

// However a session ends, that is no answer to what was sent on it: it may have been
// executed, and who hears no more of it is told so.
func TestEndOfASessionIsNoAnswer(t *testing.T) {
	for _, test := range []struct {
		name string
		end  *pb.ErrorDetail // what the server says; nil for nothing
	}{
		{"the stream breaks", nil},
		{"the term ended", &pb.ErrorDetail{Status: pb.Status_STATUS_SECONDARY_MODE, RetryAfterMs: 50}},
		{"another server fences", &pb.ErrorDetail{Status: pb.Status_STATUS_SERVER_FENCING}},
		{"whatever else", &pb.ErrorDetail{Status: pb.Status_STATUS_INVALID_ARGUMENT}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inSession(t, Options{}, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{TTL: time.Hour})
				for _, s := range w.servers[1:] {
					s.set(func() { s.mu.down = true })
				}
				s := w.servers[0]
				s.set(func() {
					stream := s.mu.stream
					s.mu.drop = func(op string) bool {
						if op == "append" && test.end != nil {
							stream.tell(&pb.SessionResponse{End: test.end}) // before the stream breaks
						}
						s.mu.down = true // mu is held
						return true
					}
				})
				_, err := l.Append(t.Context(), "f", []byte("data"))
				if e, ok := errors.AsType[*CallError](err); !ok || !e.Unknown {
					t.Errorf("the append was executed: %v", err)
				}
				if tries := w.attempts("append"); len(tries) != 1 || !tries[0].executed {
					t.Errorf("attempts: %+v", tries)
				}
			})
		})
	}
}

// A text that cannot be sent is refused here, and the session goes on.
func TestTextThatIsNotUTF8(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		s := w.c.servers.primary().session.Load()
		if _, err := s.BreakLock(t.Context(), &pb.BreakLockRequest{Lock: "a", Actor: "me", Reason: "caf\xe9"}); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("break: %v", err)
		}
		w.acquire("b", AcquireOptions{})
	})
}

// A stream on which nothing comes back is not used for ever.
func TestDeafSessionIsGivenUp(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		s := w.c.servers.primary().session.Load()
		w.servers[0].set(func() { w.servers[0].mu.stream.deaf = true })
		w.acquire("b", AcquireOptions{})
		if w.c.servers.primary().session.Load() == s {
			t.Error("the session is still in use")
		}
	})
}

// A grant that was waited for belongs to a name that the hello did not tell, and a client
// that does nothing but wait has no name to tell there.
func TestSessionIsToldWhoWaited(t *testing.T) {
	bubble(t, Options{}, true, func(t *testing.T, w *world) {
		for range 3 { // on the same registration
			l := w.acquire("a", AcquireOptions{TTL: time.Hour, Wait: Forever}) // renewed long after
			synctest.Wait()
			named := 0
			for _, s := range w.attempts("keepalive") {
				if s.client == string(l.owner) {
					named++
				}
			}
			s := w.c.servers.primary().session.Load()
			if l.from == w.c.main || named != 1 || s == nil || l.from.known != s {
				t.Errorf("%d keep-alives for %s in session %p", named, l.owner, s)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
