// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Prover signs proofs. Its methods are safe for use by several goroutines.
type Prover interface {
	// Prove returns a proof, signed with the key of the volume. Identity is that of the grant, "" for none. The error is for
	// the client, and says what to do where there is no key.
	Prove(identity string, c wire.ProofClaims, issued, expires time.Time) (string, error)
	// PublicKeys returns the keys by which proofs are verified, as a JSON Web Key Set. It may have none.
	PublicKeys() []byte
}

// Prove returns a signed statement of a live grant of the caller's own identity, or of none. The status is OK, INVALID_TOKEN or
// LEASE_EXPIRED for a grant that has ended, ERROR where there is no key to sign with, or SECONDARY_MODE: only a primary knows what
// has ended, and by the check that Read makes after f it knows that no later one has begun.
func (s *Service) Prove(ctx context.Context, q *pb.ProveRequest) (*pb.ProveResponse, error) {
	refused := func(status pb.Status, message string) (*pb.ProveResponse, error) {
		r := &pb.ProveResponse{Status: status, Message: message, Lock: q.GetLock(), Token: q.GetToken()}
		r.Primary, r.RetryAfterMs = s.Advice(wire.FromStatus(status))
		return r, nil
	}
	lock, token, err := convert.ToLease(q)
	if err != nil {
		return refused(answerTo(err))
	}
	if err := s.permit(ctx, access.Keep, string(lock), ""); err != nil {
		return refused(answerTo(err))
	}
	var g locktable.Grant
	var left time.Duration
	live, denied := false, ""
	issued := time.Now() // before the lease is read: what is left of it is never counted too long
	reading, err := s.b.Read(ctx, func(v serving.View) {
		denied = v.Table.DeniesToken(lock, token, serving.CallerOf(ctx).Name())
		if g, live = v.Table.Live(lock, token); live && v.Remaining != nil {
			left = v.Remaining(lock, token)
		}
	})
	if err != nil {
		return nil, err
	}
	status, message := checkFreshness(reading, true, 0)
	switch {
	case status != pb.Status_STATUS_OK:
		return refused(status, message)
	case denied != "":
		return refused(pb.Status_STATUS_PERMISSION_DENIED, denied)
	case !live:
		return refused(pb.Status_STATUS_INVALID_TOKEN, fmt.Sprintf("no grant of the lock has token %d", token))
	case left <= 0:
		return refused(pb.Status_STATUS_LEASE_EXPIRED, "the lease has just ended")
	case s.opt.Prover == nil:
		return refused(pb.Status_STATUS_ERROR, "this server signs no proofs")
	}
	text, err := s.opt.Prover.Prove(g.Identity, wire.ProofClaims{
		Lock: string(lock), Token: uint64(token), Mode: wire.ModeWord(pb.Mode(g.Mode)), Epoch: uint64(g.Epoch), Client: string(g.Client),
	}, issued, issued.Add(left))
	if err != nil {
		return refused(pb.Status_STATUS_ERROR, err.Error())
	}
	return &pb.ProveResponse{
		Status: pb.Status_STATUS_OK, Proof: text, Lock: string(lock), Token: uint64(token), TtlMs: wire.FloorMillis(left), Mode: pb.Mode(g.Mode),
		Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN),
	}, nil
}

// PublicKeys returns the keys by which proofs and tickets are verified, as a JSON Web Key Set, for everybody.
func (s *Service) PublicKeys() []byte {
	if s.opt.Prover == nil {
		return []byte(`{"keys":[]}` + "\n")
	}
	return s.opt.Prover.PublicKeys()
}
