// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

const fenceOf1 = "epochs/0000000001/fence"

func TestOlderTermIs(t *testing.T) {
	block := startBlock(1, wal.Position{})
	flipped := func(i int) []byte {
		b := bytes.Clone(block)
		b[i] ^= 1
		return b
	}
	write := func(off int64, b []byte) func(*volumetest.Disk) error {
		return func(d *volumetest.Disk) error { return d.Write(fenceOf1, off, b) }
	}
	for _, test := range []struct {
		name   string
		change func(*volumetest.Disk) error
		from   cluster.Epoch
		ok     bool
	}{
		{"passed over without a START", func(*volumetest.Disk) error { return nil }, 0, true},
		{"adopted with a START", write(layout.FenceSpacing, block), 1, true},
		{"refused with a torn START", write(layout.FenceSpacing, block[:40]), 0, false},
		{"refused with the end of a START", write(layout.FenceSpacing+500, block[500:512]), 0, false},
		{"refused with a flipped bit in its epoch", write(layout.FenceSpacing, flipped(8)), 0, false},
		{"refused with a flipped bit in its end", write(layout.FenceSpacing, flipped(32)), 0, false},
		{"refused with a flipped bit in its sum", write(layout.FenceSpacing, flipped(511)), 0, false},
		{"refused with one byte behind its sector", write(layout.FenceSpacing, flipped(4095)), 0, false},
		{"refused with the START of another epoch", write(layout.FenceSpacing, startBlock(2, wal.Position{})), 0, false},
		{"refused with garbage", write(layout.FenceSpacing, bytes.Repeat([]byte{0xa5}, 4096)), 0, false},
		{"refused without a fence", func(d *volumetest.Disk) error { return d.Remove(fenceOf1) }, 0, false},
		{"refused with a short fence", func(d *volumetest.Disk) error { return d.Truncate(fenceOf1, layout.FenceSize-1) }, 0, false},
		{"refused with an empty fence", func(d *volumetest.Disk) error { return d.Truncate(fenceOf1, 0) }, 0, false},
		{"refused with a long fence", func(d *volumetest.Disk) error { return d.Truncate(fenceOf1, layout.FenceSize+1) }, 0, false},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			old := start(t, d, 1)
			old.claim()
			old.host.Kill()
			r := start(t, d, 2).claim()
			if err := test.change(d); err != nil {
				t.Fatal(err)
			}
			src, err := r.FenceOlder(t.Context())
			if (err == nil) != test.ok || src.Epoch != test.from {
				t.Errorf("adopts from %d: %v", src.Epoch, err)
			}
			if !test.ok && !errors.Is(r.Err(), volume.ErrDeposed) {
				t.Error("the claimant goes on")
			}
		})
	}
}

func TestStartInTheMiddleOfBeingWrittenIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		start(t, d, 1).claim()
		r := start(t, d, 2).claim()
		block := startBlock(1, wal.Position{})
		if err := d.Write(fenceOf1, layout.FenceSpacing, block[:40]); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(150 * time.Millisecond)
			if err := d.Write(fenceOf1, layout.FenceSpacing, block); err != nil {
				t.Error(err)
			}
		}()
		if src, err := r.FenceOlder(t.Context()); err != nil || src.Epoch != 1 {
			t.Errorf("adopts from %d: %v", src.Epoch, err)
		}
	})
}

func TestFencesAreSetDownToTheFirstTermThatStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		first := begin(t, d, 1)
		first.kill()
		second := begin(t, d, 2) // started: where the claimant stops
		start(t, d, 1).claim()   // burned
		r := start(t, d, 3).claim()
		src, err := r.FenceOlder(t.Context())
		if err != nil || src.Epoch != 2 || !slices.Equal(src.Fenced, []cluster.Epoch{3, 2}) {
			t.Errorf("adopts from %d, fenced %v: %v", src.Epoch, src.Fenced, err)
		}
		if r.WritersEnded(src) {
			t.Error("the writers of a live process have ended")
		}
		if err := second.r.Check(); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("check of the fenced term: %v", err)
		}
	})
}

// What was read while the fences were set may have been stale on both sides: the claimant did not
// see a START, or the claimed number, and the other term did not see its flag.
func TestSourceIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*volumetest.Disk) error
		want   string
	}{
		{"where nothing changed", func(*volumetest.Disk) error { return nil }, ""},
		{"but not past a START", func(d *volumetest.Disk) error {
			return d.Write("epochs/0000000002/fence", layout.FenceSpacing, startBlock(2, wal.Position{}))
		}, "epoch 2 started meanwhile"},
		{"but not past a torn START", func(d *volumetest.Disk) error {
			return d.Write("epochs/0000000002/fence", layout.FenceSpacing, startBlock(2, wal.Position{})[:40])
		}, "damaged"},
		{"but not past an epoch without a flag", func(d *volumetest.Disk) error {
			return d.Write("epochs/0000000002/fence", 0, make([]byte, 4096))
		}, "epoch 2 was claimed meanwhile"},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			begin(t, d, 1).kill()
			start(t, d, 2).claim()
			r := startStale(t, d, 3).claim()
			src, err := r.FenceOlder(t.Context())
			if err != nil || src.Epoch != 1 {
				t.Fatalf("adopts from %d: %v", src.Epoch, err)
			}
			if err := test.change(d); err != nil {
				t.Fatal(err)
			}
			err = r.ConfirmSource(t.Context(), src)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(r.Err(), volume.ErrDeposed) {
				t.Errorf("confirmed: %v; the claimant: %v", err, r.Err())
			}
		})
	}
}

// A term that started after its fence was set is adopted by a later claimant, also where claimants
// before had gone past it and would have noted, after many fences, that it had not started.
func TestTermThatStartedLateIsAdopted(t *testing.T) {
	for _, test := range []struct {
		name   string
		served bool // for a moment: it left a canary
		late   bool // START comes only after the claimant had confirmed its source
	}{{"before it is confirmed", false, false}, {"having served", true, false}, {"after it was confirmed", false, true}} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.fill(3)
			x.kill()
			for range 14 { // epochs 2 to 15: with 16 fences a note would be due
				s := startStale(t, d, 2)
				s.claim()
				s.host.Kill()
			}
			slow, next := startStale(t, d, 2), startStale(t, d, 3)
			r := slow.claim() // epoch 16
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
			c := next.claim() // epoch 17
			from, err := c.FenceOlder(t.Context())
			if err != nil || from.Epoch != 1 {
				t.Fatalf("adopts from %d: %v", from.Epoch, err)
			}
			if test.late {
				if err := c.ConfirmSource(t.Context(), from); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.WriteStart(a.End); !errors.Is(err, volume.ErrFenced) {
				t.Fatalf("START behind a fence: %v", err)
			}
			if test.served {
				if err := slow.vol.WriteCanary(volume.Canary{Epoch: 16, Value: 1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.ConfirmSource(t.Context(), from); err == nil {
				t.Error("epoch 1 is confirmed though epoch 16 started")
			}
			next.host.Kill()
			last := startStale(t, d, 3).claim()
			from, err = last.FenceOlder(t.Context())
			if err == nil {
				err = last.ConfirmSource(t.Context(), from)
			}
			if err != nil || from.Epoch != 16 {
				t.Errorf("the next claimant adopts from %d: %v", from.Epoch, err)
			}
		})
	}
}

func TestNothingIsAdoptedWhereNoTermStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := start(t, d, 1).claim()
		if err := d.Write("epochs/0000000000/fence", layout.FenceSpacing, make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.FenceOlder(t.Context()); !errors.Is(err, volume.ErrDamaged) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWritersHaveEndedWhenTheirProcessHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		old := begin(t, d, 1)
		r := start(t, d, 2).claim()
		src, err := r.FenceOlder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.WritersEnded(src) {
			t.Error("while the process lives")
		}
		old.kill()
		if !r.WritersEnded(src) {
			t.Error("not when the process has ended")
		}
	})
}

func TestCheckEndsATermWhose(t *testing.T) {
	other := volumetest.New(2)
	if _, err := initialise(host(other, 9)); err != nil {
		t.Fatal(err)
	}
	foreign, err := other.ReadFile("CLUSTER")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*volumetest.Disk) error
		byPath bool // only the check of the path can see it
	}{
		{"flag is set", func(d *volumetest.Disk) error { return d.Write(fenceOf1, 0, []byte("HFFENCE1")) }, false},
		{"flag has one byte", func(d *volumetest.Disk) error { return d.Write(fenceOf1, 4095, []byte{1}) }, false},
		{"fence was removed", func(d *volumetest.Disk) error { return d.Remove(fenceOf1) }, false},
		{"fence was cut", func(d *volumetest.Disk) error { return d.Truncate(fenceOf1, 4096) }, false},
		{"fence was emptied", func(d *volumetest.Disk) error { return d.Truncate(fenceOf1, 0) }, false},
		{"fence grew", func(d *volumetest.Disk) error { return d.Truncate(fenceOf1, 1<<20) }, false},
		{"fence was replaced", func(d *volumetest.Disk) error {
			if err := d.Write("files/new", layout.FenceSize-1, []byte{0}); err != nil {
				return err
			}
			return d.Rename("files/new", fenceOf1)
		}, false},
		{"fence was moved away", func(d *volumetest.Disk) error { return d.Rename(fenceOf1, "files/fence") }, true},
		{"fence was exchanged", func(d *volumetest.Disk) error {
			if err := d.Rename(fenceOf1, "files/fence"); err != nil {
				return err
			}
			return d.Write(fenceOf1, layout.FenceSize-1, []byte{0})
		}, true},
		{"directory was moved away", func(d *volumetest.Disk) error { return d.Rename("epochs/0000000001", "files/old") }, true},
		{"CLUSTER was removed", func(d *volumetest.Disk) error { return d.Remove("CLUSTER") }, true},
		{"CLUSTER is another one's", func(d *volumetest.Disk) error { return d.Write("CLUSTER", 0, foreign) }, true},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			if err := errors.Join(x.r.Check(), x.r.CheckPath()); err != nil {
				t.Fatalf("before: %v", err)
			}
			if err := test.change(d); err != nil {
				t.Fatal(err)
			}
			err := x.r.Check()
			if (err == nil) != test.byPath {
				t.Errorf("check: %v", err)
			}
			if err == nil {
				err = x.r.CheckPath()
			}
			if !errors.Is(err, volume.ErrDeposed) || x.r.Err() == nil {
				t.Errorf("the term goes on: %v", err)
			}
			if _, err := x.r.WriteCheckpoint(x.snapshot().Export()); !errors.Is(err, volume.ErrDeposed) {
				t.Errorf("a checkpoint in the name of an ended term: %v", err)
			}
			if err := x.log.PrepareNext(t.Context()); !errors.Is(err, volume.ErrDeposed) {
				t.Errorf("a segment in the name of an ended term: %v", err)
			}
			if _, err := x.r.AdoptProtected("f"); !errors.Is(err, volume.ErrDeposed) {
				t.Errorf("a protected file in the name of an ended term: %v", err)
			}
		})
	}
}

func TestCheckEndsATermAtAnyError(t *testing.T) {
	for name, hook := range map[string]volumetest.Hook{
		"of the read": volumetest.AtOp(volumetest.OpReadAt, fenceOf1, 1, volumetest.FailBefore(errors.New("stale"))),
		"of the stat": volumetest.AtOp(volumetest.OpStat, fenceOf1, 1, volumetest.FailAfter(errors.New("stale"))),
	} {
		bubble(t, name, func(t *testing.T) {
			x := begin(t, newDisk(t), 1)
			x.host.SetHook(hook)
			for range 2 {
				if err := x.r.Check(); !errors.Is(err, volume.ErrDeposed) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// On a network what a check asks for is under way at a time, and neither answer alone is enough.
func TestCheckOnANetworkTakesOneRoundTrip(t *testing.T) {
	for op, other := range map[string]string{volumetest.OpReadAt: volumetest.OpStat, volumetest.OpStat: volumetest.OpReadAt} {
		bubble(t, op, func(t *testing.T) {
			x := startOn(t, newDisk(t).Host(1, volumetest.ProfileNetwork()), 1)
			r := x.claim()
			gate := volumetest.NewGate()
			x.host.SetHook(volumetest.AtOp(op, fenceOf1, 1, volumetest.Pause(gate)))
			before := len(x.host.Trace())
			checked := make(chan error, 1)
			go func() { checked <- r.Check() }()
			<-gate.Arrived()
			synctest.Wait()
			asked := slices.ContainsFunc(x.host.Trace()[before:], func(c volumetest.Call) bool { return c.Op == other })
			if !asked || len(checked) > 0 {
				t.Errorf("while %s is not answered: %s was asked for: %v, the check has ended: %v", op, other, asked, len(checked) > 0)
			}
			gate.Resume()
			if err := <-checked; err != nil {
				t.Error(err)
			}
		})
	}
}

// A check that has read a set fence asks and waits for nothing more: what the term does in the
// background ends at once.
func TestCheckEndsWithTheReadOfASetFence(t *testing.T) {
	for _, profile := range []volumetest.Profile{volumetest.ProfileLocal(), volumetest.ProfileNetwork()} {
		bubble(t, profile.Kind.Name, func(t *testing.T) {
			d := newDisk(t)
			x := startOn(t, d.Host(1, profile), 1)
			r := x.claim()
			if err := d.Write(fenceOf1, 0, bytes.Repeat([]byte{1}, vfs.BlockSize)); err != nil {
				t.Fatal(err)
			}
			gate := volumetest.NewGate()
			x.host.SetHook(volumetest.AtOp(volumetest.OpStat, fenceOf1, 1, volumetest.Pause(gate)))
			checked := make(chan error, 1)
			go func() { checked <- r.Check() }()
			synctest.Wait()
			if len(checked) == 0 {
				t.Error("the fence is set and the check waits for the attributes")
			}
			gate.Resume()
			if err := <-checked; !errors.Is(err, volume.ErrFenced) {
				t.Errorf("the check tells %v", err)
			}
		})
	}
}

// What a claim held open is closed in the middle of the takeover: a close that hangs there, as
// NFS clients close files with a server that does not answer, counts as a call of the term.
func TestHungCloseOfWhatAClaimHeldIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newDisk(t), 1)
		r := s.claim()
		src, err := r.FenceOlder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.Scan(t.Context(), src, nil)
		if err != nil {
			t.Fatal(err)
		}
		gate := volumetest.NewGate()
		s.host.SetHook(volumetest.AtOp(volumetest.OpClose, "epochs/0000000001/wal-", 1, volumetest.Pause(gate)))
		adopted := make(chan error, 1)
		go func() {
			_, err := r.Adopt(a)
			adopted <- err
		}()
		<-gate.Arrived()
		time.Sleep(time.Second)
		if d := r.Unanswered(time.Now()); d != time.Second {
			t.Errorf("a close hangs for 1s, the oldest call without an answer began %v ago", d)
		}
		gate.Resume()
		if err := <-adopted; err != nil {
			t.Error(err)
		}
	})
}

func TestStartIsNotWrittenPastAFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := start(t, d, 1)
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
		later := start(t, d, 2).claim()
		if src, err := later.FenceOlder(t.Context()); err != nil || src.Epoch != 0 {
			t.Fatalf("the later claimant adopts from %d: %v", src.Epoch, err)
		}
		if err := r.WriteStart(a.End); !errors.Is(err, volume.ErrFenced) {
			t.Errorf("START behind a fence: %v", err)
		}
	})
}

// Many numbers were burned. A takeover sets the fences that nobody has set, and those of a few
// others, however many there are.
func TestTakeoverSetsFewFencesOfBurnedNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		x.kill()
		for range 100 {
			s := start(t, d, 2)
			if src, err := s.claim().FenceOlder(t.Context()); err != nil || src.Epoch != 1 {
				t.Fatalf("from epoch %d: %v", src.Epoch, err)
			}
			s.host.Kill()
		}
		take := func(d *volumetest.Disk) (fences int) {
			s := start(t, d, 3)
			s.host.SetHook(func(c volumetest.Call) volumetest.Action {
				if c.Op == volumetest.OpWriteAt && strings.HasSuffix(c.Name, "/fence") && c.Offset == 0 {
					fences++
				}
				return volumetest.Proceed()
			})
			y, err := s.takeOver(s.claim(), nil)
			if err != nil || y.src.Epoch != 1 || y.table.LSN() != x.table.LSN() {
				t.Fatal(err)
			}
			y.kill()
			sound(t, d)
			return fences
		}
		if n := take(d.Clone()); n > 20 {
			t.Errorf("%d fences were set", n)
		}
		for name := range d.Files("epochs/") { // of another claim: not believed
			if strings.HasSuffix(name, "/fenced.json") {
				if err := d.Write(name, 10, []byte("00000000")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := take(d); n < 100 {
			t.Errorf("%d fences were set without a note that counts", n)
		}
	})
}

// TestLookSkipsWhatATakeoverSkips: a look reads no fence that a takeover would not set, however many
// numbers were burned, and is refused for none of them.
func TestLookSkipsWhatATakeoverSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		x.kill()
		for range 40 {
			s := start(t, d, 2)
			if _, err := s.claim().FenceOlder(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.host.Kill()
		}
		if err := d.Remove("epochs/0000000005"); err != nil { // a takeover passes it over, too
			t.Fatal(err)
		}
		s := start(t, d, 3)
		looked := map[string]bool{}
		s.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpOpen && strings.HasSuffix(c.Name, "/fence") {
				looked[c.Name] = true
			}
			return volumetest.Proceed()
		})
		if end, _, err := s.vol.Preview(t.Context()); err != nil || end != x.table.LSN() {
			t.Errorf("it finds the end at LSN %d: %v", end, err)
		}
		if len(looked) > 20 {
			t.Errorf("%d fences were read", len(looked))
		}
		if y, err := s.takeOver(s.claim(), nil); err != nil || y.table.LSN() != x.table.LSN() {
			t.Errorf("a takeover: %v", err)
		}
	})
}

// A claimant that is paused before its last fence has noted nothing.
func TestFencesAreNotedWhenAllAreSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		begin(t, d, 1).kill()
		for range 30 {
			s := start(t, d, 2)
			s.claim()
			s.host.Kill()
		}
		s := start(t, d, 2)
		r := s.claim()
		s.host.SetHook(volumetest.AtOp(volumetest.OpSync, "epochs/0000000001/fence", 1, volumetest.Crash()))
		if _, err := r.FenceOlder(t.Context()); err == nil {
			t.Fatal("it was to crash")
		}
		for name := range d.Files("epochs/") {
			if strings.HasSuffix(name, "/fenced.json") {
				t.Errorf("%s is there before the last fence is", name)
			}
		}
	})
}

// startBlock returns the block of a START.
func startBlock(e cluster.Epoch, end wal.Position) []byte {
	return epochdir.EncodeStart(epochdir.Start{Epoch: e, Nonce: epochdir.Nonce{1, 2, 3}, End: end})
}

func FuzzDecodeStart(f *testing.F) {
	f.Add(make([]byte, vfs.BlockSize))
	f.Add(startBlock(7, wal.Position{LSN: 9, Chain: 11}))
	f.Add(startBlock(7, wal.Position{})[:512])
	f.Add([]byte("HFSTART1"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := epochdir.DecodeStart(b)
		zero := len(bytes.Trim(b, "\x00")) == 0
		if zero != (err == nil && s == nil) {
			t.Errorf("%d bytes, all zero %v: %+v, %v", len(b), zero, s, err)
		}
		if s == nil {
			return
		}
		if again := epochdir.EncodeStart(*s); !bytes.Equal(again[:min(len(b), len(again))], b[:min(len(b), len(again))]) {
			t.Error("what was accepted is not what would be written")
		}
	})
}
