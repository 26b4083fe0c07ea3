// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"net"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Auditor keeps what it is told, or counts it. It never blocks, and is safe for use by several goroutines.
type Auditor interface {
	// Record adds an event, without its time and server.
	Record(audit.Event)
}

// event returns an event of a caller, nil for one without a credential.
func event(kind audit.Kind, c *access.Caller, from net.Addr) audit.Event {
	e := audit.Event{Kind: kind, Identity: c.Name()}
	if c != nil {
		e.Via = c.Via
	}
	if from != nil {
		e.From = from.String()
	}
	return e
}

// statusOf returns the name of the status that an error has, and what it says.
func statusOf(err error) (status, message string) {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Status.String(), e.Message
	}
	return cluster.StatusError.String(), err.Error()
}

func (s *Service) audit(e audit.Event) {
	if s.opt.Auditor != nil {
		s.opt.Auditor.Record(e)
	}
}

// auditRefusal tells of a request that was refused before anybody executed it.
func (s *Service) auditRefusal(err error, c *access.Caller, from net.Addr, v access.Verb, lock, file string) {
	if s.opt.Auditor == nil {
		return
	}
	e := event(audit.KindDenied, c, from)
	e.Verb, e.Lock, e.File = string(v), lock, file
	e.Status, e.Message = statusOf(err)
	s.audit(e)
}

// auditCredential tells of a credential that was refused. c is whose it is, nil if that is not known.
func (s *Service) auditCredential(err error, c *access.Caller, from net.Addr) {
	e := event(audit.KindCredential, c, from)
	_, e.Message = statusOf(err)
	e.Status = cluster.StatusUnauthenticated.String()
	s.audit(e)
}

// auditLogin tells how a login ended: with a ticket for c, or an error.
func (s *Service) auditLogin(c *access.Caller, from net.Addr, err error) {
	if err != nil {
		e := event(audit.KindLoginFailed, nil, from)
		e.Status, e.Message = statusOf(err)
		s.audit(e)
		return
	}
	e := event(audit.KindLogin, c, from)
	e.Status, e.Expires = cluster.StatusOK.String(), &c.Expires
	s.audit(e)
}

// auditHandover tells of a handover to a server; 0 where there was none.
func (s *Service) auditHandover(ctx context.Context, to cluster.ServerID, err error) {
	e := event(audit.KindHandover, serving.CallerOf(ctx), serving.RemoteOf(ctx))
	e.To, e.Status = to, cluster.StatusOK.String()
	if err != nil {
		e.Status, e.Message = statusOf(err)
	}
	s.audit(e)
}

// auditUpgrade tells that somebody raised the feature level of the cluster, or may have.
func (s *Service) auditUpgrade(ctx context.Context, level uint32, out *locktable.Outcome, err error) {
	e := event(audit.KindUpgrade, serving.CallerOf(ctx), serving.RemoteOf(ctx))
	e.Level, e.Status, e.Message = level, out.Status.String(), out.Message
	if err != nil {
		e.Status, e.Message = statusOf(err)
	}
	s.audit(e)
}

// auditTakeover tells that somebody permitted this server to be primary without a majority, or wanted to.
func (s *Service) auditTakeover(ctx context.Context, own cluster.ServerID, reason string, out *locktable.Outcome) {
	e := event(audit.KindTakeover, serving.CallerOf(ctx), serving.RemoteOf(ctx))
	e.To, e.Reason, e.Status, e.Message = own, reason, out.Status.String(), out.Message
	s.audit(e)
}

// auditForeign tells of a request for what belongs to another identity, which the primary refused.
func (s *Service) auditForeign(c *access.Caller, from net.Addr, v access.Verb, lock, file string, out *locktable.Outcome) {
	s.auditRefusal(&wire.Error{Status: out.Status, Message: out.Message}, c, from, v, lock, file)
}

// Executed tells the auditor of a request of c that was executed, or may have been, if it took something from somebody, and of one for
// what belongs to somebody else. Who hands in requests without Execute calls it with their outcomes.
func (s *Service) Executed(q *locktable.Request, c *access.Caller, from net.Addr, out *locktable.Outcome) {
	var kind audit.Kind
	if out.Status == cluster.StatusPermissionDenied {
		s.auditForeign(c, from, VerbOf(q.Op), string(q.Lock), string(q.File), out)
		return
	}
	switch q.Op {
	case locktable.OpBreak:
		kind = audit.KindBreak
	case locktable.OpUnbind:
		kind = audit.KindUnbind
	case locktable.OpRotate:
		kind = audit.KindRotate
	case locktable.OpMembers:
		kind = audit.KindMembers
	default:
		return
	}
	if s.opt.Auditor == nil || out.Status != cluster.StatusOK && out.Status != cluster.StatusUnknown {
		return
	}
	e := event(kind, c, from)
	e.Lock, e.File, e.Token, e.Actor, e.Reason, e.GraceMs = string(q.Lock), string(q.File), q.Token, q.Actor, q.Reason, q.Grace.Milliseconds()
	if kind == audit.KindMembers {
		x := q.Members.Change
		e.To, e.Command = x.Server.ID, x.String()
	}
	e.Status, e.Message = out.Status.String(), out.Message
	s.audit(e)
}
