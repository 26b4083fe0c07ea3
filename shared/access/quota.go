// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Quota limits what callers may have and how fast they may ask. Quotas only ever limit: of several that hold for a caller,
// the lowest limit of each kind counts, and their order means nothing.
type Quota struct {
	// Who are as in a Rule. The limits hold for each identity by itself; all callers without a credential are one.
	Who []string `toml:"who"`
	// Prefix begins the names of the locks and files for which the limits hold: all callers share them. There is either it
	// or Who.
	Prefix string `toml:"prefix"`
	// Limits are numbers by the names of limits. One in bytes may be a text with a unit, such as "20MB".
	Limits map[string]any `toml:"limits"`
}

// Limits are the most that quotas leave to a caller, or below a prefix; 0 is no limit.
type Limits struct {
	// Locks is how many grants may be held. A place in a queue counts too: it becomes a grant.
	Locks int64
	// Waiters is how many requests may wait in queues.
	Waiters int64
	// Sessions is how many sessions of client libraries, and WebSockets, a server has of an identity.
	Sessions int64
	// Watches is how many watches a server serves of an identity.
	Watches int64
	// Requests and AppendBytes are how many requests, and bytes of appends, each server takes in a second.
	Requests, AppendBytes int64
	// FileBytes is how long the protected files may be together.
	FileBytes int64
}

// limit is one of Limits by its name in rules.
type limit struct {
	name     string
	most     *int64
	bytes    bool // it is in bytes
	ofWho    bool // it can be one of each identity
	ofPrefix bool // it can be one of a prefix
}

// all returns the limits, those that are 0 too.
func (x *Limits) all() []limit {
	return []limit{
		{"locks", &x.Locks, false, true, true},
		{"waiters", &x.Waiters, false, true, true},
		{"sessions", &x.Sessions, false, true, false},
		{"watches", &x.Watches, false, true, false},
		{"requests_per_s", &x.Requests, false, true, false},
		{"append_bytes_per_s", &x.AppendBytes, true, true, false},
		{"file_bytes", &x.FileBytes, true, false, true},
	}
}

// unitsOfSizes are tried in this order: one name ends another.
var unitsOfSizes = [...]struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// parseSize reads a number with a unit.
func parseSize(text string) (int64, bool) {
	for _, u := range unitsOfSizes {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			n, err := strconv.ParseInt(strings.TrimRight(number, " "), 10, 64)
			return n * u.bytes, err == nil && n <= math.MaxInt64/u.bytes
		}
	}
	return 0, false
}

// set sets a limit to what the rules say.
func (l *limit) set(value any) error {
	n, ok := value.(int64)
	if text, isText := value.(string); isText && l.bytes {
		n, ok = parseSize(text)
	}
	switch {
	case !ok && l.bytes:
		return fmt.Errorf(`limits: %s = %v: it is a number of bytes, or a text with a unit, such as "20MB" or "1GiB"`, l.name, value)
	case !ok:
		return fmt.Errorf("limits: %s = %v: it is a whole number", l.name, value)
	case n < 1:
		return fmt.Errorf("limits: %s = %v: it is 1 or more; what nobody may do, no rule allows", l.name, value)
	}
	*l.most = n
	return nil
}

// limitsOf reads the limits of a quota.
func limitsOf(x *Quota) (limits Limits, err error) {
	known, names := map[string]limit{}, []string{}
	for _, l := range limits.all() {
		known[l.name], names = l, append(names, l.name)
	}
	if len(x.Limits) == 0 {
		return limits, fmt.Errorf("limits is empty: they are %s", strings.Join(names, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(x.Limits)) {
		l, ok := known[name]
		switch {
		case !ok:
			return limits, fmt.Errorf("limits: there is no limit %q: they are %s", name, strings.Join(names, ", "))
		case x.Prefix == "" && !l.ofWho:
			return limits, fmt.Errorf("limits: %s is of files, and not of who writes them: use a quota with a prefix", name)
		case x.Prefix != "" && !l.ofPrefix:
			return limits, fmt.Errorf("limits: %s is of identities, and not below a prefix: use a quota with who", name)
		}
		if err := l.set(x.Limits[name]); err != nil {
			return limits, err
		}
	}
	return limits, nil
}

// quota is a compiled Quota: of who, or of a prefix.
type quota struct {
	who    []string
	prefix string
	limits Limits
}

func compileQuota(x Quota) (q quota, err error) {
	switch {
	case len(x.Who) > 0 && x.Prefix != "":
		return q, errors.New("who and prefix: a quota has one of them; write two")
	case len(x.Who) == 0 && x.Prefix == "":
		return q, errors.New(`it has neither who, for each identity, nor prefix, for all callers together`)
	case strings.ContainsAny(x.Prefix, "*{}"):
		return q, fmt.Errorf("prefix %q: it is the beginning of names, such as astro/, and no pattern", x.Prefix)
	}
	if x.Prefix == "" {
		if err := checkWho(x.Who, ""); err != nil {
			return q, err
		}
	}
	q = quota{who: slices.Clone(x.Who), prefix: x.Prefix}
	q.limits, err = limitsOf(&x)
	return q, err
}

// Limits returns the limits of a caller by itself: the lowest of each kind; nil if it has none. Who has the volume's secrets
// has none.
func (r *Rules) Limits(c *Caller) *Limits {
	if r == nil || len(r.quotas) == 0 || c != nil && c.Operator {
		return nil
	}
	var x Limits
	found := false
	for i := range r.quotas {
		if q := &r.quotas[i]; q.prefix == "" && c.isOneOf(q.who) {
			x.lower(&q.limits)
			found = true
		}
	}
	if !found {
		return nil
	}
	return &x
}

// lower takes over the limits of y that are lower.
func (x *Limits) lower(y *Limits) {
	lowest(&x.Locks, y.Locks)
	lowest(&x.Waiters, y.Waiters)
	lowest(&x.Sessions, y.Sessions)
	lowest(&x.Watches, y.Watches)
	lowest(&x.Requests, y.Requests)
	lowest(&x.AppendBytes, y.AppendBytes)
	lowest(&x.FileBytes, y.FileBytes)
}

func lowest(x *int64, y int64) {
	if y != 0 && (*x == 0 || y < *x) {
		*x = y
	}
}

// CountsIdentities reports whether a quota limits how many locks identities have or wait for.
func (r *Rules) CountsIdentities() bool {
	return r != nil && slices.ContainsFunc(r.quotas, func(q quota) bool {
		return q.prefix == "" && (q.limits.Locks != 0 || q.limits.Waiters != 0)
	})
}

// PrefixLimits are those that all callers share below a prefix.
type PrefixLimits struct {
	Prefix string
	Limits Limits
}

// PrefixLimits returns the limits of prefixes, one for each prefix, in order. They must not be changed.
func (r *Rules) PrefixLimits() []PrefixLimits {
	if r == nil {
		return nil
	}
	return r.prefixes
}

// joinPrefixes returns the limits of prefixes, one for each, in order.
func joinPrefixes(quotas []quota) (all []PrefixLimits) {
	for _, q := range quotas {
		if q.prefix == "" {
			continue
		}
		i, found := slices.BinarySearchFunc(all, q.prefix, func(x PrefixLimits, p string) int { return strings.Compare(x.Prefix, p) })
		if !found {
			all = slices.Insert(all, i, PrefixLimits{Prefix: q.prefix})
		}
		all[i].Limits.lower(&q.limits)
	}
	return all
}

// Told is a limit for people and programs.
type Told struct {
	Name   string
	Most   int64
	Prefix string // all callers share it there; "" = it is of the caller by itself
}

// Tell returns the limits of a caller, and those of the prefixes of a lock and a file; "" for none.
func (r *Rules) Tell(c *Caller, lock, file string) (all []Told) {
	if x := r.Limits(c); x != nil {
		for _, l := range x.all() {
			if *l.most != 0 {
				all = append(all, Told{Name: l.name, Most: *l.most})
			}
		}
	}
	for _, q := range r.PrefixLimits() {
		for _, l := range q.Limits.all() {
			name := lock
			if !l.ofWho {
				name = file
			}
			if *l.most != 0 && name != "" && strings.HasPrefix(name, q.Prefix) {
				all = append(all, Told{Name: l.name, Most: *l.most, Prefix: q.Prefix})
			}
		}
	}
	return all
}
