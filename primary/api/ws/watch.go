// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// watching is one watch of a connection.
type watching struct {
	stop context.CancelFunc
	done chan struct{} // closed behind the last that it tells
	last atomic.Bool   // that is about to be told: the ID is free
}

func (w *watching) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// watch begins a watch.
func (x *conn) watch(ctx context.Context, m *message) error {
	q, err := m.watch()
	if err != nil {
		return err
	}
	for id, w := range x.watches {
		if w.over() || w.last.Load() {
			delete(x.watches, id)
		}
	}
	switch {
	case x.watches[string(m.id)] != nil:
		return wire.Invalid(fmt.Sprintf("the connection has a watch %s already", m.id))
	case len(x.watches) >= x.s.opt.Limits.Watches:
		return &wire.Error{Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("the connection has %d watches already", len(x.watches))}
	}
	id := bytes.Clone(m.id) // of the message nothing else is kept
	ctx, stop := context.WithCancel(ctx)
	w := &watching{stop: stop, done: make(chan struct{})}
	x.watches[string(id)] = w
	x.under.Go(func() {
		defer close(w.done)
		defer stop()
		t := &telling{x: x, w: w, id: id}
		// An error is a context that ended: nobody listens any more.
		_ = x.s.door.Watch(ctx, q, t.begin, func(r *pb.WatchResponse) error { return t.send(ctx, r) })
	})
	return nil
}

// unwatch ends a watch, and answers when it has told its last.
func (x *conn) unwatch(m *message) error {
	id, err := m.unwatch()
	if err != nil {
		return err
	}
	w := x.watches[string(id)]
	if w == nil || w.over() {
		return wire.Invalid(fmt.Sprintf("the connection has no watch %s", id))
	}
	w.stop()
	answers := bytes.Clone(m.id)
	x.under.Go(func() {
		<-w.done
		x.ok(answers)
	})
	return nil
}

// telling is what a watch tells its client. It belongs to the goroutine of the watch.
type telling struct {
	x     *conn
	w     *watching
	id    json.RawMessage
	begun bool
}

// begin answers the question.
func (t *telling) begin() error {
	if !t.begun {
		t.begun = true
		t.x.ok(t.id)
	}
	return nil
}

// send tells a message of the watch, event by event.
func (t *telling) send(ctx context.Context, r *pb.WatchResponse) error {
	ends := wire.FromStatus(r.GetStatus()) != cluster.StatusOK
	if ends && !t.begun {
		t.begun = true
		t.w.last.Store(true) // first: whoever hears of it may use the ID again
		t.x.out.tell(answer(t.id, encode(wire.BodyOf(&pb.Answer{
			Status: r.GetStatus(), Message: r.GetMessage(), Primary: r.GetPrimary(), RetryAfterMs: r.GetRetryAfterMs(),
		}))))
		return nil
	}
	if err := t.begin(); err != nil {
		return err
	}
	for _, e := range r.GetEvents() {
		b := wire.EventBodyOf(e)
		if err := t.tell(ctx, &b, false); err != nil {
			return err
		}
	}
	if len(r.GetEvents()) > 0 {
		return nil
	}
	b := wire.WatchBodyOf(r)
	return t.tell(ctx, &b, ends)
}

// tell waits for room: a client that does not read holds up nothing but its watches. Last
// says that the watch ends with it.
func (t *telling) tell(ctx context.Context, b *wire.EventBody, last bool) error {
	m := event(t.id, b)
	select {
	case t.x.turn <- struct{}{}:
		defer func() { <-t.x.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.x.out.room(ctx, len(m)); err != nil {
		return err
	}
	t.w.last.Store(last) // first: whoever hears of it may use the ID again
	t.x.out.tell(m)
	return nil
}
