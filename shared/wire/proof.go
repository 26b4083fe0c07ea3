// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A proof is a statement of a grant for resources outside Holdfast, signed with the key of the volume: a JSON Web Token with
// EdDSA, the typ ProofType, and the kid of the key. Its registered claims are iss, the ID of the cluster; sub, the identity that
// the grant belongs to, absent for none; iat; and exp, which is iat and what was left of the lease then, rounded down to a second.

const (
	// ProofType is the typ of proofs: nothing else that the same key signed counts as one.
	ProofType = "holdfast-proof"
	// MaxProof bounds the text of a proof, in bytes.
	MaxProof = 16 << 10
)

// ProofClaims are what a proof says besides the registered claims.
type ProofClaims struct {
	Lock string `json:"lock"`
	// Token is a text in JSON: many programs round numbers above 2^53.
	Token uint64 `json:"tok,string"`
	// Mode is exclusive or shared.
	Mode string `json:"mode"`
	// Epoch is that of the term that granted the lock.
	Epoch uint64 `json:"epoch"`
	// Client is the ID of the holder's client.
	Client string `json:"cid"`
}

// ProofBody is the answer to prove in JSON. A refusal leaves out what it does not tell.
type ProofBody struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	Lock    string `json:"lock,omitempty"`
	Token   uint64 `json:"token,omitempty"`
	Proof   string `json:"proof,omitempty"`
	// TTL is what was left of the lease.
	TTL        string   `json:"ttl,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	Epoch      uint64   `json:"epoch,omitempty"`
	LSN        uint64   `json:"lsn,omitempty"`
	Primary    *Primary `json:"primary,omitempty"`
	RetryAfter string   `json:"retry_after,omitempty"`
}

// ProofBodyOf converts the answer to prove.
func ProofBodyOf(r *pb.ProveResponse) ProofBody {
	status := FromStatus(r.GetStatus())
	b := ProofBody{
		Status: status.String(), Message: r.GetMessage(), Lock: r.GetLock(), Token: r.GetToken(), Proof: r.GetProof(),
		Epoch: r.GetEpoch(), LSN: r.GetLsn(), Primary: PrimaryOf(r.GetPrimary()), RetryAfter: retryText(status, r.GetRetryAfterMs()),
	}
	if r.GetProof() != "" {
		b.TTL, b.Mode = duration(r.GetTtlMs()), ModeWord(r.GetMode())
	}
	return b
}
