// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"testing"
	"testing/synctest"

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
