// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Query selects ends. The zero value of a field selects all.
type Query struct {
	// Lock is one name, Prefix the beginning of names.
	Lock   cluster.LockName
	Prefix string
	Token  cluster.Token
	// At selects grants that were held at a time, Since those that ended at a time or later,
	// both in milliseconds since 1970.
	At, Since int64
	// After and Before bound the LSNs of ends, both excluded; those at the LSN Before
	// with a lower token than BeforeToken are selected as well.
	After, Before cluster.LSN
	BeforeToken   cluster.Token
	// Limit is how many ends are returned at most: the newest.
	Limit int
}

// matches reports whether an end is selected.
func (q *Query) matches(e *End) bool {
	switch {
	case q.Lock != "" && e.Lock != q.Lock, !strings.HasPrefix(string(e.Lock), q.Prefix):
	case q.Token != 0 && e.Token != q.Token:
	case e.LSN <= q.After || q.Before != 0 && (e.LSN > q.Before || e.LSN == q.Before && e.Token >= q.BeforeToken):
	case q.Since != 0 && e.Time < q.Since:
	case !Held(q.At, e.Since, e.Time):
	default:
		return true
	}
	return false
}

// Held reports whether a time is within a grant, which has not ended if ended is 0; time 0 is
// within every grant.
func Held(at, since, ended int64) bool {
	return at == 0 || since <= at && (ended == 0 || at < ended)
}

const (
	// clockSlack is how much the clocks of primaries may differ before a search by
	// time misses something, in milliseconds.
	clockSlack = 60_000
	// maxGaps is how many gaps are returned one by one.
	maxGaps = 32
)

// Past is the result of a selection.
type Past struct {
	// Ends are the newest that match, newest first.
	Ends []End
	// More reports whether there are older ones.
	More bool
	// From is the LSN after which everything that matches is in Ends, except for Skipped and
	// Gaps: what ended at it or before was not searched.
	From cluster.LSN
	// Skipped counts ends that were left out, of this and other locks. It may
	// count some of them twice.
	Skipped Skip
	// Gaps are ranges of which nothing is known, oldest first.
	Gaps []Range
	// Damaged counts lines that could not be read.
	Damaged int
}

// Selection selects from what a server has in memory and from files, the newest first.
type Selection struct {
	q     Query
	upTo  cluster.LSN // nothing after it is selected
	found []End
	full  bool // older ones were dropped
	skips []Skip
	gaps  []Range
	// newer is the head of the file read last; of memory before the first.
	newer   Head
	damaged int
	needles [][]byte // the line of an end that matches has all of them
	cluster string   // whose files count
}

// Select begins with what a server of this cluster has in memory. Nothing after the LSN upTo is
// selected.
func Select(cluster string, q Query, r Recent, upTo cluster.LSN) *Selection {
	q.Limit = max(1, q.Limit)
	s := &Selection{q: q, upTo: upTo, cluster: cluster, skips: slices.Clone(r.Skips), newer: Head{After: r.From, Time: 1<<63 - 1}}
	for i := range r.Ends {
		s.add(&r.Ends[i])
	}
	if q.Lock != "" {
		s.needles = append(s.needles, appendText(nil, "lock", string(q.Lock)))
	}
	if q.Prefix != "" {
		s.needles = append(s.needles, bytes.TrimSuffix(appendText(nil, "lock", q.Prefix), []byte(`"`)))
	}
	if q.Token != 0 {
		s.needles = append(s.needles, strconv.AppendUint(appendName(nil, "token"), uint64(q.Token), 10))
	}
	return s
}

func (s *Selection) add(e *End) {
	// What is not selected takes no place of what is.
	if e.LSN > s.upTo || !s.q.matches(e) {
		return
	}
	s.found = append(s.found, *e)
	if len(s.found) > 4*(s.q.Limit+1) {
		s.settle()
	}
}

// settle orders what was found and drops what is above the limit.
func (s *Selection) settle() {
	slices.SortFunc(s.found, func(a, b End) int { return b.Compare(&a) })
	s.found = slices.CompactFunc(s.found, func(a, b End) bool { return a.Compare(&b) == 0 })
	if len(s.found) > s.q.Limit {
		clear(s.found[s.q.Limit:])
		s.found, s.full = s.found[:s.q.Limit], true
	}
}

// Enough reports whether no file older than the one read last can have a selected end.
func (s *Selection) Enough() bool {
	s.settle()
	n := len(s.found)
	switch after := s.newer.After; {
	case after == 0 || after <= s.q.After:
	case s.q.Token != 0 && (n > 0 || uint64(after) <= uint64(s.q.Token)):
	case s.newer.Time > 0 && s.newer.Time < max(s.q.At, s.q.Since)-clockSlack:
	case s.full && s.found[n-1].LSN > after:
	default:
		return false
	}
	return true
}

// GiveUp drops what was found in a file that was not read to its end. Its lines begin with the
// oldest: with them, the missing newer ends would not be noticed.
func (s *Selection) GiveUp() {
	s.settle()
	n := len(s.found)
	s.found = slices.DeleteFunc(s.found, func(e End) bool { return e.LSN <= s.newer.After })
	if len(s.found) < n {
		s.full = false // what was dropped is not older than what was not reached
	}
}

// Past returns what was found so far.
func (s *Selection) Past() Past {
	s.settle()
	p := Past{Ends: s.found, More: s.full, From: min(s.upTo, max(s.q.After, s.newer.After)), Damaged: s.damaged}
	if s.full && len(s.found) > 0 {
		p.From = s.found[len(s.found)-1].LSN - 1
	}
	if s.q.Token != 0 && len(s.found) > 0 {
		p.From, p.More = s.found[0].LSN-1, false
		return p // there is no other end of it
	}
	top := s.upTo
	if s.q.Before != 0 {
		top = min(top, s.q.Before)
	}
	for _, k := range s.skips {
		if k.To <= p.From || k.From > top {
			continue
		}
		if p.Skipped.Count == 0 {
			p.Skipped.Range = k.Range
		}
		p.Skipped.From, p.Skipped.To = min(p.Skipped.From, k.From), max(p.Skipped.To, k.To)
		p.Skipped.Count += k.Count
	}
	p.Gaps = mergeGaps(s.gaps, p.From, top)
	return p
}

// mergeGaps orders the gaps that touch the range after from up to top, and joins the oldest if
// there are too many.
func mergeGaps(gaps []Range, from, top cluster.LSN) (out []Range) {
	gaps = slices.DeleteFunc(gaps, func(g Range) bool { return g.To <= from || g.From > top })
	slices.SortFunc(gaps, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	for _, g := range gaps {
		g.To = min(g.To, top)
		if n := len(out); n > 0 && g.From <= out[n-1].To+1 {
			out[n-1].To = max(out[n-1].To, g.To)
			continue
		}
		out = append(out, g)
	}
	if n := len(out) - maxGaps; n > 0 {
		out[n].From = out[0].From
		out = out[n:]
	}
	return out
}
