// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"errors"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/shared/access"
)

// A login asks twice, and any server may be asked the second time. So what the first answer gave is signed as tickets are,
// and no server has to remember it.

const (
	// challengeType is the typ of a challenge.
	challengeType = "holdfast-login"
	// ChallengeTime is how long a challenge counts, and ClockSlack how much the clocks of servers, and that of the
	// filesystem, may differ.
	ChallengeTime = 30 * time.Second
	ClockSlack    = 5 * time.Second
	maxChallenge  = 1 << 10 // bytes
)

var (
	errNoChallenge   = errors.New("this is no challenge of a login at this cluster: begin anew")
	errLateChallenge = errors.New("the login took more than 30 s, or the clocks of the servers differ: begin anew")
)

// challengeClaims are what a challenge says.
type challengeClaims struct {
	jwt.RegisteredClaims
	// Given is when, in milliseconds since 1970.
	Given int64 `json:"given"`
}

// Challenge returns the proof that the server named this nonce now. It is "" where the volume has no signing key.
func (g *Authenticator) Challenge(nonce string, now time.Time) string {
	s := g.signer.Load()
	if s.newest == nil {
		return ""
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &challengeClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: g.id.String(), ID: nonce}, Given: now.UnixMilli(),
	})
	t.Header["typ"], t.Header["kid"] = challengeType, s.newest.ID
	text, err := t.SignedString(s.newest.Private)
	if err != nil {
		return "" // of texts, it cannot fail
	}
	return text
}

// OpenChallenge returns the nonce of a challenge and how long ago it was given, at most ChallengeTime. The error is for the client.
func (g *Authenticator) OpenChallenge(text string, now time.Time) (nonce string, age time.Duration, err error) {
	if len(text) > maxChallenge || strings.ContainsAny(text, "\r\n") { // which base64 ignores
		return "", 0, errNoChallenge
	}
	m := &challengeClaims{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithIssuer(g.id.String()), jwt.WithTimeFunc(func() time.Time { return now }),
	)
	if _, err := parser.ParseWithClaims(text, m, g.signer.Load().keyOf(challengeType)); err != nil || m.ID == "" {
		return "", 0, errNoChallenge
	}
	age = time.Duration(now.UnixMilli()-m.Given) * time.Millisecond // by the clocks of two servers, perhaps
	if age > ChallengeTime || age < -ClockSlack {
		return "", 0, errLateChallenge
	}
	return m.ID, max(0, age), nil
}

// Issue returns a ticket of a caller, see Sign.
func (g *Authenticator) Issue(c *access.Caller) (string, error) {
	s := g.signer.Load()
	if s.newest == nil {
		return "", errNoTickets
	}
	return Sign(*s.newest, g.id, c)
}
