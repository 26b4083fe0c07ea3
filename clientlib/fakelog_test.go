// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// fakeLog is what has happened to the locks of a fakeCluster; guarded by its mu.
type fakeLog struct {
	events []*pb.Event
	kept   uint64        // up to there events are forgotten
	grown  chan struct{} // closed with the next event
}

// record logs what happened at the present LSN. It is called with mu held.
func (f *fakeCluster) record(e *pb.Event) {
	e.Lsn, e.Epoch = f.mu.lsn, f.mu.epoch
	f.mu.log.events = append(f.mu.log.events, e)
	close(f.mu.log.grown)
	f.mu.log.grown = make(chan struct{})
}

// finish ends the grant of a lock in the way that e says.
func (f *fakeCluster) finish(lock string, e *pb.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.lsn++
	e.Lock, e.Token = lock, f.mu.locks[lock].token
	f.record(e)
	f.free(lock)
}

// forget drops the events so far.
func (f *fakeCluster) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.log.kept = f.mu.lsn
}

func (f *fakeCluster) lockOf(name string) *pb.Lock {
	x := &pb.Lock{Name: name}
	l := f.lock(name)
	if l.token != 0 {
		x.Grant, x.Holders = &pb.Grant{Lock: name, Token: l.token, ClientId: l.client}, 1
	}
	if l.older != 0 {
		own := x.Grant
		if x.Grant = (&pb.Grant{Lock: name, Token: l.older, ClientId: "older", Mode: pb.Mode_MODE_SHARED}); own != nil && l.more == 0 {
			x.SharedHolders = []*pb.Grant{own}
		}
		x.Holders += 1 + l.more
	}
	return x
}

func (d direct) Verify(ctx context.Context, r *pb.VerifyRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	if err := d.s.enter(ctx, "verify"); err != nil {
		return nil, err
	}
	d.s.f.mu.Lock()
	defer d.s.f.mu.Unlock()
	a := &pb.Answer{Status: pb.Status_STATUS_OK, Lsn: d.s.f.mu.lsn, TtlMs: 1000, Mode: pb.Mode_MODE_EXCLUSIVE.Enum()}
	l := d.s.f.lock(r.Lock)
	if l.older != 0 {
		a.Mode = pb.Mode_MODE_SHARED.Enum()
	}
	if l.token != r.Token && l.older != r.Token {
		a = &pb.Answer{Status: pb.Status_STATUS_INVALID_TOKEN, Lsn: d.s.f.mu.lsn}
	}
	return a, nil
}

// Outcome is answered by replicas, too: by this one as if it had seen nothing.
func (d direct) Outcome(ctx context.Context, r *pb.OutcomeRequest, _ ...grpc.CallOption) (*pb.OutcomeResponse, error) {
	if err := d.s.enter(ctx, "status"); err != nil { // any server
		return nil, err
	}
	d.s.f.mu.Lock()
	defer d.s.f.mu.Unlock()
	out := &pb.OutcomeResponse{Status: pb.Status_STATUS_OK, State: pb.RequestState_REQUEST_STATE_NOT_SEEN, Lsn: d.s.f.mu.lsn, Epoch: d.s.f.mu.epoch}
	if p := d.s.f.mu.primary; p != d.s {
		out.AgeMs, out.Primary = 3, &pb.Primary{Client: p.addr}
		return out, nil
	}
	if a := d.s.f.mu.receipts[fakeKey{r.ClientId, r.RequestId}]; a != nil {
		out.State, out.Outcome = pb.RequestState_REQUEST_STATE_EXECUTED, a
	}
	return out, nil
}

func (d direct) BreakLock(ctx context.Context, r *pb.BreakLockRequest, _ ...grpc.CallOption) (*pb.Answer, error) {
	return d.s.BreakLock(ctx, r)
}

// BreakLock finds whichever grant is live.
func (s *fakeServer) BreakLock(ctx context.Context, r *pb.BreakLockRequest) (*pb.Answer, error) {
	s.f.mu.Lock()
	token := s.f.lock(r.Lock).token
	s.f.mu.Unlock()
	if token == 0 {
		token = 1 // of nobody
	}
	return s.change(ctx, "break", fakeKey{r.ClientId, r.RequestId}, r.LowWater, r.Lock, token, func(*pb.Answer) { s.f.free(r.Lock) })
}

func (d direct) GetLock(ctx context.Context, r *pb.GetLockRequest, _ ...grpc.CallOption) (*pb.GetLockResponse, error) {
	if err := d.s.enter(ctx, "get"); err != nil {
		return nil, err
	}
	d.s.f.mu.Lock()
	defer d.s.f.mu.Unlock()
	return &pb.GetLockResponse{Status: pb.Status_STATUS_OK, Lsn: d.s.f.mu.lsn, Lock: d.s.f.lockOf(r.Lock)}, nil
}

// fakeWatch is a watch of one lock.
type fakeWatch struct {
	grpc.ClientStream
	ctx  context.Context
	f    *fakeCluster
	q    *pb.WatchRequest
	at   uint64
	said bool // that nothing more has happened
}

func (d direct) Watch(ctx context.Context, q *pb.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.WatchResponse], error) {
	if err := d.s.enter(ctx, "status"); err != nil { // any server serves it
		return nil, err
	}
	var refuse func(string) error
	d.s.set(func() { refuse = d.s.mu.refuse })
	if refuse != nil {
		if err := refuse("watch"); err != nil {
			return nil, err
		}
	}
	return &fakeWatch{ctx: ctx, f: d.s.f, q: q, at: q.GetAfterLsn()}, nil
}

func (x *fakeWatch) Recv() (*pb.WatchResponse, error) {
	for {
		r, grown := x.next()
		if r != nil {
			return r, nil
		}
		t := time.NewTimer(wire.Millis(x.q.BookmarkMs))
		select {
		case <-grown:
		case <-t.C:
			x.said = false
		case <-x.ctx.Done():
			t.Stop()
			return nil, status.FromContextError(x.ctx.Err()).Err()
		}
		t.Stop()
	}
}

// next is what there is to say, or nil and when to look again.
func (x *fakeWatch) next() (*pb.WatchResponse, <-chan struct{}) {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	log, now := &x.f.mu.log, x.f.mu.lsn
	r := &pb.WatchResponse{Status: pb.Status_STATUS_OK, Epoch: x.f.mu.epoch, Lsn: now}
	if x.at < log.kept {
		x.at = now
		r.Reset_ = &pb.Reset{Last: true, Reason: "too old", Locks: []*pb.Lock{x.f.lockOf(x.q.GetLock())}}
		return r, nil
	}
	for _, e := range log.events {
		if e.Lsn > x.at && (e.Lock == x.q.GetLock() || e.Lock == "") && (e.Lock == "" || slices.Contains(x.q.Kinds, e.Kind)) {
			r.Events = append(r.Events, e)
		}
	}
	if x.at = now; len(r.Events) == 0 && x.said {
		return nil, log.grown
	}
	x.said = len(r.Events) == 0
	return r, nil
}

func (d direct) Prove(ctx context.Context, r *pb.ProveRequest, _ ...grpc.CallOption) (*pb.ProveResponse, error) {
	if err := d.s.enter(ctx, "prove"); err != nil {
		return nil, err
	}
	d.s.f.mu.Lock()
	defer d.s.f.mu.Unlock()
	switch l := d.s.f.lock(r.Lock); {
	case r.Lock == "unsigned":
		return &pb.ProveResponse{Status: pb.Status_STATUS_ERROR, Message: "there is no key"}, nil
	case l.token != r.Token:
		return &pb.ProveResponse{Status: pb.Status_STATUS_INVALID_TOKEN}, nil
	}
	return &pb.ProveResponse{Status: pb.Status_STATUS_OK, Proof: "signed", TtlMs: 1000}, nil
}
