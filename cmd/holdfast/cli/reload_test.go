// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// What a reload changes, for a restart or at once, is said against what runs, not against the last file.
func TestReloader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("id = 1\nvolume = \"/v\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log-level = \"warn\"")
	from := settings.Sources{File: file, Flags: map[string][]string{"heartbeat": {"40ms"}}}
	s, err := load(from)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	level := &logLevel{}
	level.set(s.LogLevel)
	log := zerolog.New(&said).Sample(level)
	r := &reloader{from: from, started: s, now: s, live: serve.NewLive(liveOf(s)), level: level, log: log}
	for _, x := range []struct {
		name, text       string
		changed, restart string
		wrong            string
		level            zerolog.Level
	}{
		{"the same", "log-level = \"warn\"", "", "", "", zerolog.WarnLevel},
		{"a mistake", "log-level = \"error\"\nid = 2", "", "", "f.toml:4:1: key id is already defined", zerolog.WarnLevel},
		{"a level", "log-level = \"error\"", "log-level", "", "", zerolog.ErrorLevel},
		{"a certificate that is not there", "log-level = \"debug\"\ntls-cert = \"/not/there\"\ntls-key = \"/not/there\"", "", "", "/not/there", zerolog.ErrorLevel},
		{"a restart", "log-level = \"error\"\nbind = \"h\"", "", "bind", "", zerolog.ErrorLevel},
		{"a mistake then", "log-level = \"loud\"", "", "bind", "log-level \"loud\"", zerolog.ErrorLevel},
		{"the same again", "log-level = \"debug\"\nbind = \"h\"", "log-level", "bind", "", zerolog.DebugLevel},
		{"a flag wins", "log-level = \"debug\"\nheartbeat = \"10ms\"", "", "", "", zerolog.DebugLevel},
		{"the default", "", "log-level", "", "", zerolog.InfoLevel},
	} {
		write(x.text)
		got := r.reload()
		if strings.Join(got.Changed, " ") != x.changed || strings.Join(got.Restart, " ") != x.restart || !strings.Contains(got.Error, x.wrong) || (got.Error == "") != (x.wrong == "") {
			t.Errorf("%s: got %+v", x.name, got)
		}
		if zerolog.Level(level.least.Load()) != x.level {
			t.Errorf("%s: the level is %d", x.name, level.least.Load())
		}
		if !slices.Equal(r.live.Restart(), got.Restart) {
			t.Errorf("%s: status says %v", x.name, r.live.Restart())
		}
	}
	if !strings.Contains(said.String(), "needs a restart: bind") {
		t.Errorf("the log: %s", &said)
	}
}

// config check and show say what is configured, without a server.
func TestConfigCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(file, []byte("id = 1\nlog-level = \"warn\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"HOLDFAST_SERVER_HEARTBEAT": "40ms", "HOLDFAST_SERVER_CONFIG": file}
	for _, x := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"check", file}, 0, []string{file + " is good: it sets 2 settings"}},
		{[]string{"check", "/not/there"}, 5, []string{"read the configuration", "/not/there"}},
		{[]string{"show", "--tls-min", "1.2"}, 0, []string{"tls-min                        1.2        --tls-min", "heartbeat                      40ms       HOLDFAST_SERVER_HEARTBEAT", file + ":2:1", "log-level +"}},
		{[]string{"show", "-o", "json"}, 0, []string{`{"name":"heartbeat","value":"40ms","origin":"HOLDFAST_SERVER_HEARTBEAT","default":"50ms","live":false}`}},
		{[]string{"reload"}, 2, []string{"--data-dir, or --id and --volume, or --id and --site, are needed"}},
		{[]string{"reload", "--data-dir", "none"}, 2, []string{"no data directory"}},
		{[]string{"reload", "--data-dir", t.TempDir()}, 4, []string{"no server takes requests", "SIGHUP"}},
		{[]string{"nonsense"}, 2, []string{"unknown command"}},
	} {
		var out strings.Builder
		code := Main(append([]string{"config"}, x.args...), Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(name string) string { return vars[name] }})
		if code != x.code {
			t.Errorf("%v: exit code %d, want %d\n%s", x.args, code, x.code, &out)
		}
		for _, w := range x.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%v: no %q in\n%s", x.args, w, &out)
			}
		}
	}
}

// What needs a restart has an exit code of its own, and a refusal that of a mistake.
func TestReloaded(t *testing.T) {
	for _, x := range []struct {
		r    serve.Reloaded
		code int
		want string
	}{
		{serve.Reloaded{}, 0, "changed: nothing\n"},
		{serve.Reloaded{Changed: []string{"a", "b"}}, 0, "changed: a, b\n"},
		{serve.Reloaded{Changed: []string{"a"}, Restart: []string{"id", "bind"}}, 6, "changed: a\nneeds a restart: id\nneeds a restart: bind\n"},
		{serve.Reloaded{Restart: []string{"id"}, Error: "f:1:1: x"}, 2, ""},
	} {
		var out strings.Builder
		a := &app{Env: Env{Stdout: &out}, format: formatText}
		err := a.reloaded(x.r)
		code := a.code
		if err != nil {
			code = exitCode(err)
		}
		if code != x.code || out.String() != x.want {
			t.Errorf("%+v: exit code %d, want %d, and %q", x.r, code, x.code, &out)
		}
	}
}
