// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// The directory of the newest epoch is gone (rm -r, a copy that was made while it was claimed).
// The flags below it were set by it: no claimant takes its number and begins below, and none
// after the first that was refused.
func TestNewestEpochThatIsGoneIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		if err := d.Remove("epochs/0000000004"); err != nil {
			t.Fatal(err)
		}
		unharmed := d.Clone()
		takesNothingOver(t, d, "error epoch-missing epochs/0000000004")
		if r := checked(t, d); !strings.Contains(worst(r), "error epoch-taken-twice epochs") {
			t.Errorf("its number was taken again; fsck finds %q", worst(r))
		}
		for name, d := range map[string]*volumetest.Disk{"gone": unharmed, "taken again": d} {
			plan := recovered(t, d, recoverOptions())
			if plan.Complete || plan.End >= end {
				t.Errorf("%s: %+v", name, plan)
			}
			goesOn(t, d, plan)
		}
	})
}

// interruptRecovery burns two numbers and interrupts a recovery that has set its fences and has
// no number yet.
func interruptRecovery(t *testing.T, d *volumetest.Disk) {
	t.Helper()
	for range 2 {
		s := start(t, d, 1)
		s.claim()
		s.host.Kill()
	}
	opt := recoverOptions()
	opt.Restored = true
	h := host(d, 9)
	h.SetHook(volumetest.AtOp(volumetest.OpMkdir, "servers/recover-", 1, volumetest.Crash()))
	if _, err := recovery.Run(t.Context(), h, opt); err == nil {
		t.Fatal("the recovery was not interrupted")
	}
}

// A recovery sets fences before it has a number. Where it ends there, servers go on, below a
// number that nobody began as well.
func TestFencesOfAnInterruptedRecoveryStopNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		interruptRecovery(t, d)
		if x := begin(t, d, 1); x.src.Epoch != 4 || x.table.LSN() != end {
			t.Errorf("adopted LSN %d of epoch %d", x.table.LSN(), x.src.Epoch)
		}
	})
}

// What a primary wrote outside of its epoch's directory tells that the epoch was there, and how
// far it came.
func TestWitnessesOfALostEpoch(t *testing.T) {
	for name, write := range map[string]func(x *term) error{
		"history": func(x *term) error {
			w := x.r.HistoryWriter()
			if err := w.Begin(1); err != nil {
				return err
			}
			b := history.AppendHead(nil, history.Head{File: history.File(w.Name()), Cluster: x.r.Cluster().String()})
			return errors.Join(w.Append(history.AppendMark(b, x.table.LSN())), w.Close())
		},
		"index": func(x *term) error {
			w := x.r.IndexWriter()
			return errors.Join(w.Write([]index.Entry{{File: "f", Generation: 1, Length: 1, LSN: 1, Token: 1}}), w.Close())
		},
		"canary": func(x *term) error { return x.vol.WriteCanary(volume.Canary{Epoch: x.r.Epoch(), Value: 1}) },
	} {
		bubble(t, name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.fill(5)
			x.kill()
			older := d.Clone() // of epochs/; the rest is of later
			y := begin(t, d, 2)
			y.fill(5)
			asleep := start(t, d, 3).claim()
			z := begin(t, d, 1)
			z.fill(5)
			if err := write(z); err != nil {
				t.Fatal(err)
			}
			z.kill()
			sound(t, d)
			if _, err := asleep.FenceOlder(t.Context()); !errors.Is(err, volume.ErrOvertaken) {
				t.Errorf("a claimant that slept: %v", err)
			}
			for f, b := range d.Files("") {
				if strings.HasPrefix(f, "history/") || strings.HasPrefix(f, "index/") || strings.HasSuffix(f, ".canary") {
					if err := older.Write(f, 0, b); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 3 { // they burn the number that is missing, and go on above it
				takesNothingOver(t, older, "error term-missing epochs")
			}
			plan, err := recovery.Run(t.Context(), host(older, 9), recoverOptions())
			if err != nil {
				t.Fatal(err)
			}
			if plan.Complete {
				t.Errorf("%+v", plan)
			}
			if name == "history" && plan.SeenLSN != z.table.LSN() {
				t.Errorf("LSN %d was told of: %+v", z.table.LSN(), plan)
			}
			goesOn(t, older, plan)
		})
	}
}

// The history of another volume, brought here with files, is no witness.
func TestForeignHistoryIsNoWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		b := history.AppendHead(nil, history.Head{File: history.File{Epoch: 70, N: 1}, Cluster: "of/another"})
		if err := d.Write("history/0000000070-000001.jsonl", 0, history.AppendMark(b, 1<<30)); err != nil {
			t.Fatal(err)
		}
		sound(t, d)
		if x := begin(t, d, 1); x.table.LSN() != end {
			t.Errorf("adopted LSN %d", x.table.LSN())
		}
	})
}

// A claimant sleeps behind its fences while others term and remove what it wanted to adopt. It
// was fenced: nothing is damaged.
func TestClaimantThatSleptWasFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := locksOnly(t)
		asleep := start(t, d, 1).claim()
		src, err := asleep.FenceOlder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []cluster.ServerID{2, 3} {
			x := begin(t, d, id)
			x.fill(3)
			x.checkpoint()
			if err := x.r.RemoveOlder(x.src, x.src.Epoch); err != nil {
				t.Fatal(err)
			}
			x.kill()
		}
		if _, err := asleep.Scan(t.Context(), src, nil); !errors.Is(err, volume.ErrFenced) || errors.Is(err, volume.ErrDamaged) {
			t.Errorf("scan: %v", err)
		}
	})
}

// A look sees what a claimant would be refused for, and changes nothing.
func TestLookSeesWhatATakeoverIsRefusedFor(t *testing.T) {
	for _, c := range append(damages(), damage{name: "nothing", do: func(*volumetest.Disk) error { return nil }},
		damage{name: "a burned epoch above a gap", do: func(d *volumetest.Disk) error {
			return errors.Join(d.Mkdir("epochs/0000000006"), d.Write("epochs/0000000006/fence", layout.FenceSize-1, []byte{0}), d.Write("epochs/0000000006/claim.json", 0, []byte("{}")))
		}}) {
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			s := start(t, l.disk, 1)
			claim := s.prepare()
			if err := c.do(l.disk); err != nil {
				t.Fatal(err)
			}
			before := l.disk.Snapshot()
			end, told, err := s.vol.Preview(t.Context())
			if !sameDisk(before, l.disk.Snapshot()) {
				t.Error("a look changed something")
			}
			if err == nil && (end != l.end || told != 0) {
				t.Errorf("the log ends at LSN %d, the history at %d", end, told)
			}
			r, takeover := s.vol.Claim(t.Context(), claim)
			if takeover == nil {
				_, takeover = s.takeOver(r, nil)
			}
			if refusal(err) != refusal(takeover) {
				t.Errorf("looked: %v; took over: %v", err, takeover)
			}
		})
	}
}

// refusal reports whether an error means damage.
func refusal(err error) bool {
	_, scan := errors.AsType[*wal.ScanError](err)
	return scan || errors.Is(err, volume.ErrDamaged)
}

// hiding lists no segment of an epoch but the first that it has.
type hiding struct{ vfs.FS }

func (h hiding) ReadDir(name string) ([]vfs.Entry, error) {
	all, err := h.FS.ReadDir(name)
	shown := ""
	return slices.DeleteFunc(all, func(x vfs.Entry) bool {
		if _, ok := wal.ParseSegmentName(x.Name); !ok {
			return false
		}
		if shown == "" {
			shown = x.Name
		}
		return shown != x.Name
	}), err
}

// A listing may be old, and lack as many segments as the term filled since.
func TestManyHiddenSegmentsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(40)
		if n := len(d.Files("epochs/0000000001/wal-0")); n < 5 {
			t.Fatalf("%d segments", n)
		}
		x.kill()
		v, err := volume.Open(hiding{host(d, 2)}, volume.Options{Server: 2, Random: rand.Reader, FirstSegment: 32 << 10, Segment: 32 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if end, _, err := v.Preview(t.Context()); err != nil || end != x.table.LSN() {
			t.Errorf("the log ends at LSN %d of %d: %v", end, x.table.LSN(), err)
		}
	})
}

// The removal of a checkpoint was interrupted, and the newest is damaged: the one before is whole.
func TestHalfRemovedCheckpointHidesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		for range 3 {
			x.fill(6)
			x.checkpoint()
		}
		x.fill(1)
		x.kill()
		dir := "epochs/0000000001/"
		if err := errors.Join(d.Remove(dir+wal.SegmentName(1)), d.Remove(dir+"checkpoint-12/lock_state.json"), flip(dir+"checkpoint-18/lock_state.json", 300)(d)); err != nil {
			t.Fatal(err)
		}
		if y := begin(t, d, 2); y.a.Base != 6 || y.table.LSN() != x.table.LSN() {
			t.Errorf("base %d, LSN %d of %d", y.a.Base, y.table.LSN(), x.table.LSN())
		}
	})
}
