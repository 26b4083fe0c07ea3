// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramName(t *testing.T) {
	for _, x := range []struct {
		line, name string
		exact      bool
	}{
		{"/usr/bin/rsync -a /a /b", "rsync", true},
		{"./backup.sh --password=secret", "backup.sh", true},
		{"/bin/bash /srv/jobs/backup.sh --password=secret", "backup.sh", true},
		{"bash -eu /srv/jobs/backup.sh", "backup.sh", true},
		{"/usr/bin/python3.11 -u report.py secret", "report.py", true},
		{"perl -w -T rotate.pl", "rotate.pl", true},
		{"-bash", "bash", false},
		{"sh -c secret", "sh", false},
		{"sh -ec secret", "sh", false},
		{"bash -o pipefail backup.sh", "bash", false},
		{"bash -s secret", "bash", false},
		{"bash - secret", "bash", false},
		{"bash -- secret", "bash", false},
		{"python3 -m secret", "python3", false},
		{"perl -e secret", "perl", false},
		{"node -e secret", "node", false},
		{"", "", false},
	} {
		if name, exact := programName(strings.Fields(x.line)); name != x.name || exact != x.exact {
			t.Errorf("%q is %q, %t; want %q, %t", x.line, name, exact, x.name, x.exact)
		}
	}
	if name, exact := programName([]string{"bash", ""}); name != "bash" || exact {
		t.Errorf("an empty argument is %q, %t", name, exact)
	}
}

// A command that a script runs is described by the script, in whatever way the script was started.
func TestScriptIsFound(t *testing.T) {
	script := filepath.Join(t.TempDir(), "nightly.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh -e\n\""+os.Args[0]+"\" -test.run '^TestScriptIsFound$' -test.v secret\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("CALLED_BY_SCRIPT") != "" {
		a := &app{Env: Env{Getenv: func(string) string { return "" }}}
		t.Logf("caller %q, command %q, program %q, own %q", a.callersHolder().GetCommand(), a.holderOf([]string{"sh", "-c", "secret"}).Command, a.holderOf([]string{"tar"}).Command,
			a.ownHolder().Command)
		return
	}
	for _, args := range [][]string{{script}, {"/bin/sh", script, "secret"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CALLED_BY_SCRIPT=1")
		out, err := cmd.CombinedOutput()
		if want := `caller "nightly.sh", command "nightly.sh", program "tar", own "nightly.sh"`; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, no %s in %s", args, err, want, out)
		}
	}
}

// Users may say what others see of them.
func TestHolderIsNamedByTheEnvironment(t *testing.T) {
	a := &app{Env: Env{Getenv: func(name string) string {
		return map[string]string{"HOLDFAST_USER": "somebody", "HOLDFAST_PROGRAM": strings.Repeat("ä", 200)}[name]
	}}}
	h := a.callersHolder()
	if h.GetUser() != "somebody" || len(h.GetCommand()) != 256 || h.GetPid() != int64(os.Getppid()) {
		t.Errorf("got %v", h)
	}
	if h := a.holderOf([]string{"sh", "-c", "x"}); h.User != "somebody" || !strings.HasPrefix(h.Command, "ää") {
		t.Errorf("got %v", h)
	}
}
