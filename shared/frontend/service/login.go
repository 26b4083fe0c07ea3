// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"net"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
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
	Finish(ctx context.Context, from net.Addr, challenge string, period time.Duration) (ticket string, c *access.Caller, err error)
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
		r.Nonce, r.Challenge, err = s.opt.Logins.Begin()
	default:
		r.Ticket, c, err = s.opt.Logins.Finish(ctx, serving.RemoteOf(ctx), q.GetChallenge(), wire.Millis(q.GetForMs()))
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
