// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestWaitOfARevokedKeyEnds: at once, with an error that says why, and nothing is tried without end. The server answers the acquire, or ends
// the session first; whoever comes with the key after that is refused.
func TestWaitOfARevokedKeyEnds(t *testing.T) {
	const why = "the key of service:ci was revoked"
	for name, end := range map[string]*pb.ErrorDetail{
		"the acquire is answered": nil,
		"the session ends":        {Status: pb.Status_STATUS_UNAUTHENTICATED, Message: why},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, Options{}, func(t *testing.T, w *world) {
				w.acquire("a", AcquireOptions{TTL: time.Hour})
				told := make(chan error, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				go func() {
					_, err := w.c.Acquire(ctx, "a", AcquireOptions{Wait: Forever})
					told <- err
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				began, tried := time.Now(), len(w.attempts("acquire"))
				var asked atomic.Int64 // of all servers
				revoked := &wire.Error{Status: cluster.StatusUnauthenticated, Message: why}
				for _, s := range w.servers {
					s.set(func() {
						s.mu.refuse = func(op string) error {
							if op == "status" {
								return nil
							}
							asked.Add(1)
							return revoked.GRPCStatus().Err()
						}
					})
				}
				if end != nil {
					w.servers[0].tell(&pb.SessionResponse{End: end})
				} else {
					w.servers[0].answerQueue("a", revoked.Answer())
				}
				err := <-told
				if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), why) {
					t.Errorf("it ends with %v", err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				tried = len(w.attempts("acquire")) - tried + int(asked.Load())
				if tried > 5 {
					t.Errorf("it was tried %d times", tried)
				}
			})
		})
	}
}

// answerQueue answers all that wait for a lock.
func (s *fakeServer) answerQueue(lock string, a *pb.Answer) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	l := s.f.lock(lock)
	for _, w := range l.queue {
		s.f.mu.receipts[w.key] = a
		close(w.granted)
	}
	l.queue = nil
}
