// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// WhoAmI answers for whom this server takes the caller, and whether the rules in force permit something to him, or to somebody
// of whom an administrator asks. It asks neither the table nor the volume.
func (s *Service) WhoAmI(ctx context.Context, q *pb.WhoAmIRequest) (*pb.WhoAmIResponse, error) {
	r := &pb.WhoAmIResponse{Status: pb.Status_STATUS_OK}
	var rules *access.Rules
	if s.opt.Authenticator != nil {
		rules = s.opt.Authenticator.Rules()
	}
	r.Rules = rules.Version()
	if c := serving.CallerOf(ctx); c != nil {
		r.Identity, r.Groups, r.Via, r.Operator = c.Identity, c.Groups, c.Via, c.Operator
		if !c.Expires.IsZero() {
			r.ExpiresUnixMs = c.Expires.UnixMilli()
		}
	}
	v := access.Verb(q.GetVerb())
	switch v {
	case "":
		return r, nil
	case access.Acquire, access.Read, access.Append, access.Break, access.Admin:
	default:
		r.Status, r.Message = pb.Status_STATUS_INVALID_ARGUMENT, fmt.Sprintf("%q is no verb: use acquire, read, append, break or admin", q.GetVerb())
		return r, nil
	}
	p := s.permission(ctx)
	if as := q.GetAs(); as != "" {
		if err := p.Check(access.Admin, "", ""); err != nil {
			r.Status, r.Message = answerTo(err)
			return r, nil
		}
		if err := access.CheckWho(as); err != nil || !strings.Contains(as, ":") || strings.HasSuffix(as, ":*") {
			r.Status, r.Message = pb.Status_STATUS_INVALID_ARGUMENT, fmt.Sprintf("%q is no identity, such as user:alice or service:ci", as)
			return r, nil
		}
		*p = s.Permission(rules.Named(as, q.GetAsGroups()))
	}
	err := p.check(v, q.GetLock(), q.GetFile())
	if r.Allowed = err == nil; err != nil {
		r.Why = Refusal(err).GetMessage()
	}
	return r, nil
}
