// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// acquireAs asks a server for a lock once, under a client's first request.
func acquireAs(ctx context.Context, m cluster.Member, client string) (b wire.Body) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	q := `{"lock":"a","ttl":"10m","client_id":"` + client + `","request_id":1}`
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+m.HTTP+"/v1/acquire", bytes.NewBufferString(q))
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
			m := makeVolume(t, dir)
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
