// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/shared/why"
)

// What a command is about, by the name that its usage has for it.
const (
	aLock = "LOCK"
	aFile = "FILE"
)

// subjectsOf returns the arguments of a command under the names that its usage has for them, and the lock of --lock.
func subjectsOf(c *cobra.Command, args []string) map[string]string {
	named := map[string]string{}
	for i, word := range strings.Fields(c.Use)[1:] {
		word = strings.Trim(word, "[]")
		if i == len(args) || strings.HasPrefix(word, "-") || word != strings.ToUpper(word) {
			break
		}
		if word == "NAME" { // of an election, which is a lock
			word = aLock
		}
		named[word] = args[i]
	}
	if f := c.Flags().Lookup("lock"); f != nil && f.Changed {
		named[aLock] = f.Value.String()
	}
	return named
}

// about returns a command line that can be pasted: its beginning and the name of the lock or file that the command is about,
// or otherwise if that is not known.
func (a *app) about(begin, subject, otherwise string) string {
	name := a.subjects[subject]
	if name == "" {
		return otherwise
	}
	return begin + " " + why.Word(name)
}

// topic returns what stands before an error of a server: the command, and what it is about.
func (a *app) topic() string {
	if a.command == "" {
		return ""
	}
	for _, subject := range []string{aLock, aFile} {
		if name := a.subjects[subject]; name != "" {
			return a.command + " " + name + ": "
		}
	}
	return a.command + ": "
}
