// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"errors"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Scan reads the lines of one file, in order. Damaged lines are passed over.
type Scan struct {
	s       *Selection // nil for Tail
	cluster string
	over    bool // what follows does not count

	head    Head
	headed  bool
	upTo    cluster.LSN // everything up to it is told, by lines that were parsed
	last    []byte      // the last line, an end that was not parsed; empty for none
	broken  bool        // since upTo there is a line that cannot be read
	damaged int
	newer   error
	tokens  []cluster.Token // of the ends with the LSN upTo
	before  cluster.LSN     // upTo, before the last line that raised it
}

// Scan begins with a file that is older than those before.
func (s *Selection) Scan() *Scan { return &Scan{s: s, cluster: s.cluster} }

const (
	endPrefix  = `{"kind":"end"`
	whyCleared = `"why":"cleared"`
)

// Line takes one line, without its end. It keeps nothing of b.
func (c *Scan) Line(b []byte) {
	if len(b) == 0 || c.over {
		return
	}
	if !c.broken && whole(b) && !c.wanted(b) {
		c.last = append(c.last[:0], b...)
		return
	}
	if c.catchUp(); !c.over {
		c.parse(b)
	}
}

// whole says that a line looks like an end. A power loss leaves zeros.
func whole(b []byte) bool {
	n := len(endPrefix)
	return len(b) > n && string(b[:n]) == endPrefix && b[len(b)-1] == '}' && bytes.IndexByte(b, 0) < 0
}

// wanted says that a line may be an end that matches; for a Tail, one of many with one LSN.
func (c *Scan) wanted(b []byte) bool {
	if c.s == nil {
		return bytes.Contains(b, []byte(whyCleared))
	}
	for _, n := range c.s.needles {
		if !bytes.Contains(b, n) {
			return false
		}
	}
	return true
}

// catchUp parses the last line that was not.
func (c *Scan) catchUp() {
	if len(c.last) > 0 {
		c.parse(c.last)
		c.last = c.last[:0]
	}
}

func (c *Scan) parse(b []byte) {
	l, err := ParseLine(b)
	switch {
	case errors.Is(err, ErrNewer):
		c.newer, c.over = err, true
		return
	case err != nil:
		c.damaged++
		c.broken = true
		c.over = c.s == nil
		return
	case l.Kind == KindHead && l.Head.Cluster != c.cluster:
		c.over = true // of another volume
		return
	}
	covers := l.Covers()
	if c.s == nil && covers > 0 && covers < c.upTo { // one of the two is damaged
		c.upTo, c.tokens, c.over = min(c.before, covers), nil, true
		return
	}
	if c.broken && covers > c.upTo {
		to := covers
		if l.Kind == KindEnd {
			to--
		}
		c.gap(Range{c.upTo + 1, to})
		c.broken = false
	}
	if covers > c.upTo {
		c.before, c.upTo, c.tokens = c.upTo, covers, c.tokens[:0]
	}
	switch l.Kind {
	case KindHead:
		if !c.headed {
			c.head, c.headed = l.Head, true
		}
	case KindEnd:
		if l.End.LSN == c.upTo && c.s == nil {
			c.tokens = append(c.tokens, l.End.Token)
		}
		if c.s != nil {
			c.s.add(&l.End)
		}
	case KindSkipped:
		if c.s != nil {
			c.s.skips = append(c.s.skips, l.Skip)
		}
	case KindGap:
		c.gap(l.Skip.Range)
	}
}

// gap notes a piece of which nothing is known here. What later files tell again is none.
func (c *Scan) gap(r Range) {
	if c.s == nil {
		return
	}
	if r.To = min(r.To, c.s.newer.After); r.From <= r.To {
		c.s.gaps = append(c.s.gaps, r)
	}
}

// Close ends the file. The error is ErrNewer or nil.
func (c *Scan) Close() error {
	c.catchUp()
	s := c.s
	if c.newer != nil {
		return c.newer
	}
	s.damaged += c.damaged
	if !c.headed {
		return nil // it says nothing; the next older one goes on
	}
	if c.upTo < s.newer.After {
		c.gap(Range{c.upTo + 1, s.newer.After})
	}
	s.newer = c.head
	return nil
}

// Reach is the highest LSN of which the end of a file tells, so that it must have been committed. A
// line that tells of more than the next one is damaged, and counts for nothing.
type Reach struct {
	borne, last cluster.LSN
	odd         int
}

// Line takes one line, without its end.
func (r *Reach) Line(b []byte) {
	l, err := ParseLine(b)
	covers := l.Covers()
	switch {
	case err != nil:
		r.odd++
		return
	case covers == 0:
		return
	case covers < r.last:
		r.odd++
	default:
		r.borne = max(r.borne, r.last)
	}
	r.last = covers
}

// LSN is the highest one that counts.
func (r *Reach) LSN() cluster.LSN { return max(r.borne, r.last) }

// Odd counts the lines that are damaged.
func (r *Reach) Odd() int { return r.odd }

// Tail is up to where the files of a volume tell what ended.
type Tail struct {
	UpTo cluster.LSN
	// Tokens are of the ends with the LSN UpTo that are told, where more may follow.
	Tokens []cluster.Token
}

// NewTail begins to read a file only to see up to where it tells everything.
func NewTail(cluster string) *Scan { return &Scan{cluster: cluster} }

// Tail says up to where the file tells everything; false if it says nothing.
func (c *Scan) Tail() (Tail, bool) {
	if !c.over {
		c.catchUp()
	}
	return Tail{UpTo: c.upTo, Tokens: c.tokens}, c.headed
}
