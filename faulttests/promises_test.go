// SPDX-License-Identifier: Apache-2.0

package faulttests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPromises: every test that docs/promises.md names exists, and every promise
// names one.
func TestPromises(t *testing.T) {
	b, err := os.ReadFile("../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/.-]+)` (Test[A-Za-z0-9_]+)") // `.` is the root
	code := map[string]string{}                                         // of the tests of a package
	promises := 0
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") {
			continue
		}
		promises++
		all := named.FindAllStringSubmatch(line, -1)
		if len(all) == 0 {
			t.Errorf("nothing proves this: %s", line)
		}
		for _, m := range all {
			if code[m[1]] == "" {
				code[m[1]] = testsOf(t, m[1])
			}
			if !strings.Contains(code[m[1]], "func "+m[2]+"(") {
				t.Errorf("there is no %s in %s", m[2], m[1])
			}
		}
	}
	if promises == 0 {
		t.Error("docs/promises.md promises nothing")
	}
}

func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Builder{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// TestTables: each row of a table stands under its head. Behind an empty line it is text.
func TestTables(t *testing.T) {
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	for _, name := range append(docs, "../README.md", "README.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		for i, line := range lines {
			first := strings.HasPrefix(line, "|") && (i == 0 || !strings.HasPrefix(lines[i-1], "|"))
			if first && (i+1 == len(lines) || strings.Trim(lines[i+1], "|-: ") != "" || lines[i+1] == "") {
				t.Errorf("%s:%d: a row without a head: %.60s", name, i+1, line)
			}
		}
	}
}
