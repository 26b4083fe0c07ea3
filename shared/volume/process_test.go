// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestProcess(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	if p, err := s.vol.ReadProcess(1); !errors.Is(err, volume.ErrNoProcess) {
		t.Errorf("before the first: %v, %v", p, err)
	}
	for name, p := range map[string]volume.Process{
		"usual":                {Nonce: 1<<64 - 1, Count: 7, PID: 12, Host: "h", Address: "h:7601", Path: "/mnt/volume"},
		"shorter, and at once": {Nonce: 1, Count: 8, PID: 1},
	} {
		if err := s.vol.WriteProcess(p); err != nil {
			t.Fatal(err)
		}
		if got, err := s.vol.ReadProcess(1); err != nil || got != p {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, p)
		}
	}
	long := volume.Process{Nonce: 5, Count: 9, PID: 3, Host: "h", Path: strings.Repeat("\x01", 4096)}
	if err := s.vol.WriteProcess(long); err != nil {
		t.Fatal(err)
	}
	if got, err := s.vol.ReadProcess(1); err != nil || got != (volume.Process{Nonce: 5, Count: 9, PID: 3}) {
		t.Errorf("with a name that does not fit: got %+v, %v", got, err)
	}
	if err := d.Write("servers/1.process", 1000, []byte("torn")); err != nil {
		t.Fatal(err)
	}
	if p, err := s.vol.ReadProcess(1); !errors.Is(err, volume.ErrNoProcess) {
		t.Errorf("half written: %v, %v", p, err)
	}
}

// TestProcessBehindCaches: what another host reads is what was written last, whatever its caches
// hold of the name and the content.
func TestProcessBehindCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		var hosts []*volume.Volume
		for _, id := range []cluster.ServerID{1, 2} {
			v, err := open(d.Host(int(id), volumetest.ProfileNetwork()), id)
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, v)
		}
		for count := range uint64(5) {
			want := volume.Process{Nonce: 4, Count: count}
			if err := hosts[0].WriteProcess(want); err != nil {
				t.Fatal(err)
			}
			if got, err := hosts[1].ReadProcess(1); err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}
	})
}
