// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"reflect"
	"testing"
)

// A scan that resumes anywhere finds the log that a whole scan finds, relogs the
// same records and visits those behind its position only.
func TestScanResumesAnywhere(t *testing.T) {
	s := rotated(t)
	resumed := func(base, resume int) (Result, []rec) {
		o := scanOptions()
		o.From, o.Resume, o.AtLeast = s.after[base], s.after[resume], s.after[s.acked]
		r, c, err := scan(s.d, o)
		if err != nil {
			t.Fatalf("base %d, resume %d: %v", base, resume, err)
		}
		if err := sameRecs(c.recs, s.made[resume:]); err != nil {
			t.Fatalf("base %d, resume %d: %v", base, resume, err)
		}
		return r, c.also
	}
	for _, base := range []int{0, 1, s.acked / 2, s.acked} {
		want, relogged := resumed(base, base)
		for resume := base; resume <= s.acked; resume++ {
			if got, again := resumed(base, resume); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(again, relogged) {
				t.Fatalf("base %d, resume %d: %+v, %d relogged; want %+v, %d", base, resume, got, len(again), want, len(relogged))
			}
		}
	}
}

func TestScanResumesOnlyWhereTheChainFits(t *testing.T) {
	s := rotated(t)
	for resume := range s.acked + 1 {
		o := scanOptions()
		o.Resume = s.after[resume]
		o.Resume.Chain ^= 1
		wantScanError(t, s.d, o, ErrCorrupt)
	}
	o := scanOptions()
	o.Resume = s.after[s.acked]
	o.Resume.LSN++
	wantScanError(t, s.d, o, ErrGap)
}

// A segment that is missing between two that are not read is missed nevertheless.
func TestScanMissesASegmentBeforeItResumes(t *testing.T) {
	s := rotated(t)
	middle := s.log.mu.closed[1]
	o := scanOptions()
	o.Resume = s.after[s.acked]
	if _, _, err := scan(s.d, o); err != nil {
		t.Fatal(err)
	}
	s.must(s.d.Remove(middle.Name))
	wantScanError(t, s.d, o, ErrGap)
}

// A segment is passed over by its CLOSE alone: that has to be its own, and end where the next
// one begins, with the same records.
func TestScanPassesOverNoSegmentByAnotherClose(t *testing.T) {
	for name, edit := range map[string]func(*FrameHeader){
		"of another segment": func(f *FrameHeader) { f.Binding++ },
		"of another term":    func(f *FrameHeader) { f.Epoch-- },
		"at another LSN":     func(f *FrameHeader) { f.First-- },
		"of other records":   func(f *FrameHeader) { f.Chain++ },
		"a mark":             func(f *FrameHeader) { f.Kind = FrameMark },
	} {
		t.Run(name, func(t *testing.T) {
			s := rotated(t)
			d := s.d.alive()
			last := lastFrame(d.bytes(s.log.mu.closed[0].Name))
			f, _, err := decodeFrameHeader(last)
			s.must(err)
			edit(&f)
			clear(last)
			putFrameHeader(last[:FrameHeaderSize], f)
			o := scanOptions()
			o.Resume = s.after[s.acked]
			wantScanError(t, d, o, ErrCorrupt)
		})
	}
}

// A scan up to an LSN reads nothing behind the segment that holds it.
func TestScanEndsWhereItIsTold(t *testing.T) {
	s := rotated(t)
	closed := s.log.mu.closed
	upTo := closed[0].Last
	d := s.d.alive()
	d.bytes(closed[1].Name)[BlockSize+FrameHeaderSize] ^= 1
	o := scanOptions()
	wantScanError(t, d, o, ErrCorrupt)
	o.UpTo, o.AtLeast = upTo, s.after[upTo]
	_, c, err := scan(d, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameRecs(c.recs, s.made[:upTo]); err != nil {
		t.Error(err)
	}
	d.bytes(closed[0].Name)[BlockSize+FrameHeaderSize] ^= 1
	wantScanError(t, d, o, ErrCorrupt)
}
