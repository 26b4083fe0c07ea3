// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// reports are what hooks were called with.
type reports struct {
	mu  sync.Mutex
	all []string
}

func (r *reports) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf(format, args...))
}

// of returns those that begin with a word.
func (r *reports) of(word string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(s string) bool { return !strings.HasPrefix(s, word+" ") })
}

func (r *reports) hooks() Hooks {
	return Hooks{
		Acquired: func(lock LockName, waited time.Duration) { r.add("acquired %s %v", lock, waited.Round(time.Second)) },
		NotAcquired: func(lock LockName, waited time.Duration, err error) {
			r.add("not %s %v %T", lock, waited.Round(time.Second), err)
		},
		Released: func(lock LockName, held time.Duration) { r.add("released %s %v", lock, held.Round(time.Second)) },
		Lost: func(why *LostError, held time.Duration) {
			r.add("lost %s %s %v", why.Lock, why.Reason, held.Round(time.Second))
		},
		Renewed: func(took time.Duration, err error) { r.add("renewed %v %v", took.Round(time.Second), err == nil) },
		Retried: func(op string, err error) { r.add("retried %s %v", op, err != nil) },
		Failover: func(primary string, epoch Epoch, without time.Duration) {
			r.add("failover %s %v", primary, without.Round(time.Second))
		},
	}
}

func (r *reports) want(t *testing.T, word string, want ...string) {
	t.Helper()
	if got := r.of(word); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", word, got, want)
	}
}

// Each acquisition and each end is reported once, with how long it took.
func TestHooks(t *testing.T) {
	r := &reports{}
	inBubble(t, Options{Hooks: r.hooks()}, func(t *testing.T, w *world) {
		r.all = nil
		l := w.acquire("a", AcquireOptions{TTL: 3 * time.Second})
		w.others("b")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := w.c.Acquire(ctx, "b", AcquireOptions{Wait: Forever}); err == nil {
			t.Error("it is acquired")
		}
		time.Sleep(8 * time.Second)
		for range 2 {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.acquire("c", AcquireOptions{TTL: 3 * time.Second})
		renewed := len(r.of("renewed"))
		if renewed < 9 || slices.ContainsFunc(r.of("renewed"), func(s string) bool { return s != "renewed 0s true" }) {
			t.Errorf("renewals: %q", r.of("renewed"))
		}
		for _, s := range w.servers {
			s.set(func() { s.mu.down = true })
		}
		time.Sleep(20 * time.Second)
		if failed := r.of("renewed"); len(failed) <= renewed || !strings.HasSuffix(failed[len(failed)-1], "false") {
			t.Errorf("renewals after the end of the service: %q", failed[renewed:])
		}
		w.c.Close()
		r.want(t, "acquired", "acquired a 0s", "acquired c 0s")
		r.want(t, "not", "not b 2s *clientlib.CallError")
		r.want(t, "released", "released a 10s")
		r.want(t, "lost", "lost c not_renewed 3s")
		if len(r.of("retried")) == 0 || slices.Contains(r.of("retried"), "retried keep alive false") {
			t.Errorf("retries: %q", r.of("retried"))
		}
	})
}

// A try is what goes to a server: what a session does not carry is no try there. A call that no one follows has none.
func TestTries(t *testing.T) {
	r, follows := &reports{}, false
	follow := func(_ context.Context, op string, _ LockName) *CallTrace {
		if !follows {
			return nil
		}
		return &CallTrace{
			Try:   func(string) (string, func(error)) { return "", func(err error) { r.add("%s tried %v", op, err) } },
			Ended: func(err error) { r.add("%s ended %v", op, err) },
		}
	}
	inBubble(t, Options{Hooks: Hooks{Call: follow}}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		r.all, follows = nil, true
		for _, op := range []string{"get", "verify", "release"} {
			var err error
			switch op {
			case "get":
				_, err = w.c.Get(t.Context(), "a")
			case "verify":
				_, err = w.c.Verify(t.Context(), "a", l.Token())
			case "release":
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			r.want(t, op, op+" tried <nil>", op+" ended <nil>")
		}
		r.all, follows = nil, false
		w.acquire("b", AcquireOptions{})
		r.want(t, "acquire")
	})
}

// The end of a lock is reported once, however many notice it, and Close is one of them.
func TestLossIsReportedOnce(t *testing.T) {
	r := &reports{}
	inBubble(t, Options{Hooks: r.hooks()}, func(t *testing.T, w *world) {
		r.all = nil
		l := w.acquire("a", AcquireOptions{})
		kept := w.acquire("b", AcquireOptions{})
		other := w.c.Attach("a", l.Token())
		w.end("a")
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { l.Renew(t.Context()) })     //nolint:errcheck // it is lost
			all.Go(func() { other.Renew(t.Context()) }) //nolint:errcheck // likewise
		}
		all.Wait()
		<-l.Context().Done()
		l.lose(l.lost(LossRefused, nil)) // one who notices it late
		w.c.Close()
		<-kept.Context().Done()
		r.want(t, "lost", "lost a refused 0s", "lost b closed 0s")
		r.want(t, "released")
	})
}

// A new primary is reported with how long there was none.
func TestFailoverIsReported(t *testing.T) {
	r := &reports{}
	inBubble(t, Options{Hooks: r.hooks()}, func(t *testing.T, w *world) {
		r.all = nil
		l := w.acquire("a", AcquireOptions{})
		r.want(t, "failover")
		w.servers[0].set(func() { w.servers[0].mu.down = true })
		w.setPrimary(nil)
		go func() {
			time.Sleep(4 * time.Second)
			w.setPrimary(w.servers[2])
		}()
		if _, err := l.Append(t.Context(), "f", []byte("data")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.want(t, "failover", "failover s3:1 4s")
	})
}
