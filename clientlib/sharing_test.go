// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestSharedLocksAndDowngrades: what is asked for reaches the service, a downgraded lock
// lives on, and one that was released cannot be downgraded.
func TestSharedLocksAndDowngrades(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.acquire("a", AcquireOptions{TTL: ttl, Shared: true})
		l := w.acquire("b", AcquireOptions{TTL: ttl})
		if s := w.attempts("acquire"); len(s) != 2 || s[0].mode != pb.Mode_MODE_SHARED || s[1].mode != pb.Mode_MODE_EXCLUSIVE {
			t.Errorf("the service saw %+v", s)
		}
		if err := l.Downgrade(t.Context()); err != nil {
			t.Error(err)
		}
		if s := w.attempts("downgrade"); len(s) != 1 || s[0].token != uint64(l.Token()) || !s[0].executed {
			t.Errorf("the service saw %+v", s)
		}
		if l.Context().Err() != nil {
			t.Error("a downgraded lock has ended")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Downgrade(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("downgrade of a released lock: %v", err)
		}
	})
}

// sharers are two ways in which others share a lock, with its youngest holder listed or not.
func sharers() map[string]uint32 { return map[string]uint32{"listed": 0, "more than are listed": 200} }

// TestLossOfOneOfManySharers waits for the end of the grant, be it that of the oldest holder or not.
func TestLossOfOneOfManySharers(t *testing.T) {
	for name, more := range sharers() {
		for _, forgotten := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forgotten %t", name, forgotten), func(t *testing.T) {
				inBubble(t, Options{}, func(t *testing.T, w *world) {
					l := w.acquire("a", AcquireOptions{TTL: ttl, Shared: true})
					w.share("a", uint64(l.Token())-1, more)
					w.cutOff(t, l)
					w.others("b")
					if forgotten {
						w.forget()
					}
					go func() {
						time.Sleep(time.Second)
						w.end("a")
					}()
					began := time.Now()
					e, err := l.Loss(t.Context())
					if err != nil || e.Reason != LossExpired || e.LSN == 0 || e.Final == forgotten || time.Since(began) < time.Second {
						t.Errorf("got %+v, %v after %v", e, err, time.Since(began))
					}
				})
			})
		}
	}
}

// TestLossThatTheOthersOutlive: where nobody knows any more how the grant ended, that others
// share the lock does not make it live.
func TestLossThatTheOthersOutlive(t *testing.T) {
	for name, more := range sharers() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{TTL: ttl, Shared: true})
				w.share("a", uint64(l.Token())-1, more)
				w.cutOff(t, l)
				w.end("a")
				w.others("b")
				w.forget()
				e, err := l.Loss(t.Context())
				if err != nil || e.Reason != LossRefused || e.LSN != 0 || e.Successor != 0 {
					t.Errorf("got %+v, %v", e, err)
				}
			})
		})
	}
}

// share has others share a lock since before.
func (w *world) share(lock string, oldest uint64, more uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fakeCluster.lock(lock).older, w.fakeCluster.lock(lock).more = oldest, more
}

// TestVerifySaysWhetherATokenIsShared, because then its holder is not alone.
func TestVerifySaysWhetherATokenIsShared(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		if v, err := w.c.Verify(t.Context(), "a", l.Token()); err != nil || v.Shared || v.Remaining != time.Second {
			t.Errorf("got %+v, %v", v, err)
		}
		w.share("a", uint64(l.Token())-1, 0)
		if v, err := w.c.Verify(t.Context(), "a", l.Token()); err != nil || !v.Shared {
			t.Errorf("got %+v, %v", v, err)
		}
		if v, err := w.c.Verify(t.Context(), "a", 1<<40); !errors.Is(err, wire.ErrInvalidToken) || v != (Verified{}) {
			t.Errorf("got %+v, %v", v, err)
		}
	})
}

// TestLockInfoListsAllHolders, the oldest first and by itself.
func TestLockInfoListsAllHolders(t *testing.T) {
	info := lockInfoOf(&pb.Lock{
		Name: "a", Holders: 3, Grant: &pb.Grant{Token: 5, ClientId: "c", Mode: pb.Mode_MODE_SHARED},
		SharedHolders: []*pb.Grant{{Token: 6, ClientId: "d", Mode: pb.Mode_MODE_SHARED, Metadata: "m"}},
		Waiters:       []*pb.Waiter{{ClientId: "e"}, {ClientId: "f", Mode: pb.Mode_MODE_SHARED}},
	}, 1, 9, 0)
	if info.Holders != 3 || info.Holder.Token != 5 || info.Holder.Mode != wire.ModeWord(pb.Mode_MODE_SHARED) || len(info.SharedWith) != 1 ||
		info.SharedWith[0].Token != 6 || info.SharedWith[0].Metadata != "m" || info.Waiters[0].Shared || !info.Waiters[1].Shared {
		t.Errorf("got %+v", info)
	}
}
