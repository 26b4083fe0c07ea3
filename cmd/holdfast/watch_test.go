// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// heard is what a watcher was told: grants and releases by their tokens.
type heard struct {
	mu     sync.Mutex
	words  []string
	resets []string
}

// hear takes one object of JSON.
func (h *heard) hear(t *testing.T, line []byte) {
	var e struct {
		Kind, Lock, Status string
		Token, LSN         uint64
		Reset              *struct{ Reason string }
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Kind {
	case "grant", "release":
		h.words = append(h.words, fmt.Sprintf("%s %s %d", e.Kind, e.Lock, e.Token))
	case "reset":
		h.resets = append(h.resets, e.Reset.Reason)
	}
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.words...)
}

// follow is what a browser does: it reads events, and comes back with the last ID, to
// the next server where one is gone.
func (h *heard) follow(t *testing.T, ctx context.Context, servers []devServer) {
	id := ""
	for i := 0; ctx.Err() == nil; i++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+servers[i%len(servers)].Client+"/v1/watch?prefix=w/", nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Accept", "text/event-stream")
		if id != "" {
			r.Header.Set("Last-Event-ID", id)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if v, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = v
			}
			if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				h.hear(t, []byte(v))
			}
		}
		resp.Body.Close() //nolint:errcheck // read to its end
	}
}

// TestWatchGoesOn has a command and something like a browser watch while the primary role
// is handed over and its primary killed: each is told everything once, in order.
func TestWatchGoesOn(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	var command, browser heard
	cmd := exec.Command(os.Getenv(binaryEnv), "watch", "--prefix", "w/", "--kinds", "grant,release", "-o", "json", "--endpoints", w.endpoints)
	cmd.Stderr = w.logs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			command.hear(t, lines.Bytes())
		}
	})
	readers.Go(func() { browser.follow(t, ctx, w.servers) })
	resets := func(h *heard) int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.resets)
	}
	await(t, "the first states", func() bool { return resets(&command) > 0 && resets(&browser) > 0 })

	var want []string
	work := func(n int) {
		for range n {
			lock := fmt.Sprintf("w/%d", len(want)%6)
			token := strings.TrimSpace(w.do("", "acquire", lock))
			w.do("", "release", lock, "--token", token)
			want = append(want, "grant "+lock+" "+token, "release "+lock+" "+token)
		}
	}
	work(4)
	old, _ := w.primary(0)
	w.do("", "handover")
	work(4)
	_, pid := w.primary(old)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	work(4)
	for name, h := range map[string]*heard{"command": &command, "browser": &browser} {
		await(t, "the last event at the "+name, func() bool {
			all := h.all()
			return len(all) > 0 && all[len(all)-1] == want[len(want)-1]
		})
		if got := h.all(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: told\n%s\nwant\n%s\nresets: %q", name, strings.Join(got, "\n"), strings.Join(want, "\n"), h.resets)
		}
	}
	cancel()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
	cmd.Wait() //nolint:errcheck // the code says it
	equal(t, "exit code after Ctrl-C", cmd.ProcessState.ExitCode(), 130)
	w.filter()
}

// filter is a watch in a pipe whose other end has enough, though nothing more happens.
func (w *world) filter() {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sh := exec.CommandContext(ctx, "bash", "-c", `set -o pipefail; "$0" watch --prefix w/ | head -1`, os.Getenv(binaryEnv))
	sh.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+w.endpoints)
	var errs bytes.Buffer
	sh.Stderr = &errs
	out, err := sh.Output()
	if err != nil || !strings.HasPrefix(string(out), "-- the state at LSN ") || errs.Len() > 0 {
		t.Errorf("%q, %v, %s", out, err, errs.String())
	}
	token := strings.TrimSpace(w.do("", "acquire", "w/0"))
	cmd := exec.CommandContext(ctx, os.Getenv(binaryEnv), "watch", "w/0", "--until", "release", "--endpoints", w.endpoints)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for _, want := range []string{"-- the state at LSN ", "held          w/0  token " + token, "release       w/0  token " + token} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
		if strings.HasPrefix(want, "held") {
			w.do("", "release", "w/0", "--token", token)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("until: %v", err)
	}
	if r := w.try("", "watch", "w/0", "--count", "1", "--timeout", "200ms", "--endpoints", "127.0.0.1:1"); r.code != 4 || !strings.Contains(r.errs, "within 200ms at [127.0.0.1:1]: check that the servers run") {
		t.Errorf("nobody there: %+v", r)
	}
}
