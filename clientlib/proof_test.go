// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestProof(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		if p, err := l.Proof(t.Context()); err != nil || p != (Proof{Text: "signed", Remaining: time.Second}) {
			t.Errorf("got %+v, %v", p, err)
		}
		u := w.acquire("unsigned", AcquireOptions{TTL: ttl})
		if p, err := u.Proof(t.Context()); !errors.Is(err, ErrInternal) || p != (Proof{}) || u.Context().Err() != nil {
			t.Errorf("no key: %+v, %v", p, err)
		}
		w.others("a") // it was broken, and another client has it
		if p, err := l.Proof(t.Context()); !errors.As(err, new(*LostError)) || p != (Proof{}) || context.Cause(l.Context()) == nil {
			t.Errorf("of a lost lock: %+v, %v", p, err)
		}
		if err := u.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, err := u.Proof(t.Context()); !errors.Is(err, ErrReleased) || p != (Proof{}) {
			t.Errorf("of a released lock: %+v, %v", p, err)
		}
	})
}
