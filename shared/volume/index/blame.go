// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Blame is who wrote a part of a protected file.
type Blame struct {
	Generation cluster.Generation
	// Entries are in order of offset, each once, none overlapping.
	Entries []Entry
	// More says that there are further ones behind.
	More bool
	// Files is how many the index has, and Unread how many of them, the oldest ones, were
	// not read in time.
	Files, Unread int
}

// Query asks for the appends that wrote the bytes from From on, before To.
type Query struct {
	File cluster.FileName
	// Generation 0 is the highest that the index knows.
	Generation cluster.Generation
	From, To   int64
	// After and Through bound the LSNs: those of one binding. Through 0 has no bound.
	After, Through cluster.LSN
	// Limit is how many entries to tell at most.
	Limit int
}

// ReadBlame reads the index, the newest file first, until its entries cover what is asked for:
// older ones lie below them. Where ctx ends before, it returns what it found and says how many
// files it did not read; it fails where it read none. Bytes that no entry covers are not indexed.
func ReadBlame(ctx context.Context, fsys vfs.FS, q Query) (Blame, error) {
	b := Blame{Generation: q.Generation}
	names, err := Dir(fsys).List()
	if err != nil {
		return Blame{}, err
	}
	b.Files = len(names)
	for i := len(names) - 1; i >= 0 && !b.covers(&q); i-- {
		if err := context.Cause(ctx); err != nil && i == len(names)-1 {
			return Blame{}, err
		} else if err != nil {
			b.Unread = i + 1
			break
		}
		if err := read(fsys, names[i], func(e *Entry) error { b.take(&q, e); return nil }); err != nil {
			return Blame{}, err
		}
		b.trim(q.Limit)
	}
	return b, nil
}

// take keeps an entry that was asked for.
func (b *Blame) take(q *Query, e *Entry) {
	if e.File != q.File || e.LSN <= q.After || q.Through != 0 && e.LSN > q.Through {
		return
	}
	if q.Generation == 0 && e.Generation > b.Generation {
		b.Generation, b.Entries, b.More = e.Generation, nil, false
	}
	if e.Generation != b.Generation || e.End() <= q.From || e.Offset >= q.To {
		return
	}
	b.Entries = append(b.Entries, *e)
	if len(b.Entries) > 4*q.Limit+1024 { // many: keep the first ones
		b.trim(q.Limit)
	}
}

// covers reports whether no older entry can add anything: of a generation that is known, the
// entries lie side by side over all that was asked for, or over as much of it as is told.
func (b *Blame) covers(q *Query) bool {
	at := q.From
	for _, e := range b.Entries {
		if e.Offset > at {
			return false
		}
		at = max(at, e.End())
	}
	return q.Generation != 0 && (at >= q.To || b.More)
}

// Pieces are the entries and, between them, what the index does not tell: entries without
// an LSN. Together they cover [from, to) and what the first and the last reach beyond.
func (b *Blame) Pieces(file cluster.FileName, from, to int64) []Entry {
	var all []Entry
	gap := func(until int64) {
		if from < until {
			all = append(all, Entry{File: file, Generation: b.Generation, Offset: from, Length: until - from})
		}
	}
	for _, e := range b.Entries {
		gap(e.Offset)
		all = append(all, e)
		from = e.End()
	}
	if !b.More {
		gap(to)
	}
	return all
}

// trim puts the entries in order, leaves one for each append, drops what a later append
// lies over, and keeps the first ones.
func (b *Blame) trim(limit int) {
	b.Entries = inOrder(b.Entries)
	if len(b.Entries) > limit {
		b.Entries, b.More = slices.Clip(b.Entries[:limit]), true
	}
}

// inOrder sorts entries of one generation. Where two lie over each other, which they do
// only where a history was lost, the later one counts.
func inOrder(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.LSN, a.LSN))
	})
	out := entries[:0]
	for i := range entries {
		e := entries[i]
		for len(out) > 0 && out[len(out)-1].End() > e.Offset && out[len(out)-1].LSN < e.LSN {
			out = out[:len(out)-1]
		}
		if len(out) == 0 || out[len(out)-1].End() <= e.Offset {
			out = append(out, e)
		}
	}
	return out
}
