// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/inspect"
)

// maxSuspects bounds the findings for one file: one torn or foreign piece is enough.
const maxSuspects = 16

// maxOpen bounds the files that are open at a time.
const maxOpen = 64

// indexPass compares all files with the index, whose entries are in the order of the log.
type indexPass struct {
	k     *fsck
	files map[cluster.FileName]*indexCheck
	open  []*indexCheck
}

// indexCheck compares the bytes of one file with its entries in the index.
type indexCheck struct {
	c        *inspect.FileCheck
	pass     *indexPass
	f        *volume.FileReader // nil while it is closed
	failed   bool               // it cannot be read, which its FileCheck reports
	compared int64              // in bytes
	limit    int64              // offset after which bytes may be missing or zero: a takeover writes them
	window   []byte
	from     int64 // of window
	suspects []index.Entry
	later    map[int]bool // suspects that a later append overlaps
	spans    []span       // that entries cover, in order, with gaps between them
}

type span struct{ from, to int64 }

// indexed compares each bound file with the index: the bytes of each entry must have its
// CRC. It does not compare appends without an entry.
func (k *fsck) indexed(checks map[cluster.FileName]*inspect.FileCheck) error {
	p := &indexPass{k: k, files: map[cluster.FileName]*indexCheck{}}
	defer p.closeAll()
	end := k.adoption.End.LSN
	err := index.Read(k.ctx, k.fs, func(e *index.Entry) error {
		c := checks[e.File]
		if c == nil || e.Generation != c.State.Generation || e.LSN <= c.State.Since || e.LSN > end {
			return nil
		}
		x, known := p.files[e.File]
		if !known {
			x = &indexCheck{c: c, pass: p, limit: min(c.Written, c.Info.Size), later: map[int]bool{}}
			p.files[e.File] = x
		}
		x.compare(e)
		return nil
	})
	if err != nil {
		return err
	}
	for name := range checks {
		k.reportIndexed(name, p.files[name], checks[name])
	}
	return nil
}

func (p *indexPass) closeAll() {
	for _, x := range p.open {
		x.f.Close() //nolint:errcheck // only read
		x.f, x.window = nil, nil
	}
	p.open = nil
}

// reopen opens the file, and closes the others if too many are open.
func (x *indexCheck) reopen() error {
	if x.f != nil {
		return nil
	}
	if x.failed {
		return errors.New("it could not be read before")
	}
	if len(x.pass.open) == maxOpen {
		x.pass.closeAll()
	}
	f, err := volume.OpenReader(x.pass.k.fs, x.c.Name)
	if err == nil && f.Inode() != x.c.State.Inode {
		err = errors.Join(volume.ErrMoved, f.Close())
	}
	if x.failed = err != nil; x.failed {
		return err
	}
	x.f = f
	x.pass.open = append(x.pass.open, x)
	return nil
}

// compare compares the bytes of one entry. reportIndexed decides about entries that do not fit.
func (x *indexCheck) compare(e *index.Entry) {
	for i := range x.suspects {
		if s := &x.suspects[i]; s.LSN < e.LSN && s.Offset < e.End() && e.Offset < s.End() {
			x.later[i] = true
		}
	}
	if e.Offset < x.c.State.Start || e.End() > x.limit {
		return
	}
	if len(x.spans) > 0 && e.End() <= x.spans[len(x.spans)-1].to && x.covered(e) {
		return // an entry that the term that adopted the append wrote again
	}
	b, err := x.bytes(e.Offset, e.Length)
	if err != nil {
		return // the FileCheck reports it
	}
	x.compared += e.Length
	if crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) != e.CRC {
		if len(x.suspects) < maxSuspects {
			x.suspects = append(x.suspects, *e)
		}
		return
	}
	x.cover(span{e.Offset, e.End()})
}

func (x *indexCheck) covered(e *index.Entry) bool {
	for _, s := range x.spans {
		if s.from <= e.Offset && e.End() <= s.to {
			return true
		}
	}
	return false
}

// cover adds a span, which usually continues the last one.
func (x *indexCheck) cover(s span) {
	if n := len(x.spans); n > 0 && x.spans[n-1].to == s.from {
		x.spans[n-1].to = s.to
		return
	}
	i, _ := slices.BinarySearchFunc(x.spans, s.from, func(a span, from int64) int { return int(a.from - from) })
	x.spans = slices.Insert(x.spans, i, s)
	merged := x.spans[:1]
	for _, s := range x.spans[1:] {
		if last := &merged[len(merged)-1]; s.from <= last.to {
			last.to = max(last.to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	x.spans = merged
}

// indexWindow is how much of a file is read at a time, in bytes.
const indexWindow = 1 << 20

func (x *indexCheck) bytes(off, n int64) ([]byte, error) {
	if off < x.from || off+n > x.from+int64(len(x.window)) {
		if err := x.reopen(); err != nil {
			return nil, err
		}
		x.from, x.window = off, make([]byte, max(min(indexWindow, x.limit-off), n))
		got, err := x.f.ReadAt(x.window, off)
		x.window = x.window[:got]
		if err != nil && !errors.Is(err, io.EOF) {
			x.window = nil
			return nil, err
		}
		if int64(got) < n {
			return nil, io.ErrUnexpectedEOF
		}
	}
	return x.window[off-x.from : off-x.from+n], nil
}

// reportIndexed reports bytes that differ from their entry, and how many bytes of a file have no entry.
func (k *fsck) reportIndexed(name cluster.FileName, x *indexCheck, c *inspect.FileCheck) {
	p := volume.ProtectedPath(name)
	limit, covered := min(c.Written, c.Info.Size), int64(0)
	if x != nil {
		k.report.Bytes += x.compared
		for i := range x.suspects {
			e := &x.suspects[i]
			reported := c.Problem != nil && e.Offset <= c.Problem.Offset && c.Problem.Offset < e.End()
			if reported || x.later[i] || x.covered(e) { // by the FileCheck; or the entry is of a log that was lost
				continue
			}
			k.add(Finding{
				Severity: SeverityError, Code: "file-foreign", Path: p, Offset: e.Offset, LSN: e.LSN, Advice: adviceRotate,
				Problem: "torn or foreign bytes: they are not those of " + describe(e),
			})
			x.cover(span{e.Offset, e.End()})
		}
		for _, s := range x.spans {
			covered += s.to - s.from
		}
	}
	if gap := limit - c.State.Start - covered; gap > 0 && c.State.LastLength > 0 {
		k.info("file-not-indexed", p, "", "%d of %d bytes are not indexed: only what the log and receipts tell was compared", gap, limit-c.State.Start)
	}
}

// describe describes an append for people.
func describe(e *index.Entry) string {
	when := ""
	if e.Time > 0 {
		when = " at " + time.UnixMilli(e.Time).UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the append [%d:+%d] by request %d of client %s under token %d%s, LSN %d", e.Offset, e.Length, e.Request, e.Client, e.Token, when, e.LSN)
}
