// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// verbs is a set of verbs of rules.
type verbs uint8

// bit returns the set that has this verb only, and 0 for a verb that rules do not have.
func bit(v Verb) verbs {
	switch v {
	case Acquire:
		return 1
	case Read:
		return 2
	case Append:
		return 4
	case Break:
		return 8
	}
	return 0
}

// TableError says which table of a version of the rules is wrong.
type TableError struct {
	Table  string // such as rule
	Number int    // of the tables with this name, from 1
	Err    error
}

func (e *TableError) Error() string { return fmt.Sprintf("%s %d: %v", e.Table, e.Number, e.Err) }

// Unwrap returns what is wrong with the table.
func (e *TableError) Unwrap() error { return e.Err }

// Compile checks a version of the rules and makes it ready to be asked. The error is a *TableError. Rules need no [[admin]]: who has the volume's secrets is one.
func Compile(f *File, version uint64) (*Rules, error) {
	r := &Rules{version: version, keys: map[[32]byte]Key{}, created: map[string]time.Time{}}
	for i, x := range f.Admins {
		if err := checkWho(x.Who, anonymous); err != nil {
			return nil, &TableError{Table: "admin", Number: i + 1, Err: err}
		}
		r.admins = append(r.admins, AdminRule{Who: slices.Clone(x.Who)})
	}
	for i, x := range f.Rules {
		c, err := compileRule(x)
		if err != nil {
			return nil, &TableError{Table: "rule", Number: i + 1, Err: err}
		}
		r.rules = append(r.rules, c)
	}
	for i, k := range f.Keys {
		if err := r.addKey(k); err != nil {
			return nil, &TableError{Table: "key", Number: i + 1, Err: err}
		}
	}
	for i, x := range f.Ended {
		err := checkWho(x.Who, anonymous)
		if err == nil && x.Before.IsZero() {
			err = errors.New("before is missing: the time at which it was revoked")
		}
		if err != nil {
			return nil, &TableError{Table: "revoked", Number: i + 1, Err: err}
		}
		r.ended = append(r.ended, Revocation{Who: slices.Clone(x.Who), Before: x.Before})
	}
	for i, x := range f.Quotas {
		q, err := compileQuota(x)
		if err != nil {
			return nil, &TableError{Table: "quota", Number: i + 1, Err: err}
		}
		r.quotas = append(r.quotas, q)
	}
	r.prefixes = joinPrefixes(r.quotas)
	return r, nil
}

func compileRule(x Rule) (c rule, err error) {
	if err := checkWho(x.Who, ""); err != nil {
		return c, err
	}
	c.who = slices.Clone(x.Who)
	if len(x.May) == 0 {
		return c, errors.New("may is empty: the verbs are acquire, read, append, break")
	}
	for _, v := range x.May {
		switch {
		case v == Admin:
			return c, errors.New(`verb "admin": name administrators in an [[admin]] table`)
		case bit(v) == 0:
			return c, fmt.Errorf("verb %q: the verbs are acquire, read, append, break", v)
		}
		c.may |= bit(v)
	}
	if len(x.Locks) == 0 && len(x.Files) == 0 {
		return c, errors.New(`locks is empty: say locks = ["**"] for all`)
	}
	if c.locks, err = compileGlobs(x.Locks); err != nil {
		return c, fmt.Errorf("locks: %w", err)
	}
	c.files = c.locks
	if x.Files != nil {
		if c.files, err = compileGlobs(x.Files); err != nil {
			return c, fmt.Errorf("files: %w", err)
		}
	}
	return c, nil
}

func compileGlobs(patterns []string) (all []glob, err error) {
	for _, s := range patterns {
		g, err := compileGlob(s)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// checkWho returns an error that names the first word that no who has, or not here.
func checkWho(who []string, but string) error {
	if len(who) == 0 {
		return errors.New("who is empty")
	}
	for _, w := range who {
		if err := CheckWho(w); err != nil {
			return err
		}
		if w == but {
			return fmt.Errorf("who %q: not here, only those with a credential", w)
		}
	}
	return nil
}

// CheckWho returns an error unless this is a word of a who: user:alice, group:astro, user:*, * or anonymous.
func CheckWho(who string) error {
	kind, name, _ := strings.Cut(who, ":")
	lower := !strings.ContainsFunc(kind, func(c rune) bool { return c < 'a' || c > 'z' })
	switch {
	case who == everybody, who == anonymous:
		return nil
	case kind == "" || name == "" || !lower:
		return fmt.Errorf(`who %q: it is user:NAME, service:NAME, group:NAME, user:*, "*" or "anonymous"`, who)
	case name != "*" && strings.Contains(name, "*"):
		return fmt.Errorf("who %q: a * stands alone, as in %s:*", who, kind)
	case kind == groupKind && name == "*":
		return fmt.Errorf("who %q: name the group", who)
	}
	return nil
}

const maxKeyName = 64

// CheckKeyName returns an error unless a key can have this name.
func CheckKeyName(name string) error {
	odd := strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-@", c))
	})
	if name == "" || odd || len(name) > maxKeyName {
		return fmt.Errorf("key name %q: it has 1 to %d letters, digits and . _ - @", name, maxKeyName)
	}
	return nil
}

func (r *Rules) addKey(k Key) error {
	if err := CheckKeyName(k.Name); err != nil {
		return err
	}
	for _, g := range k.Groups {
		if err := CheckWho(g); err != nil || !strings.HasPrefix(g, groupKind+":") {
			return fmt.Errorf("%q: group %q: it is group:NAME", k.Name, g)
		}
	}
	b, err := hex.DecodeString(k.SHA256)
	if err != nil || len(b) != 32 {
		return fmt.Errorf("%q: sha256 has 64 hexadecimal digits", k.Name)
	}
	if _, ok := r.created[k.Name]; ok {
		return fmt.Errorf("%q: there is another key with this name", k.Name)
	}
	if other, ok := r.keys[[32]byte(b)]; ok {
		return fmt.Errorf("%q: key %q has the same sha256", k.Name, other.Name)
	}
	k.Groups = slices.Clone(k.Groups)
	r.created[k.Name], r.keys[[32]byte(b)] = k.Created, k
	return nil
}
