// SPDX-License-Identifier: Apache-2.0

// Package service answers the messages of clients over a serving.Backend, for every front end:
// requests to the lock table, reads, watches, files and history. Whatever role its server has,
// it answers, with SECONDARY_MODE where only a primary can.
package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Service answers the messages of clients. Its errors are contexts that ended; everything
// else is a status in the answer. Its methods are safe for use by several goroutines.
type Service struct {
	b       serving.Backend
	opt     Options
	self    cluster.ServerID
	cluster string // its ID
	// large has room for one watch that reads a large table.
	large chan struct{}
	// watchers counts the watches that are served now.
	watchers atomic.Int64
	// searches has room for those that search the history.
	searches chan struct{}
	// volume has room for those that read the volume, stuck ones included.
	volume  chan struct{}
	counted lastCount
	ongoing ongoing
	own     *cluster.Own // what the volume owns; nil if it is of no site
}

// Options bound what a Service does for its clients. 0 means the default.
type Options struct {
	// MaxWatches is how many watches are served at a time: 16,384 by default.
	MaxWatches int
	// SearchWait is how long an answer waits for the history's files on the volume: 1.5 s by
	// default.
	SearchWait time.Duration
	// ResetWait is how long a client may leave a piece of a reset unread: 30 s by default.
	ResetWait time.Duration
	// MaxHold is how long a request that exceeds a rate is held at most before it is refused: 1 s by default; negative = it
	// is refused at once.
	MaxHold time.Duration
	// Authenticator knows callers and rules. Without one everybody may do everything.
	Authenticator access.Authenticator
	// Prover signs proofs. Without one nothing is proved.
	Prover Prover
	// Logins issues tickets; nil = nobody logs in at this server.
	Logins Logins
	// Auditor is told what callers were refused, who logged in, and what operators did; nil = nobody is.
	Auditor Auditor
	// Failures bounds how fast callers may fail to show who they are; services may share them. nil = no bound.
	Failures *Failures
	// Usage counts what quotas limit; services may share it. nil = one of its own.
	Usage *Usage
	// Tallies counts for metrics what happens; services may share them. nil = nothing is counted.
	Tallies *Tallies
	// Traces has what traces calls; services may share it. nil = nothing is traced.
	Traces *serving.Traces
}

// New returns a service over b. Its limits count for all front ends that share it.
func New(b serving.Backend, opt Options) *Service {
	is := b.Status()
	opt.MaxWatches = cmp.Or(opt.MaxWatches, maxWatches)
	opt.SearchWait = cmp.Or(opt.SearchWait, searchWait)
	opt.ResetWait = cmp.Or(opt.ResetWait, resetWait)
	opt.MaxHold = cmp.Or(opt.MaxHold, maxHold)
	if opt.Usage == nil {
		opt.Usage = &Usage{}
	}
	return &Service{
		b: b, opt: opt, self: is.Server, cluster: is.ClusterID, own: is.Own,
		large: make(chan struct{}, 1), searches: make(chan struct{}, searches), volume: make(chan struct{}, maxVolume),
	}
}

// Backend returns the server that the service is over.
func (s *Service) Backend() serving.Backend { return s.b }

// Self returns the ID of this server.
func (s *Service) Self() cluster.ServerID { return s.self }

// Cluster returns the ID of the cluster that this server belongs to.
func (s *Service) Cluster() string { return s.cluster }

// Traces returns what traces calls; nil, which traces nothing, where the service was made without.
func (s *Service) Traces() *serving.Traces { return s.opt.Traces }

// Watchers returns how many watches are served now.
func (s *Service) Watchers() int { return int(s.watchers.Load()) }

// Identify gives a request that brought no IDs those of a client of its own, and reports
// whether it did.
func Identify(q *locktable.Request) bool {
	if !convert.Anonymous(q) {
		return false
	}
	q.Client, q.ID = cluster.ClientID("~"+rand.Text()), 1
	return true
}

// Execute has the backend execute a request that has its IDs. It gets the identity of
// the caller of ctx.
func (s *Service) Execute(ctx context.Context, q *locktable.Request) (*pb.Answer, error) {
	allowed := s.permission(ctx)
	if err := allowed.admitRequest(ctx, q); err != nil {
		return Refusal(err), nil
	}
	allowed.LimitTo(q)
	asked, waits := ctx, q.Op == locktable.OpAcquire && q.Wait != 0
	if waits {
		lock := string(q.Lock)
		valid, leave := s.WhilePermitted(ctx, func() error { return s.permission(asked).Withdrawn(access.Acquire, lock, "") })
		defer leave()
		ctx = valid
	}
	q.Identity = serving.CallerOf(ctx).Name()
	place := locktable.Request{Op: locktable.OpCancel, Client: q.Client, Target: q.ID, Identity: q.Identity}
	out, err := s.b.Do(ctx, q)
	if err != nil {
		// What the rules say by now is not asked: another reason may have ended it, or they may permit it again.
		refusal, withdrawn := errors.AsType[*wire.Error](context.Cause(ctx))
		if !waits || !withdrawn {
			return nil, err
		}
		out = s.leaveQueue(asked, &place, refusal)
	}
	s.Executed(q, serving.CallerOf(asked), serving.RemoteOf(ctx), &out)
	if out.Client == "" {
		out.Client, out.Request = q.Client, RequestOf(q)
	}
	if out.Lock == "" {
		out.Lock = q.Lock
	}
	a := s.Answer(&out)
	if q.Op == locktable.OpAcquire && out.Status == cluster.StatusOK && !out.Repeat { // a repeat may be downgraded by now
		a.Mode = pb.Mode(q.Mode).Enum()
	}
	return a, nil
}

// ExecuteOrAbandon executes a request that may lack IDs, which it then gets. An acquire under
// such IDs is abandoned when ctx ends before its answer: no other caller can ask for it.
func (s *Service) ExecuteOrAbandon(ctx context.Context, q *locktable.Request) (*pb.Answer, error) {
	made := Identify(q)
	a, err := s.Execute(ctx, q)
	if made && q.Op == locktable.OpAcquire && ctx.Err() != nil {
		Abandon(ctx, q, s.Execute)
	}
	return a, err
}

// RequestOf returns the ID of the request that an answer to q is about: for a cancel, that of
// the request to be cancelled.
func RequestOf(q *locktable.Request) cluster.RequestID {
	if q.Op == locktable.OpCancel {
		return q.Target
	}
	return q.ID
}

// Answer makes the message of an outcome, with advice for a retry, see Advice.
func (s *Service) Answer(out *locktable.Outcome) *pb.Answer {
	a := convert.FromOutcome(out)
	a.Primary, a.RetryAfterMs = s.Advice(out.Status)
	return a
}

// Pauses that are advised before a retry.
const (
	retryFencing = 25 * time.Millisecond
	retryStorage = time.Second
)

// Advice returns what a client should do after a status: ask the primary, or retry after so many
// milliseconds. It is nil and 0 for most statuses.
func (s *Service) Advice(status cluster.Status) (*pb.Primary, int64) {
	after := time.Duration(0)
	switch status {
	case cluster.StatusSecondaryMode:
		// A server whose term has just ended may still take itself for the primary.
		if m, _, ok := s.b.Primary(); ok && m.ID != s.self {
			return &pb.Primary{Id: uint32(m.ID), Client: m.Client, Http: m.HTTPAddress()}, 0
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

// abandonWait bounds the cleaning up after a call.
const abandonWait = 10 * time.Second

// Abandon ends an acquire whose IDs this server made and whose caller is gone, with do, which
// executes a request: it cancels the acquire and releases what was granted. The cancel comes
// after the acquire in the primary's queue, so it finds it waiting, granted or refused.
func Abandon(ctx context.Context, q *locktable.Request, do func(context.Context, *locktable.Request) (*pb.Answer, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWait)
	defer cancel()
	a, err := do(ctx, &locktable.Request{Op: locktable.OpCancel, Client: q.Client, Target: q.ID, Identity: q.Identity})
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK || a.GetToken() == 0 {
		return // what is left, if anything, ends with its lease
	}
	// The caller is gone, so no one is left to hear of an error.
	_, _ = do(ctx, &locktable.Request{
		Op: locktable.OpRelease, Client: q.Client, ID: q.ID + 1, Lock: q.Lock, Token: cluster.Token(a.GetToken()), Identity: q.Identity,
	})
}

// Renew extends the lease of one grant.
func (s *Service) Renew(ctx context.Context, q *pb.RenewLeaseRequest) (*pb.Answer, error) {
	lock, token, err := convert.ToLease(q)
	if err != nil {
		return Refusal(err), nil
	}
	if err := s.permit(ctx, access.Keep, string(lock), ""); err != nil {
		return Refusal(err), nil
	}
	out, err := s.b.Renew(ctx, lock, token)
	if err != nil {
		return nil, err
	}
	if out.Status == cluster.StatusPermissionDenied {
		s.auditForeign(serving.CallerOf(ctx), serving.RemoteOf(ctx), access.Keep, string(lock), "", &out)
	}
	a := s.Answer(&out)
	a.ClusterId = s.cluster
	return a, nil
}

// Verify answers whether a token is live, alone or with others that share its lock, and in which
// mode. The status is OK, INVALID_TOKEN with the holder if there is one, or SECONDARY_MODE: a
// replica does not know what ended since. Who may neither read nor acquire the lock is told about grants of its own identity
// only.
func (s *Service) Verify(ctx context.Context, q *pb.VerifyRequest) (*pb.Answer, error) {
	lock, token, err := convert.ToLease(q)
	if err != nil {
		return Refusal(err), nil
	}
	allowed := s.permission(ctx)
	barred := allowed.why(access.Read, string(lock), "")
	if allowed.May(access.Acquire, string(lock), "") {
		barred = nil // a refused acquire would tell it, too
	}
	refuse := func() (*pb.Answer, error) {
		return Refusal(allowed.told(barred, access.Read, string(lock), "")), nil
	}
	if barred != nil && !allowed.May(access.Keep, "", "") {
		return refuse()
	}
	owner := ""
	out := locktable.Outcome{Lock: lock, Token: token}
	var mode *pb.Mode
	reading, err := s.b.Read(ctx, func(v serving.View) {
		g, live := v.Table.Live(lock, token)
		holders := 0
		if !live {
			l, _ := v.Table.Lock(lock)
			g, holders = l.Grant, l.Holders
		}
		owner = g.Identity
		out.Status, out.Epoch, out.Client = cluster.StatusOK, g.Epoch, g.Client
		if live && v.Remaining != nil {
			out.TTL, out.Request = v.Remaining(lock, token), g.Request
			mode, out.Permit = pb.Mode(g.Mode).Enum(), g.Permit
			return
		}
		if why, has := v.Table.Own().Refuses(lock, ""); why != "" {
			out = locktable.Outcome{Status: cluster.StatusWrongCell, Message: why, Cell: has, Lock: lock, Token: token}
			return
		}
		out.Status, out.Message, out.Client = cluster.StatusInvalidToken, "nobody holds the lock", ""
		if g.Token != 0 {
			out.Message = fmt.Sprintf("the lock is held under token %d", g.Token)
			out.Holder = &locktable.LockHolder{Client: g.Client, Token: g.Token, Holder: g.Holder, Since: g.Since, Mode: g.Mode, Count: holders, Identity: g.Identity}
		}
	})
	if err != nil {
		return nil, err
	}
	if status, message := checkFreshness(reading, true, 0); status != pb.Status_STATUS_OK {
		out = locktable.Outcome{Status: cluster.Status(status), Message: message, Lock: lock, Token: token}
		mode = nil
	}
	if isOwn := owner != "" && owner == serving.CallerOf(ctx).Name(); barred != nil && !isOwn {
		return refuse()
	}
	out.LSN = reading.LSN
	a := s.Answer(&out)
	a.Mode = mode
	return a, nil
}

// KeepAlive renews all that a client holds and waits for, and lists its grants where they
// differ from what it believes.
func (s *Service) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	r := &pb.KeepAliveResponse{Correlation: q.GetCorrelation(), ClientId: q.GetClientId(), ClusterId: s.cluster}
	client := cluster.ClientID(q.GetClientId())
	if err := client.Validate(); err != nil {
		r.Status, r.Message = pb.Status_STATUS_INVALID_ARGUMENT, err.Error()
		return r, nil
	}
	if r.Status, r.Message = s.refuses(ctx, access.Keep, "", ""); r.Status != pb.Status_STATUS_OK {
		return r, nil
	}
	b := serving.Belief{Held: int(q.GetHeld()), Digest: (*cluster.Digest)(q.Digest), PlacesOnly: q.GetPlacesOnly()}
	if q.GetHeld() == wire.HeldNotReported {
		b.Held = -1
	}
	grants, asks, out, err := s.b.KeepAlive(ctx, client, b)
	if err != nil {
		return nil, err
	}
	if out.Status == cluster.StatusPermissionDenied {
		s.auditForeign(serving.CallerOf(ctx), serving.RemoteOf(ctx), access.Keep, "", "", &out)
	}
	r.Status, r.Message, r.Epoch, r.Lsn = pb.Status(out.Status), out.Message, uint64(out.Epoch), uint64(out.LSN)
	r.Primary, r.RetryAfterMs = s.Advice(out.Status)
	for _, g := range grants {
		r.Grants = append(r.Grants, &pb.HeldLock{Lock: string(g.Lock), Token: uint64(g.Token), RequestId: uint64(g.Request)})
	}
	for i := range asks {
		r.Asks = append(r.Asks, convert.FromAsk(&asks[i]))
	}
	r.Differs, r.Compared = grants != nil, b.Digest != nil
	return r, nil
}

// noSuccessor returns why a server can never be the successor of this one, "" if it may be.
func (s *Service) noSuccessor(to cluster.ServerID) string {
	var ids []cluster.ServerID
	for _, x := range s.b.Status().Servers {
		ids = append(ids, x.Member.ID)
	}
	switch {
	case to == 0: // any server that is able
		return ""
	case to == s.self:
		return fmt.Sprintf("server %d is primary already", to)
	case !slices.Contains(ids, to):
		return fmt.Sprintf("there is no server %d: use one of %v", to, ids)
	}
	return ""
}

// Handover moves the primary role to another server. The status is UNKNOWN where this term ends
// and it is not certain that the other server was informed.
func (s *Service) Handover(ctx context.Context, q *pb.HandoverRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Admin, "", ""); err != nil {
		return Refusal(err), nil
	}
	out := locktable.Outcome{Status: cluster.StatusOK}
	if s.role() != rolePrimary {
		out.Status, out.Message = cluster.StatusSecondaryMode, "this server is not the primary"
		return s.Answer(&out), nil
	}
	if message := s.noSuccessor(cluster.ServerID(q.GetTo())); message != "" {
		out.Status, out.Message = cluster.StatusInvalidArgument, message
		return s.Answer(&out), nil
	}
	to, err := s.b.Handover(ctx, cluster.ServerID(q.GetTo()))
	s.auditHandover(ctx, to, err)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil && to != 0: // too late to stay
		out.Status = cluster.StatusUnknown
		out.Message = fmt.Sprintf("the term ends, but it is not certain that server %d was told (%v): an election decides, see holdfast status", to, err)
	case err != nil:
		out.Status, out.Message = cluster.StatusError, err.Error()
	default:
		out.Message = fmt.Sprintf("server %d takes over", to)
	}
	a := s.Answer(&out)
	for _, x := range s.b.Status().Servers {
		if err == nil && x.Member.ID == to {
			a.Primary = &pb.Primary{Id: uint32(to), Client: x.Member.Client, Http: x.Member.HTTPAddress()}
		}
	}
	return a, nil
}

// Upgrade raises the feature level of the cluster.
func (s *Service) Upgrade(ctx context.Context, q *pb.UpgradeRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Admin, "", ""); err != nil {
		return Refusal(err), nil
	}
	if s.role() != rolePrimary {
		return s.Answer(&locktable.Outcome{Status: cluster.StatusSecondaryMode, Message: "this server is not the primary"}), nil
	}
	if q.GetLevel() == 0 {
		return Refusal(errors.New("level is missing: give the one that status has as next_level")), nil
	}
	out, err := s.b.Upgrade(ctx, q.GetLevel())
	s.auditUpgrade(ctx, q.GetLevel(), &out, err)
	if err != nil {
		return nil, err
	}
	return s.Answer(&out), nil
}

// Takeover permits this server to be primary once without a majority.
func (s *Service) Takeover(ctx context.Context, q *pb.TakeoverRequest) (*pb.Answer, error) {
	if err := s.permit(ctx, access.Admin, "", ""); err != nil {
		return Refusal(err), nil
	}
	own := s.b.Status().Server
	var out locktable.Outcome
	if to := cluster.ServerID(q.GetServer()); to != 0 && to != own {
		out.Status, out.Message = cluster.StatusInvalidArgument, fmt.Sprintf("this is server %d, and server %d is to take over: ask that one, at its own address", own, to)
	} else {
		out = s.b.Takeover()
	}
	s.auditTakeover(ctx, own, q.GetReason(), &out)
	return s.Answer(&out), nil
}

const (
	rolePrimary = "primary"
	roleReplica = "replica"
)

// role returns what this server is, as in serving.ServerStatus.
func (s *Service) role() string {
	for _, x := range s.b.Status().Servers {
		if x.Member.ID == s.self {
			return x.Role
		}
	}
	return ""
}

// Refusal returns the answer to a request that was refused with err: its status if it is a
// *wire.Error, else INVALID_ARGUMENT.
func Refusal(err error) *pb.Answer {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Answer()
	}
	return wire.Invalid(err.Error()).Answer()
}
