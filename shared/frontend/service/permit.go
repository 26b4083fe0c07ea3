// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Every method of a Service asks first whether its caller, who comes with the context, may do that. So no front end can
// forget it, but for those that hand in requests without the service: they ask a Permission.

// Permission is what the rules in force permit one caller. It belongs to one goroutine, and keeps what the rules said
// until there are others.
type Permission struct {
	s      *Service
	caller *access.Caller
	from   net.Addr // nil if it is not known
	// asked is set once rules were asked; rights and revoked are their answer.
	asked   bool
	rules   *access.Rules
	rights  *access.Rights
	limits  *access.Limits // nil if quotas set none
	revoked bool
}

// Permission returns what a caller may do, nil for one without a credential, over a connection from this address.
func (s *Service) Permission(c *access.Caller, from net.Addr) Permission {
	return Permission{s: s, caller: c, from: from}
}

// look asks the rules in force, and reports whether there are any.
func (p *Permission) look() bool {
	auth := p.s.opt.Authenticator
	if auth == nil {
		return false
	}
	if r := auth.Rules(); r != p.rules || !p.asked {
		p.asked, p.rules = true, r
		if r != nil {
			p.rights, p.revoked, p.limits = r.Rights(p.caller), r.Revoked(p.caller), r.Limits(p.caller)
		}
	}
	return p.rules != nil
}

// Rules returns the rules in force, nil if there are none. Who asks before a check and again after what that allowed finds out whether
// other rules came between.
func (p *Permission) Rules() *access.Rules {
	p.look()
	return p.rules
}

// Check returns nil if the caller may do this with a lock and a file, "" for none, else why not: UNAUTHENTICATED where
// another credential may help, PERMISSION_DENIED where the rules do not allow it. A refusal is told to the auditor.
func (p *Permission) Check(v access.Verb, lock, file string) error {
	return p.told(p.why(v, lock, file), v, lock, file)
}

// CheckPrefix is Check for all names that begin with a prefix.
func (p *Permission) CheckPrefix(v access.Verb, prefix string) error {
	names := prefix + "**"
	return p.told(p.judge(v, func() bool { return p.rights.MayPrefix(v, prefix) }, names, ""), v, names, "")
}

// told returns err, after it has told the auditor of it.
func (p *Permission) told(err error, v access.Verb, lock, file string) error {
	if err != nil {
		p.s.opt.Tallies.Count(TallyDenied, string(v), "")
		p.s.auditRefusal(err, p.caller, p.from, v, lock, file)
	}
	return err
}

// why is Check for who refuses nothing by it.
func (p *Permission) why(v access.Verb, lock, file string) error {
	return p.judge(v, func() bool { return p.rights.May(v, lock, file) }, lock, file)
}

func (p *Permission) judge(v access.Verb, may func() bool, lock, file string) error {
	if !p.look() || v == access.Open {
		return nil
	}
	if err := p.Ended(); err != nil {
		return err
	}
	if v != access.Keep && p.caller.Expiring() && p.caller.Expired(time.Now()) { // to ask the time costs more than all else here
		return &wire.Error{Status: cluster.StatusUnauthenticated, Message: fmt.Sprintf("the %s of %s expired at %s: what is held may still be kept, renewed and released", p.caller.Via, p.caller.Identity, p.caller.Expires.UTC().Format(time.RFC3339))}
	}
	if may() {
		return nil
	}
	return p.denial(v, lock, file)
}

// denial returns the refusal of what the rules do not allow.
func (p *Permission) denial(v access.Verb, lock, file string) error {
	e := &wire.Error{Status: cluster.StatusPermissionDenied, Message: p.rights.Denial(v, lock, file)}
	if p.caller == nil {
		e.Status = cluster.StatusUnauthenticated
	}
	return e
}

// Withdrawn returns why the caller may not go on with what it was allowed before, nil if it may: its credential was revoked, or the rules do
// not allow it any more. That a credential expires withdraws nothing.
func (p *Permission) Withdrawn(v access.Verb, lock, file string) error {
	if !p.look() {
		return nil
	}
	if err := p.Ended(); err != nil || p.rights.May(v, lock, file) {
		return err
	}
	return p.denial(v, lock, file)
}

// Ended returns an error if the caller's credential was revoked.
func (p *Permission) Ended() error {
	if !p.look() || !p.revoked {
		return nil
	}
	return &wire.Error{Status: cluster.StatusUnauthenticated, Message: fmt.Sprintf("the %s of %s was revoked", p.caller.Via, p.caller.Identity)}
}

// May is Check as an answer to who only asks.
func (p *Permission) May(v access.Verb, lock, file string) bool { return p.why(v, lock, file) == nil }

// readsAny reports whether the rules let the caller read anything, also with a credential that has expired.
func (p *Permission) readsAny() bool {
	return p.May(access.Keep, "", "") && (p.rules == nil || p.rights.May(access.Read, "", ""))
}

// lockPrefixes returns where the locks are that the caller may read, see access.Rights.LockPrefixes.
func (p *Permission) lockPrefixes(under string) []string {
	if !p.look() {
		return []string{under}
	}
	return p.rights.LockPrefixes(access.Read, under)
}

// filePrefixes is lockPrefixes for protected files.
func (p *Permission) filePrefixes(under string) []string {
	if !p.look() {
		return []string{under}
	}
	return p.rights.FilePrefixes(access.Read, under)
}

// permission returns what the caller of a request may do.
func (s *Service) permission(ctx context.Context) *Permission {
	p := s.Permission(serving.CallerOf(ctx), serving.RemoteOf(ctx))
	return &p
}

// MayScrape returns nil if the caller of ctx may read the metrics of this server: every caller that the rules permit
// anything may, since they name nothing.
func (s *Service) MayScrape(ctx context.Context) error { return s.permit(ctx, access.Keep, "", "") }

// MayDescribe returns nil if the caller of ctx may have the front end describe its messages: every caller that the rules permit anything
// may. The description is no secret, but a server does no work for strangers.
func (s *Service) MayDescribe(ctx context.Context) error { return s.permit(ctx, access.Keep, "", "") }

// permit is Check for the caller of a request.
func (s *Service) permit(ctx context.Context, v access.Verb, lock, file string) error {
	return s.permission(ctx).Check(v, lock, file)
}

// refuses is permit for an answer with a status and a message: OK, or those of the refusal.
func (s *Service) refuses(ctx context.Context, v access.Verb, lock, file string) (pb.Status, string) {
	return answerTo(s.permit(ctx, v, lock, file))
}

// answerTo returns OK, or the status and message of a refusal.
func answerTo(err error) (pb.Status, string) {
	if err == nil {
		return pb.Status_STATUS_OK, ""
	}
	a := Refusal(err)
	return a.GetStatus(), a.GetMessage()
}

// Losses calls deliver with the losses of a client as watch.Hub.Losses does, but for those that belong to another identity
// than the caller of ctx: a client ID may be named before its owner uses it.
func (s *Service) Losses(ctx context.Context, client cluster.ClientID, after cluster.LSN, deliver func([]watch.Loss)) (stop func()) {
	own := serving.CallerOf(ctx).Name()
	foreign := func(l watch.Loss) bool { return l.Identity != "" && l.Identity != own }
	return s.b.Hub().Losses(client, after, func(all []watch.Loss) {
		if !slices.ContainsFunc(all, foreign) {
			deliver(all)
		} else if left := slices.DeleteFunc(slices.Clone(all), foreign); len(left) > 0 { // an empty slice would say more
			deliver(left)
		}
	})
}

// VerbOf returns what a caller needs to be allowed for a request to the lock table.
func VerbOf(op locktable.Op) access.Verb {
	switch op {
	case locktable.OpAcquire, locktable.OpMetadata, locktable.OpExtend:
		return access.Acquire
	case locktable.OpAppend, locktable.OpBind, locktable.OpSeal:
		return access.Append
	case locktable.OpBreak, locktable.OpUnbind, locktable.OpRotate:
		return access.Break
	case locktable.OpRelease, locktable.OpDowngrade, locktable.OpCancel, locktable.OpOpenClient, locktable.OpForget:
		return access.Keep
	}
	return access.Admin // nobody has allowed what is not known here
}

// DemandsIdentity reports whether the rules in force permit a caller without a credential nothing.
func (s *Service) DemandsIdentity() bool { return s.Stranger(nil) != nil }

// Stranger returns an error if a caller is without a credential, and the rules in force permit nothing to such. Front ends ask
// before they keep anything of what he sends.
func (s *Service) Stranger(c *access.Caller) error {
	if c != nil {
		return nil
	}
	p := s.Permission(nil, nil)
	return p.why(access.Keep, "", "")
}

// TurnAway is Stranger for a request that is refused then, whose address is from.
func (s *Service) TurnAway(c *access.Caller, from net.Addr) error {
	err := s.Stranger(c)
	if err != nil {
		s.auditRefusal(err, c, from, access.Keep, "", "")
	}
	return err
}

// Authenticate returns the caller that a credential proves; for "", the one that the connection from this address is known
// to be of, nil if it is not. A refusal, also of one that was revoked, is a *wire.Error: UNAUTHENTICATED, unless the credential was not
// looked at because too many others failed, see Failures.
func (s *Service) Authenticate(credential string, from net.Addr) (*access.Caller, error) {
	if s.opt.Authenticator == nil {
		return nil, nil
	}
	c := serving.CallerAt(from)
	if credential != "" {
		if s.opt.Failures.many(from) && !serving.Proved(from) && !s.opt.Authenticator.Known(credential) {
			s.opt.Tallies.Count(TallyLimited, "failed_logins", "")
			return nil, errMany()
		}
		var err error
		if c, err = s.opt.Authenticator.Authenticate(credential); err != nil {
			s.opt.Failures.count(from)
			s.auditCredential(err, nil, from)
			s.opt.Tallies.Count(TallyAuth, methodOf(credential, c), "refused")
			return nil, &wire.Error{Status: cluster.StatusUnauthenticated, Message: err.Error()}
		}
	}
	p := s.Permission(c, from)
	if err := p.Ended(); err != nil {
		s.auditCredential(err, c, from)
		s.opt.Tallies.Count(TallyAuth, methodOf(credential, c), "revoked")
		return nil, err
	}
	s.opt.Tallies.Count(TallyAuth, methodOf(credential, c), "ok")
	if c != nil {
		serving.Prove(from)
	}
	return c, nil
}

// PassOn returns a credential with which another server of the cluster executes a request for its caller, "" for one
// who has none.
func (s *Service) PassOn(ctx context.Context) string {
	c := serving.CallerOf(ctx)
	if c == nil || s.opt.Authenticator == nil {
		return ""
	}
	return s.opt.Authenticator.PassOn(c)
}

// ongoing are the connections and streams that end when the rules do not permit them any more.
type ongoing struct {
	sync.Mutex
	all map[*permitted]struct{}
}

type permitted struct {
	check func() error
	end   context.CancelCauseFunc
}

// WhilePermitted returns a context that ends, with the error of check as its cause, when check refuses: under new rules, or
// when a credential has expired.
// Check is called by another goroutine. Leave must be called at the end.
func (s *Service) WhilePermitted(ctx context.Context, check func() error) (_ context.Context, leave func()) {
	if s.opt.Authenticator == nil {
		return ctx, func() {}
	}
	x := &permitted{check: check}
	ctx, x.end = context.WithCancelCause(ctx)
	s.ongoing.Lock()
	defer s.ongoing.Unlock()
	if s.ongoing.all == nil {
		s.ongoing.all = map[*permitted]struct{}{}
	}
	s.ongoing.all[x] = struct{}{}
	if err := check(); err != nil { // the rules may have changed since the caller asked them
		x.end(err)
	}
	return ctx, func() {
		x.end(nil)
		s.ongoing.Lock()
		defer s.ongoing.Unlock()
		delete(s.ongoing.all, x)
	}
}

// OnNewRules calls look whenever something may not be permitted any more, see EndForbidden: by the goroutine of that, so it must
// neither block nor call leave. Leave must be called at the end.
func (s *Service) OnNewRules(look func()) (leave func()) {
	_, leave = s.WhilePermitted(context.Background(), func() error { look(); return nil })
	return leave
}

// OnRevoked calls ended, in a goroutine of its own, when the credential of the caller of ctx is revoked, unless ctx ends
// before. Leave must be called at the end; a call of ended may be under way then.
func (s *Service) OnRevoked(ctx context.Context, ended func(*wire.Error)) (leave func()) {
	valid, release := s.WhilePermitted(ctx, func() error { return s.permission(ctx).Ended() })
	stop := context.AfterFunc(valid, func() {
		if e, ok := errors.AsType[*wire.Error](context.Cause(valid)); ok {
			ended(e)
		}
	})
	return func() { stop(); release() }
}

// EndForbidden ends what is not permitted any more. It is called when there are other rules, and now and then, for
// credentials expire.
func (s *Service) EndForbidden() {
	s.ongoing.Lock()
	defer s.ongoing.Unlock()
	for x := range s.ongoing.all {
		if err := x.check(); err != nil {
			x.end(err)
		}
	}
}
