// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// SegmentInfo describes one segment that a scan read or a log closed.
type SegmentInfo struct {
	Name string
	// First and Last are the LSNs of its records; Last is First-1 where there are none.
	First, Last cluster.LSN
	// Header is zero for an open segment that has no header yet.
	Header SegmentHeader
	// Closed is set if the successor has a valid header: then everything in this
	// segment is durable and nothing will follow, so it may be linked.
	Closed bool
	// Size of the file in bytes.
	Size int64
}

// ScanOptions are the conditions under which a scan accepts a log.
type ScanOptions struct {
	Cluster [16]byte
	// FeatureLevel is the highest that this binary understands.
	FeatureLevel uint32
	// MaxEpoch is the epoch of the directory; 0 accepts any.
	MaxEpoch cluster.Epoch
	// From is the base: records up to it are checked where they are read, and
	// not visited. Zero is the beginning.
	From Position
	// Resume is a position after From whose state the caller has already, or zero. Of
	// closed segments wholly up to it only header and CLOSE are read; no record up to it
	// is visited. The log must have its chain value there.
	Resume Position
	// AtLeast is the adopted end of START: the log must reach it, and have its
	// chain value there.
	AtLeast Position
	// UpTo, unless zero, ends the scan after the segments that begin at or before it.
	// What follows is expected to be there, and not read.
	UpTo cluster.LSN
	// Known are the first LSNs of segments that are opened whether the listing
	// shows them or not: see ScanError.Unlisted.
	Known []cluster.LSN
	// Relog, if set, is called after Visit with every record that must be
	// re-logged: those in the segments after Result.Linkable.
	Relog Visit
}

// Visit receives one record, in order of LSN. The entry aliases a buffer that
// is valid until Visit returns. An error ends the scan and is its result.
type Visit func(lsn cluster.LSN, e Entry, f FrameHeader) error

// Result is a log that was accepted.
type Result struct {
	// End is the state after the last record.
	End Position
	// Segments from the one that holds From to the open one, in order. Those
	// before are not read: a stale owner may be removing them.
	Segments []SegmentInfo
	// Linkable counts the closed ones: Segments[:Linkable] may be linked.
	Linkable int
	// Relog is the state before the first record that must be re-logged: that
	// of the first segment which is not linkable, but not before From. It is End
	// where nothing must be.
	Relog Position
	// LastEpoch is the highest epoch that wrote a segment header.
	LastEpoch cluster.Epoch
}

// Scan reads the log in d, whose term is fenced: its owner may still write, but cannot
// acknowledge writes any more. It visits every record after opt.From and verifies that
// LSNs and chain values connect from there to the end, and that nothing which was
// durable once is missing.
//
// It returns a *ScanError for a log that cannot be accepted, never an empty Result, and
// what was visited before it is void. The owner may rotate, remove and write while Scan
// reads, so the caller tries again a few times before it believes the error. All files
// are opened anew.
func Scan(d Dir, opt ScanOptions, visit Visit) (Result, error) {
	s := &scanner{dir: d, opt: opt, visit: visit}
	defer s.closeAll()
	if err := s.open(); err != nil {
		return Result{}, err
	}
	// All headers were read before any content. A header is written after the
	// CLOSE before it is durable, so that CLOSE cannot be missed below.
	if err := s.reach(); err != nil {
		return Result{}, err
	}
	for i := range s.segs {
		more, err := s.segment(i)
		if err != nil {
			return Result{}, err
		}
		if !more {
			break
		}
	}
	if s.pos.LSN < opt.From.LSN {
		return Result{}, s.directory(fmt.Sprintf("the log ends at LSN %d, before its base %d", s.pos.LSN, opt.From.LSN), ErrGap)
	}
	if s.pos.LSN < opt.Resume.LSN {
		return Result{}, s.directory(fmt.Sprintf("the log ends at LSN %d, before the state at %d", s.pos.LSN, opt.Resume.LSN), ErrGap)
	}
	if s.pos.LSN < opt.AtLeast.LSN {
		return Result{}, s.directory(fmt.Sprintf("the log ends at LSN %d, before the adopted end %d", s.pos.LSN, opt.AtLeast.LSN), ErrGap)
	}
	r := Result{End: s.pos, Linkable: s.linkable, Relog: s.relog, LastEpoch: s.lastEpoch}
	for i := range s.segs {
		r.Segments = append(r.Segments, s.segs[i].SegmentInfo)
	}
	return r, nil
}

// scanner is one scan under way.
type scanner struct {
	dir   Dir
	opt   ScanOptions
	visit Visit

	segs      []scanSegment
	linkable  int
	relog     Position
	lastEpoch cluster.Epoch

	pos     Position // after the last record read
	buf     []byte   // aligned, one whole segment
	entries []Entry
}

// scanSegment is a segment of the row being scanned.
type scanSegment struct {
	SegmentInfo
	file    File
	headed  bool // has a header
	binding uint64
}

// open lists the segments, opens those from the base on and reads their headers.
func (s *scanner) open() error {
	names, err := s.dir.Names()
	if err != nil {
		return s.directory("list segments", err)
	}
	firsts := slices.Clone(s.opt.Known)
	for _, name := range names {
		if first, ok := ParseSegmentName(name); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	firsts = slices.Compact(firsts)
	// The newest segment that begins at or before the first record wanted.
	start := -1
	for i, first := range firsts {
		if first-1 <= s.opt.From.LSN {
			start = i
		}
	}
	if start < 0 {
		return s.directory(fmt.Sprintf("no segment begins at or before LSN %d, of %d segments", s.opt.From.LSN+1, len(firsts)), ErrGap)
	}
	for i := start; i < len(firsts); i++ {
		if err := s.openSegment(firsts[i]); err != nil {
			return err
		}
	}
	// Without a header it proves nothing unless its predecessor is closed.
	if !s.segs[0].headed {
		if start == 0 {
			return s.damage(0, 0, "no header, and no segment before it", ErrGap)
		}
		behind := s.segs
		s.segs = nil
		if err := s.openSegment(firsts[start-1]); err != nil {
			s.segs = append(s.segs, behind...)
			return err
		}
		s.segs = append(s.segs, behind...)
	}
	return s.arrange()
}

// openSegment opens the segment that begins at first, reads its header and appends it to the row.
func (s *scanner) openSegment(first cluster.LSN) error {
	i := len(s.segs)
	s.segs = append(s.segs, scanSegment{SegmentInfo: SegmentInfo{Name: SegmentName(first), First: first, Last: first - 1}})
	g := &s.segs[i]
	file, err := s.dir.Open(g.Name)
	if err != nil {
		return s.damage(i, 0, "open", err)
	}
	g.file = file
	if g.Size, err = file.Size(); err != nil {
		return s.damage(i, 0, "size", err)
	}
	if g.Size < minSegmentSize || g.Size%BlockSize != 0 {
		return s.damage(i, g.Size, "size of the file", ErrCorrupt)
	}
	block := s.buffer(BlockSize)
	if err := readFull(file, block, 0); err != nil {
		return s.damage(i, 0, "read header", err)
	}
	h, err := DecodeSegmentHeader(block)
	switch {
	case errors.Is(err, ErrZero):
		return nil
	case err != nil:
		return s.damage(i, 0, "header", err)
	}
	g.Header, g.headed, g.binding = h, true, bindingOf(block)
	return s.acceptHeader(i)
}

// acceptHeader checks a valid header against the file and against what is wanted.
func (s *scanner) acceptHeader(i int) error {
	g := &s.segs[i]
	h := g.Header
	switch {
	case h.FeatureLevel > s.opt.FeatureLevel:
		return s.damage(i, 0, fmt.Sprintf("feature level %d, this binary knows %d", h.FeatureLevel, s.opt.FeatureLevel), ErrFeatureLevel)
	case h.Cluster != s.opt.Cluster:
		return s.damage(i, 0, fmt.Sprintf("of another cluster, %x", h.Cluster), ErrCorrupt)
	case h.First != g.First:
		return s.damage(i, 0, fmt.Sprintf("header says first LSN %d", h.First), ErrCorrupt)
	case h.Size != g.Size:
		return s.damage(i, g.Size, fmt.Sprintf("header says %d bytes, the file has %d", h.Size, g.Size), ErrCorrupt)
	case s.opt.MaxEpoch != 0 && h.Epoch > s.opt.MaxEpoch:
		return s.damage(i, 0, fmt.Sprintf("of epoch %d, in a directory of epoch %d", h.Epoch, s.opt.MaxEpoch), ErrCorrupt)
	}
	return nil
}

// arrange decides from the headers which segments are closed and where re-logging begins.
func (s *scanner) arrange() error {
	last := len(s.segs) - 1
	for i := range s.segs {
		g := &s.segs[i]
		if !g.headed {
			if i != last {
				return s.damage(i, 0, "no header, but a segment behind it", ErrCorrupt)
			}
			break
		}
		if g.Header.Epoch < s.lastEpoch {
			return s.damage(i, 0, fmt.Sprintf("of epoch %d, behind one of epoch %d", g.Header.Epoch, s.lastEpoch), ErrCorrupt)
		}
		s.lastEpoch = g.Header.Epoch
		if i < last && s.segs[i+1].headed {
			g.Closed = true
			s.linkable++
		}
	}
	first := s.segs[0]
	s.pos = Position{LSN: first.First - 1, Chain: first.Header.Chain}
	open := s.segs[s.linkable]
	s.relog = Position{LSN: open.First - 1, Chain: open.Header.Chain}
	if s.relog.LSN < s.opt.From.LSN {
		s.relog = s.opt.From
	}
	return nil
}

// reach compares the end with what the caller knows of it.
func (s *scanner) reach() error {
	for _, want := range [...]Position{{}, s.opt.From, s.opt.Resume, s.opt.AtLeast} {
		if s.pos.LSN == want.LSN && s.pos.Chain != want.Chain {
			return s.directory(fmt.Sprintf("chain value at LSN %d is %#x, not %#x", s.pos.LSN, s.pos.Chain, want.Chain), ErrCorrupt)
		}
	}
	return nil
}

// buffer returns n aligned bytes that stay valid until the next call.
func (s *scanner) buffer(n int) []byte {
	if len(s.buf) < n {
		s.buf = alignedBuffer(n)
	}
	return s.buf[:n]
}

// closeAll closes the files. They were only read, so errors do not matter.
func (s *scanner) closeAll() {
	for _, g := range s.segs {
		if g.file != nil {
			_ = g.file.Close()
		}
	}
}

// damage reports what is wrong with segment i.
func (s *scanner) damage(i int, offset int64, reason string, err error) error {
	return &ScanError{File: s.segs[i].Name, Offset: offset, Reason: reason, Err: err}
}

// directory reports what is wrong with the row as a whole.
func (s *scanner) directory(reason string, err error) error {
	return &ScanError{Reason: reason, Err: err}
}

// readFull fills p or returns why not: ErrCorrupt for a file that ends early.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%d of %d bytes: %w", n, len(p), ErrCorrupt)
	}
	return err
}
