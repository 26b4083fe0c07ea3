// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/shared/access"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
)

// ruled is a new volume with the rules of a policy.
type ruled struct {
	t   *testing.T
	dir string
}

func newRuled(t *testing.T, policy string) *ruled {
	t.Helper()
	x := &ruled{t, filepath.Join(t.TempDir(), "v")}
	x.run("", "init", "--server", "1=h", "--policy", policy)
	return x
}

// run runs a command on the volume that has to succeed, and returns what it prints.
func (x *ruled) run(stdin string, args ...string) string {
	x.t.Helper()
	r := run(stdin, "", append(args, "--volume", x.dir)...)
	if r.code != 0 {
		x.t.Fatalf("%v: %+v", args, r)
	}
	return r.out
}

// refuses wants a command on the volume to fail, and to say this.
func (x *ruled) refuses(stdin, want string, args ...string) {
	x.t.Helper()
	if r := run(stdin, "", append(args, "--volume", x.dir)...); r.code == 0 || !strings.Contains(r.errs, want) {
		x.t.Errorf("%v: %+v, want %q", args, r, want)
	}
}

// now returns the newest rules.
func (x *ruled) now() *access.Rules {
	x.t.Helper()
	var out struct {
		Version uint64
		Text    string
	}
	if err := json.Unmarshal([]byte(x.run("", "access", "show", "-o", "json")), &out); err != nil {
		x.t.Fatal(err)
	}
	r, err := rules.Parse([]byte(out.Text), out.Version)
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

func TestInitPolicy(t *testing.T) {
	open := newRuled(t, "open")
	if _, err := os.Stat(filepath.Join(open.dir, "access")); !os.IsNotExist(err) {
		t.Errorf("an open volume has access/: %v", err)
	}
	if out := open.run("", "access", "show"); !strings.Contains(out, "everybody may do everything") {
		t.Error(out)
	}
	open.refuses("", "the volume has no access rules", "key", "create", "ci")
	alice := &access.Caller{Identity: "user:alice"}
	for policy, want := range map[string]bool{"team": true, "strict": false} {
		x := newRuled(t, policy)
		if got := x.now().Rights(alice).May(access.Append, "l", "f"); got != want {
			t.Errorf("%s: alice may append: %v", policy, got)
		}
		if out := x.run("", "fsck"); strings.Contains(out, "access") {
			t.Error(out)
		}
	}
}

// TestInitIsSecure: a new volume has rules, and requires TLS of clients, unless one says otherwise.
func TestInitIsSecure(t *testing.T) {
	alice, nobody := &access.Caller{Identity: "user:alice"}, (*access.Caller)(nil)
	for flags, want := range map[string]struct {
		ruled, tls bool
		others     []string // of an init that does not complete this one
	}{
		"":                      {true, true, []string{"--policy strict", "--policy open", "--plain"}},
		"--policy strict":       {true, true, []string{"", "--plain"}},
		"--policy open":         {false, true, []string{"--plain"}},
		"--plain":               {false, false, nil},
		"--plain --policy team": {true, false, []string{"--plain", "--policy strict"}},
	} {
		x := &ruled{t, filepath.Join(t.TempDir(), "v")}
		args := append([]string{"init", "--server", "1=h"}, words(flags)...)
		x.run("", args...)
		wants := func() {
			t.Helper()
			if out := x.run("", "secure", "status", "-o", "json"); !strings.Contains(out, `"tls_required":true,"client_tls":true`) || strings.Contains(out, `"client_tls_required":true`) != want.tls {
				t.Errorf("init %s: %s", flags, out)
			}
			if out := x.run("", "access", "show"); strings.Contains(out, "everybody may do everything") == want.ruled {
				t.Errorf("init %s: %s", flags, out)
			}
			if out := x.run("", "fsck"); !strings.Contains(out, "0 errors") || strings.Contains(out, "access") || strings.Contains(out, "tls") {
				t.Errorf("init %s: %s", flags, out)
			}
		}
		wants()
		if err := os.Remove(filepath.Join(x.dir, "CLUSTER")); err != nil { // as if it had been interrupted
			t.Fatal(err)
		}
		for _, other := range want.others {
			x.refuses("", "another init began here with other flags", append([]string{"init", "--server", "1=h"}, words(other)...)...)
		}
		x.run("", args...)
		wants()
	}
	team := newRuled(t, "team")
	if r := team.now(); !r.Rights(alice).May(access.Acquire, "l", "") || r.Rights(nobody).May(access.Acquire, "l", "") || r.Rights(nobody).May(access.Read, "l", "") {
		t.Error("the policy team is for everybody with a credential, and for nobody else")
	}
}

// A volume of an older version has no key to sign with. With rules it gets one, or servers could not pass on whose a request is.
func TestRulesBringASigningKey(t *testing.T) {
	x := newRuled(t, "open")
	for _, name := range []string{"secrets", "keys.json", "ca.crt"} {
		if err := os.RemoveAll(filepath.Join(x.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	x.run("", "access", "set", "--policy", "team")
	if _, err := auth.OperatorTicket(x.dir, "", time.Now(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestAccessVersions(t *testing.T) {
	x := newRuled(t, "team")
	x.refuses("[[rule]]\nwho = [\"bob\"]\n", `line 1: rule 1: who "bob"`, "access", "set", "-")
	x.refuses("", "give either a file or --policy", "access", "set")
	if out := x.run("", "access", "set", "--policy", "strict"); !strings.Contains(out, "access version 2 is published") {
		t.Error(out)
	}
	x.refuses("# old\n", "were changed meanwhile", "access", "set", "-", "--after", "1")
	x.run("# nobody\n", "access", "set", "-", "--after", "2")
	if out := x.run("", "access", "diff", "2", "3"); !strings.Contains(out, "\n+# nobody\n") && !strings.HasPrefix(out, "+# nobody\n") || !strings.Contains(out, `-locks = ["home/{name}/**"]`) {
		t.Error(out)
	}
	x.refuses("", "no version", "access", "diff", "2", "x")
	x.refuses("", "access version 9", "access", "show", "--version", "9")
	if out := x.run("", "access", "show", "--version", "1"); !strings.Contains(out, `who = ["*"]`) {
		t.Error(out)
	}
	if err := os.WriteFile(filepath.Join(x.dir, "access", "0000000004.toml"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := x.run("", "access", "history")
	if lines := strings.Split(out, "\n"); len(lines) != 6 || !strings.HasPrefix(lines[1], "4 ") || !strings.Contains(lines[1], "line 1, column") || !strings.HasPrefix(lines[4], "1 ") {
		t.Error(out)
	}
	x.run("", "access", "set", "--policy", "team") // over one that does not parse
	if v := x.now().Version(); v != 5 {
		t.Errorf("version %d is the newest", v)
	}
	if r := run("luck = 1\n", "", "access", "check", "-", "-o", "json"); r.code != 5 || !strings.Contains(r.out, "unknown key") {
		t.Errorf("%+v", r)
	}
	if r := run("", "", "access", "check", "-"); r.code != 0 || r.out != "no mistakes\n" {
		t.Errorf("%+v", r)
	}
}

// edit runs holdfast access edit with a shell command as the editor.
func (x *ruled) edit(editor string) result {
	var out, errs bytes.Buffer
	code := cli.Main([]string{"access", "edit", "--volume", x.dir}, cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return map[string]string{"EDITOR": editor}[name] },
	})
	return result{code, out.String(), errs.String()}
}

func TestAccessEdit(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	x := newRuled(t, "team")
	if r := x.edit("true"); r.code == 0 || !strings.Contains(r.errs, "nothing was changed") {
		t.Errorf("%+v", r)
	}
	if r := x.edit("sed -i s/append/break/"); r.code != 0 || !strings.Contains(r.out, "version 2") {
		t.Errorf("%+v", r)
	}
	if !x.now().Rights(&access.Caller{Identity: "user:a"}).May(access.Break, "x", "") {
		t.Error("the change is not in force")
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	r := x.edit("sed -i s/acquire,/acquier,/;s/\"acquire\"/\"acquier\"/") // the second command is the shell's, and fails
	if r.code == 0 {
		t.Errorf("%+v", r)
	}
	r = x.edit(`sed -i 's/\["acquire"/["acquier"/'`)
	kept := regexp.MustCompile(`holdfast access set (\S+) --after 2 --volume`).FindStringSubmatch(r.errs)
	if r.code == 0 || !strings.Contains(r.errs, `verb "acquier"`) || kept == nil {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(kept[1])
	if err != nil || !strings.Contains(string(b), `["acquier"`) {
		t.Errorf("kept is %s, %v", b, err)
	}
	fresh := newRuled(t, "open")
	if r := fresh.edit("sed -i s/append/break/"); r.code != 0 || !strings.Contains(r.out, "version 1") {
		t.Errorf("%+v", r)
	}
}

// create makes a key, and returns its text.
func (x *ruled) create(args ...string) string {
	x.t.Helper()
	return strings.TrimSpace(x.run("", append([]string{"key", "create"}, args...)...))
}

func TestKeys(t *testing.T) {
	x := newRuled(t, "team")
	text := x.create("ci", "--expires", "90d", "--group", "robots")
	other := x.create("cron")
	sum, err := access.KeySum(text)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := x.now().KeyOf(sum)
	if !ok || k.Name != "ci" || len(k.Groups) != 1 || k.Groups[0] != "group:robots" || !k.Expires.Equal(k.Created.Add(90*24*time.Hour)) || k.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the key is %+v", k)
	}
	for _, out := range []string{x.run("", "access", "show"), x.run("", "key", "ls"), x.run("", "key", "ls", "-o", "json")} {
		if strings.Contains(out, text) || strings.Contains(out, other) || !strings.Contains(out, "cron") {
			t.Errorf("shown is %s", out)
		}
	}
	x.refuses("", "another key with this name", "key", "create", "ci")
	x.refuses("", "key name", "key", "create", "a b")
	x.refuses("", `--expires "-1d"`, "key", "create", "x", "--expires", "-1d")
	x.refuses("", `there is no key "x"`, "key", "revoke", "x")

	own := func() *access.Caller {
		return &access.Caller{Identity: "service:ci", Key: "ci", Via: "key", Groups: []string{"group:robots"}, Issued: k.Created}
	}
	if x.now().Revoked(own()) {
		t.Error("a key is revoked that was not")
	}
	x.run("", "key", "revoke", "ci")
	if _, ok := x.now().KeyOf(sum); ok || !x.now().Revoked(own()) {
		t.Error("a revoked key is there")
	}
	again := x.create("ci", "--group", "group:robots") // the tickets of the first one stay revoked
	sum, err = access.KeySum(again)
	if err != nil {
		t.Fatal(err)
	}
	k2, ok := x.now().KeyOf(sum)
	fresh := own()
	fresh.Issued = k2.Created
	if !ok || !x.now().Revoked(own()) || x.now().Revoked(fresh) {
		t.Errorf("after a new key with the same name: old revoked %v, new revoked %v", x.now().Revoked(own()), x.now().Revoked(fresh))
	}
	if out := x.run("", "access", "show"); !strings.Contains(out, "# Everybody with a credential") {
		t.Error("the comments are gone")
	}
}

func TestAccessRevoke(t *testing.T) {
	x := newRuled(t, "team")
	alice := &access.Caller{Identity: "user:alice", Issued: time.Now()}
	x.refuses("", `who "alice"`, "access", "revoke", "alice")
	x.run("", "access", "revoke", "user:alice")
	later := &access.Caller{Identity: "user:alice", Issued: time.Now().Add(2 * time.Second)}
	if r := x.now(); !r.Revoked(alice) || r.Revoked(later) || r.Revoked(&access.Caller{Identity: "user:bob", Issued: alice.Issued}) {
		t.Error("the wrong ones are revoked")
	}
}

// TestInitPrivate: nobody else may look into the volume, also where its directory was there before.
func TestInitPrivate(t *testing.T) {
	for name, flags := range map[string][]string{"private": {"--private"}, "not private": nil} {
		for _, there := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "v")
			if there {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r := run("", "", append([]string{"init", "--volume", dir, "--server", "1=h"}, flags...)...)
			if r.code != 0 {
				t.Fatalf("got %+v", r)
			}
			info, err := os.Stat(dir)
			if strings.Contains(r.out, "for other users") != (flags != nil) {
				t.Errorf("%s: what to type: %s", name, r.out)
			}
			if err != nil || (info.Mode().Perm()&0o077 == 0) != (flags != nil) {
				t.Errorf("%s, there before is %v: %v, %v", name, there, info.Mode(), err)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "v")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h"); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	r := run("", "", "init", "--volume", dir, "--server", "1=h", "--private")
	if info, err := os.Stat(dir); r.code == 0 || err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a volume that is there: %+v, %v, %v", r, info.Mode(), err)
	}
	dir = filepath.Join(t.TempDir(), "v")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h", "--private", "--logins"); r.code != 2 || !strings.Contains(r.errs, "leave one of them out") {
		t.Errorf("got %+v", r)
	}
}
