// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// What no connection carries is refused at once, with a session or without: it is not
// tried until the budget is used up, and did not happen for sure.
func TestTextThatNoConnectionCarries(t *testing.T) {
	const bad = "caf\xe9"
	_, fakes, _ := onLoopback(t) // without sessions
	c := dialLoopback(t, fakes, Options{})
	l, err := c.Acquire(t.Context(), "a", AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, acquired := c.Acquire(t.Context(), "b", AcquireOptions{Metadata: bad})
	for name, err := range map[string]error{
		"acquire":      acquired,
		"set metadata": l.SetMetadata(t.Context(), bad),
		"break":        c.Break(t.Context(), "a", BreakOptions{Actor: "me", Reason: bad}),
		"break by":     c.Break(t.Context(), "a", BreakOptions{Actor: bad, Reason: "it hangs"}),
	} {
		if e, ok := errors.AsType[*CallError](err); !ok || !errors.Is(err, wire.ErrInvalidArgument) || e.Unknown || e.Tries != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
