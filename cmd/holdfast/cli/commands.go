// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Commands returns the tree of all commands, for manual pages and completions of shells. It is not to be executed.
func Commands(linked string) *cobra.Command {
	a := &app{Env: Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }, Linked: linked}}
	root := a.root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
