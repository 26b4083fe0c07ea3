// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/volume"
)

func TestDataDir(t *testing.T) {
	var id volume.ClusterID
	id[0] = 0xab
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := zerolog.New(&said)
	own := filepath.Join(t.TempDir(), "a", "b")
	if dir, err := dataDir(own, id, 2, log); dir != own || err != nil {
		t.Errorf("a named one: %q, %v", dir, err)
	}
	if info, err := os.Stat(own); err != nil || !info.IsDir() {
		t.Errorf("it was not made: %v", err)
	}
	if dir, err := dataDir(NoDataDir, id, 2, log); dir != "" || err != nil {
		t.Errorf("none: %q, %v", dir, err)
	}
	if _, err := dataDir(filepath.Join(file, "x"), id, 2, log); err == nil || said.Len() > 0 {
		t.Errorf("a named one that cannot be: %v", err)
	}
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	dir, err := dataDir("", id, 2, log)
	if err != nil || dir != filepath.Join(os.Getenv("STATE_DIRECTORY"), id.String()+"-2") {
		t.Errorf("the default: %q, %v", dir, err)
	}
	t.Setenv("STATE_DIRECTORY", "/srv/a:/srv/b")
	if dir, err := DefaultDataDir(id, 2); err != nil || dir != "/srv/a/"+id.String()+"-2" {
		t.Errorf("of a service that has two: %q, %v", dir, err)
	}
	t.Setenv("STATE_DIRECTORY", file)
	if dir, err := dataDir("", id, 2, log); dir != "" || err != nil || !strings.Contains(said.String(), `"level":"warn"`) {
		t.Errorf("a default that cannot be: %q, %v, said %s", dir, err, &said)
	}
	t.Setenv("STATE_DIRECTORY", "")
	t.Setenv("XDG_STATE_HOME", "/x")
	want := "/x/holdfast/" + id.String() + "-2"
	if os.Geteuid() == 0 {
		want = "/var/lib/holdfast/" + id.String() + "-2"
	}
	if dir, err := DefaultDataDir(id, 2); err != nil || dir != want {
		t.Errorf("without systemd: %q, %v, want %q", dir, err, want)
	}
}
