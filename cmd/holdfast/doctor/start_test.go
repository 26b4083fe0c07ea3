// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// makeVolume makes a volume with a server on each host.
func makeVolume(t *testing.T, hosts ...string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	var members cluster.Members
	for i, h := range hosts {
		members = append(members, cluster.Member{ID: cluster.ServerID(i + 1), Client: h + ":1", Peer: h + ":3"})
	}
	for i := range members { // addresses differ
		members[i].Client += string(rune('0' + i))
		members[i].Peer += string(rune('0' + i))
	}
	if _, err := volume.Init(t.Context(), f, members, rand.Reader); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAtStart(t *testing.T) {
	dir := makeVolume(t, "127.0.0.1", "127.0.0.2", "localhost")
	for range 2 {
		r, err := AtStart(dir, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict == Refuse {
			t.Errorf("refused: %+v", r.Findings)
		}
		for _, check := range []string{"create", "directory fsync", "hard links", "rename", "flock"} {
			if v := verdicts(r, check); !slices.Equal(v, []Verdict{OK}) {
				t.Errorf("%s: got %v", check, v)
			}
		}
		if !r.Network && !slices.Contains(verdicts(r, "hosts"), OK) {
			t.Errorf("hosts: %+v", r.Findings)
		}
	}
	made := []string{filepath.Join(dir, "servers", "2.canary")} // with the volume
	if left, err := filepath.Glob(filepath.Join(dir, "servers", "2.*")); err != nil || !slices.Equal(left, made) {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestAtStartLeftover: what a killed start leaves is swept up by the next server.
func TestAtStartLeftover(t *testing.T) {
	dir := makeVolume(t, "h")
	left := filepath.Join(dir, "servers", "1.start-123.trash", "onto")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	v, err := volume.Open(f, volume.Options{Server: 1, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close() //nolint:errcheck // a lock
	if err := v.RemoveLeftovers(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestAtStartRefuses(t *testing.T) {
	dir := makeVolume(t, "a", "b", "c")
	r, err := AtStart(dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Network && r.Verdict != Refuse {
		t.Errorf("three hosts on %s: got %s", r.Filesystem, r.Verdict)
	}
	if err := os.Rename(filepath.Join(dir, "servers"), filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if r, err = AtStart(dir, 1, nil); err != nil || !slices.Contains(verdicts(r, "write"), Refuse) {
		t.Errorf("where nothing can be written: %+v, %v", r, err)
	}
}
