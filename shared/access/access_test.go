// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
)

func compile(t *testing.T, f *access.File) *access.Rules {
	t.Helper()
	r, err := access.Compile(f, 12)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func user(name string, groups ...string) *access.Caller {
	return &access.Caller{Identity: "user:" + name, Groups: groups, Via: "ticket"}
}

func example() *access.File {
	return &access.File{
		Admins: []access.AdminRule{{Who: []string{"group:hpc-admins"}}},
		Rules: []access.Rule{
			{Who: []string{"user:*"}, May: []access.Verb{"acquire", "read", "append"}, Locks: []string{"home/{name}/**", "scratch/*"}},
			{Who: []string{"group:astro", "service:ci"}, May: []access.Verb{"acquire", "append", "break"}, Locks: []string{"astro/**"}, Files: []string{"data/astro/*.log"}},
			{Who: []string{"*"}, May: []access.Verb{"read"}, Locks: []string{"**"}, Files: []string{}},
			{Who: []string{"anonymous"}, May: []access.Verb{"read"}, Locks: []string{"public/job-*/state"}},
			{Who: []string{"service:log"}, May: []access.Verb{"append"}, Locks: []string{"log"}, Files: []string{"**"}},
			{Who: []string{"service:log"}, May: []access.Verb{"append"}, Locks: []string{"**"}, Files: []string{"log"}},
		},
	}
}

func TestMay(t *testing.T) {
	r := compile(t, example())
	ci := &access.Caller{Identity: "service:ci", Via: "key"}
	logger := &access.Caller{Identity: "service:log"}
	spiffe := &access.Caller{Identity: "user:a/b"}
	for _, x := range []struct {
		caller     *access.Caller
		verb       access.Verb
		lock, file string
		want       bool
	}{
		{user("alice"), "acquire", "home/alice/x", "", true},
		{user("alice"), "acquire", "home/alice/x/y", "", true},
		{user("alice"), "acquire", "home/alice", "", false},
		{user("alice"), "acquire", "home/alicex/x", "", false},
		{user("alice"), "acquire", "home/bob/x", "", false},
		{user("*"), "acquire", "home/bob/x", "", false},
		{user("*"), "acquire", "home/*/x", "", true},
		{user("**"), "acquire", "home/bob", "", false},
		{user("{name}"), "acquire", "home/{name}/x", "", true},
		{spiffe, "acquire", "home/a/b/x", "", false},
		{spiffe, "acquire", "scratch/x", "", true},
		{user(".."), "acquire", "home/../x", "", false},
		{user(""), "acquire", "home//x", "", false},
		{user("alice"), "acquire", "scratch/x", "", true},
		{user("alice"), "acquire", "scratch/x/y", "", false},
		{user("alice"), "acquire", "scratch/\xff,\x00 \n", "", true},
		{user("alice"), "append", "home/alice/x", "home/alice/y", true},
		{user("alice"), "append", "home/alice/x", "home/bob/y", false},
		{user("alice"), "append", "home/bob/x", "home/alice/y", false},
		{user("alice"), "append", "", "home/alice/y", true},
		{user("alice"), "read", "any/thing", "", true},
		{user("alice"), "read", "any/thing", "any/file", false},
		{user("alice"), "read", "", "", true},
		{user("alice"), "break", "", "", false},
		{user("alice"), "admin", "", "", false},
		{user("alice"), "keep", "", "", true},
		{user("alice"), "open", "x", "y", true},
		{user("alice"), "acquire", "astro/x", "", false},
		{user("alice", "group:astro"), "acquire", "astro/x", "", true},
		{user("alice", "user:bob", "service:ci", "*"), "acquire", "astro/x", "", false},
		{&access.Caller{Identity: "group:astro"}, "acquire", "astro/x", "", false},
		{user("alice", "group:hpc-admins"), "admin", "", "", true},
		{user("alice", "group:hpc-admins"), "break", "x", "y", true},
		{ci, "append", "astro/x", "data/astro/1.log", true},
		{ci, "append", "astro/x", "data/astro/a/1.log", false},
		{ci, "append", "astro/x", "astro/x", false},
		{ci, "acquire", "scratch/x", "", false},
		{logger, "append", "log", "x", true},
		{logger, "append", "x", "log", true},
		{logger, "append", "x", "x", false}, // each is covered, but not by one rule
		{nil, "read", "public/job-1/state", "", true},
		{nil, "read", "public/job-1/x/state", "", false},
		{nil, "read", "any/thing", "", false},
		{nil, "keep", "", "", true},
		{nil, "open", "", "", true},
		{nil, "admin", "", "", false},
		{&access.Caller{}, "read", "any/thing", "", false},
		{&access.Caller{Operator: true}, "admin", "", "", true},
	} {
		if got := r.Rights(x.caller).May(x.verb, x.lock, x.file); got != x.want {
			t.Errorf("%s may %s %q %q: %v", x.caller.Name(), x.verb, x.lock, x.file, got)
		}
	}
}

func TestWithoutRules(t *testing.T) {
	var r *access.Rules
	if x := r.Rights(nil); !x.May("admin", "", "") || !x.May("append", "l", "f") || !x.MayPrefix("read", "") || r.Version() != 0 {
		t.Error("without rules, not everybody may do everything")
	}
	if r.Revoked(user("alice")) {
		t.Error("without rules, a caller is revoked")
	}
	if _, ok := r.KeyOf([32]byte{}); ok {
		t.Error("a key without rules")
	}
	none := compile(t, &access.File{}).Rights(user("alice"))
	if none.May("keep", "", "") || none.May("read", "x", "") || none.MayPrefix("read", "x") || !none.May("open", "", "") {
		t.Error("rules that allow nothing allow something")
	}
	var no *access.Rights
	if no.May("read", "x", "") || no.MayPrefix("read", "x") || !no.May("open", "", "") {
		t.Error("no rights allow something")
	}
}

func TestMayPrefix(t *testing.T) {
	r := compile(t, &access.File{Rules: []access.Rule{
		{Who: []string{"*"}, May: []access.Verb{"read"}, Locks: []string{"a/**", "b*/c/**", "home/{name}/**", "x", "y/*"}},
		{Who: []string{"user:root"}, May: []access.Verb{"read"}, Locks: []string{"**"}},
	}})
	for prefix, want := range map[string]bool{
		"": false, "a": false, "a/": true, "a/b": true, "bx/c/": true, "b": false, "bx/c": false, "home/alice/": true,
		"home/alice": false, "home/": false, "x": false, "y/": false,
	} {
		if got := r.Rights(user("alice")).MayPrefix("read", prefix); got != want {
			t.Errorf("prefix %q: %v", prefix, got)
		}
	}
	if r.Rights(user("alice")).MayPrefix("acquire", "a/") || !r.Rights(user("root")).MayPrefix("read", "") || !r.Rights(nil).MayPrefix("open", "") {
		t.Error("another verb, or everything")
	}
}

func TestDenial(t *testing.T) {
	r := compile(t, example())
	for want, got := range map[string]string{
		`user:alice (ticket) may not append to "astro/x": no rule of access version 12 allows it (see holdfast can append astro/x)`:                        r.Rights(user("alice")).Denial("append", "astro/x", ""),
		`user:alice (ticket) may not append to file "f" under lock "a b": no rule of access version 12 allows it (see holdfast can append 'a b' --file f)`: r.Rights(user("alice")).Denial("append", "a b", "f"),
		`user:alice (ticket) may not administer the servers: no [[admin]] of access version 12 names it`:                                                   r.Rights(user("alice")).Denial("admin", "", ""),
		`user:alice (ticket) may not use anything: no rule of access version 12 allows it`:                                                                 r.Rights(user("alice")).Denial("keep", "", ""),
		`no credential: set HOLDFAST_KEY, or use the volume's path as the endpoint (without one, access version 12 does not allow to break "x")`:           r.Rights(nil).Denial("break", "x", ""),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestCompileRefuses(t *testing.T) {
	ok := access.Rule{Who: []string{"*"}, May: []access.Verb{"read"}, Locks: []string{"**"}}
	with := func(change func(*access.Rule)) *access.File {
		bad := ok
		change(&bad)
		return &access.File{Rules: []access.Rule{ok, bad}}
	}
	locks := func(s string) *access.File { return with(func(r *access.Rule) { r.Locks = []string{s} }) }
	may := func(v access.Verb) *access.File {
		return with(func(r *access.Rule) { r.May = []access.Verb{"read", v} })
	}
	who := func(s string) *access.File { return with(func(r *access.Rule) { r.Who = []string{s} }) }
	keys := func(all ...access.Key) *access.File { return &access.File{Keys: all} }
	good := access.Key{Name: "ci", SHA256: hash("x")}
	for want, f := range map[string]*access.File{
		`rule 2: verb "acquier": the verbs are`: may("acquier"),
		`rule 2: verb "keep"`:                   may("keep"),
		`rule 2: verb "open"`:                   may("open"),
		`rule 2: verb "admin": name admin`:      may("admin"),
		`rule 2: may is empty`:                  with(func(r *access.Rule) { r.May = nil }),
		`rule 2: locks is empty`:                with(func(r *access.Rule) { r.Locks = nil }),
		`rule 2: locks: an empty pattern`:       locks(""),
		`pattern "a/**/b": ** stands`:           locks("a/**/b"),
		`pattern "a/***": ** stands`:            locks("a/***"),
		`pattern "a{user}": the only word`:      locks("a{user}"),
		`pattern "{{name}": the only word`:      locks("{{name}"),
		`rule 2: files: an empty pattern`:       with(func(r *access.Rule) { r.Files = []string{""} }),
		`rule 2: who is empty`:                  with(func(r *access.Rule) { r.Who = nil }),
		`rule 2: who "alice": it is`:            who("alice"),
		`who "user:": it is`:                    who("user:"),
		`who "User:x": it is`:                   who("User:x"),
		`who "user:a*": a * stands alone`:       who("user:a*"),
		`who "group:*": name the group`:         who("group:*"),
		`admin 1: who "anonymous": not here`:    {Admins: []access.AdminRule{{Who: []string{"anonymous"}}}},
		`revoked 1: before is missing`:          {Ended: []access.Revocation{{Who: []string{"*"}}}},
		`revoked 1: who "anonymous": not here`:  {Ended: []access.Revocation{{Who: []string{"anonymous"}, Before: time.Unix(1, 0)}}},
		`key 1: key name "a b"`:                 keys(access.Key{Name: "a b", SHA256: hash("x")}),
		`key 1: "ci": sha256 has 64`:            keys(access.Key{Name: "ci", SHA256: "abcd"}),
		`key 1: "ci": group "ci"`:               keys(access.Key{Name: "ci", SHA256: hash("x"), Groups: []string{"ci"}}),
		`key 2: "ci": there is another key`:     keys(good, access.Key{Name: "ci", SHA256: hash("y")}),
		`key 2: "cd": key "ci" has the same`:    keys(good, access.Key{Name: "cd", SHA256: strings.ToUpper(hash("x"))}),
	} {
		if _, err := access.Compile(f, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestKeysAndRevocations(t *testing.T) {
	cut := time.Unix(1000, 0)
	r := compile(t, &access.File{
		Keys: []access.Key{{Name: "ci", SHA256: hash("text"), Groups: []string{"group:ci"}, Created: time.Unix(500, 0)}},
		Ended: []access.Revocation{
			{Who: []string{"user:alice", "group:astro"}, Before: cut},
			{Who: []string{"cert:*", "service:ci"}, Before: cut},
		},
	})
	if k, ok := r.KeyOf(sha256.Sum256([]byte("text"))); !ok || k.Name != "ci" || len(k.Groups) != 1 {
		t.Errorf("the key is %+v, %v", k, ok)
	}
	if _, ok := r.KeyOf(sha256.Sum256([]byte("other"))); ok {
		t.Error("another text is a key")
	}
	issued := func(c *access.Caller, at int64) *access.Caller {
		if at != 0 {
			c.Issued = time.Unix(at, 0)
		}
		return c
	}
	for i, x := range []struct {
		c    *access.Caller
		want bool
	}{
		{nil, false},
		{issued(user("alice"), 999), true},
		{issued(user("alice"), 1000), false},
		{issued(user("alice"), 0), false},
		{issued(user("bob"), 999), false},
		{issued(user("bob", "group:astro"), 999), true},
		{issued(&access.Caller{Identity: "cert:x"}, 999), true},
		{issued(&access.Caller{Identity: "cert:x", Operator: true}, 999), false},
		{&access.Caller{Identity: "service:ci", Key: "ci"}, false},
		{&access.Caller{Identity: "service:cd", Key: "cd"}, true},
		{issued(&access.Caller{Identity: "service:ci", Key: "ci", Via: "key"}, 500), false}, // [[revoked]] is about tickets
		{issued(&access.Caller{Identity: "service:ci", Key: "ci", Via: "key"}, 400), true},  // an older key with that name
		{issued(&access.Caller{Identity: "service:ci", Key: "ci", Via: "ticket"}, 999), true},
		{issued(&access.Caller{Identity: "service:ci", Key: "ci", Via: "ticket"}, 1000), false},
	} {
		if got := r.Revoked(x.c); got != x.want {
			t.Errorf("%d: %v is revoked: %v", i, x.c, got)
		}
	}
}

// TestRulesAreCopied fails if who compiled rules can still change them.
func TestRulesAreCopied(t *testing.T) {
	f := example()
	r := compile(t, f)
	f.Rules[0].Who[0], f.Rules[0].May[0], f.Admins[0].Who[0] = "user:bob", "break", "user:alice"
	x := r.Rights(user("alice"))
	if !x.May("acquire", "scratch/x", "") || x.May("admin", "", "") {
		t.Error("a change of the file changed its rules")
	}
}

func TestMayAllocatesNothing(t *testing.T) {
	team := compile(t, &access.File{Rules: []access.Rule{{Who: []string{"*"}, May: []access.Verb{"acquire"}, Locks: []string{"**"}}}}).Rights(user("alice"))
	strict := compile(t, example()).Rights(user("alice"))
	if n := testing.AllocsPerRun(100, func() {
		if !team.May("acquire", "a/b", "") || !strict.May("append", "home/alice/x", "home/alice/y") || strict.May("acquire", "x", "") {
			t.Error("wrong")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMay(b *testing.B) {
	r, err := access.Compile(&access.File{Rules: []access.Rule{{Who: []string{"*"}, May: []access.Verb{"acquire"}, Locks: []string{"**"}}}}, 1)
	if err != nil {
		b.Fatal(err)
	}
	x := r.Rights(user("alice"))
	for b.Loop() {
		x.May(access.Acquire, "home/alice/x", "")
	}
}
