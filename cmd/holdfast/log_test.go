// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Nobody reads what the servers log: a pager, a stalled journal. They serve all the same.
func TestServersServeWhileNobodyReadsTheirLog(t *testing.T) {
	r, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()      //nolint:errcheck // it is never read
	defer stderr.Close() //nolint:errcheck // nor written here
	w := &world{t: t, logs: &logs{}}
	w.start(stderr, "--log-level", "debug")
	w.primary(0)
	// A test that fails must not wait for a server that does.
	over := time.AfterFunc(time.Minute, func() { w.cmd.Process.Kill() }) //nolint:errcheck // its servers end with it
	defer over.Stop()
	long := strings.Repeat("x", 200)
	for i := range 600 { // some 400 bytes of log each: more than two pipes take
		code, got := w.post(0, "/v1/acquire", fmt.Sprintf(`{"lock":"%s%d","ttl":"1m"}`, long, i))
		if code != http.StatusOK {
			t.Fatalf("acquire %d: %d %v", i, code, got)
		}
	}
	if s := w.status(); s.Epoch != 1 {
		t.Errorf("the term has changed: epoch %d", s.Epoch)
	}
}

// fullPipe is the writing end of a pipe that takes nothing any more, and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close() //nolint:errcheck // it is never read
		w.Close() //nolint:errcheck // nor is anything flushed
	})
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe does not fill: %v", err)
	}
	return w
}

// ends waits for a process, and kills it when it does not end.
func ends(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	over := time.AfterFunc(time.Minute, func() {
		t.Error("it does not end: killing it")
		cmd.Process.Kill() //nolint:errcheck // it has ended
	})
	defer over.Stop()
	cmd.Wait() //nolint:errcheck // the exit code tells
	return cmd.ProcessState.ExitCode()
}

// TestEndsWhileNobodyReadsTheLog: a process whose log nobody reads ends when it is told to, and
// when it has to.
func TestEndsWhileNobodyReadsTheLog(t *testing.T) {
	t.Run("dev", func(t *testing.T) {
		w := &world{t: t, logs: &logs{}}
		w.start(fullPipe(t), "--log-level", "debug")
		w.primary(0)
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := ends(t, w.cmd); code != 0 {
			t.Errorf("dev ends with %d", code)
		}
	})
	t.Run("server without its volume", func(t *testing.T) {
		for _, format := range []string{"text", "json"} {
			cmd := exec.Command(os.Getenv(binaryEnv), "server", "--id", "1", "--volume", t.TempDir(), "-o", format)
			full := fullPipe(t)
			cmd.Stdout, cmd.Stderr = full, full
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if code := ends(t, cmd); code != 5 {
				t.Errorf("the server ends with %d", code)
			}
		}
	})
}

// TestDevSaysWhatItLeaves: the volume of a trial is large, and nobody else removes it.
func TestDevSaysWhatItLeaves(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ends(t, w.cmd)
	all := fmt.Sprint(w.logs)
	_, last, _ := strings.Cut(all, "what the servers stored stays, ")
	var size int
	if _, err := fmt.Sscanf(last, "%d MiB;", &size); err != nil || size < 16 || !strings.HasSuffix(last, "\ndev      |   rm -r "+w.dir+"\n") {
		t.Errorf("dev ends with %q (%v), want the size of its volume, at least one segment, and how to remove it", last, err)
	}
}
