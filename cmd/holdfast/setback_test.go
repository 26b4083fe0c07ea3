// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// alone is one server on a volume of its own.
func (w *world) alone(data string, flags ...string) (stop func()) {
	w.t.Helper()
	cmd := exec.Command(os.Getenv(binaryEnv), append([]string{"server", "--id", "1", "--volume", w.dir, "--log-format", "json"}, flags...)...)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+data) // where a data directory is by default
	cmd.Stderr = w.logs
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it has ended
			cmd.Wait()                          //nolint:errcheck // it was told to
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// TestStatusSaysWhyThereIsNoPrimary: a backup in the place of the volume is noticed without any
// flag, and whoever asks is told so, a monitor by the exit code.
func TestStatusSaysWhyThereIsNoPrimary(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	base := freeBase(t)
	w := &world{t: t, dir: filepath.Join(dir, "volume"), endpoints: fmt.Sprintf("127.0.0.1:%d", base), logs: &logs{}}
	w.do("", "init", "--plain", "--volume", w.dir, "--server", "1="+w.endpoints)
	serves := func() bool { return w.try("", "status", "--timeout", "1s").code == 0 }
	copyTo := func(from, to string) {
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if r := w.try("", "status", "--timeout", "100ms"); r.code != 2 {
		t.Errorf("no server: %+v", r)
	}
	stop := w.alone(data)
	await(t, "the first term", serves)
	w.do("", "acquire", "a")
	stop()
	copyTo(w.dir, filepath.Join(dir, "backup"))
	stop = w.alone(data)
	await(t, "the second term", serves)
	for i := range 3 {
		w.do("", "acquire", fmt.Sprint("b", i))
	}
	stop()
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	copyTo(filepath.Join(dir, "backup"), w.dir)
	w.alone(data)
	var r result
	await(t, "a word on why no server is primary", func() bool {
		r = w.try("", "status", "--timeout", "1s")
		return strings.Contains(r.out, "older than what this server knows")
	})
	if r.code != 2 || !strings.Contains(r.out, "down: no server is primary") || !strings.Contains(r.out, "holdfast recover") {
		t.Errorf("got %+v", r)
	}
	if j := w.try("", "status", "-o", "json").out; !strings.Contains(j, `"health":"down"`) || !strings.Contains(j, "older than what") {
		t.Errorf("in JSON: %s", j)
	}
	said := false
	for line := range strings.Lines(w.logs.String()) {
		said = said || strings.Contains(line, `"level":"error"`) && strings.Contains(line, "older than what this server knows")
	}
	if !said {
		t.Errorf("the log says nothing of it as an error:\n%s", w.logs)
	}
}
