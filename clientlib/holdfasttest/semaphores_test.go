// SPDX-License-Identifier: Apache-2.0

package holdfasttest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
)

// TestPermits: as many hold a lock as its limit allows, in the order in which they came, and what is shown tells their permits.
func TestPermits(t *testing.T) {
	s := holdfasttest.Start(t)
	c, lock := s.Client(), clientlib.LockName("gpu")
	take := func(weight uint32, wait time.Duration) (*clientlib.Lock, error) {
		return c.Acquire(t.Context(), lock, clientlib.AcquireOptions{Limit: 3, Weight: weight, Wait: wait})
	}
	must := func(weight uint32) *clientlib.Lock {
		t.Helper()
		l, err := take(weight, 0)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two := must(0), must(2)
	if one.Token() >= two.Token() {
		t.Errorf("tokens %d and %d", one.Token(), two.Token())
	}
	_, err := take(1, 0)
	held, ok := errors.AsType[*clientlib.HeldError](err)
	if !ok || held.Holder == nil || held.Holder.Limit != 3 || held.Holder.PermitsTaken != 3 || held.Holder.Weight != 1 || held.Holder.Holders != 2 {
		t.Errorf("one more: %v, %+v", err, held)
	}
	for _, o := range []clientlib.AcquireOptions{{Limit: 4}, {}, {Shared: true}} {
		if _, err := c.Acquire(t.Context(), lock, o); !errors.Is(err, clientlib.ErrOtherLimit) || !strings.Contains(err.Error(), "a limit of 3") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	info, err := c.Get(t.Context(), lock)
	if err != nil || info.Limit != 3 || info.PermitsTaken != 3 || info.Holders != 2 || info.SharedWith[0].Weight != 2 {
		t.Errorf("it shows %+v, %v", info, err)
	}
	if v, err := c.Verify(t.Context(), lock, two.Token()); err != nil || v.Limit != 3 || v.Weight != 2 || !v.Shared {
		t.Errorf("verified: %+v, %v", v, err)
	}
	waitForAll(t, c, take, one, two)
	if l, err := c.Acquire(t.Context(), lock, clientlib.AcquireOptions{Limit: 7}); err != nil {
		t.Errorf("nobody uses the lock, and another limit is refused: %v", err)
	} else if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// waitForAll has a request for all permits wait until those who have some release them: it is not overtaken.
func waitForAll(t *testing.T, c *clientlib.Client, take func(uint32, time.Duration) (*clientlib.Lock, error), one, two *clientlib.Lock) {
	t.Helper()
	type got struct {
		l   *clientlib.Lock
		err error
	}
	heavy := make(chan got)
	go func() {
		l, err := take(3, clientlib.Forever)
		heavy <- got{l, err}
	}()
	var info clientlib.LockInfo
	for info.QueueLength == 0 {
		var err error
		if info, err = c.Get(t.Context(), one.Name()); err != nil {
			t.Fatal(err)
		}
	}
	if w := info.Waiters[0]; w.Limit != 3 || w.Weight != 3 {
		t.Errorf("the waiter is shown as %+v", w)
	}
	if err := two.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := take(1, 0); !errors.Is(err, clientlib.ErrHeld) {
		t.Errorf("a light one overtakes: %v", err)
	}
	if err := one.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := <-heavy
	if all.err != nil {
		t.Fatal(all.err)
	}
	if _, err := all.l.Append(t.Context(), "log", []byte("x")); !errors.Is(err, clientlib.ErrInvalidArgument) {
		t.Errorf("an append under a permit: %v", err)
	}
	if err := all.l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
