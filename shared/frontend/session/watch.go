// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxSubscribed is how many clients one session may get the losses of.
	maxSubscribed = 1024
	// maxWatches is how many watches one session carries.
	maxWatches = 1024
)

// subscribeLosses sends a client's losses from now on, and before that those after an LSN, unless
// that is 0. It is called by the reading goroutine.
func (x *conn) subscribeLosses(client cluster.ClientID, after cluster.LSN) {
	if client == "" || client.Anonymous() || x.losses[client] != nil || len(x.losses) >= maxSubscribed {
		return
	}
	x.losses[client] = x.v.s.Losses(x.from, client, after, func(all []watch.Loss) {
		if len(all) == 0 {
			return // its next keep-alive finds out
		}
		r := &pb.SessionResponse{}
		for i := range all {
			if l := &all[i]; l.Ended != nil {
				r.Losses = append(r.Losses, l.Ended)
			} else {
				r.Asks = append(r.Asks, l.Ask)
			}
		}
		// A client that does not read learns of it by keep-alives, when it reads again.
		if x.out.unread(maxUnread) == nil {
			x.put(r, false)
		}
	})
}

// watches are the watches of a session by their numbers.
type watches struct {
	mu struct {
		sync.Mutex
		under map[uint64]*sessionWatch
	}
}

// sessionWatch is one watch of a session.
type sessionWatch struct {
	id   uint64
	stop context.CancelFunc
}

// begin registers a watch. Its errors are for the client.
func (w *watches) begin(ctx context.Context, id uint64) (context.Context, *sessionWatch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.under[id] != nil:
		return nil, nil, fmt.Errorf("this session has a watch %d already", id)
	case len(w.mu.under) >= maxWatches:
		return nil, nil, fmt.Errorf("a session carries at most %d watches: use Watch, or another session", maxWatches)
	case w.mu.under == nil:
		w.mu.under = map[uint64]*sessionWatch{}
	}
	x := &sessionWatch{id: id}
	ctx, x.stop = context.WithCancel(ctx)
	w.mu.under[id] = x
	return ctx, x, nil
}

// put sends a message of a watch over a connection, unless the watch was ended: another one may have its
// number by now. After its last message the number is free.
func (w *watches) put(x *sessionWatch, r *pb.WatchResponse, out *conn) (sent <-chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.under[x.id] != x {
		return nil
	}
	if r.GetStatus() != pb.Status_STATUS_OK {
		delete(w.mu.under, x.id)
	}
	sent, begin := out.out.putAsked(events(x.id, r))
	out.start(begin)
	return sent
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

// watch serves one watch of the session.
func (x *conn) watch(q *pb.SessionWatch) {
	id := q.GetWatchId()
	own, n, err := x.watches.begin(x.from, id)
	if err == nil && q.GetRequest() == nil {
		x.watches.end(id)
		err = errors.New("a watch without a request")
	}
	if err != nil {
		x.put(events(id, &pb.WatchResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}), false)
		return
	}
	x.helpers.Go(func() {
		defer n.stop()
		// It has one message on its way at a time: a client that does not read holds up nothing
		// but its watches. An error is a context that ended: the watch or the session is over.
		err := x.v.s.Watch(own, q.GetRequest(), nil, func(r *pb.WatchResponse) error {
			sent := x.watches.put(n, r, x)
			if r.GetStatus() != pb.Status_STATUS_OK {
				return nil
			}
			if r.GetReset_() != nil {
				return x.v.s.WaitSent(own, sent)
			}
			select {
			case <-sent:
				return nil
			case <-own.Done():
				return context.Cause(own)
			}
		})
		if errors.Is(err, service.ErrResetNotRead) {
			x.watches.put(n, &pb.WatchResponse{Status: pb.Status_STATUS_CANCELLED, Message: "the reset was not read"}, x)
		}
	})
}

func events(id uint64, r *pb.WatchResponse) *pb.SessionResponse {
	return &pb.SessionResponse{Events: []*pb.SessionEvents{{WatchId: id, Response: r}}}
}
