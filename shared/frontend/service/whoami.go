// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// WhoAmI answers for whom this server takes the caller, and whether the rules in force permit him something. It asks
// neither the table nor the volume.
func (s *Service) WhoAmI(ctx context.Context, q *pb.WhoAmIRequest) (*pb.WhoAmIResponse, error) {
	r := &pb.WhoAmIResponse{Status: pb.Status_STATUS_OK}
	if s.opt.Authenticator != nil {
		r.Rules = s.opt.Authenticator.Rules().Version()
	}
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
	err := s.permit(ctx, v, q.GetLock(), q.GetFile())
	if r.Allowed = err == nil; err != nil {
		r.Why = Refusal(err).GetMessage()
	}
	return r, nil
}
