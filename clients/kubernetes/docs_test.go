// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program in docs/kubernetes.md compiles.
func TestProgramInTheDocuments(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not there to compile it")
	}
	b, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "```go\n")
	program, rest, found := strings.Cut(rest, "```\n")
	if !found || strings.Contains(rest, "```go") || !strings.HasPrefix(program, "package main\n") {
		t.Fatalf("docs/kubernetes.md has not one program:\n%s", program)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text, overlay := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "program", "main.go"): text}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{text: []byte(program), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, "-overlay", overlay, "./program").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
