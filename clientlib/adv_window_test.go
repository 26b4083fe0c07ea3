// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// TestGrantThatCameTooLateIsGivenBackThoughTheWindowIsFull: an Acquire under a self-chosen ID whose grant
// comes too late again and again gives it back before it returns. Others that ask under that ID
// meanwhile fill its window; they must not be what the release waits for, which waits for it.
func TestGrantThatCameTooLateIsGivenBackThoughTheWindowIsFull(t *testing.T) {
	inBubble(t, Options{ClientID: "me"}, func(t *testing.T, w *world) {
		const short = 300 * time.Millisecond
		other := w.acquire("other", AcquireOptions{TTL: time.Hour})
		s := w.servers[0]
		s.set(func() {
			s.mu.lag = func(op string) time.Duration {
				if op == "acquire" || op == "renew" {
					return short + 10*time.Millisecond // every word of the lease is late
				}
				return 0
			}
		})
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			_, err := w.c.Acquire(t.Context(), "a", AcquireOptions{TTL: short})
			ended <- err
		}()
		time.Sleep(short + 50*time.Millisecond) // granted, and being renewed
		synctest.Wait()
		slowest := make(chan time.Duration, 2*chosenWindow)
		for i := range 2 * chosenWindow {
			go func() {
				began := time.Now()
				if _, err := other.Append(t.Context(), cluster.FileName(fmt.Sprint(i)), []byte("x")); err != nil {
					t.Error(err)
				}
				slowest <- time.Since(began)
			}()
		}
		err := <-ended
		if !errors.Is(err, wire.ErrLeaseExpired) || strings.Contains(fmt.Sprint(err), "budget") {
			t.Errorf("the acquire: %v", err)
		}
		t.Logf("the acquire took %v", time.Since(began))
		if client, token := w.holder("a"); token != 0 {
			t.Errorf("the grant that could not be used is still %s's, token %d, when Acquire returns after %v", client, token, time.Since(began))
		}
		worst := time.Duration(0)
		for range 2 * chosenWindow {
			worst = max(worst, <-slowest)
		}
		if worst > time.Second {
			t.Errorf("an append to a file of another lock took %v", worst)
		}
	})
}
