// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestWhatCannotBeEncodedIsSentOnce: an event that is not UTF-8 comes to nothing. What is told
// behind it is sent, and said to be sent, once.
func TestWhatCannotBeEncodedIsSentOnce(t *testing.T) {
	b := outbox{wake: make(chan struct{}, 1)}
	bad := &pb.SessionResponse{Events: []*pb.SessionEvents{{WatchId: 1, Response: &pb.WatchResponse{Message: "\xff"}}}}
	b.tell(bad, false)
	sent := b.tell(&pb.SessionResponse{Answers: []*pb.Answer{{Correlation: 7}}}, true)
	for p := b.take(); p != nil; p = b.take() {
		close(p.sent) // as the writer does
	}
	select {
	case <-sent:
	default:
		t.Error("what was sent is not said to be")
	}
}
