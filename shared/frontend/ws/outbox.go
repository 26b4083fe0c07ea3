// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-lock/holdfast/shared/wake"
)

// writePiece is how many bytes a client has to read within Limits.Write.
const writePiece = 64 << 10

// outbox collects messages until the writer takes them. To put one never waits.
type outbox struct {
	limit int
	wake  wake.Signal // there is something to send
	mu    struct {
		sync.Mutex
		next  [][]byte
		bytes int                   // of next, and of what is being written, as they count
		last  *websocket.CloseError // what comes after next, nil while the connection goes on
		fewer chan struct{}         // closed when bytes get fewer; nil if no watch waits for that
	}
}

func newOutbox(limit int) outbox { return outbox{limit: limit, wake: wake.NewSignal()} }

// counts returns how many bytes a message of n bytes counts as. One larger than half of the outbox
// counts as half: a client that reads gets it, and an answer after it.
func (b *outbox) counts(n int) int { return min(n, b.limit/2) }

// put adds a message, unless the connection ends. One that does not fit ends it.
func (b *outbox) put(m []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.last != nil:
		return
	case b.mu.bytes+b.counts(len(m)) > b.limit:
		b.mu.next = nil // the client does not read, and can ask for all of it again
		b.mu.last = &websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: fmt.Sprintf("more than %d bytes were not read", b.limit)}
	default:
		b.mu.next = append(b.mu.next, m)
		b.mu.bytes += b.counts(len(m))
	}
	b.wake.Notify()
}

// end ends the connection after the messages that were put. The first reason counts.
func (b *outbox) end(last websocket.CloseError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.last == nil {
		b.mu.last = &last
		b.wake.Notify()
	}
}

// ending reports whether the connection ends: nothing more will be sent.
func (b *outbox) ending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.last != nil
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

// take removes and returns the next message, or else returns what the connection ends with, if it
// ends.
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

// sent notes that a message of n bytes is on the wire.
func (b *outbox) sent(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.bytes -= b.counts(n)
	if b.mu.fewer != nil {
		close(b.mu.fewer)
		b.mu.fewer = nil
	}
}

// write sends messages, until the connection ends.
func (x *conn) write(ctx context.Context) error {
	for {
		m, last := x.out.take()
		switch {
		case m != nil:
			if err := x.send(ctx, m); err != nil {
				return err
			}
		case last != nil:
			// A client that does not answer the close frame is cut: x.cut ends the read that waits
			// for it, and one that waits for the rest of a message.
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

// send writes a message. A client that does not read it in time is cut, and never sees half of it
// as a whole.
func (x *conn) send(ctx context.Context, m []byte) error {
	ctx, cancel := context.WithTimeout(ctx, x.s.opt.Limits.Write*time.Duration(1+len(m)/writePiece))
	defer cancel()
	x.writing.Store(true)
	defer x.writing.Store(false)
	if err := x.c.Write(ctx, websocket.MessageText, m); err != nil {
		return err
	}
	x.out.sent(len(m))
	return nil
}

// ping sends pings, and returns when one is not answered. A client that is reading a message needs
// none.
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
