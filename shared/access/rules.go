// SPDX-License-Identifier: Apache-2.0

package access

import "time"

// File is a version of the rules as it is written. The tags are its names in TOML.
type File struct {
	Admins []AdminRule  `toml:"admin"`
	Rules  []Rule       `toml:"rule"`
	Keys   []Key        `toml:"key"`
	Ended  []Revocation `toml:"revoked"`
}

// AdminRule names who may do everything.
type AdminRule struct {
	Who []string `toml:"who"`
}

// Rule allows those that it names to do what it says with locks, and files, whose names fit one of its patterns.
type Rule struct {
	// Who are identities, groups (group:astro), kinds (user:*), "*" for everybody with a credential, or "anonymous" for
	// those without one too.
	Who []string `toml:"who"`
	May []Verb   `toml:"may"`
	// Locks are patterns: a name; with * for anything within one part between slashes, with ** at the end for all that
	// follows, and with {name} for the name of the identity without its kind.
	Locks []string `toml:"locks"`
	// Files are patterns of protected files; nil means the patterns of Locks.
	Files []string `toml:"files"`
}

// Key is a long-lived credential. Its text is known to its owner only.
type Key struct {
	Name    string    `toml:"name"`             // of the identity service:NAME
	Groups  []string  `toml:"groups,omitempty"` // such as group:ci
	SHA256  string    `toml:"sha256"`           // of the text, in hexadecimal
	Created time.Time `toml:"created"`
	Expires time.Time `toml:"expires,omitempty"`
}

// Revocation ends the tickets of those whom it names that were issued before a time.
type Revocation struct {
	Who    []string  `toml:"who"`
	Before time.Time `toml:"before"`
}

// Rules are a version of the rules, ready to be asked. They are not changed, so servers swap a pointer; nil means that
// there are none: everybody may do everything.
type Rules struct {
	version uint64
}

// Version returns the number of the rules, 0 if there are none.
func (r *Rules) Version() uint64 {
	if r == nil {
		return 0
	}
	return r.version
}
