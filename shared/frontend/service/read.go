// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
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
	// ringLooks is at how many grants a search for clients that wait for each other looks, and mostRings how many Status tells.
	ringLooks = 4 * maxPage
	mostRings = 8
)

func pageSize(n uint32) int {
	if n == 0 {
		return defaultPage
	}
	return int(min(n, maxPage))
}

// lockSnapshot is a lock as a read saw it: its oldest grant in view, with what is left of its
// lease, and the other holders.
type lockSnapshot struct {
	view      locktable.LockView
	remaining time.Duration
	heard     bool
	others    []sharer // further holders, in order of token; perhaps not all
}

// sharer is one of several holders of a lock.
type sharer struct {
	grant     locktable.Grant
	remaining time.Duration
	heard     bool
}

// snapshotLock copies a lock and, as far as room reaches, its further holders.
func snapshotLock(v serving.View, l locktable.LockView, room *int) lockSnapshot {
	first := snapshotGrant(v, l.Grant)
	l.Grant = first.grant
	x := lockSnapshot{view: l, remaining: first.remaining, heard: first.heard}
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
		x.others = append(x.others, snapshotGrant(v, g))
	}
	return x
}

func snapshotGrant(v serving.View, g locktable.Grant) sharer {
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

func (x *lockSnapshot) proto() *pb.Lock {
	l := convert.FromView(&x.view, x.remaining, x.heard)
	for i := range x.others {
		o := &x.others[i]
		l.SharedHolders = append(l.SharedHolders, convert.FromGrant(&o.grant, o.remaining, o.heard))
	}
	return l
}

// checkFreshness returns OK if a reading is what the caller wants, else the status and message
// of the refusal. minLSN is the least LSN that the caller accepts.
func checkFreshness(r serving.Reading, primaryOnly bool, minLSN uint64) (pb.Status, string) {
	switch {
	case r.Status != cluster.StatusOK:
		return pb.Status(r.Status), ""
	case primaryOnly && r.Local:
		return pb.Status_STATUS_SECONDARY_MODE, "this server is not the primary"
	case uint64(r.LSN) < minLSN:
		return pb.Status_STATUS_SECONDARY_MODE, fmt.Sprintf("this server is at LSN %d", r.LSN)
	}
	return pb.Status_STATUS_OK, ""
}

// Outcome answers what became of a request. A replica answers only what cannot change any more,
// else SECONDARY_MODE.
func (s *Service) Outcome(ctx context.Context, q *pb.OutcomeRequest) (*pb.OutcomeResponse, error) {
	client, request, err := convert.ToIDs(q.GetClientId(), q.GetRequestId())
	if err != nil {
		return &pb.OutcomeResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: Refusal(err).GetMessage()}, nil
	}
	if status, message := s.refuses(ctx, access.Keep, "", ""); status != pb.Status_STATUS_OK {
		return &pb.OutcomeResponse{Status: status, Message: message}, nil
	}
	var state locktable.RequestState
	var out locktable.Outcome
	denied := ""
	reading, err := s.b.Read(ctx, func(v serving.View) {
		if denied = v.Table.DeniesClient(client, serving.CallerOf(ctx).Name()); denied != "" {
			return
		}
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
	r.Status, r.Message = checkFreshness(reading, false, 0)
	switch {
	case r.Status != pb.Status_STATUS_OK:
	case denied != "":
		r.Status, r.Message = pb.Status_STATUS_PERMISSION_DENIED, denied
	default:
		r = convert.FromLookup(state, &out)
		// What is decided stays so; anything else may have changed since at the primary, and
		// the caller acts on the answer.
		if final := state == locktable.RequestExecuted || state == locktable.RequestCancelled; reading.Local && !final {
			r = &pb.OutcomeResponse{Status: pb.Status_STATUS_SECONDARY_MODE, Message: "this replica has not seen the request decided: ask the primary"}
		}
	}
	r.Epoch, r.Lsn, r.AgeMs = uint64(reading.Epoch), uint64(reading.LSN), wire.CeilMillis(reading.Age)
	r.Primary, r.RetryAfterMs = s.Advice(wire.FromStatus(r.Status))
	return r, nil
}

// GetLock describes one lock, with its waiters, and with those of its files that the caller may read. A lock that was never
// used is free.
func (s *Service) GetLock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	name := cluster.LockName(q.GetLock())
	if err := name.Validate(); err != nil {
		return &pb.GetLockResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: err.Error()}, nil
	}
	allowed := s.permission(ctx)
	if status, message := answerTo(allowed.admit(ctx, access.Read, q.GetLock(), "")); status != pb.Status_STATUS_OK {
		return &pb.GetLockResponse{Status: status, Message: message}, nil
	}
	if why, _ := s.own.Refuses(name, ""); why != "" {
		return &pb.GetLockResponse{Status: pb.Status_STATUS_WRONG_CELL, Message: why}, nil
	}
	lock := lockSnapshot{view: locktable.LockView{Name: name}}
	var waiters []locktable.Waiter
	type named struct {
		name  cluster.FileName
		state locktable.FileState
	}
	var files []named
	mark, foreign := locktable.Mark{}, ""
	var ring locktable.Ring
	reading, err := s.b.Read(ctx, func(v serving.View) {
		foreign, _ = v.Table.Own().Refuses(name, "") // of a cell that was recovered, and is served by itself
		mark, _ = v.Table.Mark(name)
		l, ok := v.Table.Lock(name)
		if !ok {
			return
		}
		room := pageSize(q.GetMaxWaiters())
		lock = snapshotLock(v, l, &room)
		ring = v.Table.RingOf(name, ringLooks)
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
	if r.Status, r.Message = checkFreshness(reading, q.GetPrimaryOnly(), q.GetMinLsn()); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	if foreign != "" {
		r.Status, r.Message = pb.Status_STATUS_WRONG_CELL, foreign
		return r, nil
	}
	r.Lock = lock.proto()
	r.Lock.LastToken, r.Lock.Done, r.Lock.DoneToken = uint64(mark.Last), string(mark.Slot), uint64(mark.By)
	if readsRing(allowed, ring) {
		r.Ring = convert.FromRing(ring)
	}
	for i := range waiters {
		r.Lock.Waiters = append(r.Lock.Waiters, convert.FromWaiter(&waiters[i]))
	}
	for i := range files {
		if !allowed.May(access.Read, "", string(files[i].name)) { // a rule may be about locks only
			continue
		}
		r.Lock.Files = append(r.Lock.Files, convert.FromFile(files[i].name, &files[i].state))
	}
	return r, nil
}

// readsRing reports whether the caller may read each lock of a ring.
func readsRing(allowed *Permission, ring locktable.Ring) bool {
	for i := range ring {
		if !allowed.May(access.Read, string(ring[i].Waiter.Lock), "") {
			return false
		}
	}
	return true
}

// page reads size locks after a name, and one more if there is one.
func (s *Service) page(ctx context.Context, prefix string, after cluster.LockName, size int) ([]lockSnapshot, serving.Reading, error) {
	var locks []lockSnapshot
	reading, err := s.b.Read(ctx, func(v serving.View) {
		room := maxPage
		for l := range v.Table.Locks(prefix, after) {
			if locks = append(locks, snapshotLock(v, l, &room)); len(locks) > size {
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

// readable reads pages under each of these prefixes, in order, until it has more than size items that the caller may
// read, or all. The reading is the first one, which is the oldest. Pages grow where there is nothing that the caller may read: else
// one call with a small page could be as many reads as there are names.
func readable[T any](size int, prefixes []string, after string, page func(prefix, after string, size int) ([]T, serving.Reading, error), name func(*T) string, may func(name string) bool) (all []T, first serving.Reading, err error) {
	began, wide := false, size
	for _, prefix := range prefixes {
		for more := true; more && len(all) <= size; {
			got, reading, err := page(prefix, after, wide)
			if !began || err != nil || reading.Status != cluster.StatusOK {
				began, first = true, reading
			}
			if err != nil || reading.Status != cluster.StatusOK {
				return nil, first, err
			}
			before := len(all)
			for i := range got {
				if after = name(&got[i]); may(after) {
					all = append(all, got[i])
				}
			}
			if more = len(got) > wide; len(all) == before {
				wide = min(2*wide, maxPage)
			}
		}
	}
	if !began {
		_, first, err = page("", after, size) // what the caller may read cannot be listed, but how new that is
	}
	return all, first, err
}

// ListLocks describes a page of locks, without those that the caller may not read. Next in the answer is where the next
// page begins: the last name of this one.
func (s *Service) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	if len(q.GetPrefix()) > cluster.MaxLockName || len(q.GetAfter()) > cluster.MaxLockName {
		return &pb.ListLocksResponse{
			Status:  pb.Status_STATUS_INVALID_ARGUMENT,
			Message: fmt.Sprintf("prefix and after have at most %d bytes", cluster.MaxLockName),
		}, nil
	}
	allowed := s.permission(ctx)
	if err := allowed.admit(ctx, access.Read, "", ""); err != nil {
		status, message := answerTo(err)
		return &pb.ListLocksResponse{Status: status, Message: message}, nil
	}
	size := pageSize(q.GetLimit())
	locks, reading, err := readable(size, allowed.lockPrefixes(q.GetPrefix()), q.GetAfter(), func(prefix, after string, size int) ([]lockSnapshot, serving.Reading, error) {
		return s.page(ctx, prefix, cluster.LockName(after), size)
	}, func(x *lockSnapshot) string { return string(x.view.Name) }, func(name string) bool { return allowed.May(access.Read, name, "") })
	if err != nil {
		return nil, err
	}
	r := &pb.ListLocksResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = checkFreshness(reading, q.GetPrimaryOnly(), q.GetMinLsn()); r.Status != pb.Status_STATUS_OK {
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
