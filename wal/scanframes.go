// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// segment reads the frames of segment i and visits their records. more reports whether
// segment i+1 is to be read.
func (s *scanner) segment(i int) (more bool, err error) {
	g := &s.segs[i]
	if s.opt.UpTo != 0 && g.First > s.opt.UpTo {
		return false, nil
	}
	if !g.headed {
		return false, s.unused(i) // the open segment, empty; its closed predecessor was checked with it
	}
	if i+1 < len(s.segs) && s.segs[i+1].First-1 <= s.opt.Resume.LSN && s.endsBefore(i) {
		s.pos = Position{LSN: s.segs[i+1].First - 1, Chain: s.segs[i+1].Header.Chain}
		g.Last = s.pos.LSN
		return true, s.reach()
	}
	content := s.buffer(int(g.Size))
	if err := readFull(g.file, content, 0); err != nil {
		return false, s.damage(i, 0, "read", err)
	}
	off, closed, err := s.frames(i, content)
	if err != nil {
		return false, err
	}
	g.Last = s.pos.LSN
	if i == len(s.segs)-1 {
		if closed {
			next := s.pos.LSN + 1
			return false, &ScanError{
				File: g.Name, Offset: off, Reason: "CLOSE without its successor " + SegmentName(next), Err: ErrGap, Unlisted: next,
			}
		}
		return false, nil
	}
	next := &s.segs[i+1]
	switch {
	case next.First != s.pos.LSN+1:
		// The successor was named when everything before it was durable, so this
		// holds for one without a header as well.
		return false, s.damage(i, off, fmt.Sprintf("ends at LSN %d, but %s is behind it", s.pos.LSN, next.Name), ErrGap)
	case next.headed && !closed:
		return false, s.damage(i, off, fmt.Sprintf("no CLOSE, but %s has a header", next.Name), ErrCorrupt)
	case next.headed && next.Header.Chain != s.pos.Chain:
		return false, s.damage(i+1, 0, fmt.Sprintf("header says chain value %#x, the log has %#x", next.Header.Chain, s.pos.Chain), ErrCorrupt)
	case !closed:
		// The owner stopped between naming the successor and CLOSE: this is the
		// open segment, and the file after it was never used.
		if err := s.unused(i + 1); err != nil {
			return false, err
		}
		_ = next.file.Close() // only read
		s.segs = s.segs[:i+1]
		return false, nil
	}
	return true, nil
}

// unusedProof is how much of a segment shows whether it was used: frames follow each other
// from its beginning. A takeover waits for what is read here, so it is not all of it.
const unusedProof = 1 << 20

// unused verifies that segment i, which has no header, begins with nothing but zeros. The
// header is durable before the first frame is written, so anything in a segment without
// one proves that its header was there and is lost.
func (s *scanner) unused(i int) error {
	g := &s.segs[i]
	content := s.buffer(int(min(g.Size, unusedProof)))
	if err := readFull(g.file, content, 0); err != nil {
		return s.damage(i, 0, "read", err)
	}
	for off := 0; off < len(content); off += BlockSize {
		if !allZero(content[off : off+BlockSize]) {
			return s.damage(i, 0, fmt.Sprintf("no header, but there is something at offset %d, which is written after the header is durable", off), ErrCorrupt)
		}
	}
	return nil
}

// closeTail is how much of a closed segment's end holds its CLOSE: a segment is
// closed when the next frame does not fit.
const closeTail = 2 << 20

// endsBefore reports whether segment i is closed and ends where the next one begins, by its
// CLOSE frame alone. So no segment between them is missing. False proves nothing.
func (s *scanner) endsBefore(i int) bool {
	g, next := &s.segs[i], &s.segs[i+1]
	tail := s.buffer(int(min(g.Size, closeTail)))
	if !next.headed || readFull(g.file, tail, g.Size-int64(len(tail))) != nil {
		return false
	}
	for at := len(tail) - BlockSize; at >= 0; at -= BlockSize {
		f, _, err := decodeFrameHeader(tail[at:])
		if err == nil && f.Binding == g.binding {
			return f.Kind == FrameClose && f.Epoch == g.Header.Epoch && f.First == next.First && f.Chain == next.Header.Chain
		}
	}
	return false
}

// frames reads the frames of segment i from its content and returns where they end.
func (s *scanner) frames(i int, content []byte) (off int64, closed bool, err error) {
	g := &s.segs[i]
	off = BlockSize
	for ordinal := uint32(0); off < int64(len(content)); ordinal++ {
		f, entries, size, err := decodeFrame(content[off:], s.entries)
		s.entries = entries
		switch {
		case errors.Is(err, ErrFeatureLevel):
			return off, false, s.damage(i, off, "frame", err)
		case err != nil || f.Binding != g.binding:
			return off, false, s.tail(i, content, off, ordinal)
		}
		if err := s.acceptFrame(i, off, ordinal, f); err != nil {
			return off, false, err
		}
		if err := s.records(f, entries); err != nil {
			return off, false, err
		}
		if s.pos.Chain != f.Chain {
			return off, false, s.damage(i, off, fmt.Sprintf("frame says chain value %#x, its records give %#x", f.Chain, s.pos.Chain), ErrCorrupt)
		}
		off += int64(padded(size))
		if f.Kind == FrameClose {
			return off, true, nil
		}
	}
	return off, false, nil
}

// acceptFrame checks an intact frame of this segment against its place.
func (s *scanner) acceptFrame(i int, off int64, ordinal uint32, f FrameHeader) error {
	switch {
	case f.Elided:
		return s.damage(i, off, "elided frame", ErrCorrupt)
	case f.Ordinal != ordinal:
		return s.damage(i, off, fmt.Sprintf("frame %d where %d belongs", f.Ordinal, ordinal), ErrCorrupt)
	case f.Epoch != s.segs[i].Header.Epoch:
		return s.damage(i, off, fmt.Sprintf("frame of epoch %d in a segment of %d", f.Epoch, s.segs[i].Header.Epoch), ErrCorrupt)
	case f.First != s.pos.LSN+1 || f.DurableUpto > s.pos.LSN:
		return s.damage(i, off, fmt.Sprintf("frame of LSN %d, durable up to %d, behind LSN %d", f.First, f.DurableUpto, s.pos.LSN), ErrCorrupt)
	}
	return nil
}

// records visits the records of a frame.
func (s *scanner) records(f FrameHeader, entries []Entry) error {
	for _, e := range entries {
		s.pos = Position{LSN: s.pos.LSN + 1, Chain: s.pos.Chain.Next(e.Header)}
		if err := s.reach(); err != nil {
			return err
		}
		if s.pos.LSN <= s.opt.From.LSN {
			continue
		}
		if s.pos.LSN > s.opt.Resume.LSN {
			if err := s.visit(s.pos.LSN, e, f); err != nil {
				return err
			}
		}
		if s.opt.Relog != nil && s.pos.LSN > s.relog.LSN {
			if err := s.opt.Relog(s.pos.LSN, e, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// tail judges an invalid frame at off: nil means that it is a torn tail or the
// zeros after the end. One frame is in flight at a time, so any intact frame
// of this segment after it, with a higher ordinal, proves that it was durable.
func (s *scanner) tail(i int, content []byte, off int64, ordinal uint32) error {
	for at := off + BlockSize; at < int64(len(content)); at += BlockSize {
		rest := content[at:]
		if binary.LittleEndian.Uint32(rest) != frameMagic || binary.LittleEndian.Uint64(rest[56:]) != s.segs[i].binding {
			continue
		}
		f, _, err := decodeFrameHeader(rest)
		if err == nil && f.Ordinal > ordinal || errors.Is(err, ErrFeatureLevel) {
			return s.damage(i, off, fmt.Sprintf("invalid frame, but the one at offset %d was written after it was durable", at), ErrCorrupt)
		}
	}
	return nil
}
