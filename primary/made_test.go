// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// afterMany serves a volume on which so many bindings have ended that every inode counts as used.
func afterMany(t *testing.T, d *volumetest.Disk, profile volumetest.Profile) (*term, cluster.Token) {
	t.Helper()
	x := serve(t, d, 1, primary.Options{})
	g := x.ok(acquire("c1", 1, "l", 0))
	s, err := x.p.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x.kill()
	used, err := locktable.Restore(s.At.LSN, func(yield func(locktable.Entity, error) bool) {
		for e := range s.Table.Export() {
			if !yield(e, nil) {
				return
			}
		}
		yield(locktable.Entity{Past: &locktable.PastState{Forgotten: 100}}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	h := d.Host(2, profile)
	return serveLarge(t, h, 2, primary.Options{Warm: &volume.WarmState{At: s.At, Table: used}}), g.Token
}

// TestAFileThatTheServiceMadeForACallerThatLeftIsNew: the service makes a new file for an append whose caller does not wait for it. The repeat of that
// append finds the file that the service itself has made, empty, and is not refused for it.
func TestAFileThatTheServiceMadeForACallerThatLeftIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x, token := afterMany(t, d, volumetest.ProfileNetwork()) // which does not tell when a file was made
		defer x.end()                                            //nolint:errcheck // it is stopped
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpSyncDir, "files", 1, volumetest.Pause(gate)))
		q := appendTo("c1", 2, "l", token, "new", "one\n")
		if _, err := x.within(time.Second, q); err == nil {
			t.Fatal("it was answered")
		}
		time.Sleep(time.Second)
		gate.Resume()
		synctest.Wait()
		time.Sleep(time.Second)
		if out := x.do(q); out.Status != cluster.StatusOK {
			t.Errorf("the repeat: %v %s", out.Status, out.Message)
		}
	})
}

// TestAFileThatAnEarlierPrimaryMadeIsNew: the same where the primary ended between.
func TestAFileThatAnEarlierPrimaryMadeIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x, token := afterMany(t, d, volumetest.ProfileLocal())
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpSyncDir, "files", 1, volumetest.Pause(gate)))
		q := appendTo("c1", 2, "l", token, "new", "one\n")
		x.later(q)
		<-gate.Arrived()
		s, err := x.p.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.host.Kill()
		gate.Resume()
		x.end() //nolint:errcheck // it was killed
		y := serve(t, d, 1, primary.Options{Warm: &volume.WarmState{At: s.At, Table: s.Table}})
		defer y.end() //nolint:errcheck // it is stopped
		if out := y.do(q); out.Status != cluster.StatusOK {
			t.Errorf("the repeat: %v %s", out.Status, out.Message)
		}
	})
}

// TestNoFileIsMadeForAnAppendThatIsRefusedAnyway: an offset that no new file has is refused before
// the file is made. Behind an append that waits for the file it is admitted.
func TestNoFileIsMadeForAnAppendThatIsRefusedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		at := func(id cluster.RequestID, offset int64, data string) *locktable.Request {
			q := appendTo("c1", id, "l", g.Token, "new", data)
			q.At = &offset
			return q
		}
		x.sees(at(2, 4, "two\n"), cluster.StatusOffsetMismatch)
		if _, err := d.ReadFile("files/new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file was made: %v", err)
		}
		for _, out := range x.together(at(3, 0, "one\n"), at(4, 4, "two\n")) {
			if out.Status != cluster.StatusOK {
				t.Errorf("of two together: %v %s", out.Status, out.Message)
			}
		}
	})
}

// TestAnInodeThatWasBoundIsNotNew: that the service made a file holds until it is bound.
func TestAnInodeThatWasBoundIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(unbind("c1", 3, "l", g.Token, "f"))
		if err := d.Truncate("files/f", 0); err != nil {
			t.Fatal(err)
		}
		x.sees(appendTo("c1", 4, "l", g.Token, "f", "AAAA"), cluster.StatusInvalidArgument)
		if err := d.Rename("files/f", "files/g"); err != nil {
			t.Fatal(err)
		}
		x.ok(appendTo("c1", 5, "l", g.Token, "f", "two\n"))
		if err := d.Rename("files/f", "files/f.1"); err != nil {
			t.Fatal(err)
		}
		x.ok(rotate("c1", 6, "l", g.Token, "f"))
		x.ok(appendTo("c1", 7, "l", g.Token, "f", "three\n"))
		x.ok(unbind("c1", 8, "l", g.Token, "f"))
		if err := d.Truncate("files/f", 0); err != nil {
			t.Fatal(err)
		}
		x.sees(appendTo("c1", 9, "l", g.Token, "f", "BBBB"), cluster.StatusInvalidArgument)
	})
}
