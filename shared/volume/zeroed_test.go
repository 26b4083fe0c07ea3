// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// locksOnly is a volume like that of live, without protected files and views: epoch 2 was
// adopted, 3 burned, 4 is the newest. It returns the end of the log and the open segment.
func locksOnly(t *testing.T) (d *volumetest.Disk, end cluster.LSN, open string) {
	t.Helper()
	d = newDisk(t)
	x := begin(t, d, 1)
	x.fill(9)
	x.checkpoint()
	x.kill()
	y := begin(t, d, 2)
	y.fill(6)
	y.kill()
	burner := start(t, d, 1)
	burner.claim()
	burner.host.Kill()
	z := begin(t, d, 3)
	z.fill(12)
	end = z.table.LSN()
	z.kill()
	for name := range d.Files(newest + "wal-0") {
		open = max(open, name)
	}
	sound(t, d)
	return d, end, open
}

func zero(name string, off int64) func(*volumetest.Disk) error {
	return func(d *volumetest.Disk) error { return d.Write(name, off, make([]byte, vfs.BlockSize)) }
}

// takesNothingOver fails the test unless takeovers refuse the volume as damaged, each of two,
// and fsck finds an error with this code and path.
func takesNothingOver(t *testing.T, d *volumetest.Disk, want string) {
	t.Helper()
	if r := checked(t, d); !strings.Contains(worst(r), want) {
		t.Errorf("fsck finds %q, want %q", worst(r), want)
	}
	for _, id := range []cluster.ServerID{1, 2} {
		s := start(t, d, id)
		claim := s.claim()
		x, err := s.takeOver(claim, nil)
		if err == nil {
			t.Fatalf("server %d took over as epoch %d, at LSN %d", id, claim.Epoch(), x.table.LSN())
		}
		if !errors.Is(err, volume.ErrDamaged) && !strings.Contains(err.Error(), "corrupt") {
			t.Errorf("refused with %v", err)
		}
		s.host.Kill()
	}
}

func TestZeroedHeaderIsNoEmptySegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, segment := locksOnly(t)
		if err := zero(segment, 0)(d); err != nil {
			t.Fatal(err)
		}
		takesNothingOver(t, d, "error log-damaged "+segment)
		if plan := recovered(t, d, recoverOptions()); plan.Complete || plan.End >= end {
			t.Errorf("%+v", plan)
		}
	})
}

func TestZeroedStartIsNoAbsentStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		if err := zero(newest+"fence", layout.FenceSpacing)(d); err != nil {
			t.Fatal(err)
		}
		takesNothingOver(t, d, "error start-missing "+newest+"fence")
		if plan := recovered(t, d, recoverOptions()); !plan.Complete || plan.End != end {
			t.Errorf("all of it lies in the log of epoch 4: %+v", plan)
		}
	})
}

// A claimant that died before its START left copies of older records, in segments of its own.
func TestCopiesOfOlderRecordsAreNoSignOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		for _, id := range []cluster.ServerID{1, 2} {
			s := start(t, d, id)
			r := s.claim()
			src, err := r.FenceOlder(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a, err := r.Scan(t.Context(), src, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Adopt(a); err != nil {
				t.Fatal(err)
			}
			s.host.Kill()
		}
		sound(t, d)
		if x := begin(t, d, 3); x.src.Epoch != 4 || x.table.LSN() != end {
			t.Errorf("adopted LSN %d of epoch %d", x.table.LSN(), x.src.Epoch)
		}
	})
}

// A START that reads as zeros once, as an old cache shows it, is read again.
func TestStartThatReadsAsZerosOnceIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		s := start(t, d, 1)
		r := s.claim()
		b, err := d.ReadFile(newest + "fence")
		if err != nil {
			t.Fatal(err)
		}
		if err := zero(newest+"fence", layout.FenceSpacing)(d); err != nil {
			t.Fatal(err)
		}
		s.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpReadDir && c.Name+"/" == newest {
				if err := d.Write(newest+"fence", layout.FenceSpacing, b[layout.FenceSpacing:layout.FenceSpacing+vfs.BlockSize]); err != nil {
					t.Error(err)
				}
			}
			return volumetest.Proceed()
		})
		if x, err := s.takeOver(r, nil); err != nil || x.table.LSN() != end {
			t.Errorf("%v", err)
		}
	})
}

// One block of one file reads as zeros. A takeover then refuses or has everything; where it
// has less, fsck says so. The last frame alone proves nothing of itself.
func TestNoZeroedBlockIsASilentLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, segment := locksOnly(t)
		files := d.Files("epochs/")
		var names []string
		for name := range files {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			b := files[name]
			last := (len(bytes.TrimRight(b, "\x00")) - 1) / vfs.BlockSize * vfs.BlockSize
			for off := 0; off < len(b); off += vfs.BlockSize {
				to := min(off+vfs.BlockSize, len(b))
				if bytes.Count(b[off:to], []byte{0}) == to-off || name == segment && off == last {
					continue
				}
				c := d.Clone()
				if err := c.Write(name, int64(off), make([]byte, to-off)); err != nil {
					t.Fatal(err)
				}
				h := host(c, 1)
				v, err := open(h, 1)
				if err != nil {
					continue // it does not even open
				}
				s := &server{t: t, host: h, vol: v}
				if x, err := s.takeOver(s.claim(), nil); err == nil && x.table.LSN() < end {
					t.Errorf("%s at %d zeroed: a takeover ends at LSN %d of %d; fsck finds %q", name, off, x.table.LSN(), end, worst(checked(t, c)))
				}
			}
		}
	})
}
