// SPDX-License-Identifier: Apache-2.0

package alone_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/alone"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func remove(id cluster.ServerID) cluster.MemberChange {
	return cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: id}}
}

// slowly has listings of the volume's directory take a second, with which a term begins to compare MEMBERS with its list.
func slowly(c volumetest.Call) volumetest.Action {
	if c.Op != volumetest.OpReadDir || c.Name != "." {
		return volumetest.Proceed()
	}
	gate := volumetest.NewGate()
	time.AfterFunc(time.Second, gate.Resume)
	return volumetest.Pause(gate)
}

// TestRemoveAlone: one of three is left, and removes the others, also where a term is slow to find that MEMBERS shows its list; a repeat
// claims nothing.
func TestRemoveAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		h := d.Host(9, volumetest.ProfileLocal())
		primarytest.Init(t, h, primarytest.Members())
		h.SetHook(slowly)
		opt := alone.Options{FirstSegment: 32 << 10, Segment: 64 << 10}
		for i, id := range []cluster.ServerID{2, 1, 1} {
			list, err := alone.Remove(t.Context(), h, remove(id), opt)
			if err != nil || list.Version != uint64(min(2+i, 3)) || !list.Removed(id) {
				t.Fatalf("remove server %d: %v; the list is %s", id, err, list.Text())
			}
		}
		c, err := volume.ReadCluster(h)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := volume.ReadMembers(h, c); err != nil || list.Version != 3 || len(list.Servers) != 1 || list.Admits(3) != nil {
			t.Errorf("the volume shows %s, %v", list.Text(), err)
		}
		if _, err := alone.Remove(t.Context(), h, remove(3), opt); err == nil || errors.Is(err, alone.ErrRuns) {
			t.Errorf("the last one is removed: %v", err)
		}
		if _, err := volume.Open(h, volume.Options{Server: 1}); !errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("a removed server opens the volume: %v", err)
		}
		epochs, err := h.ReadDir("epochs")
		if err != nil || len(epochs) != 3 {
			t.Errorf("%d epochs, %v: one is the beginning", len(epochs), err)
		}
	})
}

// TestNothingIsRemovedBesideAServer that runs: by its guard on this host, or by what it writes from another one.
func TestNothingIsRemovedBesideAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		h := d.Host(9, volumetest.ProfileLocal())
		primarytest.Init(t, h, primarytest.Members())
		refused := func(when string) {
			t.Helper()
			if _, err := alone.Remove(t.Context(), h, remove(2), alone.Options{}); !errors.Is(err, alone.ErrRuns) {
				t.Errorf("%s: %v", when, err)
			}
		}
		for id := cluster.ServerID(1); id <= 3; id++ {
			guard, err := volume.TakeGuard(h, id)
			if err != nil {
				t.Fatal(err)
			}
			refused("a server of this host runs")
			if err := guard.Unlock(); err != nil {
				t.Error(err)
			}
		}
		for id := cluster.ServerID(1); id <= 3; id++ {
			v, err := volume.Open(h, volume.Options{Server: id, Random: rand.Reader})
			if err != nil {
				t.Fatal(err)
			}
			// On another host a guard shows nothing.
			if err := v.Close(); err != nil {
				t.Error(err)
			}
			over := make(chan struct{})
			go func() {
				for n := uint64(1); ; n++ {
					if err := v.WriteProcess(volume.Process{Nonce: 7, Count: n}); err != nil {
						t.Error(err)
					}
					select {
					case <-over:
						return
					case <-time.After(time.Second):
					}
				}
			}()
			time.Sleep(500 * time.Millisecond)
			refused("a server of another host runs")
			close(over)
		}
		epochs, err := h.ReadDir("epochs")
		if err != nil || len(epochs) != 1 {
			t.Errorf("%d epochs, %v: one is the beginning", len(epochs), err)
		}
	})
}
