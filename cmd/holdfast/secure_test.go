// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestDevSecure: dev --secure is closed to whoever has no credential, and what it says to type works. Without the flag
// it is open, and says so.
func TestDevSecure(t *testing.T) {
	w := startDev(t, "--secure")
	if w.endpoints != w.dir {
		t.Errorf("the endpoint is %q", w.endpoints)
	}
	w.primary(0)
	w.do("", "acquire", "mine")
	if who := w.do("", "whoami"); !strings.Contains(who, "operator") {
		t.Errorf("the owner of the volume is %s", who)
	}
	if out := w.do("", "secure", "status", "--volume", w.dir); !strings.Contains(out, "clients of other hosts are served over TLS only") {
		t.Error(out)
	}
	key := strings.TrimSpace(w.do("", "key", "create", "ci", "--volume", w.dir))
	w.endpoints = strings.TrimSpace(w.do("", "join", "--volume", w.dir))
	if r := w.try("", "acquire", "theirs"); r.code == 0 || !strings.Contains(r.errs, "credential") {
		t.Errorf("without a credential: %+v", r)
	}
	t.Setenv("HOLDFAST_KEY", key)
	w.do("", "acquire", "theirs") // the servers look for the key before they refuse it
	addresses := fmt.Sprintf("%s,%s", w.servers[0].Client, w.servers[1].Client)
	w.do("", "--endpoints", addresses, "--ca", w.dir+"/ca.crt", "show", "theirs")
	if r := w.try("", "--ca", w.dir+"/ca.crt", "show", "theirs"); r.code != 2 || !strings.Contains(r.errs, "leave one of them out") {
		t.Errorf("--ca with a join string: %+v", r)
	}
	foreign := t.TempDir() + "/v"
	w.do("", "init", "--volume", foreign, "--server", "1=h")
	t.Setenv("HOLDFAST_CA", foreign+"/ca.crt")
	if r := w.try("", "--endpoints", addresses, "--timeout", "1s", "show", "theirs"); r.code == 0 || !strings.Contains(r.errs, "not a server of this cluster") {
		t.Errorf("another authority: %+v", r)
	}
	w.do("", "show", "theirs") // the join string says more than the environment
	if r := w.try("", "break", "mine", "--reason", "no"); r.code == 0 {
		t.Error("a service breaks a lock, by the policy team")
	}
}

// TestDevSays which kind it is, in the words of its banner.
func TestDevSays(t *testing.T) {
	for flag, want := range map[string]string{
		"--secure=false": `plain text, and everybody who reaches them may do everything .*--secure`,
		"--secure=true":  `They speak TLS, and go by access rules`,
	} {
		cmd := exec.Command(os.Getenv(binaryEnv), "dev", "--dir", t.TempDir(), "--base-port", fmt.Sprint(freeBase(t)), flag)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := false
		for lines := bufio.NewScanner(out); !said && lines.Scan(); {
			said = regexp.MustCompile(want).MatchString(lines.Text())
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		cmd.Wait() //nolint:errcheck // it was told to end
		if !said {
			t.Errorf("dev %s does not say %q", flag, want)
		}
	}
}
