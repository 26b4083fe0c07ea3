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
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// logSize is the size of all segments under epochs/, each once however many links it has.
func logSize(d *volumetest.Disk) (size int64) {
	counted := map[uint64]bool{}
	for name, s := range d.Snapshot() {
		if strings.HasPrefix(name, "epochs/") && strings.HasSuffix(name, ".log") && !counted[s.Inode] {
			counted[s.Inode] = true
			size += s.Size
		}
	}
	return size
}

// unreadFor makes the verification of what a warm takeover adopted unread into epoch e as slow as on a machine that
// has no CPU to spare. The takeover itself reads from the directory of an older epoch.
func unreadFor(pause time.Duration, e int) volumetest.Hook {
	own := fmt.Sprintf("epochs/%010d/", e)
	return func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpReadAt && strings.HasPrefix(c.Name, own) && c.Length > vfs.BlockSize {
			time.Sleep(pause)
		}
		return volumetest.Proceed()
	}
}

// The log on the volume is bounded, however many terms there are and however short they are.
func TestLogStaysBoundedOverManyShortTerms(t *testing.T) {
	const (
		segment = 64 << 10
		limit   = 4 * segment // of log since the last checkpoint, for the next one
		written = 24 * vfs.BlockSize
		// most is what may be there: the log between two checkpoints twice, with what a term writes before the next one
		// makes its checkpoint; then what this term writes; and of three terms an open segment and the next one.
		most = 2*(limit+written+segment) + written + 3*2*segment
	)
	for _, test := range []struct {
		name string
		warm bool
		slow time.Duration
	}{
		{"that read everything", false, 0},
		{"with warm tables", true, 0},
		{"that end before they have read what they adopted", true, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				var warm *volume.WarmState
				for n := range 40 {
					id := cluster.ServerID(n%3 + 1)
					h := d.Host(int(id), volumetest.ProfileLocal())
					h.SetHook(unreadFor(test.slow, n+1))
					x := claimOn(t, h, id, small(), primary.Options{CheckpointBytes: limit, MaxBatch: 8 << 10, Warm: warm}).serving()
					for i := cluster.RequestID(n * written / vfs.BlockSize); i < cluster.RequestID((n+1)*written/vfs.BlockSize); i += 2 {
						got := x.ok(acquire("c1", i+1, "l", 0))
						x.ok(release("c1", i+2, "l", got.Token))
					}
					if test.warm {
						s, err := x.p.Snapshot(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						warm = &volume.WarmState{At: s.At, Table: s.Table}
					}
					time.Sleep(5 * time.Second)
					x.kill()
					if size := logSize(d); size > most {
						t.Fatalf("after %d terms there are %d KiB of log, want at most %d", n+1, size>>10, most>>10)
					}
				}
			})
		})
	}
}

// A checkpoint that is written while a warm takeover's unread base and log are verified removes nothing of them. When
// they are known to be sound, what it makes needless goes.
func TestCheckpointRemovesNothingThatIsBeingVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		opt := primary.Options{CheckpointBytes: 1 << 20, MaxBatch: 8 << 10}
		sizes := volume.Options{FirstSegment: 1 << 20, Segment: 1 << 20} // of several pieces, with rests between them
		serve(t, d, 3, opt).kill()
		x := claimOn(t, d.Host(1, volumetest.ProfileLocal()), 1, sizes, opt).serving()
		x.hold("c1", 300)
		x.eventually("checkpoint", func() bool { return len(checkpoints(d, 2)) > 0 })
		x.hold("c2", 300)
		x.eventually("checkpoint", func() bool { return len(checkpoints(d, 2)) > 1 })
		s, err := x.p.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.kill()
		opt.Warm = &volume.WarmState{At: s.At, Table: s.Table}
		h := d.Host(2, volumetest.ProfileLocal())
		h.SetHook(unreadFor(10*time.Second, 3))
		y := claimOn(t, h, 2, sizes, opt).serving()
		defer y.end()
		adopted, base := d.Files("epochs/0000000003/"), newest(checkpoints(d, 3))
		y.hold("c3", 300)
		y.eventually("checkpoint", func() bool { return newest(checkpoints(d, 3)) != base })
		now := d.Files("epochs/0000000003/")
		for name := range adopted {
			if _, ok := now[name]; !ok && !strings.HasSuffix(name, wal.NextName) {
				t.Errorf("%s was removed before it was verified", name)
			}
		}
		if len(d.Files("epochs/0000000001/")) == 2 {
			t.Error("the term before the adopted one was removed before that was verified")
		}
		time.Sleep(time.Hour)
		if n := len(checkpoints(d, 3)); n != 2 {
			t.Errorf("%d checkpoints are left, want the newest two", n)
		}
		if n := len(d.Files("epochs/0000000001/")); n != 2 {
			t.Errorf("the term before the adopted one still has %d files", n)
		}
	})
}

// What claims left that never began goes with the next term that serves, and not only when another one follows.
func TestWhatClaimsLeftThatNeverBeganIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		serve(t, d, 1, primary.Options{}).kill()
		for n := range 20 {
			h := d.Host(n%3+1, volumetest.ProfileLocal())
			sizes := small()
			sizes.Server = cluster.ServerID(n%3 + 1)
			primarytest.Claim(t, h, sizes)
			h.Kill()
		}
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		left := func() (names []string) {
			for name := range d.Files("epochs/") {
				var e int
				if _, err := fmt.Sscanf(name, "epochs/%d/", &e); err == nil && e > 1 && e < 22 && !strings.HasSuffix(name, "/fence") && !strings.HasSuffix(name, "/claim.json") {
					names = append(names, name)
				}
			}
			return names
		}
		x.eventually("end of what is left", func() bool { return len(left()) == 0 })
		if len(d.Files("epochs/0000000001/wal-")) == 0 {
			t.Error("the log that was adopted is gone")
		}
	})
}

// What could not be removed is tried again when the next checkpoint is there.
func TestRemovalThatFailedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		opt := primary.Options{CheckpointBytes: 100 << 10, MaxBatch: 8 << 10}
		serve(t, d, 1, opt).kill()
		serve(t, d, 2, opt).kill()
		h := d.Host(3, volumetest.ProfileLocal())
		h.SetHook(on(volumetest.OpRemove, "epochs/0000000001/", volumetest.FailBefore(syscall.EIO)))
		x := claimOn(t, h, 3, small(), opt).serving()
		defer x.end()
		x.eventually("failure", func() bool { return len(x.log.having("remove what older terms left")) > 0 })
		h.SetHook(nil)
		x.hold("c1", 40)
		x.eventually("removal", func() bool { return len(d.Files("epochs/0000000001/")) == 2 })
	})
}
