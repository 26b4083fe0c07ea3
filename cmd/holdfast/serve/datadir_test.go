// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func TestDataDir(t *testing.T) {
	var id cluster.ID
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

// TestDataDirIsOfOneServer: a volume and its copy have one cluster ID, so their servers of one ID
// have one default data directory on one host. The second one is refused, and told by whom it is
// used; the one that has it keeps it while it opens its volume again, and leaves it at its end.
func TestDataDirIsOfOneServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var first, second process
	of := func(volume string) *Options {
		return &Options{Server: 1, Volume: volume, DataDir: dir, Log: zerolog.New(t.Output())}
	}
	for range 2 {
		if err := first.lock(of("/mnt/main")); err != nil {
			t.Fatalf("the first, and as it opens its volume again: %v", err)
		}
	}
	err := second.lock(of("/mnt/staging"))
	if !errors.Is(err, ErrDataDirUsed) {
		t.Fatalf("the second one: %v", err)
	}
	for _, want := range []string{dir, fmt.Sprintf("process %d on ", os.Getpid()), "server 1 of volume /mnt/main", "--data-dir"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it is told %q, want %q in it", err, want)
		}
	}
	if err := second.lock(&Options{Server: 1, Volume: "/mnt/staging"}); err != nil {
		t.Errorf("without a data directory: %v", err)
	}
	first.unlock()
	if err := second.lock(of("/mnt/staging")); err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
	second.unlock()
}

// TestSecondServerInADataDirIsRefused is the same with whole servers.
func TestSecondServerInADataDirIsRefused(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "volume")
	m := makeVolume(t, dir, false)
	var other process
	opt := Options{Server: 1, Volume: dir, DataDir: filepath.Join(base, "data"), Timing: cluster.DefaultTiming(), Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel)}
	if err := os.Mkdir(opt.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := other.lock(&Options{Server: 1, Volume: "/mnt/main", DataDir: opt.DataDir}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a server that is not refused serves
	defer cancel()
	if err := Run(short, opt); !errors.Is(err, ErrDataDirUsed) {
		t.Fatalf("the second server: %v", err)
	}
	other.unlock()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, opt); close(ended) }()
	defer func() { stop(); <-ended }()
	defer http.DefaultClient.CloseIdleConnections()
	await(t, m, 0, ended)
}
