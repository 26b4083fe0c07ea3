// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// MaxUsedInodes is how many inodes of ended bindings are remembered one by one.
	MaxUsedInodes = 1 << 16
	// MaxLostFiles is how many files that are not bound are remembered for their lost
	// appends. Each took an operator: with more, a file stays bound.
	MaxLostFiles = 1 << 10
)

// past is what is remembered of bindings that ended, so that nothing is given twice: an offset
// of an inode, a generation of a name, a receipt of an append that may be in no file. Records
// with Record.Remember add to it; those of older binaries do not.
//
// It is bounded. Generations need one number for all names. If there are too many inodes,
// the one with the smallest End is forgotten, and from then on every inode that is not
// remembered counts as used up to there: too much may be refused, never too little.
type past struct {
	generation cluster.Generation // the highest of all that were unbound
	forgotten  int64              // the highest End of an inode that was forgotten
	used       []usedInode        // by number
	lost       []lostFile         // by name
}

// usedInode is an inode whose offsets below end were given to appends. A server that was
// paused before its write may still do it.
type usedInode struct {
	inode uint64
	end   int64
}

// lostFile is a name and what was appended to generations of it that were quarantined.
type lostFile struct {
	name cluster.FileName
	lost lostList
}

// PastState is one piece of what is remembered of ended bindings: the two marks Generation and
// Forgotten, or an Inode with its End, or a File with its Lost appends.
type PastState struct {
	Generation cluster.Generation `json:"generation,omitempty"` // the highest that was unbound
	Forgotten  int64              `json:"forgotten,omitempty"`  // inodes that are not named were used up to here
	Inode      uint64             `json:"inode,omitempty"`
	End        int64              `json:"end,omitempty"`
	File       cluster.FileName   `json:"file,omitempty"`
	Lost       []LostAppends      `json:"lost,omitempty"`
}

func (p *past) clone() past {
	c := *p
	c.used, c.lost = slices.Clone(p.used), slices.Clone(p.lost)
	return c
}

func (p *past) findUsed(inode uint64) (int, bool) {
	return slices.BinarySearchFunc(p.used, inode, func(u usedInode, inode uint64) int { return cmp.Compare(u.inode, inode) })
}

func (p *past) findLost(name cluster.FileName) (int, bool) {
	return slices.BinarySearchFunc(p.lost, name, func(l lostFile, name cluster.FileName) int { return cmp.Compare(l.name, name) })
}

// usedUpTo returns the offset below which a paused server may still write to the inode.
func (p *past) usedUpTo(inode uint64) int64 {
	if i, ok := p.findUsed(inode); ok {
		return p.used[i].end
	}
	return p.forgotten
}

// lostOf returns why it is not known whether an append to a file that was unbound is in it; ""
// if it is there.
func (p *past) lostOf(rc *receipt) string {
	if i, ok := p.findLost(rc.file.name); ok {
		return p.lost[i].lost.why(rc)
	}
	return ""
}

// full reports whether no other file with lost appends can be unbound.
func (p *past) full(f *file) bool {
	_, ok := p.findLost(f.name)
	return !ok && !f.Lost[0].none() && len(p.lost) >= MaxLostFiles
}

// nextGeneration returns the generation of the next file that is bound: no file of its name had
// it before.
func (t *Table) nextGeneration() cluster.Generation { return t.past.generation + 1 }

// rememberUse records up to where the binding of f, which ends, used its inode.
func (t *Table) rememberUse(f *file) {
	if f.End > 0 {
		t.use(usedInode{f.Inode, f.End})
	}
}

func (t *Table) use(u usedInode) {
	p := &t.past
	i, ok := p.findUsed(u.inode)
	if ok {
		u.end = max(u.end, p.used[i].end)
		t.dropUsed(i)
	}
	p.used = slices.Insert(p.used, i, u)
	t.hash += t.sum(u.appendTo)
	if len(p.used) <= MaxUsedInodes {
		return
	}
	smallest := 0
	for i := range p.used {
		if p.used[i].end < p.used[smallest].end {
			smallest = i
		}
	}
	t.mark(p.generation, max(p.forgotten, p.used[smallest].end))
	t.dropUsed(smallest)
}

// forgetUse is called when the inode is bound: its file now ends after all that was used of
// it, or another file had its number.
func (t *Table) forgetUse(inode uint64) {
	if i, ok := t.past.findUsed(inode); ok {
		t.dropUsed(i)
	}
}

func (t *Table) dropUsed(i int) {
	t.hash -= t.sum(t.past.used[i].appendTo)
	t.past.used = slices.Delete(t.past.used, i, i+1)
}

// mark sets the two marks.
func (t *Table) mark(generation cluster.Generation, forgotten int64) {
	t.hash -= t.sumMarks()
	t.past.generation, t.past.forgotten = generation, forgotten
	t.hash += t.sumMarks()
}

// sumMarks returns the marks' part of the hash, 0 without marks: older states keep their hash.
func (t *Table) sumMarks() uint64 {
	if t.past.generation == 0 && t.past.forgotten == 0 {
		return 0
	}
	return t.sum(t.past.appendMarks)
}

// rememberFile records what outlives the binding of f, which ends.
func (t *Table) rememberFile(f *file) {
	t.rememberUse(f)
	t.mark(max(t.past.generation, f.Generation), t.past.forgotten)
	if f.Lost[0].none() {
		return
	}
	i, ok := t.past.findLost(f.name)
	if !ok {
		t.past.lost = slices.Insert(t.past.lost, i, lostFile{name: f.name})
	} else {
		t.hash -= t.sum(t.past.lost[i].appendTo)
	}
	l := &t.past.lost[i]
	for _, x := range slices.Backward(f.Lost[:]) {
		if !x.none() {
			l.lost.push(x, true)
		}
	}
	t.hash += t.sum(l.appendTo)
}

// entity returns piece n; false after the last one.
func (p *past) entity(n int) (Entity, bool) {
	if n == 0 {
		return Entity{Past: &PastState{Generation: p.generation, Forgotten: p.forgotten}}, true
	}
	if n--; n < len(p.used) {
		return Entity{Past: &PastState{Inode: p.used[n].inode, End: p.used[n].end}}, true
	}
	if n -= len(p.used); n < len(p.lost) {
		return Entity{Past: &PastState{File: p.lost[n].name, Lost: p.lost[n].lost.export()}}, true
	}
	return Entity{}, false
}

// none reports whether nothing is remembered.
func (p *past) none() bool {
	return p.generation == 0 && p.forgotten == 0 && len(p.used) == 0 && len(p.lost) == 0
}

func (t *Table) importPast(s *PastState) error {
	p := &t.past
	switch {
	case s.Inode != 0:
		if _, twice := p.findUsed(s.Inode); twice {
			return fmt.Errorf("inode %d of an ended binding comes twice", s.Inode)
		}
		t.use(usedInode{s.Inode, s.End}) // of too many one is forgotten
	case s.File != "":
		i, twice := p.findLost(s.File)
		lost, err := importLost(s.File, s.Lost)
		if twice || err != nil || len(p.lost) >= MaxLostFiles {
			return fmt.Errorf("the lost appends of file %q come twice, or behind those of %d others: %w", s.File, len(p.lost), err)
		}
		p.lost = slices.Insert(p.lost, i, lostFile{s.File, lost})
		t.hash += t.sum(p.lost[i].appendTo)
	default:
		t.mark(max(p.generation, s.Generation), max(p.forgotten, s.Forgotten))
	}
	return nil
}

// past checks what is remembered of ended bindings.
func (ck *checker) past() error {
	p := &ck.t.past
	if p.generation != 0 || p.forgotten != 0 {
		ck.sum(p.appendMarks)
	}
	if len(p.used) > MaxUsedInodes || len(p.lost) > MaxLostFiles || p.forgotten < 0 {
		return fmt.Errorf("invariant 11: %d inodes and %d files are remembered", len(p.used), len(p.lost))
	}
	for i, u := range p.used {
		ck.sum(u.appendTo)
		if u.inode == 0 || u.end <= 0 || i > 0 && p.used[i-1].inode >= u.inode {
			return fmt.Errorf("invariant 11: inode %d, used up to %d, is out of order", u.inode, u.end)
		}
	}
	for i := range p.lost {
		l := &p.lost[i]
		ck.sum(l.appendTo)
		if l.name.Validate() != nil || l.lost[0].none() || !l.lost.inOrder(math.MaxUint64, ck.t.lsn) || i > 0 && p.lost[i-1].name >= l.name {
			return fmt.Errorf("invariant 11: the lost appends of file %q are out of order: %+v", l.name, l.lost)
		}
	}
	return nil
}

func (p *past) appendMarks(b []byte) []byte {
	return appendNumbers(append(b, tagPast), uint64(p.generation), uint64(p.forgotten))
}

func (u usedInode) appendTo(b []byte) []byte {
	return appendNumbers(append(b, tagUsed), u.inode, uint64(u.end))
}

func (l *lostFile) appendTo(b []byte) []byte {
	return l.lost.appendTo(appendText(append(b, tagLost), l.name))
}
