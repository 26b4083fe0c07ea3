// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The units for systemd are such that systemd takes, and let a server or a gateway do little.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	for name, instance := range map[string]string{"holdfast@.service": "holdfast@1.service", "holdfast-gateway.service": ""} {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		binary := filepath.Join(dir, "holdfast")
		if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		unit := filepath.Join(dir, name)
		text := strings.ReplaceAll(string(b), "/usr/bin/holdfast", binary) // it has to be there
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		whole := unit
		if instance != "" {
			whole = filepath.Join(dir, instance)
			if err := os.Symlink(name, whole); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"verify", "--man=no", whole}, {"security", "--offline=true", "--threshold=25", unit}} {
			out, err := exec.Command(analyze, args...).CombinedOutput()
			if err != nil || args[0] == "verify" && strings.Contains(string(out), name) {
				t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
			}
		}
	}
}
