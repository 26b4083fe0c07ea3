// SPDX-License-Identifier: Apache-2.0

package holdfasttest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/holdfasttest"
)

// A job that has lost its lock stops, and says why.
func TestExampleOfAJob(t *testing.T) {
	s := holdfasttest.Start(t)
	c, working, ended := s.Client(), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.With(t.Context(), "reports/nightly", clientlib.AcquireOptions{Wait: time.Minute}, func(ctx context.Context, _ *clientlib.Lock) error {
			close(working)
			<-ctx.Done() // the work
			return context.Cause(ctx)
		})
	}()
	<-working
	if _, err := c.TryAcquire(t.Context(), "reports/nightly", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrNotAcquired) {
		t.Errorf("two jobs at a time: %v", err)
	}
	s.Expire("reports/nightly")
	err := <-ended
	if lost, ok := errors.AsType[*clientlib.LostError](err); !ok || lost.Reason != clientlib.LossExpired && lost.Reason != clientlib.LossRefused {
		t.Errorf("the job ended with %v", err)
	}
}
