// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
)

// atHome runs a command with these environment variables.
func atHome(env map[string]string, args ...string) result {
	var out, errs bytes.Buffer
	code := cli.Main(args, cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] }})
	return result{code, out.String(), errs.String()}
}

// TestLogin: the service's user gets a ticket that only he can read, and it is shown nowhere else.
func TestLogin(t *testing.T) {
	x, home := newOlder(t), t.TempDir()
	env := map[string]string{"HOME": home}
	if r := atHome(env, "login", "--volume", x.dir); r.code == 0 || !strings.Contains(r.errs, "holdfast secure offer") {
		t.Errorf("a volume without a signing key: %+v", r)
	}
	if r := run("", "", "secure", "offer", "--volume", x.dir); r.code != 0 {
		t.Fatal(r)
	}
	if r := atHome(nil, "login", "--volume", x.dir); r.code == 0 || !strings.Contains(r.errs, "set HOME") {
		t.Errorf("no home: %+v", r)
	}
	if r := atHome(env, "login", "--volume", x.dir, "--for", "-1s"); r.code != 2 {
		t.Errorf("got %+v", r)
	}
	r := atHome(env, "login", "--volume", x.dir, "-o", "json")
	var said struct {
		Status, Identity, Cluster, File string
		Operator                        bool
	}
	if err := json.Unmarshal([]byte(r.out), &said); err != nil || r.code != 0 {
		t.Fatalf("%+v: %v", r, err)
	}
	if err := os.Chmod(said.File, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := atHome(env, "login", "--volume", x.dir); r.code != 0 { // a file that others may read does not stay one
		t.Errorf("got %+v", r)
	}
	info, err := os.Stat(said.File)
	if err != nil || info.Mode().Perm() != 0o600 || said.File != filepath.Join(home, ".config", "holdfast", said.Cluster+".ticket") || !said.Operator || !strings.HasPrefix(said.Identity, "user:") {
		t.Errorf("%+v, %v", said, err)
	}
	b, err := os.ReadFile(said.File)
	if ticket := strings.TrimSpace(string(b)); err != nil || !strings.HasPrefix(ticket, "hft_") || strings.Contains(r.out+r.errs, ticket[4:20]) {
		t.Errorf("%q, %v", r.out, err)
	}
	if r := atHome(env, "logout", "--volume", x.dir); r.code != 0 || !strings.Contains(r.out, "removed") {
		t.Errorf("got %+v", r)
	}
	if _, err := os.Stat(said.File); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if r := atHome(env, "logout", "--volume", x.dir, "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"removed":false`) {
		t.Errorf("got %+v", r)
	}
}

// What is no credential is said at once, and not shown.
func TestNoCredential(t *testing.T) {
	for _, args := range [][]string{{"show", "a"}, {"tail", "f"}, {"watch"}} {
		r := atHome(map[string]string{"HOLDFAST_KEY": "verysecret", "HOLDFAST_ENDPOINTS": "127.0.0.1:1"}, args...)
		if r.code != 2 || !strings.Contains(r.errs, "HOLDFAST_KEY has no credential") || strings.Contains(r.errs, "verysecret") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
