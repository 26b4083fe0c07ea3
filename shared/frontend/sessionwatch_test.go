// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Whoever was told that a watch has ended may use its number again, at once.
func TestTheNumberOfAWatchThatEndedIsFree(t *testing.T) {
	s := welcomed(t, dialGRPC(t, startPrimary(t)), "c1")
	bad := &pb.SessionWatch{WatchId: 7, Request: &pb.WatchRequest{Kinds: []pb.EventKind{999}}}
	for range 500 {
		if err := s.Send(&pb.SessionRequest{Watches: []*pb.SessionWatch{bad}}); err != nil {
			t.Fatal(err)
		}
		m := next(t, s, func(m *pb.SessionResponse) bool { return len(m.Events) > 0 })
		if why := m.Events[0].Response.Message; !strings.Contains(why, "kind 999") {
			t.Fatalf("told %q", why)
		}
	}
}

// A watch that has ended by itself takes nothing with it that has its number now.
func TestAWatchOutlivesTheOneBeforeIt(t *testing.T) {
	s := welcomed(t, dialGRPC(t, startPrimary(t)), "c1")
	bad := &pb.SessionWatch{WatchId: 7, Request: &pb.WatchRequest{Kinds: []pb.EventKind{999}}}
	good := &pb.SessionWatch{WatchId: 7, Request: &pb.WatchRequest{Target: &pb.WatchRequest_Lock{Lock: "a"}}}
	for i := range 500 {
		messages := []*pb.SessionRequest{{Watches: []*pb.SessionWatch{bad}}, {Unwatch: []uint64{7}, Watches: []*pb.SessionWatch{good}}}
		if i%2 > 0 {
			messages[1].Watches = nil
			messages = append(messages, &pb.SessionRequest{Watches: []*pb.SessionWatch{good}})
		}
		for _, m := range messages {
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		next(t, s, func(m *pb.SessionResponse) bool {
			for _, e := range m.Events {
				if e.Response.Reset_.GetLast() {
					return true
				}
			}
			return false
		})
		if err := s.Send(&pb.SessionRequest{Unwatch: []uint64{7}}); err != nil {
			t.Fatal(err)
		}
	}
}
