// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"strings"
	"testing"
)

// TestFlocksCommandLine runs scripts that were written for flock(1).
func TestFlocksCommandLine(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	equal(t, "exit code of the command", w.try("", "flock", "-n", "/var/lock/x.lock", "sh", "-c", "exit 7", "-n").code, 7)
	equal(t, "name of the lock", w.do("", "flock", "/var/lock/x.lock", "-c", `echo $HOLDFAST_LOCK`), "var/lock/x.lock\n")
	equal(t, "flags of the command", w.do("", "flock", "-w", "5", "x", "echo", "-n", "-w", "-o", "json"), "-w -o json")
	w.do("", "flock", "-xno", "x", "true")
	w.do("", "flock", "--nb", "-e", "-F", "--timeout", "0", "x", "true")
	token := strings.TrimSpace(w.do("", "acquire", "var/lock/x.lock", "--ttl", "60"))
	for line, code := range map[string]int{
		"flock -n /var/lock/x.lock true":             1,
		"flock -n -E 42 /var/lock/x.lock true":       42,
		"flock -w 0.1 -E 42 /var/lock/x.lock true":   42,
		"flock --timeout 0.1 /var/lock/x.lock true":  1,
		"flock -sn /var/lock/x.lock true":            1,
		"run -n var/lock/x.lock -- true":             1,
		"run -w 0.1 -E 9 var/lock/x.lock -- true":    9,
		"acquire var/lock/x.lock -n":                 1,
		"acquire var/lock/x.lock -w 0.1 -E 9":        9,
		"run -n var/lock/y.lock -c exit\t5":          5,
		"flock -n --ttl 5 --grace 1 other false":     1,
		"flock -n other no-such-command-anywhere":    127,
		"flock -n var/lock/x.lock -c true\t--ignore": 1,
	} {
		args := strings.Fields(line)
		if before, after, ok := strings.Cut(line, "\t"); ok {
			args = strings.Fields(before)
			args[len(args)-1] += " " + after
		}
		equal(t, line, w.try("", args...).code, code)
	}
	w.do("", "release", "var/lock/x.lock", "--token", token)
	equal(t, "two that share a lock", w.do("", "flock", "-sn", "shared", os.Getenv(binaryEnv), "flock", "-sn", "shared", "echo", "both"), "both\n")
}
