// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// pastOf is what `history -o json` says.
type pastOf struct {
	Message string
	LSN     uint64
	Grants  []struct {
		Token          uint64
		Why            string
		ClientID       string `json:"client_id"`
		Actor, Reason  string
		SuccessorToken uint64 `json:"successor_token"`
	}
	FromLSN uint64 `json:"from_lsn"`
	Gaps    []any
}

func (w *world) past(args ...string) (p pastOf, words string) {
	w.t.Helper()
	out := w.do("", append([]string{"history", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		w.t.Fatalf("%s: %v", out, err)
	}
	for _, g := range p.Grants {
		words += g.Why + " "
	}
	return p, strings.TrimSpace(words)
}

// contents is every name on a volume with its size and time of change.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[name] = info.ModTime().String() + " " + info.Mode().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWhoWhySinceWhen asks for the past of a lock, over a failover, and of the volume
// beside the servers and when all of them are dead.
func TestWhoWhySinceWhen(t *testing.T) {
	w := startDev(t)
	first, pid := w.primary(0)
	token := strings.TrimSpace(w.do("", "acquire", "a/b", "--ttl", "10m"))
	w.do("hello\n", "append", "a/b", "log", "--token", token)
	w.do("", "release", "a/b", "--token", token)
	await(t, "the first lines of the history", func() bool {
		files, err := filepath.Glob(filepath.Join(w.dir, "history", "*.jsonl"))
		return err == nil && len(files) > 0
	})
	second := strings.TrimSpace(w.do("", "acquire", "a/b", "--ttl", "10m", "--metadata", "nightly"))
	w.do("", "break", "a/b", "--reason", "it hangs", "--actor", "ann@h9")
	third := strings.TrimSpace(w.do("", "acquire", "a/b", "--ttl", "10m"))
	p, words := w.past("a/b")
	if words != "held broken released" || p.FromLSN != 0 || len(p.Gaps) > 0 || p.Grants[1].Actor != "ann@h9" {
		t.Errorf("before the failover: %s, %+v", words, p)
	}
	// The primary dies with what it had no time to write.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.primary(first)
	await(t, "the whole past behind the failover", func() bool {
		p, words = w.past("a/b")
		return words == "held broken released" && len(p.Gaps) == 0 && p.FromLSN == 0
	})
	if _, words := w.past("a/b", "--token", second); words != "broken" {
		t.Errorf("one grant: %s", words)
	}
	if _, words := w.past("a/b", "--at", "0s"); words != "held" {
		t.Errorf("now: %s", words)
	}
	if _, words := w.past("a/b", "--at", "1h"); words != "" {
		t.Errorf("an hour ago: %s", words)
	}
	out := w.do("", "why", "a/b")
	for _, want := range []string{"a/b is held by", "under token " + third, "lease of 10m0s", "broken by ann@h9: \"it hangs\"", "guards file log, 6 bytes", "advice: "} {
		if !strings.Contains(out, want) {
			t.Errorf("why: no %q in\n%s", want, out)
		}
	}
	if code, v := w.get(int(first)%3, "/v1/history?lock=a/b&limit=1"); code != 200 || v["next_lsn"] == 0.0 {
		t.Errorf("over HTTP: %d %v", code, v)
	}
	w.deadVolume(third)
}

// deadVolume reads the volume beside its servers, and then without any.
func (w *world) deadVolume(token string) {
	t := w.t
	live := w.do("", "show", "a/b", "--volume", w.dir)
	if !strings.Contains(live, "held by") || !strings.Contains(live, "token "+token) || !strings.Contains(live, "unknown time left\n") {
		t.Errorf("beside the servers:\n%s", live)
	}
	// A reader and many that write, so that segments and checkpoints come and go.
	var writers sync.WaitGroup
	for i := range 2 {
		lock := "busy/" + string(rune('a'+i))
		writers.Go(func() {
			for range 10 {
				w.try("x", "append", lock, lock+".log")
			}
		})
	}
	for range 6 {
		w.do("", "ls", "--volume", w.dir)
	}
	writers.Wait()
	if err := w.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.servers {
		_ = syscall.Kill(s.PID, syscall.SIGKILL) // one is gone already
	}
	await(t, "the end of all servers", func() bool { return w.try("", "status", "--timeout", "100ms").code == 2 })
	before := contents(t, w.dir)
	if r := w.try("", "show", "a/b", "--volume", w.dir); r.code != 0 || !strings.Contains(r.out, "token "+token) || !strings.Contains(r.errs, "without a server") || !strings.Contains(r.errs, "last sign of life") {
		t.Errorf("without servers: %+v", r)
	}
	if p, words := w.past("a/b", "--volume", w.dir); words != "held broken released" || len(p.Gaps) > 0 || !strings.Contains(p.Message, "without a server") {
		t.Errorf("without servers: %s %+v", words, p)
	}
	if out := w.do("", "ls", "--volume", w.dir); !strings.Contains(out, "a/b") || !strings.Contains(out, "busy/a") {
		t.Errorf("ls without servers:\n%s", out)
	}
	if out := w.do("", "why", "a/b", "--volume", w.dir); !strings.Contains(out, "not known here") || !strings.Contains(out, "only a primary knows") {
		t.Errorf("why without servers:\n%s", out)
	}
	if r := w.try("", "ls", "--volume", filepath.Join(w.dir, "files")); r.code != 5 || !strings.Contains(r.errs, "not a Holdfast volume") {
		t.Errorf("no volume: %+v", r)
	}
	if r := w.try("", "ls", "--volume", "/not/there"); r.code != 5 || !strings.Contains(r.errs, "mounted") {
		t.Errorf("no directory: %+v", r)
	}
	after := contents(t, w.dir)
	for name, was := range before {
		if after[name] != was {
			t.Errorf("%s was %s, is %s", name, was, after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d names, then %d", len(before), len(after))
	}
	// A torn tail changes nothing.
	w.tearTheLog()
	if out := w.do("", "show", "a/b", "--volume", w.dir); !strings.Contains(out, "token "+token) {
		t.Errorf("behind a torn tail:\n%s", out)
	}
}

// get asks a server over HTTP.
func (w *world) get(server int, path string) (int, map[string]any) {
	w.t.Helper()
	r, err := http.Get("http://" + w.servers[server].Client + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close() //nolint:errcheck // read whole
	var v map[string]any
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	return r.StatusCode, v
}

// tearTheLog leaves half a frame behind the end of the log.
func (w *world) tearTheLog() {
	w.t.Helper()
	segments, err := filepath.Glob(filepath.Join(w.dir, "epochs", "*", "wal-0*.log"))
	if err != nil || len(segments) == 0 {
		w.t.Fatalf("no log: %v", err)
	}
	newest := segments[len(segments)-1]
	b, err := os.ReadFile(newest)
	if err != nil {
		w.t.Fatal(err)
	}
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	frame := min(len(b)-4096, (end+4095)/4096*4096)
	copy(b[frame:], b[4096:4096+100])
	if err := os.WriteFile(newest, b, 0o600); err != nil {
		w.t.Fatal(err)
	}
}
