// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
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
		cancel map[uint64]*context.CancelFunc
	}
}

// begin notes a watch, or says why there is none. Over ends it, and nothing that has its
// number later; it may be called again.
func (w *watches) begin(ctx context.Context, id uint64) (own context.Context, over func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.cancel[id] != nil:
		return nil, nil, fmt.Errorf("this session has a watch %d already", id)
	case len(w.mu.cancel) >= maxWatches:
		return nil, nil, fmt.Errorf("a session carries at most %d watches: use Watch, or another session", maxWatches)
	case w.mu.cancel == nil:
		w.mu.cancel = map[uint64]*context.CancelFunc{}
	}
	own, cancel := context.WithCancel(ctx)
	w.mu.cancel[id] = &cancel
	return own, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if cancel(); w.mu.cancel[id] == &cancel {
			delete(w.mu.cancel, id)
		}
	}, nil
}

// end ends a watch, if there is one.
func (w *watches) end(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel := w.mu.cancel[id]; cancel != nil {
		(*cancel)()
		delete(w.mu.cancel, id)
	}
}

// endAll ends every watch.
func (w *watches) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cancel := range w.mu.cancel {
		(*cancel)()
	}
}

// watch serves one watch of the session.
func (x *session) watch(ctx context.Context, q *pb.SessionWatch) {
	id := q.GetWatchId()
	own, over, err := x.watches.begin(ctx, id)
	if err != nil {
		x.out.tell(events(id, &pb.WatchResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}), false)
		return
	}
	x.helpers.Go(func() {
		defer over()
		// It has one message on its way at a time: a client that does not read holds up
		// nothing but its watches. An error is a context that ended: nobody listens any more,
		// or nobody wants to.
		_ = x.s.watch(own, q.GetRequest(), nil, func(r *pb.WatchResponse) error {
			if r.GetStatus() != pb.Status_STATUS_OK {
				over() // first: whoever reads that it has ended may use its number again
				x.out.tell(events(id, r), false)
				return nil
			}
			select {
			case <-x.out.tell(events(id, r), false):
				return nil
			case <-own.Done():
				return context.Cause(own)
			}
		})
	})
}

func events(id uint64, r *pb.WatchResponse) *pb.SessionResponse {
	return &pb.SessionResponse{Events: []*pb.SessionEvents{{WatchId: id, Response: r}}}
}
