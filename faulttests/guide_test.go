// SPDX-License-Identifier: Apache-2.0

package faulttests_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A step of the guide is a block of shell and the text that it prints.
type step struct {
	line   int
	script string
	want   []string
}

// steps are the blocks of docs/guide.md: ```sh, and ```text behind it.
func steps(t *testing.T) (all []step) {
	t.Helper()
	b, err := os.ReadFile("../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	var into *[]string
	var script []string
	for i, line := range strings.Split(string(b), "\n") {
		switch {
		case line == "```sh":
			all, script = append(all, step{line: i + 1}), nil
			into = &script
		case line == "```text" && len(all) > 0:
			into = &all[len(all)-1].want
		case line == "```":
			if into == &script {
				all[len(all)-1].script = strings.Join(script, "\n") + "\n"
			}
			into = nil
		case into != nil:
			*into = append(*into, line)
		}
	}
	return all
}

// pattern is a line of expected text, in which … stands for anything.
func pattern(line string) *regexp.Regexp {
	parts := strings.Split(line, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

// differs says where what was printed is not what the guide says. A line that is only
// … stands for any number of lines.
func differs(got string, want []string) string {
	lines := strings.Split(strings.TrimRight(got, "\n"), "\n")
	for i, w := range want {
		if w == "…" {
			for n := range len(lines) + 1 {
				if differs(strings.Join(lines[n:], "\n"), want[i+1:]) == "" {
					return ""
				}
			}
			return fmt.Sprintf("no line is %q", want[min(i+1, len(want)-1)])
		}
		if len(lines) == 0 || !pattern(w).MatchString(lines[0]) {
			return fmt.Sprintf("%q, want %q", strings.Join(lines[:min(1, len(lines))], ""), w)
		}
		lines = lines[1:]
	}
	if len(lines) > 0 && strings.Join(lines, "") != "" {
		return fmt.Sprintf("%q besides", lines[0])
	}
	return ""
}

// TestGuide runs docs/guide.md as it is written, from its first block to its last, in
// one shell, and wants to see what it says one sees.
func TestGuide(t *testing.T) {
	all := steps(t)
	s := newSite(t, 2*time.Minute)
	const mark = "=== step "
	var script strings.Builder
	for i, x := range all {
		fmt.Fprintf(&script, "echo '%s%d'\n%s", mark, i, x.script)
	}
	out, err := s.shell("exec 2>&1\n" + script.String())
	shown := strings.Split(out, mark)
	for i, x := range all {
		if i+1 >= len(shown) {
			t.Fatalf("docs/guide.md, line %d: not reached (%v)\n%s", x.line, err, out)
		}
		_, text, _ := strings.Cut(shown[i+1], "\n")
		if why := differs(text, x.want); why != "" {
			t.Errorf("docs/guide.md, line %d: %s\n%s", x.line, why, text)
		}
	}
	if err != nil {
		t.Errorf("the guide failed: %v\n%s", err, out)
	}
}

func TestDiffers(t *testing.T) {
	for _, x := range []struct {
		got  string
		want []string
		same bool
	}{
		{"", nil, true},
		{"a\n", []string{"a"}, true},
		{"token 17, 9s left\n", []string{"token …, … left"}, true},
		{"token 17, 9s\n", []string{"token …, … left"}, false},
		{"a\nb\nc\n", []string{"…", "c"}, true},
		{"a\nb\nc\n", []string{"…", "b"}, false},
		{"a\nb\n", []string{"a", "…"}, true},
		{"a\n", []string{"a", "b"}, false},
		{"a\nb\n", []string{"a"}, false},
	} {
		if got := differs(x.got, x.want); (got == "") != x.same {
			t.Errorf("%q against %q: %q", x.got, x.want, got)
		}
	}
}
