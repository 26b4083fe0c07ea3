// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// heldError is how people are told that a lock was not acquired.
type heldError struct {
	lock   string
	holder *wire.Holder // nil = it is free, or not known
	queue  uint32
	// wait is how long the command waited, 0 if it tried once; known is false if the lock could not be read after that.
	wait  time.Duration
	known bool
	// more is what the server said, "" for nothing.
	more string
}

// text names the lock, its holder, and since when it is held.
func (h *heldError) text(now time.Time) string {
	lock := "lock " + h.lock + " is "
	if h.wait > 0 {
		lock = fmt.Sprintf("the wait for lock %s ended after %v: it is ", h.lock, h.wait)
	}
	switch {
	case !h.known:
		return fmt.Sprintf("the wait for lock %s ended after %v: others had it all the time", h.lock, h.wait)
	case h.holder == nil && h.queue == 0:
		return lock + "free now"
	case h.holder == nil:
		return lock + fmt.Sprintf("free, and goes to the first in the queue (%d waiting)", h.queue)
	}
	s := lock + "held by " + h.holder.Person()
	if h.holder.Limit > 0 {
		s = lock + fmt.Sprintf("held by %d with %d of %d permits, the first being %s", max(h.holder.Holders, 1), h.holder.PermitsTaken, h.holder.Limit, h.holder.Person())
	} else if h.holder.Holders > 1 {
		s = lock + fmt.Sprintf("shared by %d, the first being %s", h.holder.Holders, h.holder.Person())
	}
	s += fmt.Sprintf(", %s, under token %d", heldText(h.holder.Since.Time(), now), h.holder.Token)
	if h.queue > 0 {
		s += fmt.Sprintf(", %d waiting", h.queue)
	}
	if h.more != "" {
		s += ": " + h.more
	}
	return s
}

// heldBy returns what is known of a lock that a command has not acquired; nil for errors of other kinds.
func (a *app) heldBy(err error) *heldError {
	late := errors.Is(err, wire.ErrWaitTimeout)
	if _, own := errors.AsType[*withinError](err); own || a.subjects[aLock] == "" || !late && !errors.Is(err, wire.ErrHeld) {
		return nil
	}
	h := &heldError{lock: a.subjects[aLock], known: true}
	if c, ok := errors.AsType[*conflictError](err); ok {
		h.wait = c.wait
	}
	if late {
		a.findHolder(h)
		return h
	}
	if e, ok := errors.AsType[*clientlib.HeldError](err); ok {
		h.holder, h.queue = e.Holder, uint32(e.QueueLength)
		return h
	}
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return nil
	}
	h.holder, h.queue, h.more = e.Holder, uint32(e.QueueLength), e.Message
	return h
}

// findHolderTime bounds the question who has the lock, after a wait.
const findHolderTime = time.Second

// findHolder asks who has the lock now: the answer to a wait that ended does not tell.
func (a *app) findHolder(h *heldError) {
	h.known = false
	ctx, cancel := context.WithTimeout(context.Background(), findHolderTime)
	defer cancel()
	c, err := a.callerAt(ctx, h.lock, findHolderTime)
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.GetLockResponse, error) {
		return s.GetLock(ctx, &pb.GetLockRequest{Lock: h.lock})
	})
	if err != nil {
		return
	}
	l := wire.LockBodyOf(r)
	h.holder, h.queue, h.known = l.Holder, l.QueueLength, true
}
