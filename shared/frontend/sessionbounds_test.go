// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestManyKeepAlivesInOneMessage: a small message does not begin thousands of calls at once.
func TestManyKeepAlivesInOneMessage(t *testing.T) {
	b := startPrimary(t)
	s := welcomed(t, dialGRPC(t, b), "c1")
	const n = 5000
	m := &pb.SessionRequest{}
	for range n {
		m.KeepAlives = append(m.KeepAlives, &pb.KeepAliveRequest{})
	}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < n; {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got += len(r.KeepAlives)
	}
	if most := b.kept.Load(); most > 16 {
		t.Errorf("%d keep-alives of one session under way at once", most)
	}
}

// TestMessageOfManyOperations: what takes two bytes each is not made into orders all at once,
// and a message of more than may be in flight ends the session.
func TestMessageOfManyOperations(t *testing.T) {
	b := startPrimary(t)
	s := welcomed(t, dialGRPC(t, b), "c1")
	const n = 10_000
	m := &pb.SessionRequest{}
	for i := range uint64(n) {
		m.Operations = append(m.Operations, operation(i+1, &pb.AcquireRequest{RequestId: i + 1, Lock: "l", TtlMs: 600_000}))
	}
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	answers(t, s, n)
	if most := b.most.Load(); b.orders.Load() != n || most > 1024 {
		t.Errorf("%d orders, %d at once", b.orders.Load(), most)
	}

	for _, m := range []*pb.SessionRequest{
		{Operations: make([]*pb.Operation, 1<<17)},
		{Operations: make([]*pb.Operation, 1<<16), KeepAlives: []*pb.KeepAliveRequest{{}}},
	} {
		s = welcomed(t, dialGRPC(t, b), "c2")
		for i := range m.Operations {
			m.Operations[i] = &pb.Operation{}
		}
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recv(); r.GetEnd().GetStatus() != pb.Status_STATUS_INVALID_ARGUMENT {
			t.Errorf("%d operations: %d answers, %v", len(m.Operations), len(r.GetAnswers()), err)
		}
	}
}

// TestBytesInFlightAreBounded: while the volume stalls a session takes some appends and no
// more, and all of them when it goes on.
func TestBytesInFlightAreBounded(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	s := welcomed(t, c, "c1")
	ask(t, s, operation(1, &pb.AcquireRequest{RequestId: 1, Lock: "l", TtlMs: 600_000}))
	token := answers(t, s, 1)[1].Token
	gate := volumetest.NewGate()
	b.host.SetHook(func(x volumetest.Call) volumetest.Action {
		if x.Op == volumetest.OpDatasync {
			return volumetest.Pause(gate)
		}
		return volumetest.Proceed()
	})
	const n = 100
	data := make([]byte, 1<<20)
	began := b.orders.Load()
	go func() {
		for i := range uint64(n) {
			op := &pb.Operation{Correlation: i + 2, Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{RequestId: i + 2, Lock: "l", Token: token, File: "f", Data: data}}}
			if s.Send(&pb.SessionRequest{Operations: []*pb.Operation{op}}) != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.orders.Load()-began < 60 { // it takes what it may
		<-tick.C
	}
	other := dialGRPC(t, b)
	for range 4 { // and a moment for more: each waits for the core loop in vain
		if _, err := other.Status(t.Context(), &pb.StatusRequest{Local: true}); err != nil {
			t.Fatal(err)
		}
	}
	if taken := b.orders.Load() - began; taken > 66 {
		t.Errorf("%d appends of 1 MiB were taken while nothing was answered", taken)
	}
	b.host.SetHook(nil)
	gate.Resume()
	for _, a := range answers(t, s, n) {
		if a.Status != pb.Status_STATUS_OK {
			t.Fatalf("an append: %v", proto.Clone(a))
		}
	}
}
