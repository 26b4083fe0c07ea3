// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Proofs are signed with the key of tickets. Their typ keeps the two apart: see package fencing, which verifies proofs.

var errNoProofs = errors.New("the volume has no signing key: type holdfast secure offer --volume DIR, as the user that the servers run as; they use it within seconds")

// proofClaims are what a proof says.
type proofClaims struct {
	jwt.RegisteredClaims
	wire.ProofClaims
}

// Prove implements service.Prover.
func (g *Authenticator) Prove(identity string, c wire.ProofClaims, issued, expires time.Time) (string, error) {
	key := g.signer.Load().newest
	if key == nil {
		return "", errNoProofs
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &proofClaims{jwt.RegisteredClaims{
		Issuer: g.id.String(), Subject: identity, IssuedAt: jwt.NewNumericDate(issued), ExpiresAt: jwt.NewNumericDate(expires),
	}, c})
	t.Header["typ"], t.Header["kid"] = wire.ProofType, key.ID
	text, err := t.SignedString(key.Private)
	if err != nil {
		return "", fmt.Errorf("sign a proof: %w", err)
	}
	return text, nil
}

// PublicKeys implements service.Prover.
func (g *Authenticator) PublicKeys() []byte { return volume.PublicKeys(g.signer.Load().known) }
