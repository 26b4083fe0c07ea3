// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// service is what the front ends have in common: it answers messages. Its errors
// are contexts that ended.
type service struct {
	b       Backend
	self    cluster.ServerID
	cluster string // its ID
	// large has room for one: who reads a large table for a watch.
	large chan struct{}
	// watchers are served now.
	watchers atomic.Int64
	// searches has room for those who search the history.
	searches   chan struct{}
	searchWait time.Duration
	resetWait  time.Duration // how long a piece of a reset may take to be sent over gRPC
	// volume has room for those who read the volume, stuck ones included.
	volume  chan struct{}
	counted lastCount
}

func newService(b Backend) *service {
	is := b.Status()
	return &service{
		b: b, self: is.Server, cluster: is.ClusterID, large: make(chan struct{}, 1), searches: make(chan struct{}, searches), searchWait: searchWait, resetWait: bodyWait,
		volume: make(chan struct{}, maxVolume),
	}
}

// identify gives a request that brought no IDs those of a client of its own,
// and says whether it did.
func identify(q *locktable.Request) bool {
	if !convert.Anonymous(q) {
		return false
	}
	q.Client, q.ID = cluster.ClientID("~"+rand.Text()), 1
	return true
}

// execute has the backend execute a request that has its IDs.
func (s *service) execute(ctx context.Context, q *locktable.Request) (*pb.Answer, error) {
	out, err := s.b.Do(ctx, q)
	if err != nil {
		return nil, err
	}
	if out.Client == "" {
		out.Client, out.Request = q.Client, requestOf(q)
	}
	if out.Lock == "" {
		out.Lock = q.Lock
	}
	a := s.answer(&out)
	if q.Op == locktable.OpAcquire && out.Status == cluster.StatusOK && !out.Repeat { // a repeat may be downgraded by now
		a.Mode = pb.Mode(q.Mode).Enum()
	}
	return a, nil
}

// own is execute for a request that may lack IDs: behind an acquire under made
// ones whose caller is gone it cleans up.
func (s *service) own(ctx context.Context, q *locktable.Request) (*pb.Answer, error) {
	made := identify(q)
	a, err := s.execute(ctx, q)
	if made && q.Op == locktable.OpAcquire && ctx.Err() != nil {
		abandon(ctx, q, s.execute)
	}
	return a, err
}

// requestOf is the request that an answer to q is about.
func requestOf(q *locktable.Request) cluster.RequestID {
	if q.Op == locktable.OpCancel {
		return q.Target
	}
	return q.ID
}

// answer completes an outcome with what only the server knows.
func (s *service) answer(out *locktable.Outcome) *pb.Answer {
	a := convert.FromOutcome(out)
	a.Primary, a.RetryAfterMs = s.advice(out.Status)
	return a
}

// Pauses that are advised before a retry.
const (
	retryFencing = 25 * time.Millisecond
	retryStorage = time.Second
)

// advice says where to go, or when to come again, after a status.
func (s *service) advice(status cluster.Status) (*pb.Primary, int64) {
	after := time.Duration(0)
	switch status {
	case cluster.StatusSecondaryMode:
		// A server whose reign has just ended may still take itself for the primary.
		if m, _, ok := s.b.Primary(); ok && m.ID != s.self {
			return &pb.Primary{Id: uint32(m.ID), Grpc: m.GRPC, Http: m.HTTP}, 0
		}
		after = s.b.Timing().Heartbeat
	case cluster.StatusServerFencing:
		after = retryFencing
	case cluster.StatusNoQuorum:
		after = s.b.Timing().Suspicion
	case cluster.StatusStorageUnavailable:
		after = retryStorage
	}
	return nil, wire.CeilMillis(after)
}

// abandonWait bounds the cleaning up behind a call.
const abandonWait = 10 * time.Second

// abandon ends an acquire whose IDs this server made and whose caller is gone.
// The cancel comes behind the acquire in the primary's queue, so it finds it
// waiting, granted or refused.
func abandon(ctx context.Context, q *locktable.Request, do func(context.Context, *locktable.Request) (*pb.Answer, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWait)
	defer cancel()
	a, err := do(ctx, &locktable.Request{Op: locktable.OpCancel, Client: q.Client, Target: q.ID})
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK || a.GetToken() == 0 {
		return // what is left, if anything, ends with its lease
	}
	// Whatever comes of it: there is nobody to tell.
	_, _ = do(ctx, &locktable.Request{
		Op: locktable.OpRelease, Client: q.Client, ID: q.ID + 1, Lock: q.Lock, Token: cluster.Token(a.GetToken()),
	})
}

// renew extends one lease.
func (s *service) renew(ctx context.Context, q *pb.RenewLeaseRequest) (*pb.Answer, error) {
	lock, token, err := convert.ToLease(q)
	if err != nil {
		return refusal(err), nil
	}
	out, err := s.b.Renew(ctx, lock, token)
	if err != nil {
		return nil, err
	}
	a := s.answer(&out)
	a.ClusterId = s.cluster
	return a, nil
}

// verify says whether a token is the live one of its lock, or one of those that share it,
// and which. Only a primary knows: what a replica has may have ended since.
func (s *service) verify(ctx context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	lock, token, err := convert.ToLease(q)
	if err != nil {
		return refusal(err), nil
	}
	out := locktable.Outcome{Lock: lock, Token: token}
	var mode *pb.Mode
	reading, err := s.b.Read(ctx, func(v primary.View) {
		g, live := v.Table.Live(lock, token)
		holders := 0
		if !live {
			l, _ := v.Table.Lock(lock)
			g, holders = l.Grant, l.Holders
		}
		out.Status, out.Epoch, out.Client = cluster.StatusOK, g.Epoch, g.Client
		if live && v.Remaining != nil {
			out.TTL, out.Request = v.Remaining(lock, token), g.Request
			mode = pb.Mode(g.Mode).Enum()
			return
		}
		out.Status, out.Message, out.Client = cluster.StatusInvalidToken, "nobody holds the lock", ""
		if g.Token != 0 {
			out.Message = fmt.Sprintf("the lock is held under token %d", g.Token)
			out.Holder = &locktable.LockHolder{Client: g.Client, Token: g.Token, Holder: g.Holder, Since: g.Since, Mode: g.Mode, Count: holders}
		}
	})
	if err != nil {
		return nil, err
	}
	if status, message := enough(reading, true, 0); status != pb.Status_STATUS_OK {
		out = locktable.Outcome{Status: cluster.Status(status), Message: message, Lock: lock, Token: token}
		mode = nil
	}
	out.LSN = reading.LSN
	a := s.answer(&out)
	a.Mode = mode
	return a, nil
}

// keepAlive renews all that a client holds and waits for.
func (s *service) keepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	r := &pb.KeepAliveResponse{Correlation: q.GetCorrelation(), ClientId: q.GetClientId(), ClusterId: s.cluster}
	client := cluster.ClientID(q.GetClientId())
	if err := client.Validate(); err != nil {
		r.Status, r.Message = pb.Status_STATUS_INVALID_ARGUMENT, err.Error()
		return r, nil
	}
	b := primary.Belief{Held: int(q.GetHeld()), Digest: (*cluster.Digest)(q.Digest), PlacesOnly: q.GetPlacesOnly()}
	if q.GetHeld() == wire.HeldUnsaid {
		b.Held = -1
	}
	grants, asks, out, err := s.b.KeepAlive(ctx, client, b)
	if err != nil {
		return nil, err
	}
	r.Status, r.Message, r.Epoch, r.Lsn = pb.Status(out.Status), out.Message, uint64(out.Epoch), uint64(out.LSN)
	r.Primary, r.RetryAfterMs = s.advice(out.Status)
	for _, g := range grants {
		r.Grants = append(r.Grants, &pb.HeldLock{Lock: string(g.Lock), Token: uint64(g.Token), RequestId: uint64(g.Request)})
	}
	for i := range asks {
		r.Asks = append(r.Asks, convert.FromAsk(&asks[i]))
	}
	r.Differs, r.Compared = grants != nil, b.Digest != nil
	return r, nil
}

// noSuccessor says why a server can never be the successor of this one, "" if it may be.
func (s *service) noSuccessor(to cluster.ServerID) string {
	var ids []cluster.ServerID
	for _, x := range s.b.Status().Servers {
		ids = append(ids, x.Member.ID)
	}
	switch {
	case to == 0: // whoever is able
		return ""
	case to == s.self:
		return fmt.Sprintf("server %d reigns already", to)
	case !slices.Contains(ids, to):
		return fmt.Sprintf("there is no server %d: use one of %v", to, ids)
	}
	return ""
}

// handover moves the reign on purpose.
func (s *service) handover(ctx context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	out := locktable.Outcome{Status: cluster.StatusOK}
	if s.role() != rolePrimary {
		out.Status, out.Message = cluster.StatusSecondaryMode, "this server does not reign"
		return s.answer(&out), nil
	}
	if message := s.noSuccessor(cluster.ServerID(q.GetTo())); message != "" {
		out.Status, out.Message = cluster.StatusInvalidArgument, message
		return s.answer(&out), nil
	}
	to, err := s.b.Handover(ctx, cluster.ServerID(q.GetTo()))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil && to != 0: // too late to stay
		out.Status = cluster.StatusUnknown
		out.Message = fmt.Sprintf("the reign ends, but it is not certain that server %d was told (%v): an election decides, see holdfast status", to, err)
	case err != nil:
		out.Status, out.Message = cluster.StatusError, err.Error()
	default:
		out.Message = fmt.Sprintf("server %d takes over", to)
	}
	a := s.answer(&out)
	for _, x := range s.b.Status().Servers {
		if err == nil && x.Member.ID == to {
			a.Primary = &pb.Primary{Id: uint32(to), Grpc: x.Member.GRPC, Http: x.Member.HTTP}
		}
	}
	return a, nil
}

const (
	rolePrimary = "primary"
	roleReplica = "replica"
)

// role is the word for what this server is doing.
func (s *service) role() string {
	for _, x := range s.b.Status().Servers {
		if x.Member.ID == s.self {
			return x.Role
		}
	}
	return ""
}

// refusal is the answer to a request that could not be understood.
func refusal(err error) *pb.Answer {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Answer()
	}
	return wire.Invalid(err.Error()).Answer()
}

// isError says that gRPC tells a status as an error.
func isError(status pb.Status) bool { return wire.GRPCCode(wire.FromStatus(status)) != codes.OK }
