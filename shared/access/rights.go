// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"slices"
	"strings"
)

// Rights are what one version of the rules lets one caller do. They are not changed, and safe for concurrent use; nil
// permits nothing but Open.
type Rights struct {
	caller     string // for people, such as "user:alice (ticket)"; "" for a caller without a credential
	version    uint64
	all        bool  // an administrator, or there are no rules
	any        verbs // for some name
	everywhere verbs // for all locks and all files
	rules      []rule
}

// Rights returns what a caller may do. It is made for one call per connection, and again when the rules change. Whether the
// credential has expired or is revoked does not matter here.
func (r *Rules) Rights(c *Caller) *Rights {
	x := &Rights{caller: c.Name(), version: r.Version()}
	if c.known() && c.Via != "" {
		x.caller += " (" + c.Via + ")"
	}
	admin := func(a AdminRule) bool { return c.known() && c.isOneOf(a.Who) }
	if r == nil || c != nil && c.Operator || slices.ContainsFunc(r.admins, admin) {
		x.all = true
		return x
	}
	_, name, _ := strings.Cut(c.Name(), ":")
	for _, y := range r.rules {
		if !c.isOneOf(y.who) {
			continue
		}
		locks, files := globsOf(y.locks, name), globsOf(y.files, name)
		if slices.ContainsFunc(locks, glob.all) && slices.ContainsFunc(files, glob.all) {
			x.everywhere |= y.may
		}
		x.any |= y.may
		x.rules = append(x.rules, rule{may: y.may, locks: locks, files: files})
	}
	return x
}

// globsOf returns the patterns for an identity with this name.
func globsOf(all []glob, name string) []glob {
	if !slices.ContainsFunc(all, func(g glob) bool { return g.named }) {
		return all
	}
	own := make([]glob, 0, len(all))
	for _, g := range all {
		if g, ok := g.of(name); ok {
			own = append(own, g)
		}
	}
	return own
}

// May reports whether the caller may do this with a lock and a protected file; "" if the operation is about none. One rule
// has to cover both.
func (x *Rights) May(v Verb, lock, file string) bool {
	if v == Open {
		return true
	}
	if x == nil {
		return false
	}
	need := bit(v)
	switch {
	case x.all:
		return true
	case v == Keep:
		return x.any != 0
	case x.everywhere&need != 0:
		return true
	case lock == "" && file == "":
		return x.any&need != 0
	case x.any&need == 0:
		return false
	}
	for i := range x.rules {
		r := &x.rules[i]
		if r.may&need != 0 && (lock == "" || fitsOne(r.locks, lock)) && (file == "" || fitsOne(r.files, file)) {
			return true
		}
	}
	return false
}

// MayPrefix reports whether the caller may do this with all locks whose names begin with prefix, by one pattern.
func (x *Rights) MayPrefix(v Verb, prefix string) bool {
	if v == Open {
		return true
	}
	if x == nil {
		return false
	}
	if x.all || x.everywhere&bit(v) != 0 {
		return true
	}
	return slices.ContainsFunc(x.rules, func(r rule) bool {
		return r.may&bit(v) != 0 && slices.ContainsFunc(r.locks, func(g glob) bool { return g.rest && g.fits(prefix) })
	})
}

// LockPrefixes returns texts, in order, none of them the beginning of another one: each lock whose name begins with under, and
// with which the caller may do this, has a name that begins with one of them. So a list need not look at all others.
func (x *Rights) LockPrefixes(v Verb, under string) []string {
	return x.prefixes(v, under, func(r *rule) []glob { return r.locks })
}

// FilePrefixes is LockPrefixes for protected files.
func (x *Rights) FilePrefixes(v Verb, under string) []string {
	return x.prefixes(v, under, func(r *rule) []glob { return r.files })
}

func (x *Rights) prefixes(v Verb, under string, of func(*rule) []glob) (least []string) {
	switch {
	case v == Open, x != nil && (x.all || x.everywhere&bit(v) != 0):
		return []string{under}
	case x == nil:
		return nil
	}
	var all []string
	for i := range x.rules {
		if x.rules[i].may&bit(v) == 0 {
			continue
		}
		for _, g := range of(&x.rules[i]) {
			if begins := g.texts[0]; strings.HasPrefix(begins, under) {
				all = append(all, begins)
			} else if strings.HasPrefix(under, begins) {
				all = append(all, under)
			}
		}
	}
	slices.Sort(all)
	for _, p := range all {
		if len(least) == 0 || !strings.HasPrefix(p, least[len(least)-1]) {
			least = append(least, p)
		}
	}
	return least
}

func fitsOne(all []glob, name string) bool {
	for i := range all {
		if all[i].fits(name) {
			return true
		}
	}
	return false
}

// Denial returns the text for a caller that may not do this: who, what, and what to do about it.
func (x *Rights) Denial(v Verb, lock, file string) string {
	caller, version := "", uint64(0)
	if x != nil {
		caller, version = x.caller, x.version
	}
	what := fmt.Sprintf("access version %d does not allow to %s", version, deed(v, lock, file))
	switch {
	case caller == "":
		return "no credential: set HOLDFAST_KEY, or use the volume's path as the endpoint (without one, " + what + ")"
	case v == Admin:
		return fmt.Sprintf("%s may not %s: no [[admin]] of access version %d names it", caller, deed(v, lock, file), version)
	}
	text := fmt.Sprintf("%s may not %s: no rule of access version %d allows it", caller, deed(v, lock, file), version)
	if bit(v) == 0 {
		return text
	}
	advice := "holdfast can " + string(v)
	if lock != "" {
		advice += " " + shellWord(lock)
	}
	if file != "" {
		advice += " --file " + shellWord(file)
	}
	return text + " (see " + advice + ")"
}

// deed says for people what a caller wants to do.
func deed(v Verb, lock, file string) string {
	verb := string(v)
	switch v {
	case Append:
		verb = "append to"
	case Admin:
		return "administer the servers"
	case Keep:
		return "use anything"
	}
	switch {
	case lock == "" && file == "":
		return verb + " anything"
	case file == "":
		return fmt.Sprintf("%s %q", verb, lock)
	case lock == "":
		return fmt.Sprintf("%s file %q", verb, file)
	}
	return fmt.Sprintf("%s file %q under lock %q", verb, file, lock)
}

// shellWord returns a word as one types it in a shell.
func shellWord(s string) string {
	plain := !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-/:@+,=", c))
	})
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
