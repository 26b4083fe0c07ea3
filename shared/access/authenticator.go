// SPDX-License-Identifier: Apache-2.0

package access

// Authenticator is what front ends ask about callers. Its methods are safe for use by several goroutines.
type Authenticator interface {
	// Authenticate returns the caller that a credential proves. The error is for the client, and does not contain the credential.
	Authenticate(credential string) (*Caller, error)
	// Known reports whether it costs little to ask Authenticate about a credential which may well be good: that of a key, or of a
	// ticket that was good before.
	Known(credential string) bool
	// PassOn returns a short-lived credential of this caller that the other servers of the cluster take, for a request that is passed on to them; "" of a caller without one.
	PassOn(*Caller) string
	// Rules returns the rules in force, nil if there are none.
	Rules() *Rules
}
