// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestPendingAppendsAreCarriedThroughCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		failing := on(volumetest.OpWriteAt, "files/f", volumetest.FailBefore(syscall.EIO))
		opt := primary.Options{CheckpointBytes: 8 << 10, ViewInterval: time.Second, MaxBatch: 8 << 10}
		x := serve(t, d, 1, opt)
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		x.ok(appendTo("c1", 3, "l", g.Token, "f", "two\n"))
		x.host.SetHook(failing)
		third := appendTo("c1", 4, "l", g.Token, "f", "three\n")
		pending := x.later(third)
		time.Sleep(time.Second)
		x.unanswered(pending, "while its file failed")
		x.churn(1)
		x.kill()
		if out := <-pending; out.Status != cluster.StatusUnknown {
			t.Errorf("the pending append: %v", out.Status)
		}
		for id := cluster.ServerID(2); id <= 3; id++ {
			h := d.Host(int(id), volumetest.ProfileLocal())
			h.SetHook(failing)
			y := claimOn(t, h, id, small(), opt).serving()
			y.churn(int(id))
			if got := content(d, "f"); got != "one\ntwo\n" {
				t.Errorf("term %d: file holds %q while it fails", id, got)
			}
			y.kill()
		}
		z := serve(t, d, 1, opt)
		defer z.end()
		time.Sleep(time.Second)
		if out := z.ok(third); !out.Repeat || out.Offset != 8 {
			t.Errorf("repeat of the pending append: %+v", out)
		}
		if got := content(d, "f"); got != "one\ntwo\nthree\n" {
			t.Errorf("file holds %q", got)
		}
	})
}

// churn works until this term has written two checkpoints and rotated its log.
func (x *term) churn(round int) {
	x.t.Helper()
	client := cluster.ClientID(fmt.Sprintf("churn%d", round))
	g := x.ok(acquire(client, 1, cluster.LockName(client), 0))
	for i := range 40 {
		x.ok(appendTo(client, cluster.RequestID(i+2), cluster.LockName(client), g.Token, cluster.FileName(client), strings.Repeat("x", 3000)))
		time.Sleep(300 * time.Millisecond)
	}
	made := 0
	for _, c := range x.host.Trace() {
		if c.Op == volumetest.OpRename && strings.Contains(c.NewName, "/checkpoint-") {
			made++
		}
	}
	if made < 2 {
		x.t.Errorf("%d checkpoints were made, want 2 at least", made)
	}
}

func TestTakeoverGoesOnFromACheckpoint(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(d *volumetest.Disk, names []string) error
	}{
		{"the newest", func(*volumetest.Disk, []string) error { return nil }},
		{"the one before, when the newest is damaged", func(d *volumetest.Disk, names []string) error {
			return d.Write(newest(names), 100, []byte("X"))
		}},
		{"the one before, when the newest lacks its receipts", func(d *volumetest.Disk, names []string) error {
			return d.Remove(strings.Replace(newest(names), "lock_state.json", "processed_requests.log", 1))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				opt := primary.Options{CheckpointBytes: 8 << 10, ViewInterval: time.Second, MaxBatch: 8 << 10}
				x := serve(t, d, 1, opt)
				g := x.ok(acquire("c1", 1, "l", 0))
				x.churn(1)
				x.kill()
				names := checkpoints(d, 1)
				if len(names) != 2 {
					t.Fatalf("checkpoints: %v, want the newest two", names)
				}
				if err := test.spoil(d, names); err != nil {
					t.Fatal(err)
				}
				y := serve(t, d, 2, opt)
				defer y.end()
				if _, live := y.remaining("l", g.Token); !live {
					t.Error("the grant is lost")
				}
				if f, _ := y.file("churn1"); f.End != 40*3000 {
					t.Errorf("the file ends at %d", f.End)
				}
			})
		})
	}
}

// newest is the state of the checkpoint with the highest LSN.
func newest(names []string) string {
	best, high := "", -1
	for _, name := range names {
		var epoch, lsn int
		if _, err := fmt.Sscanf(name, "epochs/%d/checkpoint-%d/", &epoch, &lsn); err == nil && lsn > high {
			best, high = name, lsn
		}
	}
	return best
}

func TestTakeoverIsRefusedWithoutAnyBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		opt := primary.Options{CheckpointBytes: 8 << 10, ViewInterval: time.Second, MaxBatch: 8 << 10}
		x := serve(t, d, 1, opt)
		x.churn(1)
		x.kill()
		for _, name := range checkpoints(d, 1) {
			if err := d.Write(name, 100, []byte("X")); err != nil {
				t.Fatal(err)
			}
		}
		y := claimOn(t, d.Host(2, volumetest.ProfileLocal()), 2, volume.Options{}, opt)
		err := <-y.done
		if err == nil || y.p.State() != primary.StateEnded {
			t.Errorf("a term began on a log without its beginning: %v", err)
		}
		y.done <- err
		y.end()
	})
}
