// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
)

// TestProbeOfAFullDisk: a server that could take over with its prepared claim
// must not look dead because there is no room for a new file.
func TestProbeOfAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		s := start(t, d, 1)
		d.SetCapacity(d.Used())
		if err := s.vol.Probe("first"); !volume.IsFull(err) {
			t.Errorf("a first probe without room: %v", err)
		}
		d.SetCapacity(0)
		if err := s.vol.Probe("first"); err != nil {
			t.Fatal(err)
		}
		d.SetCapacity(d.Used())
		if err := s.vol.Probe("again"); err != nil {
			t.Errorf("probe of a full disk: %v", err)
		}
		if b, err := d.ReadFile("servers/1.probe"); err != nil || string(b) != "again" {
			t.Errorf("the probe holds %q (%v)", b, err)
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
