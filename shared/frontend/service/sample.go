// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// MaxSampled is how many locks SampleLocks describes at most: each is several time series where it is stored.
const MaxSampled = 100

// SampleLocks describes, for metrics, the locks with these names, free or not, and those that begin with a prefix, nil for none. If
// the caller may not read a named lock, the answer is a refusal; under the prefix such locks are left out, as in ListLocks. More than
// MaxSampled names are refused; where there are more locks under the prefix than room, Next is set.
func (s *Service) SampleLocks(ctx context.Context, names []string, prefix *string) (*pb.ListLocksResponse, error) {
	ctx = OneRequest(ctx)
	slices.Sort(names)
	names = slices.Compact(names)
	if err := s.maySample(ctx, names, prefix); err != nil {
		status, message := answerTo(err)
		return &pb.ListLocksResponse{Status: status, Message: message}, nil
	}
	r, err := s.readNamed(ctx, names)
	if err != nil || r.GetStatus() != pb.Status_STATUS_OK || prefix == nil {
		return r, err
	}
	under, err := s.ListLocks(ctx, &pb.ListLocksRequest{Prefix: *prefix, Limit: MaxSampled})
	if err != nil || under.GetStatus() != pb.Status_STATUS_OK {
		return under, err
	}
	for _, l := range under.GetLocks() {
		if _, named := slices.BinarySearch(names, l.GetName()); named {
			continue
		}
		if len(r.Locks) == MaxSampled {
			under.Next = l.GetName()
			break
		}
		r.Locks = append(r.Locks, l)
	}
	r.Next, r.AgeMs = under.GetNext(), max(r.GetAgeMs(), under.GetAgeMs())
	return r, nil
}

// maySample returns an error unless the caller may have these locks sampled.
func (s *Service) maySample(ctx context.Context, names []string, prefix *string) error {
	switch {
	case len(names) == 0 && prefix == nil:
		return wire.Invalid("name locks, with lock=NAME or prefix=PREFIX")
	case len(names) > MaxSampled:
		return wire.Invalid(fmt.Sprintf("%d locks are named, at most %d are allowed: ask for them in several scrapes", len(names), MaxSampled))
	}
	for _, name := range names {
		if err := cluster.LockName(name).Validate(); err != nil {
			return wire.Invalid(err.Error())
		}
	}
	allowed := s.permission(ctx)
	return allowed.count(ctx, 0, func() error {
		for _, name := range names {
			if err := allowed.Check(access.Read, name, ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// readNamed describes locks in one read.
func (s *Service) readNamed(ctx context.Context, names []string) (*pb.ListLocksResponse, error) {
	locks := make([]lockSnapshot, len(names))
	reading, err := s.b.Read(ctx, func(v serving.View) {
		for i, name := range names {
			l, ok := v.Table.Lock(cluster.LockName(name))
			if !ok {
				l = locktable.LockView{Name: cluster.LockName(name)}
			}
			locks[i] = snapshotLock(v, l, new(int))
		}
	})
	if err != nil {
		return nil, err // the core loop may still be writing locks
	}
	r := &pb.ListLocksResponse{Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN), AgeMs: wire.CeilMillis(reading.Age)}
	if r.Status, r.Message = checkFreshness(reading, false, 0); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	for i := range locks {
		r.Locks = append(r.Locks, locks[i].proto())
	}
	return r, nil
}
