// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

func TestParseSaysWhere(t *testing.T) {
	const good = "[[rule]]\nwho = [\"*\"]\nmay = [\"read\"]\nlocks = [\"**\"]\n"
	for text, want := range map[string]string{
		good + "luck = 1\n":  `line 5, column 1: unknown key "rule.luck"`,
		good + "files = 1\n": "line 5, column 9: ",
		good + "x = \n":      "line 5, column 5: ",
		good + "\n # a comment\n  [[ rule ]]\nwho = [\"*\"]\nmay = [\"reed\"]\nlocks = [\"**\"]\n": `line 7: rule 2: verb "reed"`,
		"rule = [{ who = [\"x\"] }]":                                                  `rule 1: who "x"`,
		"[[quota]]\nwho = [\"*\"]\nlimits = { lokcs = 1 }\n":                          `line 1: quota 1: limits: there is no limit "lokcs": they are locks, waiters, sessions, watches, requests_per_s,`,
		"[[quota]]\nwho = [\"*\"]\nlimit = { locks = 1 }\n":                           `line 3, column 1: unknown key "quota.limit`,
		"[[quota]]\nwho = [\"*\"]\n[quota.limits]\nlocks = 1\nfile_bytes = \"1XB\"\n": `line 1: quota 1: limits: file_bytes is of files`,
		"[[quota]]\nwho = [\"*\"]\nlimits = { locks = 0 }\n":                          "line 1: quota 1: limits: locks = 0: it is 1 or more",
		good + "[[quota]]\nprefix = \"a/\"\nlimits = { watches = 1 }\n":               "line 5: quota 1: limits: watches is of identities",
		"[[key]]\nname = \"ci\"\nsha256 = \"00\"\n":                                   "line 1: key 1: ",
	} {
		if _, err := rules.Parse([]byte(text), 1); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	r, err := rules.Parse([]byte(good+"files = []\n"), 7)
	if err != nil {
		t.Fatal(err)
	}
	x := r.Rights(&access.Caller{Identity: "user:alice"})
	if r.Version() != 7 || !x.May(access.Read, "a", "") || x.May(access.Read, "a", "a") {
		t.Error("files = [] is not about no file")
	}
}

// Limits are numbers, or texts with a unit where they are bytes; in a table of their own, or in one line.
func TestQuotasInText(t *testing.T) {
	r, err := rules.Parse([]byte(`
[[quota]]
who = ["service:*"]
limits = { locks = 10_000, waiters = 1000, sessions = 200, watches = 100, requests_per_s = 5000, append_bytes_per_s = "20MB" }

[[quota]]
prefix = "astro/"
[quota.limits]
file_bytes = "1TB"
locks = 7
[[quota]]
who = ["service:ci"]
limits = { append_bytes_per_s = 1024 }
`), 4)
	if err != nil {
		t.Fatal(err)
	}
	want := access.Limits{Locks: 10000, Waiters: 1000, Sessions: 200, Watches: 100, Requests: 5000, AppendBytes: 1024}
	if got := r.Limits(&access.Caller{Identity: "service:ci"}); got == nil || *got != want {
		t.Errorf("%+v", got)
	}
	if got := r.PrefixLimits(); len(got) != 1 || got[0].Prefix != "astro/" || got[0].Limits != (access.Limits{Locks: 7, FileBytes: 1e12}) {
		t.Errorf("%+v", got)
	}
}

// FuzzParse: a text is rules, or has an error that says where; nothing else happens.
func FuzzParse(f *testing.F) {
	f.Add("[[quota]]\nwho = [\"*\"]\nlimits = { locks = 1, append_bytes_per_s = \"20MB\" }\n")
	f.Add("[[rule]]\nwho = [\"*\"]\nmay = [\"read\"]\nlocks = [\"**\"]\n[[quota]]\nprefix = \"a\"\nlimits.locks = 0x1\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := rules.Parse([]byte(text), 1)
		if (r == nil) == (err == nil) {
			t.Errorf("%v, %v", r, err)
		}
		for _, q := range r.PrefixLimits() {
			if q.Prefix == "" || q.Limits == (access.Limits{}) {
				t.Errorf("%+v", q)
			}
		}
	})
}

func policy(t *testing.T, name string) []byte {
	t.Helper()
	text, err := rules.Policy(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPolicies(t *testing.T) {
	alice, ci := &access.Caller{Identity: "user:alice"}, &access.Caller{Identity: "service:ci"}
	for _, x := range []struct {
		policy string
		caller *access.Caller
		verb   access.Verb
		lock   string
		want   bool
	}{
		{rules.Team, alice, access.Append, "any/lock", true},
		{rules.Team, alice, access.Break, "any/lock", false},
		{rules.Team, nil, access.Read, "any/lock", false},
		{rules.Strict, alice, access.Append, "home/alice/x", true},
		{rules.Strict, alice, access.Read, "home/bob/x", false},
		{rules.Strict, ci, access.Read, "home/ci/x", false},
		{rules.Strict, ci, access.Acquire, "service/ci/x", true},
		{rules.Strict, nil, access.Read, "home/alice/x", false},
		{rules.Open, nil, access.Break, "any/lock", true},
		{rules.Open, nil, access.Admin, "", false},
	} {
		r, err := rules.Parse(policy(t, x.policy), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Rights(x.caller).May(x.verb, x.lock, x.lock); got != x.want {
			t.Errorf("%s: %s may %s %s: %v", x.policy, x.caller.Name(), x.verb, x.lock, got)
		}
	}
	// What stands in the comments is right, too.
	for _, name := range []string{rules.Team, rules.Strict} {
		text := bytes.ReplaceAll(policy(t, name), []byte("\n#[["), []byte("\n[["))
		for _, word := range []string{"who =", "may =", "locks =", "limits ="} {
			text = bytes.ReplaceAll(text, []byte("\n#"+word), []byte("\n"+word))
		}
		if f, err := rules.Decode(text); err != nil || len(f.Admins) != 1 {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := rules.Parse(text, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := rules.Policy("tame"); err == nil || !strings.Contains(err.Error(), "use team, strict or open") {
		t.Error(err)
	}
}

func key(name string, n byte) access.Key {
	sum, _ := access.KeySum(access.KeyText([32]byte{n}))
	return access.Key{Name: name, SHA256: fmt.Sprintf("%x", sum), Created: time.Unix(1e9, 0).UTC()}
}

// TestKeysInText: keys come and go, and all else stays, byte by byte.
func TestKeysInText(t *testing.T) {
	text := policy(t, rules.Team)
	a, b := key("a", 1), key("b", 2)
	b.Groups, b.Expires = []string{"group:x", "group:y"}, time.Unix(2e9, 0).UTC()
	one, err := rules.AddKey(text, a)
	if err != nil {
		t.Fatal(err)
	}
	two, err := rules.AddKey(one, b)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := rules.Decode(two); err != nil || !reflect.DeepEqual(f.Keys, []access.Key{a, b}) {
		t.Errorf("the keys are %+v: %v", f, err)
	}
	if _, err := rules.AddKey(two, a); err == nil || !strings.Contains(err.Error(), "another key with this name") {
		t.Error(err)
	}
	if got, err := rules.RemoveKey(two, "b"); err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(string(one)) {
		t.Errorf("%v, and left is\n%s", err, got)
	}
	got, err := rules.RemoveKey(two, "a")
	if err != nil || !bytes.HasPrefix(got, text) || bytes.Count(got, []byte("[[key]]")) != 1 {
		t.Errorf("%v, and left is\n%s", err, got)
	}
	if _, err := rules.RemoveKey(two, "c"); err == nil {
		t.Error("a key that is not there is removed")
	}
	commented := strings.Replace(string(two), "[[key]]\nname = \"b\"", "# of the nightly job\n# and others\n[[key]] # b\nname = \"b\"", 1) + "\n# the end\n[[admin]]\nwho = [\n  [\"x\"][0],\n]"
	if _, err := rules.RemoveKey([]byte(commented), "a"); err == nil {
		t.Error("a text that is not TOML was changed")
	}
	commented = strings.Replace(commented, "  [\"x\"][0],", "  \"user:x\",", 1)
	got, err = rules.RemoveKey([]byte(commented), "b")
	if err != nil || !strings.Contains(string(got), "# of the nightly job") || !strings.Contains(string(got), "# the end\n[[admin]]") {
		t.Errorf("%v, and left is\n%s", err, got)
	}
	got, err = rules.RemoveKey([]byte(commented), "a")
	if err != nil || !strings.Contains(string(got), "# of the nightly job\n# and others\n[[key]] # b") {
		t.Errorf("%v, and left is\n%s", err, got)
	}
	inline := fmt.Appendf(nil, "key = [{ name = \"a\", sha256 = %q, created = 2001-09-09T01:46:40Z }]\n", a.SHA256)
	if _, err := rules.RemoveKey(inline, "a"); err == nil || !strings.Contains(err.Error(), "holdfast access edit") {
		t.Error(err)
	}
	tricky := append(bytes.Clone(one), "groups = [\n  # of CI\n  \"group:ci\",\n]\nexpires = 2040-01-01T00:00:00Z\n"...)
	if got, err := rules.RemoveKey(tricky, "a"); err != nil || strings.Contains(string(got), "group:ci") {
		t.Errorf("%v, and left is\n%s", err, got)
	}
}

func TestAddRevocation(t *testing.T) {
	before := time.Unix(1e9, 0).UTC()
	text, err := rules.AddRevocation([]byte("# no newline"), access.Revocation{Who: []string{"user:alice"}, Before: before})
	if err != nil {
		t.Fatal(err)
	}
	f, err := rules.Decode(text)
	if err != nil || len(f.Ended) != 1 || !f.Ended[0].Before.Equal(before) || f.Ended[0].Who[0] != "user:alice" {
		t.Errorf("%+v: %v", f, err)
	}
	if _, err := rules.AddRevocation(nil, access.Revocation{Who: []string{"alice"}, Before: before}); err == nil {
		t.Error("a revocation of nobody is accepted")
	}
}

func publish(t *testing.T, fsys vfs.FS, after uint64, text string) {
	t.Helper()
	if err := volume.PublishRules(fsys, rand.Reader, after, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestUpdate(t *testing.T) {
	d := volumetest.New(1)
	h := d.Host(1, volumetest.ProfileLocal())
	add := func(n byte) func([]byte) ([]byte, error) {
		return func(text []byte) ([]byte, error) { return rules.AddKey(text, key(fmt.Sprint("k", n), n)) }
	}
	if _, err := rules.Update(h, rand.Reader, add(1)); !errors.Is(err, rules.ErrNone) {
		t.Error(err)
	}
	publish(t, h, 0, string(policy(t, rules.Team)))
	other := true
	n, err := rules.Update(h, rand.Reader, func(text []byte) ([]byte, error) {
		if other { // somebody else is faster
			other = false
			if _, err := rules.Update(h, rand.Reader, add(2)); err != nil {
				t.Error(err)
			}
		}
		return add(3)(text)
	})
	if err != nil || n != 3 {
		t.Fatalf("version %d: %v", n, err)
	}
	_, text, err := rules.Newest(h)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := rules.Decode(text); err != nil || len(f.Keys) != 2 {
		t.Errorf("a change was lost: %+v, %v", f, err)
	}
}
