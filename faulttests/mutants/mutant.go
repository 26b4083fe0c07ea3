// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is the product with one rule broken.
type Mutant struct {
	// Name is short and says what is missing or wrong.
	Name string
	// Also are the names of the same mutant in the models and in the test plan.
	Also string
	// Rule says which rule is broken, and where it stands.
	Rule  string
	Edits []Edit
	// By is the test that must notice.
	By Killer
	// Dies is a regular expression, whose dot matches line ends, too: what the failure must say.
	// Empty means any failure.
	Dies string
	// Fast says that CI runs it.
	Fast bool
}

// Edit replaces one piece of one file.
type Edit struct {
	File     string // relative to the module's root
	Old, New string // Old stands there exactly once
}

// Killer is one run of one package's tests.
type Killer struct {
	Pkg   string // relative to the module's root
	Run   string // -test.run
	Flags string // further flags of the test binary, separated by spaces
}

// String is the killer as one would type it.
func (k Killer) String() string {
	s := fmt.Sprintf("go test ./%s -run '%s'", k.Pkg, k.Run)
	if k.Flags != "" {
		s += " " + k.Flags
	}
	return s
}

// patch returns the mutated files by name. An edit that does not fit exactly
// once has gone stale.
func (m *Mutant) patch(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("mutant %s has gone stale: %s holds this %d times, not once:\n%s", m.Name, e.File, n, e.Old)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// overlay writes the mutated files and the overlay that names them below dir,
// and returns the overlay's name.
func (m *Mutant) overlay(root, dir string) (string, error) {
	files, err := m.patch(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}
