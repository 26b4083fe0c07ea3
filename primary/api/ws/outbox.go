// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// patienceFor is how many bytes a client takes in the time of Limits.Write.
const patienceFor = 64 << 10

// outbox collects messages until the writer takes them. Who tells it something never waits.
type outbox struct {
	limit int
	wake  chan struct{} // capacity 1
	mu    struct {
		sync.Mutex
		next  [][]byte
		bytes int                   // of next, and of what is being written, as they count
		last  *websocket.CloseError // what comes behind next, nil while the connection goes on
		fewer chan struct{}         // closed when bytes get fewer; nil if nobody waits
	}
}

func newOutbox(limit int) outbox { return outbox{limit: limit, wake: make(chan struct{}, 1)} }

// counts is how many bytes a message counts as. What is larger than half of the outbox
// counts as half: a client that reads gets it, and an answer behind it.
func (b *outbox) counts(n int) int { return min(n, b.limit/2) }

// tell has a message sent, unless the connection ends. One that does not fit ends it.
func (b *outbox) tell(m []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.last != nil:
		return
	case b.mu.bytes+b.counts(len(m)) > b.limit:
		b.mu.next = nil // whoever does not read does not miss it: all of it can be asked for again
		b.mu.last = &websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: fmt.Sprintf("more than %d bytes were not read", b.limit)}
	default:
		b.mu.next = append(b.mu.next, m)
		b.mu.bytes += b.counts(len(m))
	}
	b.poke()
}

// end has the connection end behind what was told. The first word counts.
func (b *outbox) end(last websocket.CloseError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.last == nil {
		b.mu.last = &last
		b.poke()
	}
}

// ending says that the connection ends: nothing more will be told.
func (b *outbox) ending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.last != nil
}

func (b *outbox) poke() {
	select {
	case b.wake <- struct{}{}:
	default: // the writer will look anyway
	}
}

// room waits until n bytes fit into half of the outbox: the other half is for answers.
func (b *outbox) room(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		if b.mu.bytes+b.counts(n) <= b.limit/2 {
			b.mu.Unlock()
			return nil
		}
		if b.mu.fewer == nil {
			b.mu.fewer = make(chan struct{})
		}
		fewer := b.mu.fewer
		b.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take is the next message, else what the connection ends with, else nothing.
func (b *outbox) take() (m []byte, last *websocket.CloseError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.next) == 0 {
		b.mu.next = nil
		return nil, b.mu.last
	}
	m = b.mu.next[0]
	b.mu.next[0], b.mu.next = nil, b.mu.next[1:]
	return m, nil
}

// sent notes that so many bytes are on the wire.
func (b *outbox) sent(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.bytes -= b.counts(n)
	if b.mu.fewer != nil {
		close(b.mu.fewer)
		b.mu.fewer = nil
	}
}

// write sends what there is to tell, until the connection ends.
func (x *conn) write(ctx context.Context) error {
	for {
		m, last := x.out.take()
		switch {
		case m != nil:
			if err := x.send(ctx, m); err != nil {
				return err
			}
		case last != nil:
			// Whoever does not answer the close frame is cut: x.cut ends the read that waits for
			// it, and one that waits for the rest of a message.
			late := time.AfterFunc(closeWait, x.cut)
			defer late.Stop()
			x.whole.Lock()
			defer x.whole.Unlock()
			return x.c.Close(last.Code, last.Reason)
		default:
			select {
			case <-x.out.wake:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// send writes a message. Who does not take it in time is cut, and never sees half of it
// as a whole.
func (x *conn) send(ctx context.Context, m []byte) error {
	ctx, cancel := context.WithTimeout(ctx, x.s.opt.Limits.Write*time.Duration(1+len(m)/patienceFor))
	defer cancel()
	x.writing.Store(true)
	defer x.writing.Store(false)
	if err := x.c.Write(ctx, websocket.MessageText, m); err != nil {
		return err
	}
	x.out.sent(len(m))
	return nil
}

// ping looks whether the client is there. One that takes a message just now is.
func (x *conn) ping(ctx context.Context) error {
	every := x.s.opt.Limits.Idle / 2
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if x.writing.Load() {
			continue
		}
		if err := x.pong(ctx, every); err != nil {
			return err
		}
	}
}

func (x *conn) pong(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return x.c.Ping(ctx)
}
