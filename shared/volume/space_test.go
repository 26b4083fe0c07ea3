// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// A server that could take over with its prepared claim does not look dead because there is no
// room for a new file.
func TestSignOfLifeOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := start(t, d, 1)
		d.SetCapacity(d.Used())
		if err := s.vol.WriteProcess(volume.Process{Count: 1}); !vfs.IsFull(err) {
			t.Errorf("the first one without room: %v", err)
		}
		d.SetCapacity(0)
		if err := s.vol.WriteProcess(volume.Process{Count: 1}); err != nil {
			t.Fatal(err)
		}
		d.SetCapacity(d.Used())
		if err := s.vol.WriteProcess(volume.Process{Count: 2}); err != nil {
			t.Errorf("on a full disk: %v", err)
		}
		if p, err := s.vol.ReadProcess(1); err != nil || p.Count != 2 {
			t.Errorf("it says %v (%v)", p, err)
		}
	})
}

func TestSpaceIsThatOfAMomentAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := start(t, d, 1)
		if x, known := s.vol.Space(); known {
			t.Errorf("nobody has looked, and %v is told", x)
		}
		d.SetCapacity(d.Used() + 1<<20)
		if err := s.vol.SampleSpace(); err != nil {
			t.Fatal(err)
		}
		calls := s.host.Calls()
		if x, known := s.vol.Space(); !known || x.Free != 1<<20 || x.Left != 1<<20 {
			t.Errorf("told %v, %v", x, known)
		}
		if s.host.Calls() != calls {
			t.Error("whoever asks touches the volume, which may hang")
		}
		time.Sleep(time.Minute)
		if x, known := s.vol.Space(); known {
			t.Errorf("what was seen a minute ago is told: %v", x)
		}
	})
}
