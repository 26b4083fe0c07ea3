// SPDX-License-Identifier: Apache-2.0

package holdfasttest

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	rules "github.com/holdfast-lock/holdfast/shared/access"
)

// accessRules are rules that were parsed.
type accessRules = rules.Rules

// ticketTime is longer than a test.
const ticketTime = 24 * time.Hour

// Credential returns a credential of an identity, such as "user:alice" or "service:billing", that is in these groups.
// Over HTTP it is a bearer token. It is valid for a day.
func (s *Server) Credential(identity string, groups ...string) string {
	s.tb.Helper()
	text, err := s.ticket(&rules.Caller{Identity: identity, Groups: groups})
	if err != nil {
		s.tb.Fatalf("holdfasttest: credential of %s: %v", identity, err)
	}
	return text
}

// As is an Options.Credential: a client with it is of this identity, see Credential.
func (s *Server) As(identity string, groups ...string) func(context.Context, string) (string, error) {
	text := s.Credential(identity, groups...)
	return func(context.Context, string) (string, error) { return text, nil }
}

// operator is the Options.Credential of Client.
func (s *Server) operator(context.Context, string) (string, error) {
	return s.ticket(&rules.Caller{Identity: "user:holdfasttest", Operator: true})
}

func (s *Server) ticket(c *rules.Caller) (string, error) {
	now := time.Now()
	c.Issued, c.Expires = now, now.Add(ticketTime)
	return auth.Sign(s.key, s.about.ID, c)
}

// Keys returns the keys by which proofs of these servers are verified, for a resource under test.
func (s *Server) Keys() *fencing.Keys {
	s.tb.Helper()
	k, err := fencing.ReadKeys(func() ([]byte, error) { return s.auth.PublicKeys(), nil }, s.about.ID.String())
	if err != nil {
		s.tb.Fatalf("holdfasttest: %v", err)
	}
	return k
}
