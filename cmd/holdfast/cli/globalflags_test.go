// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestGlobalFlagsBeforeAnyCommand are the root's, whatever a command means by the same letter.
func TestGlobalFlagsBeforeAnyCommand(t *testing.T) {
	var paths [][]string
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, sub := range c.Commands() {
			at := append(path[:len(path):len(path)], sub.Name())
			paths = append(paths, at)
			walk(sub, at)
		}
	}
	walk((&app{Env: silent()}).root(), nil)
	for _, path := range paths {
		a := &app{Env: silent()}
		root := a.root()
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs(append(append([]string{"-o", "json", "--endpoints", "h:1", "--timeout", "7"}, path...), "--help"))
		if err := root.Execute(); err != nil || a.format != formatJSON || a.endpoints != "h:1" || a.budget.Seconds() != 7 {
			t.Errorf("%q: error %v, format %q, endpoints %q, timeout %v; want json, h:1 and 7s", path, err, a.format, a.endpoints, a.budget)
		}
	}
	if n := len(paths); n < 50 {
		t.Errorf("%d commands were found, want all", n)
	}
}

// TestHelpBeforeACommand is that of the command, as behind it.
func TestHelpBeforeACommand(t *testing.T) {
	help := func(args ...string) string {
		var out bytes.Buffer
		env := silent()
		env.Stdout = &out
		if code := Main(args, env); code != exitOK {
			t.Errorf("%q: exit code %d", args, code)
		}
		return out.String()
	}
	for _, command := range []string{"run", "flock", "config show", "status"} {
		words := strings.Fields(command)
		want := help(append(words, "--help")...)
		for _, before := range []string{"--help", "-h", "-o json -h"} {
			if got := help(append(strings.Fields(before), words...)...); got != want {
				t.Errorf("holdfast %s %s printed %.60q, want %.60q", before, command, got, want)
			}
		}
	}
	if root := help("--help"); !strings.HasPrefix(root, rootHelp) {
		t.Errorf("holdfast --help printed %.60q", root)
	}
}

func silent() Env {
	return Env{Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
}
