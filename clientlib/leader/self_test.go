// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// restarted is a process under a name of its own that died with a lock, and was started again.
func restarted(t *testing.T, w *world) *process {
	t.Helper()
	dead := w.process(clientlib.Options{ClientID: "worker-1"})
	if _, err := dead.c.Acquire(t.Context(), "job", clientlib.AcquireOptions{TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	dead.net.Cut() // kill -9
	time.Sleep(time.Second)
	return w.process(clientlib.Options{ClientID: "worker-1"})
}

// Whoever waits for a lock that it holds itself, without knowing it, lets it go.
func TestRestartedClientDoesNotWaitForItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := restarted(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		l, err := p.c.Acquire(ctx, "job", clientlib.AcquireOptions{TTL: ttl, Wait: clientlib.Forever})
		if err != nil {
			t.Fatalf("it waits since %v for its own grant: %v", time.Since(began), err)
		}
		if d := time.Since(began); d > ttl/2 {
			t.Errorf("token %d after %v: the lease would have ended sooner by itself", l.Token(), d)
		}
	})
}

// The same for who asks again and again, more often than the lease lasts.
func TestRestartedClientDoesNotKeepItselfOut(t *testing.T) {
	for name, o := range map[string]clientlib.AcquireOptions{"trying": {TTL: ttl}, "waiting a moment": {TTL: ttl, Wait: time.Second}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := restarted(t, w)
				tries := 0
				for began := time.Now(); ; time.Sleep(ttl / 2) {
					_, err := p.c.Acquire(t.Context(), "job", o)
					if err == nil {
						break
					}
					if tries++; time.Since(began) > time.Hour {
						t.Fatalf("after an hour of asking every %v: %v", ttl/2, err)
					}
				}
				if tries > 2 {
					t.Errorf("it got the lock after %d tries", tries)
				}
			})
		})
	}
}

// A leader's work is done during an outage of some seconds that its lease outlives: its
// release is given up. The campaign that follows does not wait behind the old grant.
func TestLeaderDoesNotWaitForItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.process(clientlib.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		e := p.election(leader.Options{TTL: 30 * time.Second})
		led := make(chan time.Time, 1000)
		ended := make(chan error, 1)
		go func() {
			terms := 0
			ended <- e.Run(ctx, func(ctx context.Context, _ *leader.Leadership) error {
				led <- time.Now()
				if terms++; terms == 1 {
					p.net.Cut()
					time.AfterFunc(12*time.Second, p.net.Mend)
					return nil // the work is done
				}
				<-ctx.Done()
				return nil
			})
		}()
		first := <-led
		select {
		case again := <-led:
			if d := again.Sub(first); d > time.Minute {
				t.Errorf("it led again after %v", d)
			}
		case <-time.After(time.Hour):
			t.Error("the only candidate waits for its own grant since an hour")
		}
		cancel()
		<-ended
	})
}

// While a client is cut off, one of its locks is broken, and one that it had waited for, and
// given up, is granted to it: it holds as many as it believes, and others.
func TestBrokenLockWhosePlaceAStrayTakes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, c, o := w.process(clientlib.Options{}), w.process(clientlib.Options{}), w.process(clientlib.Options{})
		long := clientlib.AcquireOptions{TTL: 30 * time.Second, Wait: clientlib.Forever}
		acquire := func(p *process, name cluster.LockName) *clientlib.Lock {
			l, err := p.c.Acquire(t.Context(), name, long)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l, b := acquire(a, "A"), acquire(o, "B")
		ctx, enough := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := a.c.Acquire(ctx, "B", long)
			gaveUp <- err
		}()
		time.Sleep(time.Second)
		a.net.Cut()
		enough()
		if err := <-gaveUp; err == nil {
			t.Fatal("it was granted")
		}
		if err := b.Release(t.Context()); err != nil { // now it is a's
			t.Fatal(err)
		}
		if err := o.c.Break(t.Context(), "A", clientlib.BreakOptions{Token: l.Token(), Actor: "ann", Reason: "it is cut off"}); err != nil {
			t.Fatal(err)
		}
		next := acquire(c, "A")
		time.Sleep(14 * time.Second)
		a.net.Mend()
		mended := time.Now()
		select {
		case <-l.Context().Done():
		case <-time.After(10 * time.Minute):
			t.Fatalf("TWO HOLDERS of A for %v: token %d, which was broken, is %s, and there is token %d", time.Since(mended), l.Token(), l.State().Phase, next.Token())
		}
		if d := time.Since(mended); d > 12*time.Second {
			t.Errorf("it knew after %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := o.c.Acquire(ctx, "B", long); err != nil {
			t.Errorf("nobody wants B, and nobody gets it: %v", err)
		}
	})
}
