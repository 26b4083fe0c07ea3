// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/primary/watch"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxListened is how many clients one session may be told the losses of.
	maxListened = 1024
	// maxWatches is how many watches one session carries.
	maxWatches = 1024
)

// listen has the session told of a client's losses from now on, or of those after an
// LSN. It is called by the reading goroutine.
func (x *session) listen(client cluster.ClientID, after cluster.LSN) {
	if client == "" || client.Anonymous() || x.losses[client] != nil || len(x.losses) >= maxListened {
		return
	}
	x.losses[client] = x.s.b.Hub().Losses(client, after, func(all []watch.Loss) {
		if len(all) == 0 {
			return // its next keep-alive finds out
		}
		r := &pb.SessionResponse{}
		for i := range all {
			if l := &all[i]; l.Told != nil {
				r.Losses = append(r.Losses, l.Told)
			} else {
				r.Asks = append(r.Asks, l.Ask)
			}
		}
		// A client that does not read hears of it by keep-alives, when it reads again.
		if x.out.unread(maxUnread) == nil {
			x.out.tell(r, false)
		}
	})
}

// watches are the watches of a session by their numbers.
type watches struct {
	mu struct {
		sync.Mutex
		under map[uint64]*numbered
	}
}

// numbered is one watch of a session.
type numbered struct {
	id   uint64
	stop context.CancelFunc
}

// begin notes a watch, or says why there is none.
func (w *watches) begin(ctx context.Context, id uint64) (context.Context, *numbered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.under[id] != nil:
		return nil, nil, fmt.Errorf("this session has a watch %d already", id)
	case len(w.mu.under) >= maxWatches:
		return nil, nil, fmt.Errorf("a session carries at most %d watches: use Watch, or another session", maxWatches)
	case w.mu.under == nil:
		w.mu.under = map[uint64]*numbered{}
	}
	x := &numbered{id: id}
	ctx, x.stop = context.WithCancel(ctx)
	w.mu.under[id] = x
	return ctx, x, nil
}

// tell has out tell a message of a watch, unless that was ended: another one may have its
// number by now. Behind the last message the number is free.
func (w *watches) tell(x *numbered, r *pb.WatchResponse, out *outbox) (sent <-chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.under[x.id] != x {
		return nil
	}
	if r.GetStatus() != pb.Status_STATUS_OK {
		delete(w.mu.under, x.id)
	}
	return out.tell(events(x.id, r), false)
}

// end ends a watch, if there is one.
func (w *watches) end(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.mu.under[id]; x != nil {
		x.stop()
		delete(w.mu.under, id)
	}
}

// endAll ends every watch.
func (w *watches) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.mu.under {
		x.stop()
	}
}

// watch serves one watch of the session.
func (x *session) watch(ctx context.Context, q *pb.SessionWatch) {
	id := q.GetWatchId()
	own, n, err := x.watches.begin(ctx, id)
	if err != nil {
		x.out.tell(events(id, &pb.WatchResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}), false)
		return
	}
	x.helpers.Go(func() {
		defer n.stop()
		// It has one message on its way at a time: a client that does not read holds up
		// nothing but its watches. An error is a context that ended: nobody listens any more,
		// or nobody wants to.
		err := x.s.watch(own, q.GetRequest(), nil, func(r *pb.WatchResponse) error {
			sent := x.watches.tell(n, r, &x.out)
			if r.GetStatus() != pb.Status_STATUS_OK {
				return nil
			}
			if r.GetReset_() != nil {
				return x.s.taken(own, sent)
			}
			select {
			case <-sent:
				return nil
			case <-own.Done():
				return context.Cause(own)
			}
		})
		if errors.Is(err, errDeaf) {
			x.watches.tell(n, &pb.WatchResponse{Status: pb.Status_STATUS_CANCELLED, Message: "the reset was not read"}, &x.out)
		}
	})
}

func events(id uint64, r *pb.WatchResponse) *pb.SessionResponse {
	return &pb.SessionResponse{Events: []*pb.SessionEvents{{WatchId: id, Response: r}}}
}
