// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// One error is in all shapes of "others have it", and in nothing else.
func TestNotAcquired(t *testing.T) {
	for _, test := range []struct {
		name string
		o    AcquireOptions
		want bool
		is   error // beside it
		set  func(ctx context.Context, w *world) (context.Context, context.CancelFunc)
	}{
		{"held", AcquireOptions{}, true, ErrHeld, nil},
		{"a deadline while it waits", AcquireOptions{Wait: Forever}, true, context.DeadlineExceeded, func(ctx context.Context, _ *world) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}},
		{"cancelled while it waits", AcquireOptions{Wait: Forever}, true, context.Canceled, func(ctx context.Context, _ *world) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}},
		{"a wrong argument", AcquireOptions{Wait: -2}, false, ErrInvalidArgument, nil},
		{"closed while it waits", AcquireOptions{Wait: Forever}, false, ErrClosed, func(ctx context.Context, w *world) (context.Context, context.CancelFunc) {
			time.AfterFunc(time.Second, func() { w.c.Close() })
			return ctx, func() {}
		}},
		{"a deadline during an outage", AcquireOptions{Wait: Forever}, false, context.DeadlineExceeded, func(ctx context.Context, w *world) (context.Context, context.CancelFunc) {
			for _, s := range w.servers {
				s.pause()
			}
			return context.WithTimeout(ctx, 10*time.Second)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				w.others("a")
				if _, err := w.c.ID(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := t.Context(), func() {}
				if test.set != nil {
					ctx, cancel = test.set(ctx, w)
				}
				defer cancel()
				l, err := w.c.Acquire(ctx, "a", test.o)
				if l != nil || errors.Is(err, ErrNotAcquired) != test.want || !errors.Is(err, test.is) {
					t.Errorf("%v is ErrNotAcquired: %v", err, errors.Is(err, ErrNotAcquired))
				}
				if test.want && strings.Contains(err.Error(), "may have been executed") {
					t.Errorf("%q frightens for nothing", err)
				}
			})
		})
	}
}

// TryAcquire never waits.
func TestTryAcquire(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		if _, err := w.c.TryAcquire(t.Context(), "free", AcquireOptions{}); err != nil {
			t.Error(err)
		}
		w.others("a")
		began := time.Now()
		_, err := w.c.TryAcquire(t.Context(), "a", AcquireOptions{Wait: Forever})
		if held, ok := errors.AsType[*HeldError](err); !ok || held.Lock != "a" || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

var errWork = errors.New("the work failed")

// With returns the error of the function, and releases the lock whatever becomes of it.
func TestWith(t *testing.T) {
	for _, want := range []error{nil, errWork} {
		inBubble(t, Options{}, func(t *testing.T, w *world) {
			err := w.c.With(t.Context(), "a", AcquireOptions{}, func(ctx context.Context, l *Lock) error {
				if _, token := w.holder("a"); token != uint64(l.Token()) || ctx.Err() != nil {
					t.Errorf("token %d, the table has %d; context %v", l.Token(), token, ctx.Err())
				}
				return want
			})
			if err != want { //nolint:errorlint // the very error
				t.Errorf("%v became %v", want, err)
			}
			if _, token := w.holder("a"); token != 0 {
				t.Errorf("the lock is held under token %d", token)
			}
		})
	}
}

func TestWithReleasesAfterAPanic(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			w.c.With(t.Context(), "a", AcquireOptions{}, func(context.Context, *Lock) error { panic("work") }) //nolint:errcheck // it panics
		}()
		if _, token := w.holder("a"); token != 0 {
			t.Errorf("the lock is held under token %d", token)
		}
	})
}

// A lock that others have: the function is not called.
func TestWithoutTheLock(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		err := w.c.With(t.Context(), "a", AcquireOptions{}, func(context.Context, *Lock) error {
			t.Error("it is called without the lock")
			return nil
		})
		if !errors.Is(err, ErrNotAcquired) {
			t.Errorf("it returns %v", err)
		}
	})
}

// A loss ends the context of the function, and is an error also where the function does not say so.
func TestWithLosesTheLock(t *testing.T) {
	for name, returns := range map[string]func(ctx context.Context) error{
		"nothing":              func(context.Context) error { return nil },
		"its own error":        func(context.Context) error { return errWork },
		"the cause of its end": context.Cause,
		"that it was ended":    context.Context.Err,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, w *world) {
				var own error
				err := w.c.With(t.Context(), "a", AcquireOptions{TTL: 3 * time.Second}, func(ctx context.Context, _ *Lock) error {
					for _, s := range w.servers {
						s.set(func() { s.mu.down = true })
					}
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), ErrLost) {
						t.Errorf("the context ends with %v", context.Cause(ctx))
					}
					own = returns(ctx)
					return own
				})
				lost, ok := errors.AsType[*LostError](err)
				if !ok || lost.Reason != LossNotRenewed || !errors.Is(err, own) && own != nil {
					t.Fatalf("%v became %v", own, err)
				}
				if strings.Count(err.Error(), "is lost") != 1 {
					t.Errorf("it is said twice: %v", err)
				}
			})
		})
	}
}

// The context of the caller ends the function, which may take its time; the lock is released afterwards.
func TestWithIsCancelled(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		err := w.c.With(ctx, "a", AcquireOptions{TTL: 3 * time.Second}, func(ctx context.Context, l *Lock) error {
			cancel()
			<-ctx.Done()
			time.Sleep(10 * time.Second) // virtual
			return l.Context().Err()
		})
		if err != nil {
			t.Error(err)
		}
		if _, token := w.holder("a"); token != 0 {
			t.Errorf("the lock is held under token %d", token)
		}
	})
}

// A service that is away when the work is done makes no error of it.
func TestWithCannotRelease(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		err := w.c.With(t.Context(), "a", AcquireOptions{}, func(context.Context, *Lock) error {
			for _, s := range w.servers {
				s.set(func() { s.mu.down = true })
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}
