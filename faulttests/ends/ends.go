// SPDX-License-Identifier: Apache-2.0

// Package ends judges the history of a volume by its log, with a model of its own of what
// ends a grant.
package ends

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Log derives from the records of a log which grants its history must have. It is independent
// of the service's table.
type Log struct {
	held    map[cluster.Token]*heldGrant
	waiting map[asker]bool
	last    *history.End // the one ended by the record before
	want    map[endKey]*history.End
	lsn     cluster.LSN
	owners  map[cluster.ClientID]string // their identities
}

type heldGrant struct {
	grant   locktable.Record
	said    string // metadata
	appends map[cluster.FileName]history.Append
}

type asker struct {
	client  cluster.ClientID
	request cluster.RequestID
}

type endKey struct {
	lsn   cluster.LSN
	token cluster.Token
}

// New returns a Log before the first record.
func New() *Log {
	return &Log{held: map[cluster.Token]*heldGrant{}, waiting: map[asker]bool{}, want: map[endKey]*history.End{}, owners: map[cluster.ClientID]string{}}
}

// See takes the next record.
func (x *Log) See(r *locktable.Record) {
	x.see(r)
	id := r.Client
	switch r.Kind {
	case locktable.KindOpenClient:
		id = cluster.OpenedClientID(r.LSN, r.Mark)
	case locktable.KindForgetClient:
		delete(x.owners, id)
	}
	if r.Identity != "" && x.owners[id] == "" {
		x.owners[id] = r.Identity
	}
}

func (x *Log) see(r *locktable.Record) {
	before := x.last
	x.last, x.lsn = nil, r.LSN
	who := asker{r.Client, r.Request}
	switch r.Kind {
	case locktable.KindGrant:
		if before != nil && before.Lock == r.Lock && x.waiting[who] {
			before.Successor = cluster.Token(r.LSN)
		}
		delete(x.waiting, who)
		x.held[r.LSN.Token()] = &heldGrant{grant: *r, said: r.Metadata, appends: map[cluster.FileName]history.Append{}}
	case locktable.KindEnqueue:
		x.waiting[who] = true
	case locktable.KindWaitTimeout, locktable.KindCancel, locktable.KindSkip:
		delete(x.waiting, who)
	case locktable.KindMetadata:
		x.held[r.Token].said = r.Metadata
	case locktable.KindDowngrade:
		x.held[r.Token].grant.Mode = locktable.ModeShared
	case locktable.KindExtend:
		x.held[r.Token].grant.TTL = r.TTL
	case locktable.KindAppend:
		x.held[r.Token].appends[r.File] = history.Append{File: r.File, Offset: r.Offset, Length: r.Length, LSN: r.LSN}
	case locktable.KindUnbind, locktable.KindRotate:
		delete(x.held[r.Token].appends, r.File)
	case locktable.KindForceClear:
		for token := range x.held {
			x.end(token, r, history.WhyCleared)
		}
		clear(x.waiting)
	case locktable.KindExpire:
		x.last = x.end(r.Token, r, history.WhyExpired)
	case locktable.KindBreak:
		x.last = x.end(r.Token, r, history.WhyBroken)
	case locktable.KindRelease:
		why := history.WhyReleased
		if x.held[r.Token].grant.Client != r.Client && !r.Client.OneShot() {
			why = history.WhyReleasedByOther
		}
		x.last = x.end(r.Token, r, why)
	}
}

func (x *Log) end(token cluster.Token, r *locktable.Record, why history.Why) *history.End {
	h := x.held[token]
	delete(x.held, token)
	g := &h.grant
	e := &history.End{
		LSN: r.LSN, Epoch: r.Epoch, Time: r.Time, Why: why, Lock: g.Lock, Token: cluster.Token(g.LSN), Granted: g.Epoch, Since: g.Time,
		Client: g.Client, Request: g.Request, TTL: g.TTL, Mode: g.Mode, Permit: g.Permit, Holder: g.Holder, Metadata: h.said,
		Identity: x.owners[g.Client],
	}
	switch why {
	case history.WhyBroken:
		e.Actor, e.Reason = r.Actor, r.Reason
	case history.WhyExpired:
		e.Reason = r.Reason
	case history.WhyReleasedByOther:
		e.Actor = x.who(r.Client)
	}
	for _, a := range h.appends {
		if a.LSN > e.Append.LSN {
			e.Append = a
		}
	}
	x.want[endKey{e.LSN, e.Token}] = e
	return e
}

// who returns the description that a client gave with the oldest lock that it holds.
func (x *Log) who(id cluster.ClientID) string {
	name, first := string(id), cluster.Token(0)
	for token, h := range x.held {
		if g := &h.grant; g.Client == id && g.Holder != (locktable.Holder{}) && (first == 0 || token < first) {
			name, first = fmt.Sprintf("%s (pid %d on %s, client %s)", g.Holder.Command, g.Holder.PID, g.Holder.Host, id), token
		}
	}
	return name
}

// Verdict is the result of a comparison.
type Verdict struct {
	Told, Skipped, Unknown int
	Bad                    []string
}

func (v *Verdict) fail(format string, args ...any) {
	v.Bad = append(v.Bad, fmt.Sprintf("history: "+format, args...))
}

// Compare checks that the files of a history, by name, have exactly the grants that ended up to
// an LSN, correctly, except plain releases that are only counted, and those that a gap or a
// damaged line hides, whose number is not known.
func (x *Log) Compare(files map[string][]byte, upTo cluster.LSN) (v Verdict) {
	s := &told{log: x, v: &v, seen: map[endKey]bool{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.file(name, files[name])
	}
	missing := slices.SortedFunc(maps.Values(x.want), (*history.End).Compare)
	missing = slices.DeleteFunc(missing, func(e *history.End) bool { return e.LSN > upTo || s.seen[endKey{e.LSN, e.Token}] })
	for _, e := range missing {
		switch {
		case slices.ContainsFunc(s.gaps, func(k history.Skip) bool { return k.From <= e.LSN && e.LSN <= k.To }):
			v.Unknown++
		case e.Why == history.WhyReleased && s.count(e.LSN):
			v.Skipped++
		default:
			v.fail("the end of token %d of %s at LSN %d (%v) is not told, and not counted", e.Token, e.Lock, e.LSN, e.Why)
		}
	}
	v.Told = len(s.seen)
	return v
}

// told is the state of a comparison.
type told struct {
	log   *Log
	v     *Verdict
	seen  map[endKey]bool
	skips []history.Skip
	gaps  []history.Skip
	// damaged is true if a line after the LSN behind is damaged. In a file that a loss of power left
	// without a head all lines are, and only the next file shows which LSNs they covered.
	damaged bool
	behind  cluster.LSN
}

// count takes an end from the lines that count some. They overlap where a term completes what
// the one before did not finish: the line that closes first is taken from first, which finds
// a place for every end where there is one, when they come in order.
func (s *told) count(lsn cluster.LSN) bool {
	best := -1
	for i, k := range s.skips {
		if k.From <= lsn && lsn <= k.To && k.Count > 0 && (best < 0 || k.To < s.skips[best].To) {
			best = i
		}
	}
	if best >= 0 {
		s.skips[best].Count--
	}
	return best >= 0
}

// file reads one file.
func (s *told) file(name string, content []byte) {
	here := map[endKey]bool{}
	var head history.Head
	for line := range strings.Lines(string(content)) {
		text, whole := strings.CutSuffix(line, "\n")
		l, err := history.ParseLine([]byte(text))
		if err != nil || !whole {
			s.damaged = true
			continue
		}
		lsn := cluster.LSN(0)
		switch l.Kind {
		case history.KindHead:
			head = l.Head
			lsn = head.After
		case history.KindEnd:
			lsn = l.End.LSN
			s.end(name, head, &l.End, here)
		case history.KindSkipped:
			s.skips = append(s.skips, l.Skip)
		case history.KindGap:
			s.gaps = append(s.gaps, l.Skip)
			lsn = l.Skip.To
		case history.KindMark:
			lsn = l.UpTo
		}
		if s.damaged && lsn > 0 {
			s.gaps = append(s.gaps, history.Skip{Range: history.Range{From: s.behind, To: lsn}})
			s.damaged = false
		}
		s.behind = max(s.behind, lsn)
	}
}

// end judges one line.
func (s *told) end(name string, head history.Head, e *history.End, here map[endKey]bool) {
	k := endKey{e.LSN, e.Token}
	switch want := s.log.want[k]; {
	case want == nil:
		s.v.fail("%s tells of an end that never was: %+v", name, *e)
	case *want != *e:
		s.v.fail("%s: %+v, the log makes %+v", name, *e, *want)
	case here[k]:
		s.v.fail("%s tells twice that token %d of %s ended", name, e.Token, e.Lock)
	case e.LSN < head.After:
		s.v.fail("%s tells of LSN %d, and is to begin behind %d", name, e.LSN, head.After)
	}
	s.seen[k], here[k] = true, true
}
