// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/audit"
)

// auditTold is what holdfast audit prints as JSON.
type auditTold struct {
	Events []audit.Event
	More   bool
}

// Each command that changes a volume is told with who typed it, and what only reads is not. No secret is in a line.
func TestCommandsAreInTheAudit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	do := func(args ...string) string {
		t.Helper()
		r := run("", "", args...)
		if r.code != 0 {
			t.Fatalf("%q: %d, %s", args, r.code, r.errs)
		}
		return r.out
	}
	do("init", "--policy", "open", "--volume", dir, "--server", "1=127.0.0.1:7601")
	read := func(args ...string) (r auditTold) {
		t.Helper()
		if err := json.Unmarshal([]byte(do(append([]string{"audit", "--volume", dir, "-o", "json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := read(); len(r.Events) != 0 {
		t.Fatalf("before: %+v", r)
	}
	do("access", "set", "--policy", "team", "--volume", dir)
	key := strings.TrimSpace(do("key", "create", "ci", "--expires", "90d", "--volume", dir))
	do("key", "ls", "--volume", dir)
	do("access", "show", "--volume", dir, "-o", "json")
	do("access", "revoke", "user:alice", "--volume", dir, "-o", "json")
	do("key", "revoke", "ci", "--volume", dir)
	do("secure", "rotate", "signing", "--now", "--volume", dir)
	do("access", "logins", "--volume", dir)
	if r := run("", "", "key", "revoke", "nobody", "--volume", dir); r.code == 0 {
		t.Error("a key that is not there was revoked")
	}
	var got []string
	r := read("--since", "1h")
	for _, e := range r.Events {
		got = append(got, e.Command+": "+e.Status)
		if e.Kind != audit.KindCommand || !strings.HasPrefix(e.Identity, "user:") || e.Host == "" || e.Via != "volume" || time.Since(e.Time) > time.Hour {
			t.Errorf("%+v", e)
		}
		changes := strings.HasPrefix(e.Command, "key") || strings.HasPrefix(e.Command, "access set") || strings.HasPrefix(e.Command, "access revoke")
		if (e.Version > 0) != (changes && e.Status == "OK") || (len(e.Diff) > 0) != (e.Version > 0) {
			t.Errorf("%s: version %d, %q", e.Command, e.Version, e.Diff)
		}
	}
	want := []string{
		"access set --policy=team: OK", "key create ci --expires=90d: OK", "access revoke user:alice: OK", "key revoke ci: OK",
		"secure rotate signing --now=true: OK", "access logins: OK", "key revoke nobody: ERROR",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit has %q", got)
	}
	files, err := filepath.Glob(filepath.Join(dir, "audit", "0-*.jsonl"))
	if err != nil || len(files) != len(want) {
		t.Errorf("%q, %v", files, err)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err != nil || strings.Contains(string(b), key) {
			t.Errorf("%s: %v, or the key is in it", name, err)
		}
	}
	if text := do("audit", "--volume", dir); !strings.Contains(text, `command="key create ci --expires=90d"`) || !strings.Contains(text, `    +name = "ci"`) {
		t.Errorf("as text: %s", text)
	}
	if r := read("--limit", "2"); len(r.Events) != 2 || !r.More {
		t.Errorf("two of them: %+v", r)
	}
	if r := read("--who", "user:nobody-of-that-name"); len(r.Events) != 0 {
		t.Errorf("of nobody: %+v", r)
	}
}

// What is no volume gets no audit.
func TestNoAuditWithoutAVolume(t *testing.T) {
	none := t.TempDir()
	run("", "", "secure", "offer", "--volume", none)
	if _, err := os.Lstat(filepath.Join(none, "audit")); err == nil {
		t.Error("a directory that is no volume got an audit")
	}
}
