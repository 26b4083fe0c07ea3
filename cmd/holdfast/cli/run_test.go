// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
)

// TestRunRefusesWhatCannotWork before it asks for the lock.
func TestRunRefusesWhatCannotWork(t *testing.T) {
	for flags, words := range map[string]string{
		"--grace 16s":                           "at most half of --ttl 30s",
		"--grace -1s":                           "at most half of --ttl 30s",
		"--grace 12s --warn USR1":               "a warning must leave time",
		"--on-lost wait":                        "use terminate, kill or leave",
		"--lost-exit-code 256":                  "use 0 to 255",
		"--lost-exit-code -1":                   "use 0 to 255",
		"--on-ask KILL":                         "a signal that the command can catch",
		"--on-ask STOP":                         "a signal that the command can catch",
		"--on-ask SIGNONE":                      "a signal that the command can catch",
		"--warn kill":                           "a signal that the command can catch",
		"--warn STOP":                           "a signal that the command can catch",
		"--warn NONE":                           "a signal that the command can catch",
		"--max-hold 29s":                        "at least --ttl 30s",
		"--ttl 0s":                              "use a duration like 30s",
		"--wait sometimes":                      "use a duration like 30s, forever",
		"--conflict-exit-code 256":              "use 0 to 255",
		"--grace 11s --warn USR1 --on-ask SEGX": "--on-ask", // the grace is right
	} {
		args := append(append([]string{"run", "job", "--endpoints", "127.0.0.1:1", "--timeout", "10ms"}, strings.Fields(flags)...), "--", "true")
		if r := run("", "", args...); r.code != 2 || !strings.Contains(r.errs, words) {
			t.Errorf("%s: got %+v, want code 2 and %q", flags, r, words)
		}
	}
	for _, args := range []string{"run job", "run job --", "run job true", "run -- job true", "run job more -- true", "run", "run a//b -- true"} {
		if r := run("", "", strings.Fields(args)...); r.code != 2 {
			t.Errorf("%s: got %+v, want code 2", args, r)
		}
	}
}
