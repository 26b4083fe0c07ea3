// SPDX-License-Identifier: Apache-2.0

package holdfasttest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
)

// A lock that remembers its last token is acquired after that token only, and what it remembers is shown.
func TestAfterToken(t *testing.T) {
	s := holdfasttest.Start(t)
	c, lock := s.Client(), clientlib.LockName("cache")
	get := func(o clientlib.AcquireOptions) (clientlib.Token, error) {
		l, err := c.Acquire(t.Context(), lock, o)
		if err != nil {
			return 0, err
		}
		return l.Token(), l.Release(t.Context())
	}
	first, err := get(clientlib.AcquireOptions{Remember: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := get(clientlib.AcquireOptions{AfterToken: first})
	if err != nil || second <= first {
		t.Fatalf("after token %d: %d, %v", first, second, err)
	}
	if _, err := get(clientlib.AcquireOptions{AfterToken: first}); !errors.Is(err, clientlib.ErrLockChanged) {
		t.Errorf("after token %d, which is not the last one: %v", first, err)
	}
	if _, err := get(clientlib.AcquireOptions{AfterToken: second, Wait: time.Second}); !errors.Is(err, clientlib.ErrInvalidArgument) {
		t.Errorf("a wait: %v", err)
	}
	info, err := c.Get(t.Context(), lock)
	if err != nil || info.LastToken != second {
		t.Errorf("it shows %+v, %v", info, err)
	}
}

// TestDone: what Done has marked nobody does again, and a Done that marks nothing says so.
func TestDone(t *testing.T) {
	s := holdfasttest.Start(t)
	c := s.Client()
	get := func(lock clientlib.LockName) *clientlib.Lock {
		l, err := c.Acquire(t.Context(), lock, clientlib.AcquireOptions{Once: "1"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := get("job")
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Done(t.Context()); !errors.Is(err, clientlib.ErrReleased) {
		t.Errorf("done after a release, which has marked nothing: %v", err)
	}
	l = get("job")
	for _, give := range []func() error{func() error { return l.Done(t.Context()) }, func() error { return l.Done(t.Context()) }, func() error { return l.Release(t.Context()) }} {
		if err := give(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Acquire(t.Context(), "job", clientlib.AcquireOptions{Once: "1"}); !errors.Is(err, clientlib.ErrAlreadyDone) {
		t.Errorf("once more: %v", err)
	}
	plain, err := c.Acquire(t.Context(), "plain", clientlib.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Done(t.Context()); !errors.Is(err, clientlib.ErrInvalidArgument) || plain.Context().Err() != nil {
		t.Errorf("done without a slot: %v, and the lock: %v", err, plain.Context().Err())
	}
	lost := get("lost")
	s.Break("lost", "a test")
	<-lost.Context().Done()
	if err := lost.Done(t.Context()); !errors.Is(err, clientlib.ErrLost) {
		t.Errorf("done by who has lost the lock: %v", err)
	}
}
