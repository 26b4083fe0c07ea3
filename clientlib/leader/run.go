// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// minRound is how long a round of Run lasts at least, from one campaign to the next: what
// fails at once, or has nothing to do, must not fill the log of the service.
const minRound = time.Second

// Run campaigns with Options.Value, calls f while this candidate leads, resigns when f
// has returned, and campaigns again, until ctx ends. Then it returns its cause.
//
// The context of f is the Leadership's and a child of ctx. When it ends, f must stop everything
// that it does as a leader, and return. If leadership was lost and f has not returned by the
// deadline, Options.OnOverrun is called: by default the process ends. When ctx ends, the lease is
// kept alive until f has returned, so f may take its time. An f calls Resign only when it has
// stopped already.
//
// An error of f ends Run, after resigning, and is returned. An error of f after leadership was
// lost, or an operator asked for it, does not: it is logged, and f is called again when this
// candidate leads again. Nor does an outage of the service end Run; a refusal does.
func (e *Election) Run(ctx context.Context, f func(ctx context.Context, l *Leadership) error) error {
	for {
		began := time.Now()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l, err := e.campaign(ctx, ctx, e.o.Value)
		if err == nil {
			var over error
			if over, err = l.run(f); over != nil {
				e.o.Log.Warn("leadership is over", "election", e.name, "token", l.Token(), "cause", over, "error", err)
			} else if err != nil {
				return err
			}
		} else if ctx.Err() == nil {
			if refused(err) {
				return err
			}
			e.o.Log.Warn("no leadership yet", "election", e.name, "error", err)
		}
		rest(ctx, minRound-time.Since(began))
	}
}

// run calls f and resigns when it has returned, or panicked. It says how leadership ended
// before that, if neither f nor the caller of Run ended it.
func (l *Leadership) run(f func(context.Context, *Leadership) error) (over, err error) {
	l.setRunning(true)
	l.start()
	l.e.o.Log.Info("leading", "election", l.e.name, "token", l.Token())
	defer func() {
		l.setRunning(false)
		l.letGo(l.ctx)
	}()
	err = f(l.ctx, l)
	if over = l.loss(); over == nil && errors.Is(context.Cause(l.ctx), ErrAsked) {
		over = context.Cause(l.ctx)
	}
	return over, err
}

func (l *Leadership) setRunning(running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.running = running
}

// rest pauses, but not longer than ctx lasts.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// refused reports whether a campaign would fail again.
func refused(err error) bool {
	if errors.Is(err, clientlib.ErrClosed) {
		return true
	}
	if s, ok := clientlib.StatusOf(err); ok {
		switch s {
		case clientlib.StatusSecondaryMode, clientlib.StatusServerFencing, clientlib.StatusNoQuorum, clientlib.StatusStorageUnavailable,
			clientlib.StatusUnknown, clientlib.StatusLeaseExpired, clientlib.StatusInvalidToken, clientlib.StatusCancelled,
			clientlib.StatusStaleRequest:
			return false
		default:
			return true
		}
	}
	switch status.Code(err) {
	case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return true
	default:
		return false
	}
}
