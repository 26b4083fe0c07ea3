// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
)

// WriteManual writes a manual page for each command to man1 below dir, and the completions of shells to completions. The pages name
// this version and the month of this date, so that the same source makes the same bytes.
func WriteManual(dir, version string, date time.Time) error {
	pages, shells := filepath.Join(dir, "man1"), filepath.Join(dir, "completions")
	if err := errors.Join(os.MkdirAll(pages, 0o755), os.MkdirAll(shells, 0o755)); err != nil {
		return err
	}
	root := cli.Commands(version)
	err := errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(shells, "holdfast"), true),
		root.GenZshCompletionFile(filepath.Join(shells, "_holdfast")),
		root.GenFishCompletionFile(filepath.Join(shells, "holdfast.fish"), true),
	)
	root.DisableAutoGenTag = true // it is the day on which it was made
	keepTables(root)
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "Holdfast " + version, Manual: "Holdfast"}
	return errors.Join(err, doc.GenManTree(root, header, pages))
}

// keepTables marks tables and examples in the texts of a command and those below it, which have lines that begin with blanks, as
// text whose lines stay as they are. The texts are written for --help, and a page is made of them as of Markdown.
func keepTables(c *cobra.Command) {
	parts := strings.Split(c.Long, "\n\n")
	for i, p := range parts {
		if strings.HasPrefix(p, "  ") || strings.Contains(p, "\n  ") {
			parts[i] = "```\n" + p + "\n```"
		}
	}
	c.Long = strings.Join(parts, "\n\n")
	for _, sub := range c.Commands() {
		keepTables(sub)
	}
}
