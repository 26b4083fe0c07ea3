// SPDX-License-Identifier: Apache-2.0

// Package auth knows the credentials of clients: it signs tickets and verifies them, and it finds the key that a client
// shows in the rules. It also signs proofs, which clients show to resources outside Holdfast.
//
// A key is a random text, hfk_..., of which the rules have the SHA-256. A ticket is the text hft_ before a JSON Web Token
// that a server, or a process that can read secrets/ on the volume, signed with the volume's signing key. So every server
// can verify it without asking another one.
//
// Time of day is compared between machines here, and nowhere else: with a wrong clock a server refuses tickets, or takes
// one for too long. No lock depends on that.
package auth

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// ticketType is the typ of a ticket: nothing else that the same key signed counts as one.
	ticketType = "holdfast-ticket"
	// maxSkew is by how much the clocks of who signs and who verifies a ticket may differ.
	maxSkew = time.Minute
	// afterExpiry is how long a ticket still tells who a client is after it has expired, so that what the client holds
	// can be kept alive and released.
	afterExpiry = 24 * time.Hour
)

// claims are what a ticket says.
type claims struct {
	jwt.RegisteredClaims
	Groups   []string `json:"groups,omitempty"`
	Via      string   `json:"via,omitempty"`
	Key      string   `json:"key,omitempty"`
	Operator bool     `json:"op,omitempty"`
	// Passed is set in a ticket of PassOn. Its expiry is its own, and the caller's is Until, absent if there is none.
	Passed bool             `json:"passed,omitempty"`
	Until  *jwt.NumericDate `json:"until,omitempty"`
}

// Sign returns a ticket of a caller, who needs an identity, and times of issue and expiry, which count in whole seconds.
func Sign(k volume.SigningKey, id cluster.ID, c *access.Caller) (string, error) {
	if c.Identity == "" || c.Issued.IsZero() || c.Expires.IsZero() {
		return "", errors.New("a ticket needs an identity, and times of issue and expiry")
	}
	return signClaims(k, c, claimsOf(id, c))
}

// signPassed returns a ticket with which a server executes something for a caller until end, whenever the caller's own
// credential expires.
func signPassed(k volume.SigningKey, id cluster.ID, c *access.Caller, end time.Time) (string, error) {
	m := claimsOf(id, c)
	m.Passed, m.Until, m.ExpiresAt = true, m.ExpiresAt, jwt.NewNumericDate(end)
	return signClaims(k, c, m)
}

func claimsOf(id cluster.ID, c *access.Caller) *claims {
	m := &claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: id.String(), Subject: c.Identity, IssuedAt: jwt.NewNumericDate(c.Issued)},
		Groups:           c.Groups, Via: c.Via, Key: c.Key, Operator: c.Operator,
	}
	if !c.Expires.IsZero() {
		m.ExpiresAt = jwt.NewNumericDate(c.Expires)
	}
	return m
}

func signClaims(k volume.SigningKey, c *access.Caller, m *claims) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, m)
	t.Header["typ"], t.Header["kid"] = ticketType, k.ID
	signed, err := t.SignedString(k.Private)
	if err != nil {
		return "", fmt.Errorf("sign a ticket: %w", err)
	}
	if n := len(access.TicketPrefix) + len(signed); n > access.MaxCredential {
		return "", fmt.Errorf("sign a ticket of %s: with its %d groups it has %d bytes, at most %d are taken", c.Identity, len(c.Groups), n, access.MaxCredential)
	}
	return access.TicketPrefix + signed, nil
}

// The errors of tickets are for clients. They do not contain the ticket, or anything that it says before it is verified.
var (
	errForged  = errors.New("the ticket was not signed by this cluster")
	errFuture  = errors.New("the ticket was issued in the future: compare the clock of this server with that of the host on which it was issued")
	errExpired = errors.New("the ticket expired more than 24 h ago: get a new one")
	// errPassedOn is seen by who captured such a ticket, and by servers whose clocks differ by minutes.
	errPassedOn = errors.New("the ticket with which a server passed this on has expired: compare the clocks of the servers")
)

// verifier verifies tickets of a cluster with these keys.
type verifier struct {
	id   cluster.ID
	keys map[string]ed25519.PublicKey // by the ID of the key
}

func newVerifier(id cluster.ID, keys []volume.SigningKey) verifier {
	v := verifier{id, map[string]ed25519.PublicKey{}}
	for _, k := range keys {
		v.keys[k.ID] = k.Public()
	}
	return v
}

// keyOf returns what finds the key of a token, which has to be of this type.
func (v verifier) keyOf(typ string) jwt.Keyfunc {
	return func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		public, known := v.keys[kid]
		if is, _ := t.Header["typ"].(string); is != typ || !known {
			return nil, errForged
		}
		return public, nil
	}
}

// verify returns the caller that a ticket proves, and until when it does. That is afterExpiry behind the caller's expiry;
// one of PassOn proves nothing when it has itself expired, but for a difference of the clocks.
func (v verifier) verify(ticket string, now time.Time) (c *access.Caller, until time.Time, err error) {
	none := time.Time{}
	text, ok := strings.CutPrefix(ticket, access.TicketPrefix)
	if !ok || len(ticket) > access.MaxCredential || strings.ContainsAny(ticket, "\r\n") { // which base64 ignores
		return nil, none, errForged
	}
	m := &claims{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithIssuer(v.id.String()), jwt.WithExpirationRequired(), jwt.WithLeeway(afterExpiry),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	_, err = parser.ParseWithClaims(text, m, v.keyOf(ticketType))
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, none, errExpired
	case err != nil, m.Subject == "", m.IssuedAt == nil:
		return nil, none, errForged
	case m.IssuedAt.After(now.Add(maxSkew)):
		return nil, none, errFuture
	}
	c = &access.Caller{Identity: m.Subject, Groups: m.Groups, Via: m.Via, Key: m.Key, Issued: m.IssuedAt.Time, Operator: m.Operator}
	if !m.Passed {
		c.Expires = m.ExpiresAt.Time
		return c, c.Expires.Add(afterExpiry), nil
	}
	c.PassedOn = true
	if m.Until != nil {
		c.Expires = m.Until.Time
	}
	if until = m.ExpiresAt.Add(maxSkew); !now.Before(until) {
		return nil, none, errPassedOn
	}
	return c, until, nil
}
