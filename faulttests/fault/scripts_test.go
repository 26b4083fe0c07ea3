// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// scriptLimit is far more than any of the scripts needs.
const scriptLimit = 3 * time.Minute

// TestScripts runs every script that a person can run.
func TestScripts(t *testing.T) {
	needFaults(t)
	scripts, err := filepath.Glob("../scripts/*.sh")
	if err != nil || len(scripts) < 6 {
		t.Fatalf("scripts: %v %v", scripts, err)
	}
	for _, script := range scripts {
		if filepath.Base(script) == "lib.sh" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(script), ".sh"), func(t *testing.T) { runScript(t, script) })
	}
}

func runScript(t *testing.T, script string) {
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Env = append(os.Environ(), "HOLDFAST_BINARY="+*binaryToTest, "TMPDIR="+t.TempDir())
	// The script and its servers are a process group of their own, which can be ended whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	limit := time.AfterFunc(scriptLimit, func() { _ = cmd.Cancel() }) // it may have ended this moment
	defer limit.Stop()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.HasSuffix(string(out), "PASS\n") {
		t.Errorf("%s: %v", script, err)
	}
}
