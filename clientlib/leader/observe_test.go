// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
)

// told is a leader in short.
func told(l leader.Info) string {
	if !l.Present() {
		return "nobody"
	}
	return l.Value
}

func TestObserve(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		next, stop := iter.Pull2(b.election(leader.Options{}).Observe(t.Context()))
		defer stop()
		sees := func(want string, l *leader.Leadership) {
			t.Helper()
			got, err, ok := next()
			if !ok || err != nil || told(got) != want {
				t.Fatalf("told %q, %v, want %q", told(got), err, want)
			}
			if l != nil && (got.Token != l.Token() || got.Epoch != l.Lock().Epoch() || got.Since.IsZero() || got.Holder.PID == 0 || got.Client == "") {
				t.Errorf("told %+v of token %d", got, l.Token())
			}
		}
		sees("nobody", nil)
		l := leads(t, a.election(leader.Options{}), "one")
		sees("one", l)
		for _, value := range []string{"two", "", "three"} {
			if err := l.Proclaim(t.Context(), value); err != nil {
				t.Fatal(err)
			}
			sees(value, l)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		sees("nobody", nil)
		l = leads(t, a.election(leader.Options{}), "four")
		sees("four", l)
		if err := b.c.Break(t.Context(), "svc", clientlib.BreakOptions{}); err != nil {
			t.Fatal(err)
		}
		sees("nobody", nil)
		leads(t, a.election(leader.Options{}), "five")
		sees("five", nil)
		a.net.Cut() // its lease runs out
		sees("nobody", nil)
	})
}

// TestObserveBeginsWithThePresentLeader and ends with its context.
func TestObserveBeginsWithThePresentLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		l := leads(t, a.election(leader.Options{}), "first")
		if err := l.Proclaim(t.Context(), "now"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var seen []string
		for x, err := range b.election(leader.Options{}).Observe(ctx) {
			if err != nil {
				seen = append(seen, err.Error())
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it ended with %v", err)
				}
				continue
			}
			seen = append(seen, told(x))
			if x.Token != l.Token() || x.Since.IsZero() || x.Holder.PID == 0 || x.Client == "" {
				t.Errorf("told %+v", x)
			}
		}
		if len(seen) != 2 || seen[0] != "now" {
			t.Errorf("told %q", seen)
		}
	})
}

// TestObserveTellsTheLatest to who is slow.
func TestObserveTellsTheLatest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		l := leads(t, a.election(leader.Options{}), "0")
		var seen []string
		for x, err := range b.election(leader.Options{}).Observe(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if seen = append(seen, told(x)); len(seen) == 2 {
				break
			}
			for i := range 2000 {
				if err := l.Proclaim(t.Context(), fmt.Sprint(i+1)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if want := []string{"0", "2000"}; !slices.Equal(seen, want) {
			t.Errorf("told %v, want %v", seen, want)
		}
	})
}

// TestObserveGoesOnBehindACut, where it was.
func TestObserveGoesOnBehindACut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{Budget: time.Minute})
		l := leads(t, a.election(leader.Options{}), "before")
		next, stop := iter.Pull2(b.election(leader.Options{}).Observe(t.Context()))
		defer stop()
		for _, want := range []string{"before", "after"} {
			if got, err, _ := next(); err != nil || told(got) != want {
				t.Fatalf("told %+v, %v, want %q", got, err, want)
			}
			b.net.Cut()
			if err := l.Proclaim(t.Context(), "after"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			b.net.Mend()
		}
		b.net.Cut()
		if got, err, _ := next(); err == nil {
			t.Errorf("told %+v by nobody", got)
		}
	})
}
