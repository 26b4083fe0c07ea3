// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

func TestCanary(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	if _, err := s.vol.ReadCanary(1, vfs.FlagRead); !errors.Is(err, volume.ErrNoCanary) || !errors.Is(err, volume.ErrEmptyCanary) {
		t.Errorf("before the first: %v", err)
	}
	for _, want := range []volume.Canary{
		{Epoch: 3, Value: 7},
		{Epoch: 4, Value: 1 << 63, At: wal.Position{LSN: 1 << 62, Chain: 1<<64 - 1}},
		{Epoch: 1<<63 - 1, Value: 1, At: wal.Position{LSN: 9, Chain: 8}},
	} {
		if err := s.vol.WriteCanary(want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.vol.ReadCanary(1, vfs.FlagDirect); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if err := d.Write("servers/1.canary", 9, []byte("torn")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.vol.ReadCanary(1, vfs.FlagDirect); !errors.Is(err, volume.ErrNoCanary) || errors.Is(err, volume.ErrEmptyCanary) {
		t.Errorf("half written: %v", err)
	}
	if err := s.vol.WriteCanary(volume.Canary{Epoch: 3, Value: 8}); err != nil {
		t.Errorf("after a torn one: %v", err)
	}
}

// TestNoCacheHidesACanary: a volume has the canaries of all its servers, durable, before it is
// one, so that no look finds no name, which a cache would repeat after the first value.
func TestNoCacheHidesACanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t).DurableClone(nil)
		profile := volumetest.ProfileNetwork()
		reader, err := open(d.Host(9, profile), 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []cluster.ServerID{1, 2} {
			if _, err := reader.ReadCanary(id, vfs.FlagDirect); !errors.Is(err, volume.ErrEmptyCanary) {
				t.Errorf("server %d: %v", id, err)
			}
			writer, err := open(d.Host(int(id), profile), id)
			if err != nil {
				t.Fatal(err)
			}
			if err := writer.WriteCanary(volume.Canary{Epoch: 1, Value: 7}); err != nil {
				t.Fatal(err)
			}
			if got, err := reader.ReadCanary(id, vfs.FlagDirect); err != nil || got.Value != 7 {
				t.Errorf("server %d wrote 7, and a read past the caches shows %d, %v", id, got.Value, err)
			}
		}
	})
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
			if err := writer.WriteCanary(volume.Canary{Epoch: 1, Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		read := func(flag vfs.Flag, want uint64) {
			t.Helper()
			if got, err := reader.ReadCanary(1, flag); err != nil || got.Value != want {
				t.Errorf("flag %d: got %+v, %v, want %d", flag, got, err, want)
			}
		}
		write(1)
		read(vfs.FlagRead, 1)
		write(2)
		read(vfs.FlagDirect, 2)
		read(vfs.FlagRead, 1)
		time.Sleep(profile.Stale + time.Second)
		read(vfs.FlagRead, 2)
	})
}

// A canary that a binary wrote which knew nothing of positions tells none, and such a binary reads
// one that tells a position.
func TestCanaryOfAnOlderBinary(t *testing.T) {
	d := newDisk(t)
	s := start(t, d, 1)
	told := volume.Canary{Epoch: 3, Value: 7, At: wal.Position{LSN: 9, Chain: 8}}
	if err := s.vol.WriteCanary(told); err != nil {
		t.Fatal(err)
	}
	f, err := d.Host(1, volumetest.ProfileLocal()).Open("servers/1.canary", vfs.FlagWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	b := make([]byte, 512)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	seal := func() []byte {
		return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b[:508], crc32.MakeTable(crc32.Castagnoli)))
	}
	if string(b[:8]) != "HFBEAT01" || binary.LittleEndian.Uint64(b[8:]) != 7 || binary.LittleEndian.Uint64(b[16:]) != 3 || !bytes.Equal(b[508:], seal()) {
		t.Errorf("an older binary does not find its fields in % x", b[:48])
	}
	clear(b[24:])
	copy(b[508:], seal())
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := s.vol.ReadCanary(1, vfs.FlagDirect); err != nil || got != (volume.Canary{Epoch: 3, Value: 7}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
