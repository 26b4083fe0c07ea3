// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// witness notes which table belongs to which LSN.
type witness struct {
	x      *term
	hashes map[cluster.LSN]uint64
	last   cluster.LSN
	id     cluster.RequestID
}

func (w *witness) look() {
	w.x.read(func(v serving.View) {
		w.last = v.At.LSN
		w.hashes[w.last] = v.Table.Hash()
	})
}

// work changes the table, and says what it was after each step.
func (w *witness) work(steps int) {
	for range steps {
		w.id++
		lock := cluster.LockName(fmt.Sprintf("l/%d", w.id%7))
		token := w.x.ok(acquire("c1", w.id, lock, 0)).Token
		w.look()
		if w.id++; w.id%4 != 0 {
			w.x.ok(release("c1", w.id, lock, token))
		} else {
			w.x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "op", ID: w.id, Lock: lock, Actor: "me", Reason: "it hangs"})
		}
		w.look()
	}
}

// judge compares a state that was read with the table of its LSN.
func (w *witness) judge(t *testing.T, what string, s *volume.State, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if hash, ok := w.hashes[s.LSN]; !ok || hash != s.Table.Hash() {
		t.Errorf("%s: LSN %d of epoch %d with another table than the primary's (known %v)", what, s.LSN, s.Epoch, ok)
	}
}

// onlyReads fails the test when a host has changed anything.
func onlyReads(t *testing.T, h *volumetest.Host) {
	t.Helper()
	for _, c := range h.Trace() {
		switch c.Op {
		case volumetest.OpWriteAt, volumetest.OpMkdir, volumetest.OpRename, volumetest.OpLink, volumetest.OpRemove, volumetest.OpReplaceWrite, volumetest.OpSync, volumetest.OpDatasync, volumetest.OpSyncDir:
			t.Errorf("a reader did %v", c)
		}
	}
}

func TestAVolumeSpeaksWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		w := &witness{x: x, hashes: map[cluster.LSN]uint64{}}
		w.work(10)
		time.Sleep(2 * time.Second)
		w.work(3)
		wrote := time.Now()
		x.kill()
		time.Sleep(time.Hour)
		h := d.Host(20, volumetest.ProfileLocal())
		s, err := volume.ReadState(t.Context(), h, nil)
		w.judge(t, "a dead primary's", s, err)
		if s.LSN != w.last || s.Epoch != x.p.Epoch() || s.Written != wrote.UnixMilli() || len(s.Warnings) > 0 {
			t.Errorf("LSN %d, want %d; epoch %d; written %d, want %d; %v", s.LSN, w.last, s.Epoch, s.Written, wrote.UnixMilli(), s.Warnings)
		}
		past, err := historydir.Dir{FS: h, Cluster: s.Cluster.ID}.Search(t.Context(), history.Query{Limit: 100}, s.Recent, s.LSN)
		if err != nil || len(past.Ends) != 13 || past.From != 0 || len(past.Gaps) > 0 {
			t.Errorf("%d ended, from %d, gaps %v: %v", len(past.Ends), past.From, past.Gaps, err)
		}
		onlyReads(t, h)
	})
}

func TestATornTailIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		w := &witness{x: x, hashes: map[cluster.LSN]uint64{}}
		w.work(5)
		x.host.SetHook(on(volumetest.OpWriteAt, "epochs/", volumetest.CrashTorn(512)))
		q := acquire("c9", 1, "torn", 0)
		q.Metadata = strings.Repeat("x", 2000) // longer than what is written of it
		x.do(q)
		x.end() //nolint:errcheck // it was killed
		s, err := volume.ReadState(t.Context(), d.Host(20, volumetest.ProfileLocal()), nil)
		w.judge(t, "a torn one", s, err)
		if s.LSN != w.last {
			t.Errorf("LSN %d, want %d", s.LSN, w.last)
		}
	})
}

// TestAVolumeIsReadBesideItsPrimary holds the reader at each of its calls while the primary
// rotates, checkpoints and removes what the reader was about to read, or another one
// takes over.
func TestAVolumeIsReadBesideItsPrimary(t *testing.T) {
	for _, failover := range []bool{false, true} {
		t.Run(fmt.Sprintf("failover %v", failover), func(t *testing.T) {
			for n, last := 1, false; !last; n += 3 {
				synctest.Test(t, func(t *testing.T) { last = !readBeside(t, n, failover) })
			}
		})
	}
}

func readBeside(t *testing.T, n int, failover bool) (reached bool) {
	d := newDisk(t)
	x := serve(t, d, 1, primary.Options{CheckpointBytes: 20 << 10})
	w := &witness{x: x, hashes: map[cluster.LSN]uint64{}}
	w.work(20)
	before := w.last
	gate := volumetest.NewGate()
	h := d.Host(20, volumetest.ProfileLocal())
	h.SetHook(volumetest.At(n, volumetest.Pause(gate)))
	type read struct {
		s   *volume.State
		err error
	}
	done := make(chan read, 1)
	go func() {
		s, err := volume.ReadState(t.Context(), h, nil)
		done <- read{s, err}
	}()
	synctest.Wait()
	select {
	case <-gate.Arrived():
		reached = true
	default:
	}
	if failover {
		x.kill()
		w.x = serve(t, d, 2, primary.Options{CheckpointBytes: 20 << 10})
		w.look()
	}
	w.work(60)
	time.Sleep(2 * time.Second)
	gate.Resume()
	r := <-done
	w.judge(t, fmt.Sprintf("held at call %d", n), r.s, r.err)
	if r.err == nil && r.s.LSN < before {
		t.Errorf("held at call %d: LSN %d, and %d was there when it began", n, r.s.LSN, before)
	}
	onlyReads(t, h)
	w.x.end() //nolint:errcheck // it is stopped
	return reached
}

// Stale caches make the picture old, and not wrong.
func TestStaleCachesMakeAVolumeOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		reader := d.Host(20, volumetest.ProfileNetwork())
		opt := primary.Options{CheckpointBytes: 20 << 10}
		w := &witness{x: claimOn(t, d.Host(1, volumetest.ProfileNetwork()), 1, small(), opt).serving(), hashes: map[cluster.LSN]uint64{}}
		for id := cluster.ServerID(1); id <= 3; id++ {
			for range 6 {
				w.work(15)
				s, err := volume.ReadState(t.Context(), reader, nil)
				w.judge(t, fmt.Sprintf("term %d", id), s, err)
				time.Sleep(5 * time.Second)
			}
			w.x.kill()
			next := id%3 + 1
			w.x = claimOn(t, d.Host(int(next)+3, volumetest.ProfileNetwork()), next, small(), opt).serving()
			w.look()
		}
		time.Sleep(time.Minute)
		s, err := volume.ReadState(t.Context(), reader, nil)
		w.look()
		if w.judge(t, "a minute later", s, err); err == nil && s.LSN != w.last {
			t.Errorf("a minute later LSN %d, want %d", s.LSN, w.last)
		}
		onlyReads(t, reader)
		w.x.end() //nolint:errcheck // it is stopped
	})
}

func TestNoVolumeIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		if _, err := volume.ReadState(t.Context(), d.Host(1, volumetest.ProfileLocal()), nil); !errors.Is(err, volume.ErrNoCluster) {
			t.Errorf("an empty directory: %v", err)
		}
		fresh := newDisk(t)
		if s, err := volume.ReadState(t.Context(), fresh.Host(20, volumetest.ProfileLocal()), nil); err != nil || s.LSN != 0 || s.Epoch != 0 || s.Written != 0 {
			t.Errorf("a fresh volume: %+v %v", s, err)
		}
	})
}
