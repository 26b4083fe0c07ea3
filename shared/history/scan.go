// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"errors"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Scan reads the lines of one file, in order. Damaged lines are skipped.
type Scan struct {
	s       *Selection // nil for Tail
	cluster string
	over    bool // what follows does not count

	head    Head
	headed  bool
	upTo    cluster.LSN // everything up to it is in the history, by lines that were parsed
	last    []byte      // the last line, an end that was not parsed; empty for none
	broken  bool        // since upTo there is a line that cannot be read
	damaged int
	newer   error
	before  cluster.LSN // upTo, before the last line that raised it
}

// Scan begins with a file, which is older than those before.
func (s *Selection) Scan() *Scan { return &Scan{s: s, cluster: s.cluster} }

const endPrefix = `{"kind":"end"`

// Line reads one line, without its newline. It keeps nothing of b.
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

// whole reports whether a line looks like an end. A power loss leaves zeros.
func whole(b []byte) bool {
	n := len(endPrefix)
	return len(b) > n && string(b[:n]) == endPrefix && b[len(b)-1] == '}' && bytes.IndexByte(b, 0) < 0
}

// wanted reports whether a line may be an end that matches.
func (c *Scan) wanted(b []byte) bool {
	if c.s == nil {
		return false
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
	if c.s == nil && l.cleared() && l.End.LSN == c.upTo { // covered by a gap, or by an older binary's head
		c.upTo = covers
		return
	}
	if c.s == nil && covers > 0 && covers < c.upTo { // one of the two is damaged
		c.upTo, c.over = min(c.before, covers), true
		return
	}
	if c.broken && covers > c.upTo && !l.cleared() { // or what is broken may be of the same record
		to := covers
		if l.Kind == KindEnd {
			to--
		}
		c.gap(Range{c.upTo + 1, to})
		c.broken = false
	}
	if covers > c.upTo && !c.broken {
		c.before, c.upTo = c.upTo, covers
	}
	switch l.Kind {
	case KindHead:
		if !c.headed {
			c.head, c.headed = l.Head, true
		}
	case KindEnd:
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

// gap records a range of which nothing is known in this file. It is none if later files have it.
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
		return nil // it covers nothing; the next older one goes on
	}
	if c.upTo < s.newer.After {
		c.gap(Range{c.upTo + 1, s.newer.After})
	}
	s.newer = c.head
	return nil
}

// Reach finds the highest LSN in the end of a file, which must have been committed. A line with a
// higher one than the next line is damaged and does not count.
type Reach struct {
	borne, last cluster.LSN
	odd         int
}

// Line reads one line, without its newline.
func (r *Reach) Line(b []byte) {
	l, err := ParseLine(b)
	tells := max(l.Covers(), l.End.LSN)
	switch {
	case err != nil:
		r.odd++
		return
	case tells == 0:
		return
	case tells < r.last:
		r.odd++
	default:
		r.borne = max(r.borne, r.last)
	}
	r.last = tells
}

// LSN returns the highest one that counts, 0 for none.
func (r *Reach) LSN() cluster.LSN { return max(r.borne, r.last) }

// Odd returns the number of damaged lines.
func (r *Reach) Odd() int { return r.odd }

// NewTail begins to read a file only for Tail: up to where it is complete.
func NewTail(cluster string) *Scan { return &Scan{cluster: cluster} }

// Tail returns the LSN up to which the history is complete with this file; false if the file
// does not show it.
func (c *Scan) Tail() (upTo cluster.LSN, ok bool) {
	if !c.over {
		c.catchUp()
	}
	return c.upTo, c.headed
}
