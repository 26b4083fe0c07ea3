// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Proof is a statement of a grant that a server signed.
type Proof struct {
	// Text is what to show to the resource: a JSON Web Token. It is no credential, but lets whoever has it use the resource
	// in the holder's place, for as long as it counts.
	Text string
	// Remaining is how long it counted at least when Proof returned: what was left of the lease.
	Remaining time.Duration
	// Shared reports whether others may hold the lock, too: most resources refuse such a proof.
	Shared bool
}

// Proof returns a signed statement that this lock is held under its token, for a resource outside Holdfast that verifies it with
// package fencing. It counts as long as the lease would without a further renewal, so a holder that goes on asks for another one
// in time. It renews nothing. It returns a *LostError if the lock is lost, ErrPermissionDenied if the grant belongs to another
// identity, and ErrInternal if the volume has no key to sign with.
func (l *Lock) Proof(ctx context.Context) (Proof, error) {
	ctx, end, err := l.begin(ctx, "prove")
	if err != nil {
		return Proof{}, err
	}
	defer end()
	var sent time.Duration
	k := &call{op: "prove", lock: l.name}
	r, err := do(ctx, l.client(), k, func(ctx context.Context, s pb.LockServiceClient) (*pb.ProveResponse, error) {
		sent = l.client().opt.Clock.Now()
		return s.Prove(ctx, &pb.ProveRequest{Lock: string(l.name), Token: uint64(l.token)})
	})
	if status.Code(err) == codes.Unimplemented {
		return Proof{}, l.invalid("prove", wire.Invalid("this server signs no proofs: it is of an older version"))
	}
	if err != nil {
		return Proof{}, l.check(err)
	}
	if wire.FromStatus(r.GetStatus()) != cluster.StatusOK {
		return Proof{}, l.check(k.fail(wire.FailureOf(r)))
	}
	if err := l.stillHeld(); err != nil {
		return Proof{}, err
	}
	left := wire.Millis(r.GetTtlMs()) - (l.client().opt.Clock.Now() - sent)
	return Proof{Text: r.GetProof(), Remaining: max(left, 0), Shared: r.GetMode() == pb.Mode_MODE_SHARED}, nil
}
