// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"time"
)

// File is a version of the rules as it is written. The tags are its names in TOML.
type File struct {
	Admins []AdminRule  `toml:"admin"`
	Rules  []Rule       `toml:"rule"`
	Keys   []Key        `toml:"key"`
	Ended  []Revocation `toml:"revoked"`
	Quotas []Quota      `toml:"quota"`
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
	// follows, and with {name} for the name of the identity without its kind. A name with a slash, as some certificates
	// have, fits no pattern with {name}: it would reach into the part of another one.
	Locks []string `toml:"locks"`
	// Files are patterns of protected files; nil means the patterns of Locks. Without Locks, the rule is about files only.
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
	admins  []AdminRule
	rules   []rule
	keys    map[[32]byte]Key
	created map[string]time.Time // by the names of the keys
	ended   []Revocation
	// quotas are all, prefixes those of prefixes, see joinPrefixes.
	quotas   []quota
	prefixes []PrefixLimits
}

// rule is a compiled Rule.
type rule struct {
	who          []string
	may          verbs
	locks, files []glob
}

// Version returns the number of the rules, 0 if there are none.
func (r *Rules) Version() uint64 {
	if r == nil {
		return 0
	}
	return r.version
}

// KeyOf returns the key whose text has this SHA-256. It may have expired. A caller who shows the text has the time at which
// the key was created as Issued, by which Revoked tells the key from a later one with the same name.
func (r *Rules) KeyOf(sum [32]byte) (Key, bool) {
	if r == nil {
		return Key{}, false
	}
	k, ok := r.keys[sum]
	return k, ok
}

// Named returns a caller with this identity, and with these groups and those of its key, if it has one: what it may do is
// asked by others.
func (r *Rules) Named(identity string, groups []string) *Caller {
	c := &Caller{Identity: identity, Groups: slices.Clone(groups)}
	if r == nil {
		return c
	}
	for _, k := range r.keys {
		if "service:"+k.Name == identity {
			c.Groups = append(c.Groups, k.Groups...)
		}
	}
	return c
}

// viaKey is Via of a caller who showed a key.
const viaKey = "key"

// Revoked reports whether the caller's credential has ended before its time: the key that it rests on is not among the keys
// any more, or a [[revoked]] table names the caller, and its credential was issued before the time there. Such a table
// ends no keys, and no credential without a time of issue. Who has the volume's secrets can make new ones, and is not
// revoked.
func (r *Rules) Revoked(c *Caller) bool {
	if r == nil || !c.known() || c.Operator {
		return false
	}
	if c.Key != "" {
		created, ok := r.created[c.Key]
		if !ok {
			return true
		}
		if c.Via == viaKey {
			return !c.Issued.IsZero() && !created.IsZero() && c.Issued.Unix() != created.Unix()
		}
	}
	return slices.ContainsFunc(r.ended, func(x Revocation) bool {
		return !c.Issued.IsZero() && c.Issued.Before(x.Before) && c.isOneOf(x.Who)
	})
}
