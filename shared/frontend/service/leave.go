// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// leaveWait bounds how long it takes to leave a queue.
const leaveWait = time.Second

// leaveQueue executes the cancel of an acquire that waits, which its caller may not any more, and returns the outcome of the acquire: the
// refusal, or a grant that came at this moment. It is UNKNOWN if no try of the cancel was executed in leaveWait.
func (s *Service) leaveQueue(ctx context.Context, cancel *locktable.Request, refusal *wire.Error) locktable.Outcome {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer stop()
	pauses := retry.Pauses{Random: rand.Uint64}
	for ctx.Err() == nil {
		q := *cancel // the backend keeps it
		out, err := s.b.Do(ctx, &q)
		switch {
		case err == nil && out.Status == cluster.StatusOK:
			return out
		case err == nil && (out.Status == cluster.StatusCancelled || out.Status == cluster.StatusStaleRequest): // nothing is held or waited for
			return locktable.Outcome{Status: refusal.Status, Message: refusal.Message + " while it waited"}
		}
		retry.Rest(ctx, pauses.Next(0, false))
	}
	return locktable.Outcome{Status: cluster.StatusUnknown, Message: refusal.Message + " while it waited"}
}
