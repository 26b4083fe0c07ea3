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

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// waitFor begins an Acquire that waits, and returns where its lock comes out.
func (w *world) waitFor(ctx context.Context, lock cluster.LockName) <-chan *Lock {
	got := make(chan *Lock, 1)
	go func() {
		l, err := w.c.Acquire(ctx, lock, AcquireOptions{TTL: ttl, Wait: Forever})
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("wait for %s: %v", lock, err)
		}
		got <- l
	}()
	synctest.Wait()
	return got
}

func TestAStandingWaitDoesNotHoldTheMark(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("slow")
		got := w.waitFor(t.Context(), "slow")
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		for range maxOutstanding + 5_000 {
			if _, err := l.Append(t.Context(), "f", []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		all := w.attempts("append")
		if last := all[len(all)-1]; last.low != last.id {
			t.Errorf("request %d came with mark %d", last.id, last.low)
		}
		w.mu.Lock()
		kept := w.mu.kept[string(l.owner)]
		w.mu.Unlock()
		if kept > 2 {
			t.Errorf("%d receipts are kept", kept)
		}
		w.end("slow")
		slow := <-got
		if slow.owner == l.owner {
			t.Errorf("both are %s's", l.owner)
		}
		if err := errors.Join(slow.Release(t.Context()), l.Release(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A lock that was waited for is released by who holds it: the history would say else that
// another client let go.
func TestOwnLockIsReleasedByItsHolder(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		got := w.waitFor(t.Context(), "a")
		w.end("a")
		waited, tried := <-got, w.acquire("b", AcquireOptions{TTL: ttl})
		if waited.owner == tried.owner {
			t.Fatalf("both are of %s", tried.owner)
		}
		for _, l := range []*Lock{waited, tried} {
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if all := w.attempts("release"); all[len(all)-1].client != string(l.owner) {
				t.Errorf("%s's lock %s was released by %s", l.owner, l.name, all[len(all)-1].client)
			}
		}
	})
}

// TestReleaseThatIsGivenUpLeavesARegistrationFreeOnce: each wait has a registration of its own, so that a
// standing wait holds no low-water mark but its own. A lock that was waited for is released from
// its registration, which nobody has by then; a release that goes on in the background must not put that
// registration into the pool a second time.
func TestReleaseThatIsGivenUpLeavesARegistrationFreeOnce(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		got := w.waitFor(t.Context(), "a")
		w.end("a")
		l := <-got
		synctest.Wait()
		resume := w.servers[0].pause()
		ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()
		if err := l.Release(ctx); err == nil {
			t.Fatal("released by a server that is stopped")
		}
		resume()
		time.Sleep(10 * time.Second) // until nothing follows it any more
		w.c.mu.Lock()
		free := map[*registration]int{}
		for _, s := range w.c.mu.free {
			if free[s]++; free[s] > 1 {
				t.Errorf("a registration is free %d times", free[s])
			}
		}
		w.c.mu.Unlock()
		var waits []<-chan *Lock
		for _, lock := range []string{"x", "y"} {
			w.others(lock)
			waits = append(waits, w.waitFor(t.Context(), cluster.LockName(lock)))
		}
		w.end("x")
		w.end("y")
		x, y := <-waits[0], <-waits[1]
		if x.owner == y.owner {
			t.Errorf("two waits stood at once on the registration of %s", x.owner)
		}
	})
}

func TestRegistrationAreKeptAliveAndUsedAgain(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		var waits []<-chan *Lock
		for i := range 3 {
			w.others(fmt.Sprint(i))
			waits = append(waits, w.waitFor(t.Context(), cluster.LockName(fmt.Sprint(i))))
		}
		time.Sleep(time.Minute)
		heard := map[string]int{}
		for _, s := range w.attempts("keepalive") {
			heard[s.client]++
		}
		if len(heard) != 3 {
			t.Errorf("heard %v while three waits stood", heard)
		}
		owners := map[cluster.ClientID]bool{}
		var locks []*Lock
		for i := range waits {
			w.end(fmt.Sprint(i))
			l := <-waits[i]
			locks, owners[l.owner] = append(locks, l), true
		}
		// One registration each while they waited; all others wait in turn on one of these.
		for i := range 20 {
			l := w.acquire(cluster.LockName(fmt.Sprintf("again/%d", i)), AcquireOptions{TTL: ttl, Wait: Forever})
			locks, owners[l.owner] = append(locks, l), true
		}
		synctest.Wait()
		if len(owners) != 3 || w.mu.opened != 4 { // and the main registration, for the session
			t.Errorf("owners %v, %d opened", owners, w.mu.opened)
		}
		time.Sleep(time.Minute)
		for _, l := range locks {
			if l.Context().Err() != nil {
				t.Errorf("%s: %v", l.name, context.Cause(l.Context()))
			}
		}
		w.end("again/7")
		<-locks[3+7].Context().Done()
		for _, l := range locks {
			if err := l.Release(t.Context()); err != nil && l.name != "again/7" {
				t.Error(err)
			}
		}
		synctest.Wait()
		before := len(w.attempts("keepalive"))
		time.Sleep(time.Minute)
		if n := len(w.attempts("keepalive")); n != before || len(w.c.renewer.mu.busy) != 0 {
			t.Errorf("%d keep-alives when nothing was held, %v", n-before, w.c.renewer.mu.busy)
		}
	})
}

func TestStrayOfARegistrationIsReleased(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl, Wait: Forever})
		w.mu.Lock()
		w.grant(fakeKey{string(l.owner), 999}, "stray", 10_000)
		w.mu.Unlock()
		time.Sleep(ttl / 2)
		if c, _ := w.holder("stray"); c != "" || l.Context().Err() != nil {
			t.Errorf("%s still holds the stray; %v", c, context.Cause(l.Context()))
		}
	})
}

func TestRegistrationIsFreeWhenItsWaitIsCancelled(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			got := w.waitFor(ctx, "a")
			cancel()
			<-got
			synctest.Wait()
		}
		if n := len(w.attempts("cancel")); n != 5 || w.mu.opened != 2 || len(w.c.mu.free) != 1 {
			t.Errorf("%d cancels, %d clients opened, %d registrations free", n, w.mu.opened, len(w.c.mu.free))
		}
		last := w.attempts("cancel")[4]
		o, err := w.c.Cancel(t.Context(), cluster.ClientID(last.client), cluster.RequestID(last.id))
		if err != nil || o.State != "cancelled" {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

func TestForgottenRegistrationOpensAnother(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		first := w.acquire("a", AcquireOptions{TTL: ttl, Wait: Forever})
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		clear(w.mu.nonces)
		w.mu.Unlock()
		if l := w.acquire("a", AcquireOptions{TTL: ttl, Wait: Forever}); l.owner == first.owner {
			t.Errorf("still %s", l.owner)
		}
	})
}

// A keep-alive that hangs holds up those of no other registration, whose leases may be short.
func TestStuckRegistrationDelaysNoOther(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("b")
		waits := w.waitFor(t.Context(), "b")
		from := w.attempts("acquire")[0].client
		l := w.acquire("a", AcquireOptions{TTL: time.Second})
		if string(l.owner) == from {
			t.Fatal("there is but one registration")
		}
		w.servers[0].set(func() { w.servers[0].mu.stuck = from })
		time.Sleep(30 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("a lock of a registration that is answered: %v", context.Cause(l.Context()))
		}
		kept := map[string]int{}
		for _, a := range w.attempts("keepalive") {
			kept[a.client]++
		}
		if n := kept[string(l.owner)]; n < 80 || n > 110 {
			t.Errorf("%d keep-alives in 30 s of a lease of 1 s", n)
		}
		if n := kept[from]; n < 20 || n > 60 {
			t.Errorf("%d keep-alives from the registration that is not answered: one at a time, of a second each", n)
		}
		w.servers[0].set(func() { w.servers[0].mu.stuck = "" })
		w.end("b")
		<-waits
	})
}

// A late word that an identity is forgotten does not drop the one that came next.
func TestNextIdentityStays(t *testing.T) {
	s := newRegistration(nil)
	first, next := newIdentity("@1", false, 1), newIdentity("@2", false, 1)
	s.mu.who = first
	if s.forget(first); s.current() != nil {
		t.Error("the forgotten one is still there")
	}
	s.mu.who = next
	if s.forget(first); s.current() != next {
		t.Error("the next one is gone")
	}
}

// A name that moves to a host whose clock is behind begins with numbers that the service has
// forgotten. Nothing is executed, and the error tells what to do.
func TestNameOnAHostWhoseClockIsBehind(t *testing.T) {
	inBubble(t, Options{ClientID: "worker"}, func(t *testing.T, w *world) {
		if err := w.acquire("a", AcquireOptions{}).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := cluster.RequestID(time.Now().UnixMicro())
		behind := w.client(Options{ClientID: "worker", FirstRequest: now - 60_000_000})
		defer behind.Close() //nolint:errcheck // it cannot fail
		_, err := behind.Acquire(t.Context(), "a", AcquireOptions{})
		if !errors.Is(err, wire.ErrStaleRequest) || errors.Is(err, wire.ErrUnknown) || !strings.Contains(err.Error(), "set the clock, or Options.FirstRequest") {
			t.Errorf("a minute behind: %v", err)
		}
		if client, _ := w.holder("a"); client != "" {
			t.Errorf("%s holds the lock", client)
		}
		raised := w.client(Options{ClientID: "worker", FirstRequest: now + 60_000_000})
		defer raised.Close() //nolint:errcheck // it cannot fail
		if _, err := raised.Acquire(t.Context(), "a", AcquireOptions{}); err != nil {
			t.Errorf("with higher numbers: %v", err)
		}
	})
}

func TestSelfChosenIdentityHasALimit(t *testing.T) {
	inBubble(t, Options{ClientID: "me"}, func(t *testing.T, w *world) {
		w.others("a")
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan *Lock
		for range chosenWaits {
			waits = append(waits, w.waitFor(ctx, "a"))
		}
		if _, err := w.c.Acquire(t.Context(), "a", AcquireOptions{Wait: Forever}); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("one wait too many: %v", err)
		}
		// The waits stand, and everything else goes on, a window at a time.
		l := w.acquire("b", AcquireOptions{TTL: ttl})
		resume := w.servers[0].pause()
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				if _, err := l.Append(t.Context(), "f", []byte("x")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := w.c.main.current().seq.mu.next - w.c.main.current().seq.mu.floor; n != chosenWindow {
			t.Errorf("%d requests are under way", n)
		}
		resume()
		calls.Wait()
		cancel()
		for _, got := range waits {
			<-got
		}
		if err := l.Release(t.Context()); err != nil || w.mu.opened != 0 {
			t.Errorf("release: %v; %d clients opened", err, w.mu.opened)
		}
	})
}

// TestGrantThatCameTooLateIsGivenBackThoughTheWindowIsFull: an Acquire under a self-chosen ID
// whose grant comes too late again and again gives it back before it returns. What else is asked
// under that ID meanwhile must not fill a window that waits for this Acquire.
func TestGrantThatCameTooLateIsGivenBackThoughTheWindowIsFull(t *testing.T) {
	inBubble(t, Options{ClientID: "me"}, func(t *testing.T, w *world) {
		const short = 300 * time.Millisecond
		other := w.acquire("other", AcquireOptions{TTL: time.Hour})
		s := w.servers[0]
		s.set(func() {
			s.mu.lag = func(op string) time.Duration {
				if op == "acquire" || op == "renew" {
					return short + 10*time.Millisecond // every word of the lease is late
				}
				return 0
			}
		})
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			_, err := w.c.Acquire(t.Context(), "a", AcquireOptions{TTL: short})
			ended <- err
		}()
		time.Sleep(short + 50*time.Millisecond) // granted, and being renewed
		synctest.Wait()
		slowest := make(chan time.Duration, 2*chosenWindow)
		for i := range 2 * chosenWindow {
			go func() {
				began := time.Now()
				if _, err := other.Append(t.Context(), cluster.FileName(fmt.Sprint(i)), []byte("x")); err != nil {
					t.Error(err)
				}
				slowest <- time.Since(began)
			}()
		}
		err := <-ended
		if !errors.Is(err, wire.ErrLeaseExpired) {
			t.Errorf("the acquire: %v", err)
		}
		if client, token := w.holder("a"); token != 0 {
			t.Errorf("the grant that could not be used is still %s's, token %d, when Acquire returns after %v", client, token, time.Since(began))
		}
		worst := time.Duration(0)
		for range 2 * chosenWindow {
			worst = max(worst, <-slowest)
		}
		if worst > time.Second {
			t.Errorf("an append to a file of another lock took %v", worst)
		}
	})
}
