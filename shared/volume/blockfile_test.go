// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A server whose sign of life hangs in the filesystem can close its volume, and open it anew.
func TestCloseWaitsForNoWriteThatHangs(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	if err := s.vol.WriteProcess(volume.Process{Count: 1}); err != nil {
		t.Fatal(err)
	}
	gate := volumetest.NewGate()
	s.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "servers/1.process", 1, volumetest.Pause(gate)))
	wrote := make(chan error, 1)
	go func() { wrote <- s.vol.WriteProcess(volume.Process{Count: 2}) }()
	<-gate.Arrived()
	closed := make(chan error, 1)
	go func() { closed <- s.vol.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the volume cannot be closed while a write hangs")
	}
	gate.Resume()
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// A file that was put in the place of the one that is open is written, not the one that is gone:
// but only below the same volume.
func TestBlockIsWrittenWhereItsNameLeads(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	write := func(count uint64) error { return s.vol.WriteProcess(volume.Process{Count: count}) }
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	other := host(d, 2)
	if err := other.Rename("servers/1.process", "servers/old"); err != nil {
		t.Fatal(err)
	}
	if err := write(2); err != nil {
		t.Fatal(err)
	}
	if p, err := s.vol.ReadProcess(1); err != nil || p.Count != 2 {
		t.Errorf("by its name it says %d: %v", p.Count, err)
	}
	if err := errors.Join(other.Remove("servers/1.process"), other.Rename("CLUSTER", "gone")); err != nil {
		t.Fatal(err)
	}
	if err := write(3); err == nil {
		t.Error("a file was made in a directory that is no volume of this cluster any more")
	}
}
