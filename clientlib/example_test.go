// SPDX-License-Identifier: Apache-2.0

package clientlib_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// An audit log that several machines write, each line exactly once.
func Example() {
	ctx := context.Background()
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{"127.0.0.1:7601", "127.0.0.1:7602", "127.0.0.1:7603"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	lock, err := c.Acquire(ctx, "billing/job", clientlib.AcquireOptions{TTL: 30 * time.Second, Wait: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	receipt, err := lock.Append(ctx, "billing/audit.log", []byte("invoice 17 sent\n"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.Offset, receipt.Length)
}

// A worker that does its work under a lock, for as long as it has the lock, and acquires it again
// after a loss.
func Example_worker() {
	var c *clientlib.Client // see Example
	work := func(ctx context.Context, token clientlib.Token) error { return nil }
	ctx := context.Background() // or signal.NotifyContext
	for ctx.Err() == nil {
		lock, err := c.Acquire(ctx, "billing/job", clientlib.AcquireOptions{Wait: clientlib.Forever})
		if err != nil {
			log.Fatal(err) // no server answered for Options.Budget, or the request was refused
		}
		err = work(lock.Context(), lock.Token()) // returns when its context ends
		if lock.Context().Err() == nil {
			if err = errors.Join(err, lock.Release(ctx)); err != nil {
				log.Fatal(err)
			}
			return
		}
		log.Print(context.Cause(lock.Context())) // a *LostError: why, and what is known of the end
	}
}

// Work that is not an append stops when the lock is lost, and hands its token to
// the resource, which refuses older ones.
func ExampleLock_Context() {
	var c *clientlib.Client // see Example
	lock, err := c.Acquire(context.Background(), "reports/nightly", clientlib.AcquireOptions{})
	if held := new(clientlib.HeldError); errors.As(err, &held) {
		fmt.Println("another process does it:", held.Holder)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(context.Background())

	work := func(ctx context.Context, fence clientlib.Token) error { return nil }
	if err := work(lock.Context(), lock.Token()); err != nil && lock.Context().Err() != nil {
		fmt.Println("stopped:", context.Cause(lock.Context()))
	}
}

// A call that ended without an answer can be asked about later, by anybody.
func ExampleClient_Outcome() {
	var c *clientlib.Client // see Example
	var lock *clientlib.Lock
	ctx := context.Background()
	_, err := lock.Append(ctx, "billing/audit.log", []byte("invoice 18 sent\n"))
	if call := new(clientlib.CallError); errors.Is(err, clientlib.ErrUnknown) && errors.As(err, &call) {
		out, err := c.Outcome(ctx, call.Client, call.Request)
		fmt.Println(out.State, out.Receipt, err)
	}
}

// A long piece of work is saved while there is time, and goes on if the lock is safe again.
func ExampleLock_States() {
	var lock *clientlib.Lock // see Example
	save := func(before time.Time) {}
	for s := range lock.States(context.Background()) {
		switch s.Phase {
		case clientlib.PhaseJeopardy:
			fmt.Println("renewals fail:", s.Err)
			save(s.Deadline)
		case clientlib.PhaseLost:
			fmt.Println("over:", s.Err)
		}
	}
}

// A function under a lock. Its context ends when the lock is lost.
func ExampleClient_With() {
	var c *clientlib.Client // see Example
	report := func(ctx context.Context, fence clientlib.Token) error { return nil }
	err := c.With(context.Background(), "reports/nightly", clientlib.AcquireOptions{Wait: time.Minute}, func(ctx context.Context, l *clientlib.Lock) error {
		return report(ctx, l.Token())
	})
	if errors.Is(err, clientlib.ErrNotAcquired) {
		fmt.Println("another process is at it")
	} else if err != nil {
		log.Fatal(err)
	}
}

// Metrics of locks, with whatever library counts them.
func ExampleHooks() {
	var held, lost func(seconds float64) // say, the Observe of histograms
	c, err := clientlib.New(clientlib.Options{
		Endpoints: []string{"127.0.0.1:7601"},
		Hooks: clientlib.Hooks{
			Released: func(_ clientlib.LockName, after time.Duration) { held(after.Seconds()) },
			Lost:     func(_ *clientlib.LostError, after time.Duration) { lost(after.Seconds()) },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}
