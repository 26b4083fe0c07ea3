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

func TestTourOfTheReadme(t *testing.T) {
	script := tour(t)
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "holdfast"), "../cmd/holdfast")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	base, err := cluster.FreePorts()
	if err != nil {
		t.Fatal(err)
	}
	vol := filepath.Join(t.TempDir(), "volume")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var log bytes.Buffer
	dev := exec.CommandContext(ctx, filepath.Join(bin, "holdfast"), "dev", "--dir", vol, "--base-port", fmt.Sprint(base))
	dev.Stdout, dev.Stderr = &log, &log
	dev.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := dev.Wait(); err != nil && !t.Failed() {
			t.Errorf("dev ended with %v:\n%s", err, log.String())
		}
	}()
	awaitReady(t, ctx, base+100)

	// The only difference to the README is where the servers listen.
	script = strings.ReplaceAll(script, "localhost:7701", fmt.Sprintf("127.0.0.1:%d", base+100))
	sh := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"),
		fmt.Sprintf("HOLDFAST_ENDPOINTS=127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", base, base+1, base+2))
	out, err := sh.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the tour failed: %v", err)
	}
	for _, want := range []string{"only one of us runs this", `"status":"OK"`, "from/curl"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not show %q", want)
		}
	}
	file, err := os.ReadFile(filepath.Join(vol, "files", "daily.txt"))
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
