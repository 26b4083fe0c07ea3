// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/faulttests/deploy"
)

// writeManual returns a directory with the pages and completions.
func writeManual(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := deploy.WriteManual(dir, "v0.1.0", time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// commands calls f with each command that --help shows, and the words that lead to it.
func commands(c *cobra.Command, f func(c *cobra.Command, path []string)) {
	f(c, strings.Fields(c.CommandPath()))
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			commands(sub, f)
		}
	}
}

// TestEveryCommandHasAPage wants a page for each command, with each of its flags, and no page for anything else.
func TestEveryCommandHasAPage(t *testing.T) {
	dir := writeManual(t)
	entries, err := filepath.Glob(filepath.Join(dir, "man1", "*"))
	if err != nil {
		t.Fatal(err)
	}
	commands(cli.Commands("v0.1.0"), func(c *cobra.Command, path []string) {
		name := filepath.Join(dir, "man1", strings.Join(path, "-")+".1")
		if i := slices.Index(entries, name); i >= 0 {
			entries = slices.Delete(entries, i, i+1)
		}
		text := strings.ReplaceAll(read(t, name), `\-`, "-")
		if !strings.Contains(text, `"Nov 2026" "Holdfast v0.1.0"`) {
			t.Errorf("%s does not name the version and the month", filepath.Base(name))
		}
		for _, f := range strings.Fields(flagNames(c)) {
			if !strings.Contains(text, "--"+f+"\\fP") {
				t.Errorf("%s has no --%s", filepath.Base(name), f)
			}
		}
	})
	if len(entries) > 0 {
		t.Errorf("pages of no command: %v", entries)
	}
	if text := read(t, filepath.Join(dir, "man1", "holdfast.1")); !strings.Contains(text, "\n.EX\nExit codes:\n") {
		t.Errorf("the table of exit codes is none any more:\n%s", text)
	}
}

// flagNames returns the names of the flags of a command that --help shows.
func flagNames(c *cobra.Command) string {
	var names strings.Builder
	for _, line := range strings.Split(c.LocalFlags().FlagUsages(), "\n") {
		if _, flag, ok := strings.Cut(line, "--"); ok && strings.HasPrefix(strings.TrimLeft(line, " "), "-") {
			names.WriteString(strings.FieldsFunc(flag, func(r rune) bool { return r == ' ' || r == '[' })[0] + " ")
		}
	}
	return names.String()
}

// TestPagesRender has man make text of each page, and wants every word that --help has of the command in it.
func TestPagesRender(t *testing.T) {
	man, err := exec.LookPath("mandoc")
	args := []string{"-T", "utf8", "-O", "width=200"}
	if err != nil {
		if man, err = exec.LookPath("man"); err != nil {
			t.Skip("neither mandoc nor man is here")
		}
		args = []string{"-l"}
	}
	dir := writeManual(t)
	commands(cli.Commands("v0.1.0"), func(c *cobra.Command, path []string) {
		name := filepath.Join(dir, "man1", strings.Join(path, "-")+".1")
		show := exec.CommandContext(t.Context(), man, append(args, name)...)
		show.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=200", "MAN_KEEP_FORMATTING=", "MANROFFOPT=-c")
		out, err := show.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		said := plain(string(out))
		for _, word := range strings.Fields(c.Short + " " + c.Long) {
			if word = strings.Trim(word, "#"); !strings.Contains(said, plain(word)) { // cobra's own texts have headings
				t.Errorf("%s lacks %q", filepath.Base(name), word)
			}
		}
	})
}

// plain returns a text without blanks, overstrikes, and what formatters make of quotes and hyphens.
func plain(s string) string {
	var all []rune
	for _, r := range s {
		switch {
		case r == '\b' && len(all) > 0:
			all = all[:len(all)-1]
		case strings.ContainsRune(" \n\t'`\"’‘“”-‐−–", r):
		default:
			all = append(all, r)
		}
	}
	return string(all)
}

// TestCompletionsAreScripts has each shell that is here read its file.
func TestCompletionsAreScripts(t *testing.T) {
	dir := filepath.Join(writeManual(t), "completions")
	for file, shell := range map[string]string{"holdfast": "bash", "_holdfast": "zsh", "holdfast.fish": "fish"} {
		name := filepath.Join(dir, file)
		if !strings.Contains(read(t, name), "holdfast") {
			t.Errorf("%s is not of holdfast", file)
		}
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not here: nothing reads %s", shell, file)
			continue
		}
		if out, err := exec.CommandContext(t.Context(), shell, "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s -n %s: %v\n%s", shell, file, err, out)
		}
	}
}
