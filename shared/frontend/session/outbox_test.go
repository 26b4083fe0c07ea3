// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func newOutbox() *outbox {
	return &outbox{spare: &sync.Pool{New: func() any { return &outFrame{} }}}
}

// TestWhatWaitsIsTakenInPieces: a client that takes messages of 4 MiB, as it does by default,
// gets all that waited for it, in order, each once.
func TestWhatWaitsIsTakenInPieces(t *testing.T) {
	b := newOutbox()
	const n = 20_000
	var last <-chan error
	for i := range uint64(n) {
		if i%2 == 0 {
			if !b.outcome(i, &locktable.Outcome{Status: cluster.StatusOK, LSN: 7}, true) {
				t.Fatal("a plain outcome")
			}
			continue
		}
		b.put(&pb.SessionResponse{Answers: []*pb.Answer{{Correlation: i, Message: strings.Repeat("x", 700)}}}, true)
		last, _ = b.putAsked(&pb.SessionResponse{})
	}
	if b.unread(6<<20) == nil || b.unread(9<<20) != nil {
		t.Errorf("%d bytes are counted", b.mu.bytes)
	}
	next, counted := uint64(0), int64(0)
	for p := b.take(); p != nil; p = b.take() {
		m := &pb.SessionResponse{}
		if err := proto.Unmarshal(p.b[frames.HeaderSize:], m); err != nil || len(p.b) == frames.HeaderSize || len(p.b) > 2<<20 {
			t.Fatalf("a message of %d bytes: %v", len(p.b), err)
		}
		for _, a := range m.Answers {
			if a.Correlation != next {
				t.Fatalf("answer %d where %d is next", a.Correlation, next)
			}
			next++
		}
		if counted += p.n; next == n && p.asked() != last {
			t.Error("the last answer is told as sent with another message")
		}
	}
	if next != n || counted != n || b.mu.bytes != 0 || b.unread(1) != nil {
		t.Errorf("%d answers, %d counted, %d bytes left", next, counted, b.mu.bytes)
	}
}

// TestWhatCannotBeEncodedIsSentOnce: an event that is not UTF-8 comes to nothing. What is told
// behind it is sent, and said to be sent, once.
func TestWhatCannotBeEncodedIsSentOnce(t *testing.T) {
	b := newOutbox()
	bad := &pb.SessionResponse{Events: []*pb.SessionEvents{{WatchId: 1, Response: &pb.WatchResponse{Message: "\xff"}}}}
	b.put(bad, false)
	sent, begin := b.putAsked(&pb.SessionResponse{Answers: []*pb.Answer{{Correlation: 7}}})
	if begin {
		t.Error("a second writer begins")
	}
	n := 0
	for p := b.take(); p != nil; p = b.take() {
		n++
		b.sentFrame(p)
	}
	if n != 1 {
		t.Errorf("%d frames", n)
	}
	select {
	case <-sent:
	default:
		t.Error("what was sent is not said to be")
	}
}
