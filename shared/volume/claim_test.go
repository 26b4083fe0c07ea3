// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

func TestClaimWhoseRenameReportsAFailure(t *testing.T) {
	for _, test := range []struct {
		name   string
		action volumetest.Action
		want   cluster.Epoch // 0 is an error
	}{
		{"EIO, but done", volumetest.FailAfter(syscall.EIO), 1},
		{"ENOENT, but done", volumetest.FailAfter(syscall.ENOENT), 1},
		{"EEXIST, but done", volumetest.FailAfter(syscall.EEXIST), 1},
		{"ENOTEMPTY, but done", volumetest.FailAfter(syscall.ENOTEMPTY), 1},
		{"EIO, not done", volumetest.FailBefore(syscall.EIO), 0},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			s := start(t, d, 1)
			p := s.prepare()
			s.host.SetHook(volumetest.AtOp(volumetest.OpRename, "servers/", 1, test.action))
			r, err := s.vol.Claim(t.Context(), p)
			if test.want == 0 {
				if err == nil {
					t.Errorf("claimed epoch %d", r.Epoch())
				}
				s.host.SetHook(nil)
				r, err = s.vol.Claim(t.Context(), s.prepare())
				test.want = 1
			}
			if err != nil || r.Epoch() != test.want {
				t.Fatalf("claim: %v, want epoch %d", err, test.want)
			}
			if _, err := s.takeOver(r, nil); err != nil {
				t.Errorf("takeover: %v", err)
			}
		})
	}
}

// Nothing is prepared where another cluster's volume was put at the path.
func TestNothingIsPreparedInAnotherVolume(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	other := host(d, 2)
	entries, err := other.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	errs := []error{other.Mkdir("lost+found")}
	for _, x := range entries {
		errs = append(errs, other.Rename(x.Name, "lost+found/"+x.Name))
	}
	if _, err := initialise(other); err != nil || errors.Join(errs...) != nil {
		t.Fatal(err, errors.Join(errs...))
	}
	before, err := other.ReadDir("servers")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.vol.Prepare(t.Context()); !errors.Is(err, volume.ErrDamaged) {
		t.Errorf("a claim on another cluster's volume: %v", err)
	}
	if after, err := other.ReadDir("servers"); err != nil || len(after) != len(before) {
		t.Errorf("in the other cluster's servers/ is %v: %v", after, err)
	}
}

// A claimant that cannot see which numbers are taken has claimed nothing, and can use its prepared
// claim when the volume is there again.
func TestClaimThatSeesNothingCanBeUsedAgain(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := start(t, newDisk(t), 1)
		p := s.prepare()
		before := s.host.Handles()
		s.host.SetHook(volumetest.AtOp(volumetest.OpReadDir, "epochs", 1, volumetest.FailBefore(syscall.ESTALE)))
		if _, err := s.vol.Claim(t.Context(), p); !errors.Is(err, volume.ErrNotClaimed) || !errors.Is(err, syscall.ESTALE) {
			t.Errorf("claim: %v", err)
		}
		if after := s.host.Handles(); !slices.Equal(after, before) {
			t.Errorf("open are %q, and were %q before", after, before)
		}
		r, err := s.vol.Claim(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.takeOver(r, nil); err != nil {
			t.Error(err)
		}
	})
}

// However a claim ends, no file of it stays open, and its lock is free.
func TestEndedClaimKeepsNothingOpen(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(s *server) error
	}{
		{"discarded", func(s *server) error { return s.prepare().Discard() }},
		{"not prepared", func(s *server) error {
			s.host.SetHook(volumetest.AtOp(volumetest.OpSyncDir, "servers/", 1, volumetest.FailBefore(syscall.EIO)))
			_, err := s.vol.Prepare(t.Context())
			return unless(syscall.EIO, err)
		}},
		{"not named", func(s *server) error {
			p := s.prepare()
			s.host.SetHook(volumetest.AtOp(volumetest.OpRename, "servers/", 1, volumetest.FailBefore(syscall.EIO)))
			_, err := s.vol.Claim(t.Context(), p)
			return unless(syscall.EIO, err)
		}},
		{"not confirmed", func(s *server) error {
			p := s.prepare()
			s.host.SetHook(volumetest.AtOp(volumetest.OpSyncDir, "epochs", 1, volumetest.FailBefore(syscall.EIO)))
			_, err := s.vol.Claim(t.Context(), p)
			return unless(syscall.EIO, err)
		}},
		{"released", func(s *server) error { return s.claim().Release() }},
		{"released after it began its log", func(s *server) error {
			x, err := s.takeOver(s.claim(), nil)
			if err != nil {
				return err
			}
			return errors.Join(x.log.Close(), x.r.Release())
		}},
		{"log dropped", func(s *server) error {
			r := s.claim()
			return errors.Join(r.DropLog(), r.Release())
		}},
	} {
		bubble(t, test.name, func(t *testing.T) {
			s := start(t, newDisk(t), 1)
			before := s.host.Handles()
			if err := test.end(s); err != nil {
				t.Error(err)
			}
			if after := s.host.Handles(); !slices.Equal(after, before) {
				t.Errorf("open are %q, and were %q before", after, before)
			}
		})
	}
}

// unless is what is wrong with an error that should be want.
func unless(want, err error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got %w, want %w", err, want)
}

// meanwhile runs f while server 1 stands before a call of its claim, and returns how the claim ended.
func meanwhile(t *testing.T, d *volumetest.Disk, op, prefix string, f func()) (*server, *volume.Term, error) {
	t.Helper()
	s := start(t, d, 1)
	p := s.prepare()
	gate := volumetest.NewGate()
	s.host.SetHook(volumetest.AtOp(op, prefix, 1, volumetest.Pause(gate)))
	var r *volume.Term
	done := make(chan error, 1)
	go func() {
		var err error
		r, err = s.vol.Claim(context.Background(), p)
		done <- err
	}()
	<-gate.Arrived()
	f()
	gate.Resume()
	err := <-done
	return s, r, err
}

// preparedClaim returns the directory of the only claim that waits in servers/.
func preparedClaim(t *testing.T, d *volumetest.Disk) string {
	t.Helper()
	for name := range d.Files("servers/") {
		if dir, file := path.Split(name); file == "claim.json" {
			return path.Clean(dir)
		}
	}
	t.Fatal("no claim is prepared")
	return ""
}

// The rename was done and reported as refused, as a repeat over NFS is, and the look at that
// number failed: it is found by the look behind the next one.
func TestClaimFindsItsNonceUnderAnEarlierNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := start(t, d, 1)
		p := s.prepare()
		s.host.SetHook(volumetest.Script(
			volumetest.AtOp(volumetest.OpRename, preparedClaim(t, d), 1, volumetest.FailAfter(syscall.EEXIST)),
			volumetest.AtOp(volumetest.OpOpen, "epochs/0000000001/claim.json", 1, volumetest.FailBefore(syscall.EIO)),
		))
		r, err := s.vol.Claim(t.Context(), p)
		if err != nil || r.Epoch() != 1 {
			t.Errorf("claimed %v", err)
		}
	})
}

func TestClaimOfATakenNumberTakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		var other *volume.Term
		_, r, err := meanwhile(t, d, volumetest.OpRename, "servers/", func() { other = start(t, d, 2).claim() })
		if err != nil || other.Epoch() != 1 || r.Epoch() != 2 {
			t.Fatalf("the other has epoch %d, this one %v: %v", other.Epoch(), r, err)
		}
	})
}

func TestClaimThatIsOvertakenYieldsAndBurnsItsNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		var other *server
		var term *volume.Term
		_, _, err := meanwhile(t, d, volumetest.OpSyncDir, "epochs", func() {
			other = start(t, d, 2)
			term = other.claim()
		})
		if !errors.Is(err, volume.ErrOvertaken) || term.Epoch() != 2 {
			t.Fatalf("got %v, the other has epoch %d", err, term.Epoch())
		}
		if _, err := other.takeOver(term, nil); err != nil {
			t.Errorf("takeover past a burned number: %v", err)
		}
		if next := start(t, d, 3).claim(); next.Epoch() != 3 {
			t.Errorf("the next claim has epoch %d: a burned number was used again", next.Epoch())
		}
	})
}

func TestClaimThatSleptThroughTermsTakesAFreshNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		var hash uint64
		s, r, err := meanwhile(t, d, volumetest.OpRename, "servers/", func() {
			for id := cluster.ServerID(2); id <= 3; id++ {
				x := begin(t, d, id)
				x.fill(2)
				if err := x.r.RemoveOlder(x.src, x.src.Epoch); err != nil {
					t.Fatal(err)
				}
				hash = x.table.Hash()
				x.kill()
			}
			time.Sleep(time.Hour)
		})
		if err != nil || r.Epoch() != 3 {
			t.Fatalf("claim: %v %v", r, err)
		}
		x, err := s.takeOver(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if x.table.Hash() != hash {
			t.Error("it adopted another table")
		}
	})
}

func TestInterruptedClaimHarmsNothing(t *testing.T) {
	for name, action := range interruptions() {
		bubble(t, name, func(t *testing.T) {
			for n := 1; ; n++ {
				d := newDisk(t)
				x := begin(t, d, 2)
				x.fill(2)
				hash := x.table.Hash()
				x.kill()
				h := host(d, 1)
				h.SetHook(volumetest.At(n, action))
				v, err := open(h, 1)
				if err == nil {
					var p *volume.Prepared
					if p, err = v.Prepare(t.Context()); err == nil {
						_, err = v.Claim(t.Context(), p)
					}
				}
				if h.Calls() < n {
					return
				}
				h.Kill()
				usable(t, d, hash)
				_ = err // whether it was told of the failure is not the point
			}
		})
	}
}

func TestDiscardedAndLeftClaimsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		mine := start(t, d, 1)
		if err := mine.prepare().Discard(); err != nil {
			t.Errorf("discard: %v", err)
		}
		mine.prepare() // left by this process
		start(t, d, 2).prepare()
		if err := mine.vol.RemoveLeftovers(); err != nil {
			t.Errorf("remove leftovers: %v", err)
		}
		left := 0
		for name := range d.Snapshot() {
			switch {
			case strings.HasPrefix(name, "servers/1.") && name != "servers/1.lock" && name != "servers/1.canary":
				t.Errorf("%s is left", name)
			case strings.HasPrefix(name, "servers/2.") && strings.HasSuffix(name, "/fence"):
				left++
			}
		}
		if left != 1 {
			t.Errorf("%d claims of the other server are left, want its one", left)
		}
	})
}

func TestReserveIsGivenUpForAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := start(t, d, 1)
		for range 2 {
			if err := s.vol.KeepReserve(); err != nil {
				t.Fatal(err)
			}
		}
		d.SetCapacity(d.Used())
		r := s.claim()
		if _, err := s.takeOver(r, nil); err != nil {
			t.Errorf("takeover on a full disk: %v", err)
		}
		d.SetCapacity(d.Used())
		if _, err := s.vol.Prepare(t.Context()); !vfs.IsFull(err) {
			t.Errorf("prepare without a reserve: %v", err)
		}
		if err := s.vol.KeepReserve(); !vfs.IsFull(err) {
			t.Errorf("make the reserve on a full disk: %v", err)
		}
		if _, err := d.ReadFile("servers/1.reserve"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("half a reserve is left")
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	spoil := func(text string) func(*volumetest.Disk) error {
		return func(d *volumetest.Disk) error {
			if err := d.Truncate("CLUSTER", 0); err != nil {
				return err
			}
			return d.Write("CLUSTER", 0, []byte(text))
		}
	}
	for _, test := range []struct {
		name   string
		id     cluster.ServerID
		change func(*volumetest.Disk) error
		want   string
	}{
		{"a directory that is no volume", 1, func(d *volumetest.Disk) error { return d.Remove("CLUSTER") }, "no CLUSTER file"},
		{"a server that is not a member", 7, func(*volumetest.Disk) error { return nil }, "not one of this volume's servers"},
		{"garbage", 1, spoil("garbage"), "damaged"},
		{"an empty CLUSTER", 1, spoil(""), "damaged"},
		{"no servers", 1, spoil(`{"cluster_id":"00112233445566778899aabbccddeeff","format":1,"feature_level":1,"servers":[]}`), "damaged"},
		{"another format", 1, spoil(`{"cluster_id":"00112233445566778899aabbccddeeff","format":2}`), "format 2"},
		{"a higher feature level", 1, spoil(`{"cluster_id":"00112233445566778899aabbccddeeff","format":1,"feature_level":9}`), "feature level 9"},
		{"a short cluster ID", 1, spoil(`{"cluster_id":"0011","format":1}`), "damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDisk(t)
			if err := test.change(d); err != nil {
				t.Fatal(err)
			}
			before := len(d.Snapshot())
			_, err := open(host(d, 1), test.id)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if len(d.Snapshot()) != before {
				t.Error("something was made")
			}
		})
	}
}

func TestSecondProcessWithTheSameIDIsRefused(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	if _, err := open(host(d, 1), 1); !errors.Is(err, volume.ErrSameID) {
		t.Errorf("got %v", err)
	}
	if err := s.vol.WriteProcess(volume.Process{Count: 1}); err != nil {
		t.Errorf("the first one writes: %v", err)
	}
	s.host.Kill()
	if _, err := open(host(d, 1), 1); err != nil {
		t.Errorf("after the first one died: %v", err)
	}
	usable(t, d, locktable.New().Hash())
}

// TestNoServerServesWhatANewerBinaryWrote: a log tells the feature level of who wrote it, and a binary
// with a lower one does not take it over, and says why.
func TestNoServerServesWhatANewerBinaryWrote(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		x.kill()
		for name, content := range d.Files("epochs/0000000001/wal-") {
			h, err := wal.DecodeSegmentHeader(content[:wal.BlockSize])
			if errors.Is(err, wal.ErrZero) {
				continue // made ahead
			}
			if err != nil || h.FeatureLevel != volume.FeatureLevel {
				t.Fatalf("%s has feature level %d, %v", name, h.FeatureLevel, err)
			}
			h.FeatureLevel++
			if err := d.Write(name, 0, wal.AppendSegmentHeader(nil, h)); err != nil {
				t.Fatal(err)
			}
		}
		s := start(t, d, 2)
		_, err := s.takeOver(s.claim(), nil)
		said := fmt.Sprintf("feature level %d, this binary knows %d: written by a newer version", volume.FeatureLevel+1, volume.FeatureLevel)
		if !errors.Is(err, wal.ErrFeatureLevel) || !strings.Contains(err.Error(), said) {
			t.Errorf("it took over what a newer binary wrote: %v", err)
		}
	})
}

// TestALookBesideAPrimaryFindsNothingLost: what is committed while somebody looks is in the log when
// the history tells of it.
func TestALookBesideAPrimaryFindsNothingLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3)
		w := x.r.HistoryWriter()
		if err := w.Begin(1); err != nil {
			t.Fatal(err)
		}
		head := history.Head{File: history.File(w.Name()), Cluster: x.r.Cluster().String()}
		b := history.AppendHead(nil, head)
		s := start(t, d, 2)
		s.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpReadDir && c.Name == "history" {
				x.fill(1)
				b = history.AppendMark(b, x.table.LSN())
				if err := w.Append(b); err != nil {
					t.Error(err)
				}
				b = nil
			}
			return volumetest.Proceed()
		})
		if end, told, err := s.vol.Preview(t.Context()); err != nil || end < told || told == 0 {
			t.Errorf("the log ends at %d, the history tells of %d: %v", end, told, err)
		}
	})
}
