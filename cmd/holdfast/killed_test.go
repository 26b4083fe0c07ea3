// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilledRunLetsGo kills run, whose command has left its group and ignores SIGTERM. The next
// client gets the lock long before the lease would end, and not before the command is dead.
func TestKilledRunLetsGo(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	for _, command := range []string{"run", "elect"} {
		path := filepath.Join(t.TempDir(), "pid")
		script := fmt.Sprintf(`trap "" TERM; echo $$ > %[1]s.part; mv %[1]s.part %[1]s; while :; do sleep 0.05; done`, path)
		cmd := exec.Command(os.Getenv(binaryEnv), command, "--endpoints", w.endpoints, "killed", "--ttl", "5m", "--", "sh", "-c", "setsid sh -c '"+script+"' & wait")
		cmd.Stderr = w.logs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		await(t, "the command", func() bool {
			b, err := os.ReadFile(path)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return err == nil && pid > 0
		})
		began := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // killed
		next := w.try("", "acquire", "killed", "-w", "60", "--ttl", "60")
		took := time.Since(began)
		t.Logf("%s: %v from the kill to the next holder, under a lease of 5m", command, took.Round(time.Millisecond))
		if next.code != 0 || took > time.Minute {
			t.Fatalf("%s: the lock was not released after %v: %+v", command, took, next)
		}
		if !(devServer{PID: pid}).ended() {
			t.Errorf("%s: process %d of the command runs, and the lock is another's", command, pid)
		}
		w.do("", "release", "killed", "--token", strings.TrimSpace(next.out))
		await(t, "history", func() bool { return strings.Contains(w.do("", "history", "killed"), "released") })
	}
}
