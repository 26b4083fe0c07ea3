// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// again are the options of a client that asks again for what it was granted before.
func again() Options { return Options{ClientID: "me", FirstRequest: 7} }

// twoHandles has a token attached, renewed, and then acquired by the request repeated.
func (w *world) twoHandles(t *testing.T) (attached, acquired *Lock) {
	t.Helper()
	w.mu.Lock()
	token := w.grant(fakeKey{"me", 7}, "a", ttl.Milliseconds()).Token
	w.mu.Unlock()
	attached = w.c.Attach("a", tokenOf(token))
	if err := attached.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if acquired = w.acquire("a", AcquireOptions{TTL: ttl}); acquired.Token() != attached.Token() || acquired == attached {
		t.Fatal("not two handles of a token")
	}
	return attached, acquired
}

// An attached handle ends in time, though its token was acquired behind it.
func TestAttachedBeforeAcquiredEndsInTime(t *testing.T) {
	inBubble(t, again(), func(t *testing.T, w *world) {
		attached, acquired := w.twoHandles(t)
		time.Sleep(ttl)
		if reason(attached) != LossNotRenewed {
			t.Errorf("not renewed for %v: %v", ttl, attached.Context().Err())
		}
		if s := acquired.State(); s.Phase != PhaseValid {
			t.Errorf("what is kept alive: %+v", s)
		}
	})
}

// The same where the grant is answered, and the renewal that tells its time is under way.
func TestAttachedWhileAcquiredEndsInTime(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		var renewals atomic.Int32
		w.servers[0].set(func() {
			w.servers[0].mu.lag = func(op string) time.Duration {
				if op == "renew" && renewals.Add(1) == 1 {
					return 200 * time.Millisecond
				}
				return 0
			}
		})
		got := make(chan *Lock)
		go func() { got <- w.acquire("a", AcquireOptions{TTL: ttl, MaxHold: time.Hour}) }()
		time.Sleep(100 * time.Millisecond)
		_, token := w.holder("a")
		attached := w.c.Attach("a", tokenOf(token))
		if err := attached.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		acquired := <-got
		time.Sleep(ttl)
		if reason(attached) != LossNotRenewed || acquired.State().Phase != PhaseValid {
			t.Errorf("after %v: %q, and what is kept alive: %+v", ttl, reason(attached), acquired.State())
		}
	})
}

// A renewal of the attached handle takes nothing from the acquired one.
func TestRenewedAttachedHandleHidesNothing(t *testing.T) {
	inBubble(t, again(), func(t *testing.T, w *world) {
		attached, acquired := w.twoHandles(t)
		for range 10 {
			if err := attached.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / 2)
		}
		if s := acquired.State(); s.Phase != PhaseValid || acquired.Context().Err() != nil {
			t.Errorf("not kept alive: %+v", s)
		}
		if err := attached.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range w.servers {
			defer s.pause()()
		}
		time.Sleep(ttl)
		if reason(acquired) != LossNotRenewed || reason(attached) != LossNotRenewed {
			t.Errorf("cut off: %q and %q", reason(acquired), reason(attached))
		}
		time.Sleep(time.Minute)
		w.forgotten(t)
	})
}

// forgotten says that nothing is counted nor looked at any more.
func (w *world) forgotten(t *testing.T) {
	t.Helper()
	k := w.c.renewer
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.ttls)+len(k.mu.locks)+len(k.mu.attached) != 0 || k.mu.running {
		t.Errorf("counted are %v, handles %v and %v, and somebody looks: %v", k.mu.ttls, k.mu.locks, k.mu.attached, k.mu.running)
	}
}

// What ends the token ends both its handles.
func TestBothHandlesEnd(t *testing.T) {
	released := func(l func(attached, acquired *Lock) *Lock) func(*testing.T, *world, *Lock, *Lock) {
		return func(t *testing.T, w *world, attached, acquired *Lock) {
			if err := l(attached, acquired).Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	for name, end := range map[string]func(t *testing.T, w *world, attached, acquired *Lock){
		"closed":                func(t *testing.T, w *world, _, _ *Lock) { w.c.Close() },
		"released by the one":   released(func(l, _ *Lock) *Lock { return l }),
		"released by the other": released(func(_, l *Lock) *Lock { return l }),
		"refused": func(t *testing.T, w *world, attached, _ *Lock) {
			w.end("a")
			if err := attached.Renew(t.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("renewed: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, again(), func(t *testing.T, w *world) {
				attached, acquired := w.twoHandles(t)
				if err := attached.Renew(t.Context()); err != nil {
					t.Fatal(err)
				}
				end(t, w, attached, acquired)
				for _, l := range []*Lock{attached, acquired} {
					if l.Context().Err() == nil || context.Cause(l.Context()) == nil {
						t.Errorf("the handle with owner %q goes on", l.owner)
					}
				}
				if name != "closed" {
					time.Sleep(time.Minute)
					w.forgotten(t)
				}
			})
		})
	}
}

// Both handles are told what the service says of the token.
func TestBothHandlesAreTold(t *testing.T) {
	bubble(t, again(), true, func(t *testing.T, w *world) {
		attached, acquired := w.twoHandles(t)
		synctest.Wait()
		token := uint64(acquired.Token())
		w.servers[0].tell(&pb.SessionResponse{Asks: []*pb.AskToRelease{{Lock: "a", Token: token, Lsn: 900, Actor: "ann", RemainingMs: 5000}}})
		synctest.Wait()
		if attached.State().Asked == nil || acquired.State().Asked == nil {
			t.Errorf("asked: %v and %v", attached.State().Asked, acquired.State().Asked)
		}
		w.servers[0].tell(&pb.SessionResponse{Losses: []*pb.Loss{{Lock: "a", Token: token, Lsn: 901, Reason: pb.LossReason_LOSS_REASON_BROKEN}}})
		synctest.Wait()
		if reason(attached) != LossBroken || reason(acquired) != LossBroken {
			t.Errorf("broken: %q and %q", reason(attached), reason(acquired))
		}
	})
}

// A wrong name hides nothing: the service refuses it, and the right handle is counted.
func TestAttachedUnderAWrongNameHidesNothing(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		right := w.c.Attach("a", tokenOf(token))
		wrong := w.c.Attach("b", tokenOf(token))
		if err := right.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if reason(right) != LossNotRenewed {
			t.Errorf("not renewed for %v: %v", ttl, right.Context().Err())
		}
		w.c.Close()
		if reason(wrong) != LossClosed {
			t.Errorf("closed, and the other handle ended with %q", reason(wrong))
		}
	})
}
