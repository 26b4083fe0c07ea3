// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

// TestServerThatIsTooOldEnds before its first write: a claim would fence the primary, and even a guard would be a name on a volume that
// it does not know.
func TestServerThatIsTooOldEnds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	m := makeVolume(t, dir, false)
	names, err := filepath.Glob(filepath.Join(dir, "epochs", "*", "wal-*.log"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	h, err := wal.DecodeSegmentHeader(b[:wal.BlockSize])
	if err != nil {
		t.Fatal(err)
	}
	h.FeatureLevel = volume.FeatureLevel + 1
	if err := os.WriteFile(names[0], append(wal.AppendSegmentHeader(nil, h), b[wal.SegmentHeaderSize:]...), 0o644); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	opt := Options{Server: m.ID, Volume: dir, Timing: cluster.DefaultTiming(), DataDir: "none", UnsafeFilesystem: true}
	if err := Run(t.Context(), opt); !errors.Is(err, volume.ErrTooOld) {
		t.Errorf("it ended with %v", err)
	}
	after := contents(t, dir)
	for name := range after {
		if !bytes.Equal(before[name], after[name]) {
			t.Errorf("%s was written", name)
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d files, and %d before", len(after), len(before))
	}
}

// contents returns what is in the files below a directory.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, x fs.DirEntry, err error) error {
		if err == nil && x.Type().IsRegular() {
			all[name], err = os.ReadFile(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
