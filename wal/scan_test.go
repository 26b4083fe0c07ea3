// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// threeFrames is a log of one segment with frames at blocks 1, 2 and 3; the last is larger than a block.
func threeFrames(t testing.TB) *story {
	s := started(t, tiny)
	s.must(s.append(2, 100, 0))
	s.must(s.append(1, 100, 40))
	s.must(s.append(3, 200, 2000))
	return s
}

// rotated is a log of three segments, the last one open.
func rotated(t testing.TB) *story {
	s := started(t, tiny)
	for len(s.log.mu.closed) < 2 {
		if !s.log.NextReady() {
			s.must(s.log.PrepareNext(t.Context()))
		}
		s.must(s.append(1, 100, 500))
	}
	s.must(s.append(1, 100, 0))
	return s
}

// Any part of the last frame may have reached the disk: then it is there as a
// whole or not at all, and nothing before it suffers.
func TestTornTail(t *testing.T) {
	s := threeFrames(t)
	begin, end := 3*BlockSize, 3*BlockSize+s.batch.Size()
	used := 3*BlockSize + len(s.batch.buf) // the padding does not matter
	whole := s.d.alive().bytes(SegmentName(1))
	sectors := (end - begin) / sectorSize
	try := func(keep func(sector int) bool) {
		t.Helper()
		torn := s.d.alive()
		b, complete := torn.bytes(SegmentName(1)), true
		for i := range sectors {
			if off := begin + i*sectorSize; !keep(i) {
				clear(b[off : off+sectorSize])
				complete = complete && (off >= used || allZero(whole[off:min(off+sectorSize, used)]))
			}
		}
		r, c, err := scan(torn, scanOptions())
		want := 3
		if complete {
			want = 6
		}
		if err != nil || r.End != s.after[want] {
			t.Fatalf("got %v, %v; want the end at %v", r.End, err, s.after[want])
		}
		if err := sameRecs(c.recs, s.made[:want]); err != nil {
			t.Fatal(err)
		}
	}
	for n := range sectors + 1 {
		try(func(i int) bool { return i < n })
		try(func(i int) bool { return i >= n })
		try(func(i int) bool { return i != n })
		try(func(i int) bool { return i == n })
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for range 500 {
		subset := rng.Uint64()
		try(func(i int) bool { return subset>>(i%64)&1 == 1 })
	}
}

// A bit that flips in a frame with anything behind it is corruption. In the
// padding it is ignored, because the padding says nothing.
func TestBitFlips(t *testing.T) {
	for _, marked := range []bool{false, true} {
		s := threeFrames(t)
		if marked {
			s.must(s.log.Mark())
		}
		clean := s.d.alive().bytes(SegmentName(1))
		ends := map[int]int{} // end of what matters in each frame, by offset
		for off := BlockSize; ; {
			_, _, size, err := DecodeFrame(clean[off:])
			if err != nil {
				break
			}
			ends[off] = off + size
			off += padded(size)
		}
		last := 3 * BlockSize
		frame := BlockSize
		for i := BlockSize; i < 3*BlockSize+s.batch.Size(); i++ {
			if _, ok := ends[i]; ok {
				frame = i
			}
			d := s.d.alive()
			d.bytes(SegmentName(1))[i] ^= 1 << (i % 8)
			r, c, err := scan(d, scanOptions())
			switch {
			case i >= ends[frame]: // padding
				if err != nil || r.End != s.after[6] || sameRecs(c.recs, s.made) != nil {
					t.Fatalf("flip in the padding at %d: got %v, %v", i, r.End, err)
				}
			case frame == last && !marked:
				if err != nil || r.End != s.after[3] || sameRecs(c.recs, s.made[:3]) != nil {
					t.Fatalf("flip in the last frame at %d: got %v, %v; want a torn tail", i, r.End, err)
				}
				o := scanOptions()
				o.AtLeast = s.after[4]
				wantScanError(t, d, o, ErrGap)
			default:
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("flip at %d, marked %v: got %v, %v; want ErrCorrupt", i, marked, r.End, err)
				}
			}
		}
	}
}

// A block that reads as zeros is no end of the log, whatever it held: a header, a CLOSE or a
// frame. Only the last frame, behind which nothing was written, proves nothing.
func TestZeroedBlocks(t *testing.T) {
	s := rotated(t)
	last := s.log.seg
	for i, name := range []string{s.log.mu.closed[0].Name, s.log.mu.closed[1].Name, last.name} {
		clean := s.d.alive().bytes(name)
		for off := 0; off < len(clean); off += BlockSize {
			if allZero(clean[off : off+BlockSize]) {
				continue
			}
			d := s.d.alive()
			clear(d.bytes(name)[off : off+BlockSize])
			r, _, err := scan(d, scanOptions())
			switch {
			case name == last.name && int64(off) == last.off-BlockSize:
				if err != nil || r.End != s.after[s.acked-1] {
					t.Errorf("the last frame zeroed: got %v, %v; want a torn tail", r.End, err)
				}
			case i == 0 && off == 0:
				wantScanError(t, d, scanOptions(), ErrGap)
			case !errors.Is(err, ErrCorrupt):
				t.Errorf("%s at %d zeroed: got the end at %v of %v, %v; want ErrCorrupt", name, off, r.End, s.after[s.acked], err)
			}
		}
	}
}

// A segment that was named and never used has no header and no CLOSE before it. Both are lost
// where there is something in it.
func TestUsedSegmentWithoutCloseAndHeader(t *testing.T) {
	s := rotated(t)
	d := s.d.alive()
	clear(lastFrame(d.bytes(s.log.mu.closed[1].Name)))
	clear(d.bytes(s.log.seg.name)[:BlockSize])
	wantScanError(t, d, scanOptions(), ErrCorrupt)
}

// A frame of a newer binary proves as well that what lies before it was durable.
func TestNewerFrameBehindADamagedOne(t *testing.T) {
	s := threeFrames(t)
	d := s.d.alive()
	b := d.bytes(SegmentName(1))[3*BlockSize:]
	_, size, err := decodeFrameHeader(b)
	s.must(err)
	b[6]++
	binary.LittleEndian.PutUint32(b[crcOffset:], frameCRC(b[:size]))
	clear(d.bytes(SegmentName(1))[2*BlockSize : 3*BlockSize])
	wantScanError(t, d, scanOptions(), ErrCorrupt)
}

// A damaged mark has no LSN of its own, yet the frame behind it proves that it was written.
func TestDamagedMarkIsNoTornTail(t *testing.T) {
	s := started(t, tiny)
	s.must(s.append(1, 50, 0))
	s.must(s.log.Mark())
	d := s.d.alive()
	d.bytes(SegmentName(1))[2*BlockSize+40]++
	if r, _, err := scan(d, scanOptions()); err != nil || r.End != s.after[1] {
		t.Fatalf("damaged mark at the end: got %v, %v", r.End, err)
	}
	s.must(s.append(1, 50, 0))
	d = s.d.alive()
	d.bytes(SegmentName(1))[2*BlockSize+40]++
	wantScanError(t, d, scanOptions(), ErrCorrupt)
}

// Data that contains an old frame of this very segment is no proof of anything.
func TestFrameWithinDataIsNoProof(t *testing.T) {
	s := started(t, 4*tiny)
	s.must(s.append(1, 50, 0))
	old := s.d.alive().bytes(SegmentName(1))[BlockSize : 2*BlockSize]
	s.batch.Reset(s.after[1])
	data := make([]byte, 3*BlockSize)
	copy(data[BlockSize-FrameHeaderSize-(1+2+4):], old) // uvarints and the header "torn"
	s.batch.Add([]byte("torn"), data)
	s.must(s.log.Append(&s.batch))
	d := s.d.alive()
	b := d.bytes(SegmentName(1))
	if !bytes.Equal(b[3*BlockSize:3*BlockSize+FrameHeaderSize], old[:FrameHeaderSize]) {
		t.Fatal("the copy does not lie on a block boundary")
	}
	clear(b[2*BlockSize : 2*BlockSize+sectorSize])
	if r, _, err := scan(d, scanOptions()); err != nil || r.End != s.after[1] {
		t.Fatalf("torn frame with a frame in its data: got %v, %v", r.End, err)
	}
}

// A frame of another segment is garbage here, however intact it is.
func TestForeignFrame(t *testing.T) {
	s, other := started(t, tiny), started(t, 2*tiny)
	s.must(s.append(1, 50, 0))
	other.must(other.append(1, 50, 0))
	other.must(other.append(1, 50, 0))
	d := s.d.alive()
	copy(d.bytes(SegmentName(1))[2*BlockSize:], other.d.bytes(SegmentName(1))[2*BlockSize:3*BlockSize])
	if r, _, err := scan(d, scanOptions()); err != nil || r.End != s.after[1] {
		t.Fatalf("foreign frame behind the end: got %v, %v", r.End, err)
	}
}

func TestScanFromEveryBase(t *testing.T) {
	s := rotated(t)
	s.must(s.log.Mark())
	for base := range s.acked + 1 {
		r, _, err := s.recovered(s.d, base)
		if err != nil {
			t.Fatalf("base %d: %v", base, err)
		}
		open := r.Segments[r.Linkable]
		want := max(open.First, cluster.LSN(base)+1)
		if r.Relog != s.after[want-1] || r.Linkable != len(r.Segments)-1 || r.LastEpoch != testEpoch {
			t.Fatalf("base %d: got %+v", base, r)
		}
		if f := r.Segments[0]; f.First > cluster.LSN(base)+1 || f.Closed && f.Last < cluster.LSN(base)+1 {
			t.Fatalf("base %d: begins with %+v", base, f)
		}
		for i, g := range r.Segments[:r.Linkable] {
			if !g.Closed || g.Last+1 != r.Segments[i+1].First || g.Size != tiny {
				t.Fatalf("base %d: segment %+v", base, g)
			}
		}
	}
}

// refusal is damage that a scan must refuse, and what for.
type refusal struct {
	name string
	edit func(d *memDir, o *ScanOptions)
	want error
}

func TestScanRefusesDamagedSegments(t *testing.T) {
	s := rotated(t)
	closed := s.log.mu.closed
	first, second, open := closed[0].Name, closed[1].Name, s.log.seg.name
	s.refuses(t, []refusal{
		{"empty directory", func(d *memDir, _ *ScanOptions) { clear(d.visible) }, ErrGap},
		{"only the prepared one", func(d *memDir, _ *ScanOptions) {
			clear(d.visible)
			d.put(NextName, make([]byte, tiny))
		}, ErrGap},
		{"first segment missing", func(d *memDir, _ *ScanOptions) { delete(d.visible, first) }, ErrGap},
		{"middle segment missing", func(d *memDir, _ *ScanOptions) { delete(d.visible, second) }, ErrGap},
		{"open segment missing", func(d *memDir, _ *ScanOptions) { delete(d.visible, open) }, ErrGap},
		{"header of the first lost", func(d *memDir, _ *ScanOptions) { clear(d.bytes(first)[:512]) }, ErrGap},
		{"header of the middle lost", func(d *memDir, _ *ScanOptions) { clear(d.bytes(second)[:512]) }, ErrCorrupt},
		{"header of the open one damaged", func(d *memDir, _ *ScanOptions) { d.bytes(open)[300]++ }, ErrCorrupt},
		{"CLOSE lost", func(d *memDir, _ *ScanOptions) { clear(lastFrame(d.bytes(second))) }, ErrCorrupt},
		{"CLOSE lost and no header behind", func(d *memDir, _ *ScanOptions) {
			clear(lastFrame(d.bytes(second)))
			clear(lastFrame(d.bytes(second)))
			clear(d.bytes(open))
		}, ErrGap},
		{"frame lost in a closed segment", func(d *memDir, _ *ScanOptions) { clear(d.bytes(first)[BlockSize : 2*BlockSize]) }, ErrCorrupt},
		{"file cut short", func(d *memDir, _ *ScanOptions) {
			f := d.visible[open]
			f.visible = f.visible[:len(f.visible)-BlockSize]
		}, ErrCorrupt},
		{"file without a header cut within a block", func(d *memDir, _ *ScanOptions) {
			f := d.visible[open]
			clear(f.visible)
			f.visible = f.visible[:len(f.visible)-100]
		}, ErrCorrupt},
		{"file cut to nothing", func(d *memDir, _ *ScanOptions) { d.visible[open].visible = nil }, ErrCorrupt},
		{"segments swapped", func(d *memDir, _ *ScanOptions) {
			d.visible[first], d.visible[second] = d.visible[second], d.visible[first]
		}, ErrCorrupt},
	})
}

func TestScanRefusesRecordsOfAnotherLog(t *testing.T) {
	s := rotated(t)
	closed := s.log.mu.closed
	first, open := closed[0].Name, s.log.seg.name
	end := cluster.LSN(s.acked)
	s.refuses(t, []refusal{
		{"another cluster", func(_ *memDir, o *ScanOptions) { o.Cluster[3]++ }, ErrCorrupt},
		{"epoch from the future", func(_ *memDir, o *ScanOptions) { o.MaxEpoch = testEpoch - 1 }, ErrCorrupt},
		{"newer features", func(_ *memDir, o *ScanOptions) { o.FeatureLevel = 0 }, ErrFeatureLevel},
		{"newer frame", func(d *memDir, _ *ScanOptions) {
			b := d.bytes(open)[BlockSize:]
			_, size, _ := decodeFrameHeader(b)
			b[6]++
			binary.LittleEndian.PutUint32(b[crcOffset:], frameCRC(b[:size]))
		}, ErrFeatureLevel},
		{"record replaced", func(d *memDir, _ *ScanOptions) {
			b := d.bytes(open)[BlockSize:]
			_, size, _ := decodeFrameHeader(b)
			b[FrameHeaderSize+10]++
			binary.LittleEndian.PutUint32(b[crcOffset:], frameCRC(b[:size]))
		}, ErrCorrupt},
		{"open segment of another history", func(d *memDir, _ *ScanOptions) {
			editHeader(d.bytes(open), func(h *SegmentHeader) { h.Chain++ })
		}, ErrCorrupt},
		{"open segment of an older term", func(d *memDir, _ *ScanOptions) {
			editHeader(d.bytes(open), func(h *SegmentHeader) { h.Epoch-- })
		}, ErrCorrupt},
		{"frame of another term", func(d *memDir, _ *ScanOptions) {
			b := d.bytes(open)[BlockSize:]
			_, size, _ := decodeFrameHeader(b)
			b[24]--
			binary.LittleEndian.PutUint32(b[crcOffset:], frameCRC(b[:size]))
		}, ErrCorrupt},
		{"frame where a later one belongs", func(d *memDir, _ *ScanOptions) {
			b := d.bytes(first)
			copy(b[2*BlockSize:3*BlockSize], b[BlockSize:2*BlockSize])
		}, ErrCorrupt},
		{"all but the first frame lost in a closed segment", func(d *memDir, _ *ScanOptions) {
			clear(d.bytes(first)[2*BlockSize:])
		}, ErrGap},
		{"other records up to the base", func(_ *memDir, o *ScanOptions) { o.From = Position{3, 3} }, ErrCorrupt},
		{"other records up to the base, at a segment's end", func(_ *memDir, o *ScanOptions) { o.From = Position{closed[0].Last, 3} }, ErrCorrupt},
		{"base beyond the end", func(_ *memDir, o *ScanOptions) { o.From = Position{end + 1, 3} }, ErrGap},
		{"other records up to the adopted end", func(_ *memDir, o *ScanOptions) { o.AtLeast = Position{4, 4} }, ErrCorrupt},
		{"adopted end beyond the end", func(_ *memDir, o *ScanOptions) { o.AtLeast = Position{end + 1, 3} }, ErrGap},
		{"adopted end at the base", func(_ *memDir, o *ScanOptions) { o.AtLeast = Position{0, 3} }, ErrCorrupt},
	})
}

func (s *story) refuses(t *testing.T, all []refusal) {
	t.Helper()
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			d, o := s.d.alive(), scanOptions()
			for _, f := range d.visible {
				f.visible = bytes.Clone(f.visible)
			}
			c.edit(d, &o)
			wantScanError(t, d, o, c.want)
		})
	}
}

// lastFrame is the block of the last frame, which is one without records where b is closed.
func lastFrame(b []byte) []byte {
	for off := len(b) - BlockSize; ; off -= BlockSize {
		if _, _, err := decodeFrameHeader(b[off:]); err == nil {
			return b[off : off+BlockSize]
		}
	}
}

// editHeader changes the header of an intact segment, which empties it: its frames lose their binding.
func editHeader(b []byte, edit func(*SegmentHeader)) {
	h, _ := DecodeSegmentHeader(b)
	edit(&h)
	clear(b)
	putSegmentHeader(b, h)
}

// The states that a crash of a rotation leaves.
func TestScanOfAnUnfinishedRotation(t *testing.T) {
	s := rotated(t)
	closed := s.log.mu.closed
	second, open := closed[1], s.log.seg.name

	d := s.d.alive()
	clear(d.bytes(open))
	r, _, err := scan(d, scanOptions())
	if err != nil || r.End != s.after[second.Last] || r.Linkable != 1 || r.Relog.LSN+1 != second.First || len(r.Segments) != 3 {
		t.Fatalf("CLOSE and no header behind: got %+v, %v", r, err)
	}
	if g := r.Segments[1]; g.Closed || g.Last != second.Last {
		t.Errorf("the segment counts as closed by its CLOSE alone: %+v", g)
	}
	// The newest segment that begins at or before the base has no header: its predecessor must vouch for it.
	o := scanOptions()
	o.From = s.after[second.Last]
	if r, c, err := scan(d, o); err != nil || r.End != o.From || r.Relog != o.From || r.Linkable != 0 || len(c.recs) != 0 {
		t.Errorf("base at the end of a segment: got %+v, %v", r, err)
	}
	delete(d.visible, second.Name)
	wantScanError(t, d, o, ErrGap) // the first one does not end where the open one begins

	d = s.d.alive()
	clear(d.bytes(open))
	clear(lastFrame(d.bytes(second.Name)))
	r, _, err = scan(d, scanOptions())
	if err != nil || r.End != s.after[second.Last] || r.Linkable != 1 || len(r.Segments) != 2 {
		t.Fatalf("no CLOSE and no header behind: got %+v, %v", r, err)
	}
}

func TestScanIgnoresOtherNames(t *testing.T) {
	s := threeFrames(t)
	for _, name := range []string{NextName, ".nfs0001", SegmentName(2) + ".tmp", "fence", "claim.json"} {
		s.d.put(name, []byte("x"))
	}
	if _, _, err := s.recovered(s.d, 0); err != nil {
		t.Fatal(err)
	}
}

// The owner may be alive and late. A scan beside it gives an error that the
// caller takes for "again", or all that was acknowledged before it began.
func TestScanBesideItsOwner(t *testing.T) {
	d := prepared(t, tiny)
	l, err := Start(testOptions(d), Position{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var acked atomic.Uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		var b Batch
		for l.Position().LSN < 400 && l.PrepareNext(t.Context()) == nil {
			b.Reset(l.Position())
			b.Add([]byte("same record"), nil)
			if err := l.Append(&b); err != nil {
				t.Error(err)
				return
			}
			acked.Store(uint64(l.Position().LSN))
		}
	})
	accepted := 0
	for done := false; !done; {
		before := acked.Load()
		done = before == 400
		r, c, err := scan(d, scanOptions())
		var se *ScanError
		switch {
		case err == nil && uint64(r.End.LSN) < before, err == nil && len(c.recs) != int(r.End.LSN):
			t.Fatalf("scan ends at %d with %d records, %d were acknowledged", r.End.LSN, len(c.recs), before)
		case err == nil:
			accepted++
		case !errors.As(err, &se) || done:
			t.Fatal(err)
		}
	}
	wg.Wait()
	t.Logf("%d scans accepted", accepted)
}

// Storage errors come through, so that a caller can tell ESTALE from damage.
func TestScanPassesErrorsOn(t *testing.T) {
	s := threeFrames(t)
	for _, want := range []error{fs.ErrNotExist, syscall.ESTALE} {
		for at := 1; at <= 4; at++ { // names, open, header, content
			wantScanError(t, &brokenDir{Dir: s.d, at: at, err: want}, scanOptions(), want)
		}
	}
	stop := errors.New("stop")
	_, err := Scan(s.d, scanOptions(), func(lsn cluster.LSN, _ Entry, _ FrameHeader) error {
		if lsn == 2 {
			return stop
		}
		return nil
	})
	if err != stop {
		t.Fatalf("error of visit: got %v", err)
	}
}

// brokenDir fails its reading call number at.
type brokenDir struct {
	Dir
	calls, at int
	err       error
}

func (d *brokenDir) fail() error {
	if d.calls++; d.calls == d.at {
		return d.err
	}
	return nil
}

func (d *brokenDir) Names() ([]string, error) {
	names, err := d.Dir.Names()
	return names, errors.Join(err, d.fail())
}

func (d *brokenDir) Open(name string) (File, error) {
	f, err := d.Dir.Open(name)
	return brokenFile{f, d}, errors.Join(err, d.fail())
}

type brokenFile struct {
	File
	d *brokenDir
}

func (f brokenFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.d.fail(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

// Whatever stands in the last segment, a scan returns a part of what was
// written, from the beginning, or an error.
func FuzzScan(f *testing.F) {
	s := threeFrames(f)
	s.must(s.log.Mark())
	clean := s.d.alive().bytes(SegmentName(1))
	f.Add(uint32(BlockSize), clean[BlockSize:BlockSize+100], false)
	f.Add(uint32(2*BlockSize), make([]byte, 512), false)
	f.Add(uint32(3*BlockSize), clean[BlockSize:2*BlockSize], true)
	f.Add(uint32(0), clean[:512], true)
	f.Fuzz(func(t *testing.T, off uint32, over []byte, cut bool) {
		d := s.d.alive()
		b := bytes.Clone(clean)
		at := int(off) % len(b)
		n := copy(b[at:], over)
		if cut {
			b = b[:at+n]
		}
		d.put(SegmentName(1), b)
		r, c, err := scan(d, scanOptions())
		if len(c.recs) > len(s.made) || sameRecs(c.recs, s.made[:len(c.recs)]) != nil {
			t.Fatalf("visited %d records that were not written: %v", len(c.recs), err)
		}
		if err == nil && r.End != s.after[len(c.recs)] {
			t.Fatalf("ends at %v behind %d records", r.End, len(c.recs))
		}
	})
}
