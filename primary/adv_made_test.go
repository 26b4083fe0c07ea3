// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
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
func afterMany(t *testing.T, d *volumetest.Disk) (*reign, cluster.Token) {
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
	return serve(t, d, 2, primary.Options{Warm: &volume.Warm{At: s.At, Table: used}}), g.Token
}

// The service makes a new file for an append whose caller does not wait for it. The repeat of that
// append finds the file that the service itself has made, empty, and is not refused for it.
func TestAdvAFileThatTheServiceMadeForACallerThatLeftIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x, token := afterMany(t, d)
		defer x.end() //nolint:errcheck // it is stopped
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

// The same where the primary ended between.
func TestAdvAFileThatAnEarlierPrimaryMadeIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x, token := afterMany(t, d)
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
		y := serve(t, d, 1, primary.Options{Warm: &volume.Warm{At: s.At, Table: s.Table}})
		defer y.end() //nolint:errcheck // it is stopped
		if out := y.do(q); out.Status != cluster.StatusOK {
			t.Errorf("the repeat: %v %s", out.Status, out.Message)
		}
	})
}
