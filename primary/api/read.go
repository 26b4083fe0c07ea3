// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Sizes of what one read lists. A read runs in the core loop: it must be short.
const (
	defaultPage = 100
	maxPage     = 1000
	// maxCounted is how many locks Status counts one by one.
	maxCounted = 10 * maxPage
)

func pageSize(n uint32) int {
	if n == 0 {
		return defaultPage
	}
	return int(min(n, maxPage))
}

// seen is a lock as a read saw it.
type seen struct {
	view      locktable.LockView
	remaining time.Duration
	heard     bool
	others    []sharer // that hold it too, in token order
}

// sharer is one of several holders.
type sharer struct {
	grant     locktable.Grant
	remaining time.Duration
	heard     bool
}

// see takes in a lock and, as far as room reaches, its further holders.
func see(v primary.View, l locktable.LockView, room *int) seen {
	first := seeGrant(v, l.Grant)
	l.Grant = first.grant
	x := seen{view: l, remaining: first.remaining, heard: first.heard}
	if l.Holders < 2 {
		return x
	}
	for g := range v.Table.Grants(l.Name) {
		if g.Token == l.Grant.Token {
			continue
		}
		if *room <= 0 {
			break
		}
		*room--
		x.others = append(x.others, seeGrant(v, g))
	}
	return x
}

func seeGrant(v primary.View, g locktable.Grant) sharer {
	x := sharer{grant: g, remaining: convert.RemainingUnknown}
	if v.Remaining != nil {
		x.remaining = v.Remaining(g.Lock, g.Token)
	}
	if a := g.Ask; a != nil && v.Grace != nil {
		known := *a
		known.Remaining = v.Grace(g.Token)
		x.grant.Ask = &known
	}
	if v.Heard != nil {
		x.heard = v.Heard(g.Client)
	}
	return x
}

func (x *seen) proto() *pb.Lock {
	l := convert.FromView(&x.view, x.remaining, x.heard)
	for i := range x.others {
		o := &x.others[i]
		l.SharedHolders = append(l.SharedHolders, convert.FromGrant(&o.grant, o.remaining, o.heard))
	}
	return l
}

// enough says whether a reading is what the caller wants, and else why not.
func enough(r Reading, primaryOnly bool, minLSN uint64) (pb.Status, string) {
	switch {
	case r.Status != cluster.StatusOK:
		return pb.Status(r.Status), ""
	case primaryOnly && r.Local:
		return pb.Status_STATUS_SECONDARY_MODE, "this server is not primary"
	case uint64(r.LSN) < minLSN:
		return pb.Status_STATUS_SECONDARY_MODE, fmt.Sprintf("this server stands at LSN %d", r.LSN)
	}
	return pb.Status_STATUS_OK, ""
}

// outcome tells what became of a request.
func (s *service) outcome(ctx context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	client, request, err := convert.ToIDs(q.GetClientId(), q.GetRequestId())
	if err != nil {
		return &pb.OutcomeResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: refusal(err).GetMessage()}, nil
	}
	var state locktable.RequestState
	var out locktable.Outcome
	reading, err := s.b.Read(ctx, func(v primary.View) {
		if state, out = v.Table.Lookup(client, request); out.TTL == 0 {
			return
		}
		if out.TTL = 0; v.Remaining != nil { // a replica does not know what is left of a lease
			out.TTL = v.Remaining(out.Lock, out.Token)
		}
	})
	if err != nil {
		return nil, err
	}
	r := &pb.OutcomeResponse{}
	if r.Status, r.Message = enough(reading, false, 0); r.Status == pb.Status_STATUS_OK {
		r = convert.FromLookup(state, &out)
		// What is decided stays so; anything else may have changed since at the primary,
		// and somebody will act on it.
		if final := state == locktable.RequestExecuted || state == locktable.RequestCancelled; reading.Local && !final {
			r = &pb.OutcomeResponse{Status: pb.Status_STATUS_SECONDARY_MODE, Message: "this replica has not seen the request decided: ask the primary"}
		}
	}
	r.Epoch, r.Lsn, r.AgeMs = uint64(reading.Epoch), uint64(reading.LSN), wire.CeilMillis(reading.Age)
	r.Primary, r.RetryAfterMs = s.advice(wire.FromStatus(r.Status))
	return r, nil
}

// getLock describes one lock.
func (s *service) getLock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	name := cluster.LockName(q.GetLock())
	if err := name.Validate(); err != nil {
		return &pb.GetLockResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}, nil
	}
	lock := seen{view: locktable.LockView{Name: name}}
	var waiters []locktable.Waiter
	type named struct {
		name  cluster.FileName
		state locktable.FileState
	}
	var files []named
	reading, err := s.b.Read(ctx, func(v primary.View) {
		l, ok := v.Table.Lock(name)
		if !ok {
			return
		}
		room := pageSize(q.GetMaxWaiters())
		lock = see(v, l, &room)
		for w := range v.Table.Waiters(name) {
			if len(waiters) == pageSize(q.GetMaxWaiters()) {
				break
			}
			waiters = append(waiters, w)
		}
		of := v.Table.FilesOf(name)
		for _, name := range of[:min(len(of), maxPage)] {
			f, _ := v.Table.File(name)
			files = append(files, named{name, f})
		}
	})
	if err != nil {
		return nil, err
	}
	r := &pb.GetLockResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = enough(reading, q.GetPrimaryOnly(), q.GetMinLsn()); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	r.Lock = lock.proto()
	for i := range waiters {
		r.Lock.Waiters = append(r.Lock.Waiters, convert.FromWaiter(&waiters[i]))
	}
	for i := range files {
		r.Lock.Files = append(r.Lock.Files, convert.FromFile(files[i].name, &files[i].state))
	}
	return r, nil
}

// page reads the locks behind a name, and one more where there is one.
func (s *service) page(ctx context.Context, prefix string, after cluster.LockName, size int) ([]seen, Reading, error) {
	var locks []seen
	reading, err := s.b.Read(ctx, func(v primary.View) {
		room := maxPage
		for l := range v.Table.Locks(prefix, after) {
			if locks = append(locks, see(v, l, &room)); len(locks) > size {
				return
			}
		}
	})
	if err != nil {
		return nil, reading, err // the core loop may still be writing locks
	}
	if reading.Status != cluster.StatusOK {
		return nil, reading, nil
	}
	return locks, reading, nil
}

// listLocks describes a page of locks.
func (s *service) listLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	if len(q.GetPrefix()) > cluster.MaxLockName || len(q.GetAfter()) > cluster.MaxLockName {
		return &pb.ListLocksResponse{
			Status:  pb.Status_STATUS_INVALID_ARGUMENT,
			Message: fmt.Sprintf("prefix and after have at most %d bytes", cluster.MaxLockName),
		}, nil
	}
	size := pageSize(q.GetLimit())
	locks, reading, err := s.page(ctx, q.GetPrefix(), cluster.LockName(q.GetAfter()), size)
	if err != nil {
		return nil, err
	}
	r := &pb.ListLocksResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = enough(reading, q.GetPrimaryOnly(), q.GetMinLsn()); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	if len(locks) > size {
		locks = locks[:size]
		r.Next = string(locks[size-1].view.Name)
	}
	for i := range locks {
		r.Locks = append(r.Locks, locks[i].proto())
	}
	return r, nil
}
