// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"sync"

	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// outbox collects messages for a client, encoded, until the writer takes them.
type outbox struct {
	wake wake.Signal // there is something to send
	mu   struct {
		sync.Mutex
		waiting []*outPiece
		bytes   int // in all of them
	}
}

// outPiece is one message: no larger than a client takes by default, unless one answer is.
type outPiece struct {
	b    []byte     // an encoded SessionResponse
	n    int64      // operations that it answers
	sent chan error // closed when it is on the wire; nil if that was not asked for
}

// outcome adds an answer to the next message and returns true, if the outcome is a plain one. The
// writer is not woken for it.
func (b *outbox) outcome(correlation uint64, out *locktable.Outcome, counts bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.piece()
	next, ok := convert.AppendOutcome(p.b, correlation, out)
	if ok {
		b.keep(p, next, counts)
	}
	return ok
}

// put adds m to the next message: what is repeated in a message may come in any pieces. It counts
// as one answer, or as none. The channel is closed when it is on the wire.
func (b *outbox) put(m *pb.SessionResponse, counts bool) (sent <-chan error) {
	b.mu.Lock()
	first, p := b.mu.bytes == 0, b.piece()
	next, err := wire.AppendResponse(p.b, m)
	if err != nil { // a text of ours that is not UTF-8: the client needs an answer all the same
		for _, a := range m.Answers {
			next, _ = wire.AppendResponse(next, &pb.SessionResponse{Answers: []*pb.Answer{{Correlation: a.Correlation, Status: a.Status}}})
		}
	}
	b.keep(p, next, counts)
	sent = p.asked()
	b.mu.Unlock()
	if first {
		b.wake.Notify()
	}
	return sent
}

// piece returns the message that the next answer goes to: a large one is complete.
func (b *outbox) piece() *outPiece {
	if n := len(b.mu.waiting); n > 0 && len(b.mu.waiting[n-1].b) < service.MaxMessageBytes {
		return b.mu.waiting[n-1]
	}
	return &outPiece{}
}

// keep replaces the bytes of a piece by next, which continues them.
func (b *outbox) keep(p *outPiece, next []byte, counts bool) {
	if n := len(b.mu.waiting); n == 0 || b.mu.waiting[n-1] != p {
		b.mu.waiting = append(b.mu.waiting, p)
	}
	b.mu.bytes += len(next) - len(p.b)
	p.b = next
	if counts {
		p.n++
	}
}

// asked returns a channel that is closed when the piece is on the wire.
func (p *outPiece) asked() <-chan error {
	if p.sent == nil {
		p.sent = make(chan error)
	}
	return p.sent
}

// unread returns nil while less than limit bytes wait to be sent, else a channel that is closed when
// some of that is sent.
func (b *outbox) unread(limit int) <-chan error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.bytes < limit {
		return nil
	}
	return b.mu.waiting[0].asked()
}

// take removes and returns the next message, nil if there is none.
func (b *outbox) take() *outPiece {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.waiting) == 0 {
		return nil
	}
	p := b.mu.waiting[0]
	b.mu.waiting[0] = nil
	b.mu.waiting = b.mu.waiting[1:]
	b.mu.bytes -= len(p.b)
	return p
}
