// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"sync/atomic"
	"testing"
)

// hooked counts what is to be done when a context ends.
type hooked struct {
	context.Context
	hooks atomic.Int64
}

// AfterFunc is asked by package context.
func (h *hooked) AfterFunc(f func()) (stop func() bool) {
	h.hooks.Add(1)
	unhook := context.AfterFunc(h.Context, f)
	return func() bool {
		was := unhook()
		if was {
			h.hooks.Add(-1)
		}
		return was
	}
}

// Value hides that it is a context of package context, whose hooks nobody counts.
func (h *hooked) Value(any) any { return nil }

// A Follower that was closed is no more: a program that reads a piece of a file now and
// then would otherwise leave something behind each time, until its Client is closed.
func TestClosedFollowerLeavesNothing(t *testing.T) {
	_, _, c := fileWorld(t)
	life := &hooked{Context: c.life}
	c.life = life
	for range 3 {
		f := c.Follow(t.Context(), "f", FollowOptions{})
		if n, err := f.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := life.hooks.Load(); n != 0 {
		t.Errorf("of 3 followers that were closed %d wait for the end of the client", n)
	}
}
