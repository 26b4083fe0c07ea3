// SPDX-License-Identifier: Apache-2.0

// Package access decides who may do what: callers, the rules of a volume, and what the rules permit a caller. It is
// pure: it neither reads files nor knows the time, so that every server and tool decides alike.
//
// A caller is known by an identity, such as user:alice or service:ci, that a credential proved. The rules are one file
// with numbered versions on the volume; they only ever allow. What a caller does with what it already has (renew,
// release, append under its own token) is checked by the lock table, which knows the identity of every grant.
package access

import (
	"slices"
	"strings"
	"time"
)

// Caller is who a connection or a request is from. It is not changed once it is made, and nil is a caller without a
// credential.
type Caller struct {
	// Identity is a kind and a name, such as user:alice, service:ci or cert:db.example.org.
	Identity string
	// Groups are what a rule may name besides the identity, such as group:astro.
	Groups []string
	// Via is what proved the identity, for people: key, ticket, socket, certificate.
	Via string
	// Key is the name of the key that the identity rests on, "" if none: it ends with it.
	Key string
	// Issued and Expires are when the credential was made, and until when it counts; zero if never.
	Issued, Expires time.Time
	// Operator is set for who has the volume's secrets, and so may do everything whatever the rules say.
	Operator bool
	// PassedOn is set where another server of the cluster passed the request on, and says so by a ticket that it signed.
	PassedOn bool
}

// Name returns the identity, "" of a caller without a credential.
func (c *Caller) Name() string {
	if c == nil {
		return ""
	}
	return c.Identity
}

// Expiring reports whether the credential of a caller has an end.
func (c *Caller) Expiring() bool { return c != nil && !c.Expires.IsZero() }

// Expired reports whether the credential of a caller has expired.
func (c *Caller) Expired(now time.Time) bool {
	return c.Expiring() && !now.Before(c.Expires)
}

// known reports whether the caller has an identity.
func (c *Caller) known() bool { return c != nil && c.Identity != "" }

// is reports whether a word of a rule's who means the caller. Groups and identities are apart, so that nobody becomes
// a user by a group that is called like one.
func (c *Caller) is(who string) bool {
	kind, name, _ := strings.Cut(who, ":")
	switch {
	case who == anonymous:
		return true
	case !c.known():
		return false
	case who == everybody:
		return true
	case kind == groupKind:
		return slices.Contains(c.Groups, who)
	case name == "*":
		return strings.HasPrefix(c.Identity, kind+":")
	}
	return who == c.Identity
}

// isOneOf reports whether one of these words means the caller.
func (c *Caller) isOneOf(who []string) bool { return slices.ContainsFunc(who, c.is) }

// The words of a rule's who that are not identities, and the kind that groups have.
const (
	everybody = "*"
	anonymous = "anonymous"
	groupKind = "group"
)

// Verb is what a rule allows.
type Verb string

// The verbs. The first four are words of the rules.
const (
	// Acquire is to hold a lock, or wait for it.
	Acquire Verb = "acquire"
	// Read is to see locks, files, events and history.
	Read Verb = "read"
	// Append is to write protected files, and to bind and seal them.
	Append Verb = "append"
	// Break is to take a lock from its holder, and to unbind and rotate files.
	Break Verb = "break"
	// Admin is to hand the primary role over, and to see who else is there. [[admin]] tables give it, and the volume's secrets.
	Admin Verb = "admin"
	// Keep is to use what one has: keep it alive, renew, release, cancel, ask for an outcome. Every caller that the rules
	// permit anything may do it, also with a credential that has expired; whose it is the lock table decides.
	Keep Verb = "keep"
	// Open is what everybody may do, without a credential too: find the primary, and say who one is.
	Open Verb = "open"
)
