// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// breathe waits until there is room for more of what the client sends: whoever does not
// read is not read either, nor who has sent much that waits for the volume. It is
// called by the reading goroutine.
func (x *session) breathe(ctx context.Context) {
	for ctx.Err() == nil {
		sent := x.out.unread(maxUnread)
		if sent == nil && x.bytes.Load() <= maxBytes {
			return
		}
		select {
		case <-sent: // nil waits for nothing
		case <-x.drained:
		case <-ctx.Done():
		}
	}
}

// drain notes that so many bytes of appends are answered.
func (x *session) drain(n int64) {
	if n == 0 {
		return
	}
	x.bytes.Add(-n)
	select {
	case x.drained <- struct{}{}:
	default: // the reader will look anyway
	}
}

// help has something done beside. The reading goroutine waits while much is.
func (x *session) help(ctx context.Context, f func()) {
	x.breathe(ctx)
	select {
	case x.few <- struct{}{}:
	case <-ctx.Done():
		return // nobody is there to be told
	}
	x.helpers.Go(func() {
		defer func() { <-x.few }()
		f()
	})
}

func (x *session) keepAlive(ctx context.Context, q *pb.KeepAliveRequest) {
	if q.GetClientId() == "" {
		q.ClientId = string(x.client)
	}
	if r, err := x.s.keepAlive(ctx, q); err == nil {
		x.out.tell(&pb.SessionResponse{KeepAlives: []*pb.KeepAliveResponse{r}}, false)
	}
}
