// SPDX-License-Identifier: Apache-2.0

package wal

import "testing"

// An intact frame of the right segment must also be the one that belongs there.
func TestFrameMustFitItsPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*FrameHeader)
		want error
	}{
		{"as it should be", func(*FrameHeader) {}, nil},
		{"ordinal", func(f *FrameHeader) { f.Ordinal-- }, ErrCorrupt},
		{"epoch", func(f *FrameHeader) { f.Epoch-- }, ErrCorrupt},
		{"first LSN", func(f *FrameHeader) { f.First-- }, ErrCorrupt},
		{"durable beyond its own records", func(f *FrameHeader) { f.DurableUpto++ }, ErrCorrupt},
		{"chain", func(f *FrameHeader) { f.Chain++ }, ErrCorrupt},
		{"elided", func(f *FrameHeader) { f.Elided = true }, ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := threeFrames(t)
			f := s.log.frameHeader(FrameMark)
			c.edit(&f)
			d := s.d.alive()
			copy(d.bytes(SegmentName(1))[s.log.seg.off:], AppendFrame(nil, f, nil))
			if c.want != nil {
				wantScanError(t, d, scanOptions(), c.want)
				return
			}
			if _, _, err := s.recovered(d, 0); err != nil {
				t.Fatal(err)
			}
		})
	}
}
