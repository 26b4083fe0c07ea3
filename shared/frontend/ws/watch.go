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
	done chan struct{} // closed after its last message
	last atomic.Bool   // the last message is about to be sent: the ID is free
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
		t := &watchSender{x: x, w: w, id: id}
		// An error is a context that ended: the client is gone.
		_ = x.s.door.Watch(ctx, q, t.begin, func(r *pb.WatchResponse) error { return t.send(ctx, r) })
	})
	return nil
}

// unwatch ends a watch, and answers after its last message.
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

// watchSender sends the messages of a watch. It belongs to the goroutine of the watch.
type watchSender struct {
	x     *conn
	w     *watching
	id    json.RawMessage
	begun bool
}

// begin answers the request, once.
func (t *watchSender) begin() error {
	if !t.begun {
		t.begun = true
		t.x.ok(t.id)
	}
	return nil
}

// send sends a message of the watch, event by event.
func (t *watchSender) send(ctx context.Context, r *pb.WatchResponse) error {
	ends := wire.FromStatus(r.GetStatus()) != cluster.StatusOK
	if ends && !t.begun {
		t.begun = true
		t.w.last.Store(true) // first: the client that gets it may use the ID again
		t.x.out.put(answer(t.id, encode(wire.BodyOf(&pb.Answer{
			Status: r.GetStatus(), Message: r.GetMessage(), Primary: r.GetPrimary(), RetryAfterMs: r.GetRetryAfterMs(),
		}))))
		return nil
	}
	if err := t.begin(); err != nil {
		return err
	}
	for _, e := range r.GetEvents() {
		b := wire.EventBodyOf(e)
		if err := t.put(ctx, &b, false); err != nil {
			return err
		}
	}
	if len(r.GetEvents()) > 0 {
		return nil
	}
	b := wire.WatchBodyOf(r)
	return t.put(ctx, &b, ends)
}

// put waits for room: a client that does not read delays nothing but its watches. Last reports
// whether the watch ends with it.
func (t *watchSender) put(ctx context.Context, b *wire.EventBody, last bool) error {
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
	t.w.last.Store(last) // first: the client that gets it may use the ID again
	t.x.out.put(m)
	return nil
}
