// SPDX-License-Identifier: Apache-2.0

// Package faulttests_test runs the README's tour as it is written.
package faulttests_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

const tourMark = "<!-- tour:"

// tour is the shell block behind the mark in the README.
func tour(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), tourMark)
	if ok {
		_, rest, ok = strings.Cut(rest, "```sh\n")
	}
	script, _, found := strings.Cut(rest, "```")
	if !ok || !found {
		t.Fatalf("README.md has no shell block behind %q", tourMark)
	}
	return script
}

// site is three servers on loopback, and a shell that finds them.
type site struct {
	ctx  context.Context
	vol  string
	work string // where the shell is
	bin  string
	base int
}

// newSite runs `holdfast dev` until the test ends.
func newSite(t *testing.T, patience time.Duration) *site {
	t.Helper()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "../cmd/holdfast", "../cmd/examples/fencedstore")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	base := cluster.FreePorts(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	s := &site{ctx: ctx, vol: filepath.Join(t.TempDir(), "volume"), work: t.TempDir(), bin: bin, base: base}
	var log bytes.Buffer
	dev := exec.Command(filepath.Join(bin, "holdfast"), "dev", "--dir", s.vol, "--base-port", fmt.Sprint(base))
	dev.Stdout, dev.Stderr = &log, &log
	dev.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := dev.Wait(); err != nil && !t.Failed() {
			t.Errorf("dev ended with %v:\n%s", err, log.String())
		}
	})
	awaitReady(t, ctx, base)
	s.awaitHealthy(t)
	return s
}

// awaitHealthy polls until status has nothing to complain of: with another code than 0 it
// would end a script.
func (s *site) awaitHealthy(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := s.shell("holdfast status")
		if err == nil {
			return
		}
		select {
		case <-s.ctx.Done():
			t.Fatalf("the servers are not healthy: %v\n%s", context.Cause(s.ctx), out)
		case <-tick.C:
		}
	}
}

// shell runs a script as it is written, but for where the servers listen and, as
// $VOLUME, lie.
func (s *site) shell(script string) (string, error) {
	for i := range 3 {
		for _, sep := range []string{":", "/"} {
			script = strings.ReplaceAll(script, fmt.Sprintf("localhost%s760%d", sep, i+1), fmt.Sprintf("127.0.0.1%s%d", sep, s.base+i))
		}
	}
	script = strings.ReplaceAll(script, "127.0.0.1:8090", fmt.Sprintf("127.0.0.1:%d", s.base+100))
	sh := exec.CommandContext(s.ctx, "bash", "-euo", "pipefail", "-c", script)
	sh.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "VOLUME="+s.vol,
		fmt.Sprintf("HOLDFAST_ENDPOINTS=127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", s.base, s.base+1, s.base+2))
	sh.Dir = s.work
	sh.WaitDelay = time.Second
	out, err := sh.CombinedOutput()
	return string(out), err
}

func TestTourOfTheReadme(t *testing.T) {
	script := tour(t)
	s := newSite(t, time.Minute)
	out, err := s.shell(script)
	t.Log(out)
	if err != nil {
		t.Fatalf("the tour failed: %v", err)
	}
	for _, want := range []string{"only one of us runs this", `"status":"OK"`, "from/curl"} {
		if !strings.Contains(out, want) {
			t.Errorf("the tour does not show %q", want)
		}
	}
	file, err := os.ReadFile(filepath.Join(s.vol, "files", "daily.txt"))
	if err != nil || string(file) != "first line\nsecond line\n" {
		t.Errorf("files/daily.txt holds %q, %v", file, err)
	}
}

// awaitReady polls until the first server says that it can serve.
func awaitReady(t *testing.T, ctx context.Context, port int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			ok := resp.StatusCode == http.StatusOK
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if ok {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no server is ready: %v", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
