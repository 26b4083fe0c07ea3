// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
	"time"
)

// Shells complete names that the servers know, files of this host where these are meant, and nothing where nobody answers.
func TestCompletion(t *testing.T) {
	addr := startFake(t)
	for line, want := range map[string]string{
		"acquire a":               "aa\n:4",
		"release ":                "a\n:4",
		"append a/b l":            "log\n",
		"append a/b log ":         ":0",
		"cat ":                    "log\n",
		"file seal ":              "log\n",
		"file seal log --lock a":  "aa\n",
		"watch a":                 "aa\n",
		"run a":                   "aa\n",
		"show a/b ":               ":0",
		"config check ":           ":0",
		"proof check ":            ":0",
		"access check ":           ":0",
		"-o json acquire a":       "aa\n",
		"can acquire a":           "aa\n",
		"can ":                    ":4",
		"metadata a/b ":           ":0",
		"run a/b --on-lost ":      "terminate\nkill\nleave\n:4",
		"init --policy ":          "team\nstrict\nopen\n:4",
		"watch --kinds ":          "grant\n",
		"ls -o ":                  "text\njson\n:4",
		"acquire --endpoints x a": ":4",
	} {
		args := strings.Split(line, " ")
		r := run("", addr, append([]string{"__complete"}, args...)...)
		if r.code != 0 || !strings.Contains(r.out, want) || want == ":0" && strings.Contains("\n"+r.out, "\nlog\n") {
			t.Errorf("%q: got %+v, want %q", line, r, want)
		}
	}
	began := time.Now()
	if r := run("", "192.0.2.1:1", "__complete", "acquire", "a"); r.code != 0 || r.out != ":4\n" || time.Since(began) > 5*time.Second {
		t.Errorf("without servers: %+v after %v", r, time.Since(began))
	}
}
