// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// hold lets one client take n locks.
func (x *term) hold(client cluster.ClientID, n int) (tokens []cluster.Token) {
	x.t.Helper()
	for i := range n {
		tokens = append(tokens, x.ok(acquire(client, cluster.RequestID(i+1), cluster.LockName(fmt.Sprintf("%s/%04d", client, i)), 0)).Token)
	}
	return tokens
}

// An export of several chunks is the state at its beginning, whatever is decided meanwhile.
func TestExportIsOneStateWhileTheTableChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		tokens := x.hold("c1", 600)
		e, stop, err := x.p.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		n := 0
		restored, err := locktable.Restore(e.At.LSN, func(yield func(locktable.Entity, error) bool) {
			for entity, err := range e.Entities {
				if n++; n%50 == 0 {
					i := 599 - n/50
					x.ok(release("c2", cluster.RequestID(n), cluster.LockName(fmt.Sprintf("c1/%04d", i)), tokens[i]))
					x.ok(acquire("c3", cluster.RequestID(n), cluster.LockName(fmt.Sprintf("c1/%04d", i)), 0))
				}
				if !yield(entity, err) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if restored.Hash() != e.Hash || restored.LSN() != e.At.LSN || n < 600 {
			t.Errorf("%d entities make another state than the one of LSN %d", n, e.At.LSN)
		}
		x.read(func(v serving.View) {
			if v.Table.Exporting() != 0 {
				t.Error("the export has not ended")
			}
		})
	})
}

func TestExportThatIsGivenUpIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		x.hold("c1", 600)
		e, stop, err := x.p.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range e.Entities {
			break
		}
		x.read(func(v serving.View) {
			if v.Table.Exporting() != 1 {
				t.Error("the export is not under way")
			}
		})
		stop()
		x.read(func(v serving.View) {
			if v.Table.Exporting() != 0 {
				t.Error("the table still keeps an export that was given up")
			}
		})
	})
}

// A warm takeover reads neither the base nor all of the log. What is damaged is found
// out and replaced before a cold takeover needs it, and before older terms are removed.
func TestWhatAWarmTakeoverDidNotReadIsVerified(t *testing.T) {
	for _, test := range []struct {
		name string
		// where is what to damage.
		where func(d *volumetest.Disk, names []string) (name string, at int)
	}{
		{"the base", func(d *volumetest.Disk, names []string) (string, int) {
			return newest(names), bytes.Index(d.Files("epochs/")[newest(names)], []byte(`{"lock":`)) + 20
		}},
		{"a closed segment", func(_ *volumetest.Disk, names []string) (string, int) {
			names = slices.DeleteFunc(names, func(name string) bool {
				_, segment := wal.ParseSegmentName(path.Base(name))
				return !segment
			})
			return names[len(names)-2], wal.BlockSize + wal.FrameHeaderSize + 5
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				opt := primary.Options{CheckpointBytes: 100 << 10, ViewInterval: time.Second, MaxBatch: 8 << 10}
				serve(t, d, 3, opt).kill()
				x := serve(t, d, 1, opt)
				x.hold("c1", 30)
				x.eventually("checkpoint", func() bool { return len(checkpoints(d, 2)) > 0 })
				x.hold("c2", 24)
				s, err := x.p.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				x.kill()
				name, at := test.where(d, slices.Sorted(maps.Keys(d.Files("epochs/0000000002/"))))
				if err := d.Write(name, int64(at), []byte{0xff}); err != nil {
					t.Fatal(err)
				}
				opt.CheckpointBytes = 1 << 30
				opt.Warm = &volume.WarmState{At: s.At, Table: s.Table}
				y := serve(t, d, 2, opt)
				g := y.ok(acquire("c3", 1, "l", 0))
				if opt.Warm.Table.LSN() < g.LSN {
					t.Error("the warm table is not the one that serves")
				}
				made, removed := 0, false // checkpoints named, adopted ones included
				y.eventually("removal", func() bool {
					made, removed = 0, false
					for _, c := range y.host.Trace() {
						removed = removed || c.Op == volumetest.OpRemove && strings.HasPrefix(c.Name, "epochs/0000000001/")
						if !removed && c.Op == volumetest.OpRename && strings.HasPrefix(c.Name, "epochs/0000000003/checkpoint-") {
							made++
						}
					}
					return removed
				})
				if rotten := "epochs/0000000003/" + path.Base(path.Dir(name)) + "/"; len(d.Files(rotten)) > 0 {
					t.Errorf("%s is kept for the base before", rotten)
				}
				if adopted := len(checkpoints(d, 2)); made != adopted+1 {
					t.Errorf("older terms were removed when there were %d bases, want the %d adopted and another", made, adopted)
				}
				y.kill()
				opt.Warm = nil
				z := serve(t, d, 3, opt)
				defer z.end()
				for _, lock := range []cluster.LockName{"c1/0000", "c2/0023", "l"} {
					z.sees(acquire("c4", 1, lock, 0), cluster.StatusHeld)
				}
			})
		})
	}
}
