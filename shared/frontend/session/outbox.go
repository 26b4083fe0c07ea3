// SPDX-License-Identifier: Apache-2.0

package session

import (
	"sync"

	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// outbox collects frames for a client, encoded, until the writer takes them. There is a writer only
// while there is something to write.
type outbox struct {
	spare *sync.Pool // of *outFrame, shared by all connections of a server
	mu    struct {
		sync.Mutex
		waiting []*outFrame // from first on
		first   int
		bytes   int  // in all that wait
		writing bool // a writer is at work
		over    bool // nothing more is taken
	}
}

// outFrame is one frame: no larger than service.MaxMessageBytes, unless one answer is.
type outFrame struct {
	b    []byte // its header, still empty, and its payload
	kind frames.Kind
	n    int64      // operations that it answers
	sent chan error // closed when it is on the wire; nil if that was not asked for
	last bool       // the connection ends with it
}

const (
	// keptFrame is the largest memory of a frame that is used again, in bytes.
	keptFrame = 64 << 10
	// keptFrames is for how many frames an idle outbox keeps room.
	keptFrames = 4
	// maxGone is how many places of frames that are gone stay in the list.
	maxGone = 64
	// frameCost is about what a frame costs besides its bytes.
	frameCost = 128
)

// outcome adds an answer to the next message and returns true, if the outcome is a plain one. A
// writer is not begun for it.
func (b *outbox) outcome(correlation uint64, out *locktable.Outcome, counts bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.message()
	next, ok := convert.AppendOutcome(p.b, correlation, out)
	if ok {
		b.keep(p, next, counts)
	}
	return ok
}

// put adds m to the next message: what is repeated in a message may come in any pieces. It counts
// as one answer, or as none. If begin is set the caller has to begin a writer.
func (b *outbox) put(m *pb.SessionResponse, counts bool) (begin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(m, counts)
	return b.begins()
}

// putAsked is put of what counts as no answer. The channel is closed when it is on the wire.
func (b *outbox) putAsked(m *pb.SessionResponse) (sent <-chan error, begin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.add(m, false)
	return p.asked(), b.begins()
}

// add is put with mu held. It returns the frame that m went to.
func (b *outbox) add(m *pb.SessionResponse, counts bool) *outFrame {
	p := b.message()
	next, err := wire.AppendResponse(p.b, m)
	if err != nil { // a text of ours that is not UTF-8: the client needs an answer all the same
		for _, a := range m.Answers {
			next, _ = wire.AppendResponse(next, &pb.SessionResponse{Answers: []*pb.Answer{{Correlation: a.Correlation, Status: a.Status}}})
		}
	}
	b.keep(p, next, counts)
	return p
}

// putFrame adds a frame that is no message. If begin is set the caller has to begin a writer.
func (b *outbox) putFrame(kind frames.Kind, payload []byte) (begin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.fresh(kind)
	b.keep(p, append(p.b, payload...), false)
	return b.begins()
}

// finish adds a last message: nothing more is taken behind it. If begin is set the caller has to
// begin a writer.
func (b *outbox) finish(m *pb.SessionResponse) (begin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.over {
		return false
	}
	p := b.fresh(frames.Message)
	next, err := wire.AppendResponse(p.b, m)
	if err != nil { // a text of ours that is not UTF-8
		next, _ = wire.AppendResponse(p.b, &pb.SessionResponse{End: &pb.ErrorDetail{Status: m.GetEnd().GetStatus()}})
	}
	b.keep(p, next, false)
	p.last, b.mu.over = true, true
	return b.begins()
}

// drop drops what waits and takes nothing more: the connection is broken.
func (b *outbox) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.over, b.mu.waiting, b.mu.first, b.mu.bytes = true, nil, 0, 0
}

// flush reports whether the caller has to begin a writer, because there is something to write.
func (b *outbox) flush() (begin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begins()
}

// begins is flush with mu held.
func (b *outbox) begins() bool {
	begin := !b.mu.writing && len(b.mu.waiting) > b.mu.first
	b.mu.writing = b.mu.writing || begin
	return begin
}

// message returns the message that the next answer goes to: a large one is complete.
func (b *outbox) message() *outFrame {
	if n := len(b.mu.waiting); n > b.mu.first {
		if p := b.mu.waiting[n-1]; p.kind == frames.Message && len(p.b) < service.MaxMessageBytes && !p.last {
			return p
		}
	}
	return b.fresh(frames.Message)
}

// fresh returns an empty frame.
func (b *outbox) fresh(kind frames.Kind) *outFrame {
	p := b.spare.Get().(*outFrame)
	p.b, p.kind = frames.Begin(p.b[:0]), kind
	return p
}

// keep replaces the bytes of a frame by next, which continues them.
func (b *outbox) keep(p *outFrame, next []byte, counts bool) {
	if b.mu.over {
		return
	}
	b.mu.bytes += len(next) + frameCost
	if n := len(b.mu.waiting); n > b.mu.first && b.mu.waiting[n-1] == p {
		b.mu.bytes -= len(p.b) + frameCost
	} else {
		b.mu.waiting = append(b.mu.waiting, p)
	}
	p.b = next
	if counts {
		p.n++
	}
}

// asked returns a channel that is closed when the frame is on the wire.
func (p *outFrame) asked() <-chan error {
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
	return b.mu.waiting[b.mu.first].asked()
}

// has reports whether at least n bytes wait to be sent.
func (b *outbox) has(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.bytes >= n
}

// take removes and returns the next frame, whole. Where there is none it returns nil, and the writer
// has ended.
func (b *outbox) take() *outFrame {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.waiting) == b.mu.first {
		b.mu.writing, b.mu.first = false, 0
		if b.mu.waiting = b.mu.waiting[:0]; cap(b.mu.waiting) > keptFrames {
			b.mu.waiting = nil
		}
		return nil
	}
	p := b.mu.waiting[b.mu.first]
	b.mu.waiting[b.mu.first] = nil
	if b.mu.first++; b.mu.first > maxGone && 2*b.mu.first > len(b.mu.waiting) {
		b.mu.waiting = b.mu.waiting[:copy(b.mu.waiting, b.mu.waiting[b.mu.first:])]
		b.mu.first = 0
	}
	b.mu.bytes -= len(p.b) + frameCost
	frames.Finish(p.b, p.kind)
	return p
}

// sentFrame says that a frame is on the wire and lets its memory be used again.
func (b *outbox) sentFrame(p *outFrame) {
	if p.sent != nil {
		close(p.sent)
	}
	if cap(p.b) <= keptFrame {
		*p = outFrame{b: p.b}
		b.spare.Put(p)
	}
}
