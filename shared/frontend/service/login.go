// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Logins issues tickets to users who make a directory on the volume. Its methods are safe for use by several goroutines;
// their errors are *wire.Error, or that of ctx.
type Logins interface {
	// Begin names a directory, and returns what the call of Finish needs that uses it.
	Begin() (nonce, challenge string, err error)
	// Finish returns a ticket for who made that directory, which counts for this long; 0 = as long as is usual.
	Finish(ctx context.Context, challenge string, period time.Duration) (ticket string, c *access.Caller, err error)
}

// Login names a directory that the caller is to make on the volume, or issues a ticket to who made it.
func (s *Service) Login(ctx context.Context, q *pb.LoginRequest) (r *pb.LoginResponse, err error) {
	r = &pb.LoginResponse{Status: pb.Status_STATUS_OK}
	var c *access.Caller
	switch {
	case serving.Overheard(serving.RemoteOf(ctx)):
		err = wire.Invalid("log in over TLS: others could read the ticket on its way")
	case s.opt.Logins == nil:
		err = wire.Invalid("nobody logs in at this server")
	case q.GetChallenge() == "":
		if r.Nonce, r.Challenge, err = s.opt.Logins.Begin(); err == nil {
			serving.BeginLogin(serving.RemoteOf(ctx))
		}
	case s.opt.Failures.many(serving.RemoteOf(ctx)):
		err = errMany()
	default:
		r.Ticket, c, err = s.finishLogin(ctx, q)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		a := Refusal(err)
		return &pb.LoginResponse{Status: a.GetStatus(), Message: a.GetMessage()}, nil
	case c != nil:
		r.Identity, r.Groups, r.ExpiresUnixMs = c.Identity, c.Groups, c.Expires.UnixMilli()
	}
	return r, nil
}

func (s *Service) finishLogin(ctx context.Context, q *pb.LoginRequest) (string, *access.Caller, error) {
	ticket, c, err := s.opt.Logins.Finish(ctx, q.GetChallenge(), wire.Millis(q.GetForMs()))
	s.auditLogin(c, serving.RemoteOf(ctx), err)
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Status == cluster.StatusUnauthenticated {
		s.opt.Failures.count(serving.RemoteOf(ctx))
	} else if err == nil {
		serving.Prove(serving.RemoteOf(ctx))
	}
	return ticket, c, err
}
