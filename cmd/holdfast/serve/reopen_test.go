// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// makeVolume makes a volume in a directory for one server on loopback, like an older version where that is asked for.
func makeVolume(t *testing.T, dir string, old bool) cluster.Member {
	t.Helper()
	m := cluster.Member{ID: 1}
	addrs := []*string{&m.Client, &m.Peer}
	if old {
		addrs = append(addrs, &m.OldHTTP)
	}
	for _, addr := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*addr = l.Addr().String()
		defer l.Close() //nolint:errcheck // a listener
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	if _, err := volume.Init(t.Context(), f, cluster.Members{m}, rand.Reader); err != nil {
		t.Fatal(err)
	}
	return m
}

// servedEpoch asks a server in which epoch it is primary, and is ready to; 0 if it is not.
func servedEpoch(ctx context.Context, m cluster.Member) uint64 {
	ask := func(path string, into any) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+m.HTTPAddress()+path, nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		return json.NewDecoder(resp.Body).Decode(into) == nil && resp.StatusCode == http.StatusOK
	}
	var ready wire.Body
	var s wire.StatusBody
	if ask("/readyz", &ready) && ask("/v1/status", &s) && s.Role == "primary" {
		return s.Epoch
	}
	return 0
}

// await polls until a server is primary in a later epoch.
func await(t *testing.T, m cluster.Member, after uint64, ended <-chan error) uint64 {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			t.Fatalf("the server ended: %v", err)
		case <-over:
			t.Fatalf("the server is not primary after epoch %d", after)
		case <-tick.C:
		}
		if e := servedEpoch(t.Context(), m); e > after {
			return e
		}
	}
}

// copyServed copies a volume that is served: temporary files go while they are copied.
func copyServed(t *testing.T, to, from string) {
	t.Helper()
	for range 20 {
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil {
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("a file has gone each time")
}

// TestServerFindsItsVolumeMountedAnew: what the server has open leads to a directory that is
// empty by now, the path to a copy of it. The server serves again by itself, and tells the service manager nothing else.
func TestServerFindsItsVolumeMountedAnew(t *testing.T) {
	base := t.TempDir()
	dir, away := filepath.Join(base, "volume"), filepath.Join(base, "away")
	m := makeVolume(t, dir, false)
	manager := startManager(t, "")
	timing := cluster.DefaultTiming()
	timing.StorageTimeout = 2 * timing.Suspicion
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- Run(ctx, Options{Server: 1, Volume: dir, DataDir: NoDataDir, Timing: timing, Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel)})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
		if got := manager.told(10 * time.Second); got != "STOPPING=1" {
			t.Errorf("at the end, the service manager is told %q", got)
		}
	}()
	defer http.DefaultClient.CloseIdleConnections()
	first := await(t, m, 0, ended)
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	copyServed(t, dir, away)
	entries, err := os.ReadDir(away)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range entries {
		if err := os.RemoveAll(filepath.Join(away, x.Name())); err != nil {
			t.Fatal(err)
		}
	}
	await(t, m, first, ended)
	for range 2 { // a manager that was told STOPPING would kill it
		if got := manager.told(10 * time.Second); got != "READY=1" {
			t.Errorf("the service manager is told %q", got)
		}
	}
}

// acquireAs asks a server for a lock once, under a client's first request.
func acquireAs(ctx context.Context, m cluster.Member, client string) (b wire.Body) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	q := `{"lock":"a","ttl":"10m","client_id":"` + client + `","request_id":1}`
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+m.HTTPAddress()+"/v1/acquire", bytes.NewBufferString(q))
	if err != nil {
		return b
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return b
	}
	defer resp.Body.Close()                   //nolint:errcheck // it was read
	_ = json.NewDecoder(resp.Body).Decode(&b) // what is no answer is none
	return b
}

// TestServerThatOpensAnOldCopyRemembersWhatItCommitted: a mount dies, and what its path leads to
// then is an old copy of the volume: the directory below the mount point, from before it was
// moved to the share, say. The process that opens it again has itself committed more than is there.
func TestServerThatOpensAnOldCopyRemembersWhatItCommitted(t *testing.T) {
	for _, data := range []string{NoDataDir, "a data directory"} {
		t.Run(data, func(t *testing.T) {
			base := t.TempDir()
			dir, away, old := filepath.Join(base, "volume"), filepath.Join(base, "away"), filepath.Join(base, "old")
			m := makeVolume(t, dir, false)
			if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			opt := Options{Server: 1, Volume: dir, DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Log: zerolog.New(t.Output()).Level(zerolog.WarnLevel)}
			opt.Timing.StorageTimeout = 2 * opt.Timing.Suspicion
			if data != NoDataDir {
				opt.DataDir = filepath.Join(base, "data")
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, opt); close(ended) }()
			defer func() { stop(); <-ended }()
			defer http.DefaultClient.CloseIdleConnections()
			await(t, m, 0, ended)
			first := acquireAs(t.Context(), m, "first")
			if first.Status != "OK" {
				t.Fatalf("got %+v", first)
			}
			if err := os.Rename(dir, away); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(old, dir); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(away)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range entries { // as dead as a mount can be
				if err := os.RemoveAll(filepath.Join(away, x.Name())); err != nil {
					t.Fatal(err)
				}
			}
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for over := time.After(8 * time.Second); ; {
				select {
				case <-over:
					return
				case <-ended:
					return // an operator is needed
				case <-tick.C:
				}
				if b := acquireAs(t.Context(), m, "second"); b.Status == "OK" {
					t.Fatalf("the lock was granted under token %d and, 10m before that ends, under token %d", first.Token, b.Token)
				}
			}
		})
	}
}

// TestSignalEndsAServerWhoseVolumeHangs: a mount that is dead when the server opens it, at its start
// or because the mount before died, keeps no server from ending. Until then the server says so.
func TestSignalEndsAServerWhoseVolumeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		comesBack := make(chan struct{})
		opt := Options{Server: 1, Volume: "/hangs", DataDir: NoDataDir, Timing: cluster.DefaultTiming(), Log: zerolog.New(&said), open: func(string) (*osfs.FS, error) {
			<-comesBack
			return nil, os.ErrNotExist
		}}
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, opt) }()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := strings.Count(said.String(), "the volume does not answer"); n != 2 {
			t.Errorf("it said so %d times in 25 s: %s", n, &said)
		}
		signal := errors.New("a signal")
		stop(signal)
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, signal) {
				t.Errorf("the end: %v", err)
			}
		default:
			t.Error("the server goes on behind the signal")
		}
		close(comesBack)
	})
}

// TestMovedVolume: a path that leads to what is open, to nothing, or to something else is no
// reason to open the volume again; one that leads to another directory of the same cluster is.
func TestMovedVolume(t *testing.T) {
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	makeVolume(t, at("volume"), false)
	makeVolume(t, at("other"), false)
	if err := os.Mkdir(at("empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("volume", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(at("copy"), os.DirFS(at("volume"))); err != nil {
		t.Fatal(err)
	}
	f, err := osfs.Open(at("volume"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := volume.ReadCluster(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"volume": false, "link": false, "nothing": false, "empty": false, "other": false, "copy": true} {
		if got := moved(f, at(name), c.ID); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if err := f.Close(); err != nil { // as dead as a mount can be
		t.Fatal(err)
	}
	if !moved(f, at("volume"), c.ID) {
		t.Error("what is open is dead, and the volume that is there is not seen")
	}
}
