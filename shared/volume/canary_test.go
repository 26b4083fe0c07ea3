// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestCanary(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	if _, err := s.vol.ReadCanary(1, volume.FlagRead); !errors.Is(err, volume.ErrNoCanary) {
		t.Errorf("before the first: %v", err)
	}
	for _, want := range []uint64{7, 1 << 63} {
		if err := s.vol.WriteCanary(3, want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.vol.ReadCanary(1, volume.FlagDirect); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	if err := d.Write("servers/1.canary", 9, []byte("torn")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.vol.ReadCanary(1, volume.FlagDirect); !errors.Is(err, volume.ErrNoCanary) {
		t.Errorf("half written: %v", err)
	}
	if err := s.vol.WriteCanary(3, 8); err != nil {
		t.Errorf("after a torn one: %v", err)
	}
}

// TestCanaryBehindCaches: a read past the caches shows what was just written, a plain
// one what the cache holds until it expires.
func TestCanaryBehindCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		profile := volumetest.ProfileNetwork()
		writer, err := open(d.Host(1, profile), 1)
		if err != nil {
			t.Fatal(err)
		}
		reader, err := open(d.Host(2, profile), 2)
		if err != nil {
			t.Fatal(err)
		}
		write := func(value uint64) {
			t.Helper()
			if err := writer.WriteCanary(1, value); err != nil {
				t.Fatal(err)
			}
		}
		read := func(flag volume.Flag, want uint64) {
			t.Helper()
			if got, err := reader.ReadCanary(1, flag); err != nil || got != want {
				t.Errorf("flag %d: got %d, %v, want %d", flag, got, err, want)
			}
		}
		write(1)
		read(volume.FlagRead, 1)
		write(2)
		read(volume.FlagDirect, 2)
		read(volume.FlagRead, 1)
		time.Sleep(profile.Stale + time.Second)
		read(volume.FlagRead, 2)
	})
}
