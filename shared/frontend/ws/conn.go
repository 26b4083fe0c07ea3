// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// maxBody bounds a request as over HTTP, and the parameters of an append.
	maxBody = 64 << 10
	// maxClients is how many clients one connection may get the losses of.
	maxClients = 16
)

// conn is one connection.
type conn struct {
	s   *Server
	c   *websocket.Conn
	cut func() // ends it at once, and all that reads or writes; may be called at any time

	out     outbox
	pending pending
	writing atomic.Bool // a message is on its way to the client

	// Owned by the reading goroutine.
	client  string            // the client of requests that name none; "" for none
	losses  map[string]func() // stops the subscription of a client
	watches map[string]*watching

	// whole is held while a message is read, and while the connection is closed: the answer to
	// a close frame must not be looked for within a message.
	whole sync.Mutex
	turn  chan struct{} // capacity 1: held while a watch puts an event into the outbox
	under sync.WaitGroup
}

func newConn(s *Server, c *websocket.Conn, cut func()) *conn {
	return &conn{
		s: s, c: c, cut: cut, out: newOutbox(s.opt.Limits.Unread), losses: map[string]func(){}, watches: map[string]*watching{},
		turn: make(chan struct{}, 1),
	}
}

// serve serves the connection until it ends, and returns when all of it has ended.
func (x *conn) serve(ctx context.Context) error {
	why := make(chan error, 3)
	part := func(f func(context.Context) error) {
		x.under.Go(func() {
			defer x.cut()
			why <- f(ctx)
		})
	}
	part(x.write)
	part(x.ping)
	err := x.read(ctx)
	why <- err
	for _, stop := range x.losses {
		stop()
	}
	// Pending operations go on without their caller, which repeats them when it reconnects.
	x.cut()
	x.c.CloseNow() //nolint:errcheck // it has ended
	x.under.Wait()
	return <-why
}

// read handles what the client sends, until that ends.
func (x *conn) read(ctx context.Context) error {
	for {
		kind, b, err := x.message(ctx)
		switch {
		case err != nil:
			return err
		case x.out.ending(): // only the client's close frame is expected
		case kind != websocket.MessageText:
			x.out.end(websocket.CloseError{Code: websocket.StatusUnsupportedData, Reason: "a message is JSON, as text"})
		default:
			x.handle(ctx, b)
		}
	}
}

// message reads the next message.
func (x *conn) message(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, r, err := x.c.Reader(ctx)
	if err != nil {
		return kind, nil, err
	}
	x.whole.Lock()
	defer x.whole.Unlock()
	b, err := io.ReadAll(r)
	return kind, b, err
}

// handle handles one message.
func (x *conn) handle(ctx context.Context, b []byte) {
	m, err := decode(b)
	if err == nil {
		m.size = len(b)
		err = x.dispatch(ctx, &m)
	}
	if err != nil {
		x.refuse(m.id, err)
	}
}

// dispatch begins what a message asks for. Its errors are for the client.
func (x *conn) dispatch(ctx context.Context, m *message) error {
	o := ops.Named(m.op)
	if m.size > maxBody && (o == nil || !o.Data) {
		return tooLong()
	}
	switch {
	case m.op == "hello":
		return x.hello(ctx, m)
	case m.op == "watch":
		return x.watch(ctx, m)
	case m.op == "unwatch":
		return x.unwatch(m)
	case m.op == "ping":
		if err := m.each(nil); err != nil {
			return err
		}
		x.ok(m.id)
		return nil
	case o != nil && o.Data:
		return x.append(ctx, m)
	}
	m.addClient(x.client)
	body := m.body()
	if len(body) > maxBody {
		return tooLong()
	}
	op := m.op
	return x.operation(m, kindOf(m), func() []byte { return x.s.door.Call(ctx, op, body).Body })
}

func tooLong() error {
	return &wire.Error{Status: cluster.StatusTooLarge, Message: fmt.Sprintf("the request is longer than %d bytes, data not counted", maxBody)}
}

func (x *conn) append(ctx context.Context, m *message) error {
	m.addClient(x.client)
	query, data, err := m.appending()
	if err != nil {
		return err
	}
	return x.operation(m, working, func() []byte { return x.s.door.Append(ctx, query, data).Body })
}

// operation runs do in a goroutine of its own, if there is room. It may take hours: of the message
// only the ID is kept, besides what do has.
func (x *conn) operation(m *message, k kind, do func() []byte) error {
	id, size := bytes.Clone(m.id), m.size
	if err := x.pending.begin(k, size, &x.s.opt.Limits); err != nil {
		return err
	}
	x.under.Go(func() {
		defer x.pending.end(k, size)
		x.out.put(answer(id, do()))
	})
	return nil
}

func (x *conn) ok(id json.RawMessage) {
	x.out.put(answer(id, encode(wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_OK}))))
}

func (x *conn) refuse(id json.RawMessage, err error) {
	e, ok := err.(*wire.Error)
	if !ok {
		e = &wire.Error{Status: cluster.StatusInvalidArgument, Message: err.Error()}
	}
	x.out.put(answer(id, refusal(e)))
}

// hello sets the client of the connection, and subscribes to its losses.
func (x *conn) hello(ctx context.Context, m *message) error {
	g, err := m.greeting()
	if err != nil {
		return err
	}
	client := cluster.ClientID(g.client)
	if err := client.Validate(); err != nil {
		return wire.Invalid(err.Error())
	}
	if client.Anonymous() {
		return wire.Invalid(fmt.Sprintf(`client ID %q: servers make those that begin with "~", and do not note all that they lose: choose another`, g.client))
	}
	old := x.losses[g.client]
	if old == nil && len(x.losses) >= maxClients {
		return &wire.Error{Status: cluster.StatusStorageUnavailable, Message: fmt.Sprintf("the connection listens for %d clients already", maxClients)}
	}
	x.client = g.client
	x.losses[g.client] = x.s.door.Losses(ctx, client, cluster.LSN(g.after), x.sendLosses)
	x.out.put(answer(m.id, encode(wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_OK, ClientId: g.client}))))
	if old != nil {
		old() // only now, so that what is lost meanwhile is sent, if need be twice
	}
	return nil
}

// sendLosses sends what a client loses. It is called by the hub.
func (x *conn) sendLosses(all []watch.Loss) {
	if len(all) == 0 {
		x.out.put([]byte(`{"missed":true}`))
	}
	for i := range all {
		if l := &all[i]; l.Ended != nil {
			x.out.put(encode(map[string]any{"loss": wire.LossBodyOf(l.Ended)}))
		} else {
			x.out.put(encode(map[string]any{"ask": wire.AskBodyOf(l.Ask)}))
		}
	}
}
