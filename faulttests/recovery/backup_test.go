// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestBackupUnderLoad takes a backup while clients append and a server is killed, restores it as docs/operate.md
// says, and has the checker compare the restored files with what was acknowledged before the backup began.
func TestBackupUnderLoad(t *testing.T) {
	s := newSite(t)
	s.doc = "operate.md"
	_, key, _ := strings.Cut(s.must("key", "create", "worker", "--volume", s.volume), "hfk_")
	key = "hfk_" + strings.Fields(key)[0]
	s.start()
	held := s.token("held")
	ledger := &check.Ledger{}
	w := s.worker(key, ledger)
	over := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		w.Run(t.Context(), func() bool {
			select {
			case <-over:
				return true
			default:
				return false
			}
		})
	})
	traffic.Rest(t.Context(), 2*time.Second)
	backups := t.TempDir()
	before, _, _ := ledger.Entries()
	killed := make(chan error, 1)
	go func() {
		traffic.Rest(t.Context(), 20*time.Millisecond)
		killed <- s.servers[0].Process.Kill()
	}()
	s.worked("backup", "BACKUPS="+backups)
	if err := <-killed; err != nil {
		t.Error(err)
	}
	traffic.Rest(t.Context(), time.Second)
	close(over)
	working.Wait()
	s.stop()
	later, _, _ := ledger.Entries()
	if len(before) < 20 || len(later) <= len(before) {
		_, grants, bad := ledger.Entries()
		t.Fatalf("%d appends before the backup, %d after it, %d grants, %v", len(before), len(later), len(grants), bad)
	}
	s.restored(backups, held)

	// What was acknowledged after the backup began may be in it or not.
	judged := &check.Ledger{}
	for i, a := range later {
		if i >= len(before) && a.Acked {
			a.Acked = false
		}
		judged.Append(a)
	}
	v := check.Judge(judged, func(name cluster.FileName) ([]byte, error) {
		return os.ReadFile(filepath.Join(s.volume, "files", string(name)))
	})
	for _, bad := range v.Bad {
		t.Error(bad)
	}
	t.Logf("%d lines acknowledged before the backup, %d found", v.LinesIn, v.LinesOut)
	s.start()
	s.dead("held", held)
	if code := s.append("again", "other", "two"); code != 0 {
		t.Errorf("append: %d", code)
	}
	s.stop()
}

// worker returns a client with a key that appends lines to one file.
func (s *site) worker(key string, ledger *check.Ledger) *traffic.Worker {
	s.t.Helper()
	client, err := clientlib.New(clientlib.Options{Endpoints: []string{s.volume}, Budget: patience, Credential: func(context.Context, string) (string, error) { return key, nil }})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() }) // the servers are gone by then
	var lines [][]byte
	for i := range 200000 {
		lines = append(lines, fmt.Appendf(nil, "line %d of a text", i))
	}
	return &traffic.Worker{
		Client: client, Holder: "w", Speaker: check.NewSpeaker(lines, 0, 1), Places: []traffic.Place{{Lock: "text", File: "dir/f"}}, Ledger: ledger,
		Rand: rand.New(rand.NewPCG(1, 1)), TTL: time.Minute, Pace: 2 * time.Millisecond, Limit: time.Minute,
	}
}

// restored restores the only backup in a directory, in the place of the site's volume.
func (s *site) restored(backups string, held uint64) {
	s.t.Helper()
	all, err := filepath.Glob(filepath.Join(backups, "*"))
	if err != nil || len(all) != 1 {
		s.t.Fatalf("%v %v", all, err)
	}
	b := "BACKUP=" + all[0]
	s.worked("check backup", b)
	out := s.must("backup", "check", all[0], "-o", "json")
	var r struct{ Manifest struct{ LSN uint64 } }
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Manifest.LSN < held {
		s.t.Errorf("the backup is at LSN %d, token %d was told: %v", r.Manifest.LSN, held, err)
	}
	if out, code := s.holdfast("backup", "--volume", s.volume, filepath.Join(s.volume, "inside")); code != 5 {
		s.t.Errorf("a backup inside the volume: %d %s", code, out)
	}
	if out, code := s.holdfast("restore", all[0], "--volume", s.volume, "--seen-lsn", "0"); code != 5 || strings.Contains(out, "makes") {
		s.t.Errorf("a restore over a volume: %d %s", code, out)
	}
	s.volume = filepath.Join(s.t.TempDir(), "new")
	if code := s.typed("plan restore", b, "NEW="+s.volume); code != 6 {
		s.t.Errorf("the plan ends with %d", code)
	}
	if out, code := s.holdfast("restore", all[0], "--volume", s.volume); code != 2 {
		s.t.Errorf("a restore that does not know how far the volume was: %d %s", code, out)
	}
	if _, err := os.Stat(s.volume); err == nil {
		s.t.Error("a plan made the volume")
	}
	s.worked("restore", b, "NEW="+s.volume)
}
