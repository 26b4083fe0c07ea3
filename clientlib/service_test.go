// SPDX-License-Identifier: Apache-2.0

package clientlib_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
)

// Every answer of the service that means "others have it" is ErrNotAcquired, and so is a deadline while the request
// waits there; a service that is silent is not.
func TestNotAcquiredFromTheService(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	if _, err := s.Client().Acquire(t.Context(), "a", clientlib.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	other := s.NewClient(clientlib.Options{})
	for _, x := range []struct {
		wait time.Duration
		is   error
	}{
		{0, clientlib.ErrHeld},
		{20 * time.Millisecond, clientlib.ErrWaitTimeout},
		{clientlib.Forever, context.DeadlineExceeded},
	} {
		ctx := t.Context()
		if x.is == context.DeadlineExceeded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Second)
			defer cancel()
		}
		if _, err := other.Acquire(ctx, "a", clientlib.AcquireOptions{Wait: x.wait}); !errors.Is(err, clientlib.ErrNotAcquired) || !errors.Is(err, x.is) {
			t.Errorf("wait %v: %v, want %v", x.wait, err, x.is)
		}
	}
	s.Pause()
	alone := s.NewClient(clientlib.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := alone.Acquire(ctx, "a", clientlib.AcquireOptions{Wait: clientlib.Forever}); err == nil || errors.Is(err, clientlib.ErrNotAcquired) {
		t.Errorf("a service that is silent: %v", err)
	}
}

// The history has every grant, the live one first, with how it ended; pages continue where the one before ended.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := holdfasttest.Start(t)
	c := s.Client()
	for i, end := range []func(l *clientlib.Lock){
		func(l *clientlib.Lock) {
			if _, err := l.Append(t.Context(), "log", []byte("line\n")); err != nil {
				t.Error(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
		func(*clientlib.Lock) { s.Expire("jobs/a") },
		func(*clientlib.Lock) { s.Break("jobs/a", "moving") },
		func(*clientlib.Lock) {},
	} {
		l, err := c.Acquire(t.Context(), "jobs/a", clientlib.AcquireOptions{Metadata: string(rune('0' + i))})
		if err != nil {
			t.Fatal(err)
		}
		end(l)
	}
	want := []string{"held", "broken", "expired", "released"}
	for _, q := range []clientlib.HistoryQuery{{Lock: "jobs/a"}, {Prefix: "jobs/"}, {}, {Lock: "jobs/a", Limit: 1}} {
		var got []clientlib.PastGrant
		for more := true; more; more = q.Before != (clientlib.HistoryPosition{}) {
			p, err := c.History(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got, q.Before = append(got, p.Grants...), p.Next
		}
		if len(got) != len(want) {
			t.Fatalf("%+v: %+v", q, got)
		}
		for i, g := range got {
			if g.Why != want[i] || g.Lock != "jobs/a" || g.Metadata != string(rune('3'-i)) || g.Since.IsZero() || g.Ended.IsZero() != (i == 0) {
				t.Errorf("%+v: grant %d is %+v", q, i, g)
			}
		}
		if g := got[1]; g.Actor != "holdfasttest" || g.Reason != "moving" {
			t.Errorf("broken: %+v", g)
		}
		if g := got[3]; g.LastAppend == nil || g.LastAppend.File != "log" || g.LastAppend.Length != 5 {
			t.Errorf("released: %+v", g)
		}
	}
	for _, q := range []clientlib.HistoryQuery{{Lock: "a", Prefix: "b"}, {Limit: -1}} {
		if _, err := c.History(t.Context(), q); !errors.Is(err, clientlib.ErrInvalidArgument) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}
