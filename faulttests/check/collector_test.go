// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCollectorKeepsWhatIsRemoved removes a segment and a checkpoint from a
// volume under the collector's eyes, on the same filesystem and on another one.
func TestCollectorKeepsWhatIsRemoved(t *testing.T) {
	shm := ""
	if dir, err := os.MkdirTemp("/dev/shm", "holdfast"); err == nil {
		shm = dir
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	for name, archive := range map[string]string{"links": t.TempDir(), "copies": shm} {
		t.Run(name, func(t *testing.T) {
			if archive == "" {
				t.Skip("there is no /dev/shm to copy to")
			}
			collects(t, archive)
		})
	}
}

func collects(t *testing.T, archive string) {
	vol := t.TempDir()
	epoch := filepath.Join(vol, "epochs", "0000000001")
	segment, cp := filepath.Join(epoch, "wal-00000000000000000001.log"), filepath.Join(epoch, "checkpoint-7")
	for _, dir := range []string{cp, filepath.Join(epoch, "checkpoint-9.tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, viewName), []byte("state"))
		put(t, filepath.Join(dir, requestsName), []byte("requests"))
	}
	put(t, filepath.Join(epoch, "fence"), []byte("fence"))
	put(t, filepath.Join(epoch, "wal-next.log"), []byte("zeros"))
	put(t, segment, []byte("old"))

	c := newCollector(vol, archive)
	if err := c.collect(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(segment, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{segment, cp} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"wal-00000000000000000001.log": "new", "fence": "fence", "checkpoint-7/" + viewName: "state", "checkpoint-7/" + requestsName: "requests",
	} {
		if b, err := os.ReadFile(filepath.Join(archive, "epochs", "0000000001", name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", name, b, err, want)
		}
	}
	for _, name := range []string{"wal-next.log", "checkpoint-9.tmp"} {
		if _, err := os.Stat(filepath.Join(archive, "epochs", "0000000001", name)); err == nil {
			t.Errorf("%s was collected, which is nobody's yet", name)
		}
	}
}

func TestCollectorTellsWhatItMissed(t *testing.T) {
	c := StartCollector(t.Context(), filepath.Join(t.TempDir(), "nothing"), t.TempDir())
	if err := c.Stop(); err == nil {
		t.Error("there is no volume, and nobody complains")
	}
}
