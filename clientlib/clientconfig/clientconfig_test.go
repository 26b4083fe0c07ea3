// SPDX-License-Identifier: Apache-2.0

package clientconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	home := t.TempDir()
	own := filepath.Join(home, ".config", "holdfast", "config.toml")
	xdg := filepath.Join(home, "xdg", "holdfast", "config.toml")
	one := filepath.Join(home, "one.toml")
	for name, text := range map[string]string{own: "endpoints = \"h:1\"\noutput = \"json\"\n", xdg: "endpoints = \"x:1\"\n", one: "key-file = \"/k\"\nca = \"/c\"\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		vars map[string]string
		want Config
		from string // of the endpoints
	}{
		{map[string]string{"HOME": home}, Config{Endpoints: "h:1", Output: "json"}, own},
		{map[string]string{"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, "xdg")}, Config{Endpoints: "x:1"}, xdg},
		{map[string]string{"HOME": home, "XDG_CONFIG_HOME": "relative"}, Config{Endpoints: "h:1", Output: "json"}, own},
		{map[string]string{"HOME": home, "HOLDFAST_CLIENT_CONFIG": one}, Config{KeyFile: "/k", CA: "/c"}, ""},
		{map[string]string{"HOME": t.TempDir()}, Config{}, ""},
		{nil, Config{}, ""},
	} {
		got, err := Read(func(name string) string { return x.vars[name] })
		if err != nil || got.Config != x.want || got.From["endpoints"] != x.from {
			t.Errorf("%v: got %+v, %v", x.vars, got, err)
		}
		for _, key := range Keys() {
			if (got.Get(key) != "") != (got.From[key] != "") {
				t.Errorf("%v: %s is %q of %q", x.vars, key, got.Get(key), got.From[key])
			}
		}
	}
	if _, err := Read(func(name string) string { return map[string]string{"HOLDFAST_CLIENT_CONFIG": "/not/there"}[name] }); err == nil {
		t.Error("a file that is named and not there is none")
	}
}

// Of two files the later wins, key by key.
func TestTake(t *testing.T) {
	s := Sourced{From: map[string]string{}}
	s.take(Config{Endpoints: "a:1", CA: "/a"}, "host")
	s.take(Config{Endpoints: "b:1"}, "user")
	if want := (Config{Endpoints: "b:1", CA: "/a"}); s.Config != want || s.From["endpoints"] != "user" || s.From["ca"] != "host" {
		t.Errorf("got %+v", s)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"\n endpoint = \"a\"": `f:2:2: unknown key "endpoint": did you mean endpoints?`,
		"[x]\ny = 1":          `f:1:2: unknown key "x"`,
		"endpoints = 5":       `f:1:13: `,
		"endpoints":           `f:1:9: expected '=' after key`,
		"output = \"xml\"":    `f: output "xml": use text or json`,
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// Any text is a configuration whose values it has, or is refused with its name.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "endpoints = \"a\"", "key-file = '''\nx'''", "[a]", "output=\"json\"", "\"ca\"=\"\\u0000\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Parse("name", []byte(text)); err != nil && (c != Config{} || !strings.HasPrefix(err.Error(), "name:")) {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
