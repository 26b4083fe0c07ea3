// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

var (
	// ErrForged is wrapped by the error of what no server of the cluster signed as a proof.
	ErrForged = errors.New("this is no proof of a grant that the cluster signed")
	// ErrExpired is wrapped by the error of a proof whose lease has ended, unless it was renewed since: a new proof is needed.
	ErrExpired = errors.New("the proof has expired")
	// ErrOtherLock is wrapped by the error of a proof of another lock.
	ErrOtherLock = errors.New("the proof is of another lock")
	// ErrShared is wrapped by the error of a proof of a grant that others may share.
	ErrShared = errors.New("the proof is of a shared grant")
)

// leeway is how much later than its end a proof still counts: the clocks of the servers and of this host differ.
const leeway = 5 * time.Second

// Proof is what a proof says: when it was signed, this client held the lock under this token.
type Proof struct {
	// Cluster is the ID of the cluster that signed it.
	Cluster string
	// Identity is whom the grant belongs to, such as user:alice; "" for nobody in particular.
	Identity string
	Lock     string
	Token    Token
	// Shared reports whether others may hold the lock at the same time.
	Shared bool
	// Epoch is the number of the term that granted the lock.
	Epoch uint64
	// Client is the ID of the holder's client.
	Client string
	// Issued is when it was signed, and Expires when the lease ends unless it is renewed, by the clock of a server.
	Issued, Expires time.Time
}

// claims are the claims of a proof.
type claims struct {
	jwt.RegisteredClaims
	wire.ProofClaims
}

// Verify returns what a proof of a grant of this lock says. The error wraps ErrForged, ErrExpired, ErrOtherLock or ErrShared.
// With ErrShared all else is right, and the Proof is returned, too, for what holders of a shared lock may do.
func (k *Keys) Verify(lock, proof string) (Proof, error) {
	c, err := k.claims(proof)
	if err != nil {
		return Proof{}, err
	}
	p := Proof{
		Cluster: c.Issuer, Identity: c.Subject, Lock: c.Lock, Token: Token(c.Token), Shared: c.Mode == modeShared,
		Epoch: c.Epoch, Client: c.Client, Issued: c.IssuedAt.Time, Expires: c.ExpiresAt.Time,
	}
	switch {
	case p.Lock != lock:
		return Proof{}, fmt.Errorf("%w: it is of %q, and %q is needed", ErrOtherLock, p.Lock, lock)
	case p.Shared:
		return p, fmt.Errorf("%w: others may hold %q at the same time", ErrShared, lock)
	}
	return p, nil
}

const (
	modeExclusive = "exclusive"
	modeShared    = "shared"
)

// claims returns the claims of a proof that has not expired.
func (k *Keys) claims(proof string) (*claims, error) {
	if len(proof) > wire.MaxProof || strings.ContainsAny(proof, "\r\n") { // base64 ignores line ends
		return nil, ErrForged
	}
	c := &claims{}
	check := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway),
	}
	if k.cluster != "" {
		check = append(check, jwt.WithIssuer(k.cluster))
	}
	var unknown error
	_, err := jwt.NewParser(check...).ParseWithClaims(proof, c, func(t *jwt.Token) (any, error) {
		if typ, _ := t.Header["typ"].(string); typ != wire.ProofType {
			return nil, ErrForged
		}
		kid, _ := t.Header["kid"].(string)
		var public ed25519.PublicKey
		public, unknown = k.find(kid)
		return public, unknown
	})
	switch {
	case unknown != nil:
		return nil, unknown
	// An error of the signature comes before those of claims, and alone.
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return nil, fmt.Errorf("%w at %s: ask for another one", ErrExpired, c.ExpiresAt.UTC().Format(time.RFC3339))
	case err != nil, c.Issuer == "", c.Lock == "", c.Token == 0, c.IssuedAt == nil, c.Mode != modeExclusive && c.Mode != modeShared:
		return nil, ErrForged
	}
	return c, nil
}

// DoProof is Do for the lock and the token of a proof, with the lock's name as the key. The proof is verified before the guard
// writes anything, so nobody but a holder can raise the token that the guard remembers. F gets what the proof says. It returns
// an error of Keys.Verify, also of a shared grant, or of Do.
func (g *Guard) DoProof(keys *Keys, lock, proof string, f func(Proof) error) error {
	p, err := keys.Verify(lock, proof)
	if err != nil {
		return err
	}
	return g.Do(lock, p.Token, func() error { return f(p) })
}
