// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// environment returns a getenv.
func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// A flag wins over the environment, that over the file, and that over the default, for each type of value.
func TestPrecedence(t *testing.T) {
	const file = `
suspicion = "1s"
heartbeat = "20ms"
max-connections-per-address = 7
web-origins = ["https://file.example", "https://second.example"]
log_level = "error"
unsafe-filesystem = true
`
	vars := map[string]string{
		"HOLDFAST_SERVER_SUSPICION": "2s", "HOLDFAST_SERVER_MAJORITY_WINDOW": "9s", "HOLDFAST_SERVER_QUORUM_TIMEOUT": "9s", "HOLDFAST_SERVER_STORAGE_TIMEOUT": "9s",
		"HOLDFAST_SERVER_WEB_ORIGINS": "https://a.example,https://b.example", "HOLDFAST_SERVER_LOG_LEVEL": "warn", "HOLDFAST_SERVER_TLS_MIN": "",
	}
	flags := map[string][]string{"suspicion": {"3s"}, "log-level": {"debug"}}
	all := Sources{Flags: flags, Getenv: environment(vars)}
	for _, x := range []struct {
		name         string
		from         Sources
		text         string
		value, where string
	}{
		{"suspicion", Sources{}, "", "300ms", "default"},
		{"suspicion", Sources{}, file, "1s", "f.toml:2:1"},
		{"suspicion", Sources{Getenv: all.Getenv}, file, "2s", "HOLDFAST_SERVER_SUSPICION"},
		{"suspicion", all, file, "3s", "--suspicion"},
		{"suspicion", all, "", "3s", "--suspicion"},
		{"heartbeat", all, file, "20ms", "f.toml:3:1"},
		{"max-connections-per-address", all, file, "7", "f.toml:4:1"},
		{"web-origins", Sources{}, file, "https://file.example,https://second.example", "f.toml:5:1"},
		{"web-origins", all, file, "https://a.example,https://b.example", "HOLDFAST_SERVER_WEB_ORIGINS"},
		{"log-level", Sources{}, file, "error", "f.toml:6:1"},
		{"log-level", all, file, "debug", "--log-level"},
		{"unsafe-filesystem", all, file, "true", "f.toml:7:1"},
		{"tls-min", all, file, "1.3", "default"}, // an empty variable is none
	} {
		text := x.text
		if text == file { // a suspicion alone would not go with the rest
			text += "majority-window = \"9s\"\nquorum-timeout = \"9s\"\nstorage-timeout = \"9s\"\n"
		}
		s, err := load(x.from, "f.toml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if got, where := s.Find(x.name).Value(), s.OriginOf(x.name).String(); got != x.value || where != x.where {
			t.Errorf("%s: got %s of %s, want %s of %s", x.name, got, where, x.value, x.where)
		}
	}
}

// The same settings in JSON, as older versions had them.
func TestJSON(t *testing.T) {
	s, err := load(Sources{}, "f.json", []byte(" {\"id\": 1,\n \"min_ttl\": \"5s\", \"web-origins\": [\"https://a.example\"], \"history-bytes\": 2000000, \"unsafe-filesystem\": true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != 1 || s.Timing().MinTTL != 5*time.Second || !slices.Equal(s.Origins, []string{"https://a.example"}) || s.History.TotalBytes != 2000000 || !s.UnsafeFilesystem {
		t.Errorf("got %+v", s)
	}
	if at := s.OriginOf("min-ttl").String(); at != "f.json:2:2" {
		t.Errorf("min-ttl is of %s", at)
	}
}

// Each mistake is told with its place, and all of them at once.
func TestMistakes(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"\n\n  suspicon = \"1s\"\n", `f:3:3: unknown key "suspicon": did you mean suspicion?`},
		{"colour = 1", `f:1:1: unknown key "colour"`},
		{"config = \"x\"", `f:1:1: unknown key "config"`},
		{"id = \"one\"", `f:1:1: id "one": want a whole number that is not too large`},
		{"id = -1", `f:1:1: id "-1": want a whole number that is not too large`},
		{"id = 1.5", `f:1:1: id "1.5": want a whole number that is not too large`},
		{"id = 2026-11-28", `f:1:1: id has to be a text, a number, true or false, or a list of these`},
		{`trace-sample = "much"`, `f:1:1: trace-sample "much": want a number such as 0.01`},
		{"trace-sample = 1.5", `f:1:1: trace-sample 1.5: use 0 to 1`},
		{`trace-otlp = "collector"`, `f:1:1: trace-otlp "collector": use HOST:PORT, or https://HOST:PORT`},
		{"id = [1, 2]", `f:1:1: id is a list, and has to be one value`},
		{"volume = 2026-01-01", `f:1:1: volume has to be a text, a number, true or false, or a list of these`},
		{"unsafe-filesystem = \"maybe\"", `f:1:1: unsafe-filesystem "maybe": want true or false`},
		{"heartbeat = 5", `f:1:1: heartbeat "5": want a duration such as 300ms, 10s or 2h`},
		{"heartbeat = \"1s\"\nsuspicion = \"2s\"", `f:2:1: suspicion is 2s but must be at least 3s: one lost ping must not start an election`},
		{"log-level = \"loud\"", `f:1:1: log-level "loud": use debug, info, warn or error`},
		{"log-format = \"xml\"", `f:1:1: log-format "xml": use json or console`},
		{"tls-min = \"1.1\"", `f:1:1: tls-min "1.1": use 1.3 or 1.2`},
		{"tls-cert = \"a\"", `f:1:1: tls-cert is set and tls-key is not: give both, or none`},
		{"tls-key = \"a\"", `f:1:1: tls-key is set and tls-cert is not: give both, or none`},
		{"listen = \"7601\"", `f:1:1: listen "7601": use HOST:PORT`},
		{"web-origins = [\"http://*:3000\"]", `f:1:1: web-origins "http://*:3000" would permit the pages of every host that anybody gives such a name: in the host, * stands before a dot and a name only, as in https://*.example.com`},
		{"web-origins = [\"https://a.example\", \"*\"]", `f:1:1: web-origins "*" is no origin: use SCHEME://HOST[:PORT], such as https://app.example.com or https://*.example.com`},
		{"max-connections = 0", `f:1:1: max-connections 0: use 1 or more`},
		{"max-connections-per-address = 0", `f:1:1: max-connections-per-address 0: use 1 or more`},
		{"history-rate = 0", `f:1:1: history-rate 0: use 1 or more, or -1 to record no plain release one by one`},
		{"history-bytes = 5", `f:1:1: history-bytes 5: use 1048576 or more`},
		{"history-age = \"1m\"", `f:1:1: history-age 1m0s: use 1h or more`},
		{"failover-policy = \"x\"", `f:1:1: failover-policy "x": use "preserve" or "clear"`},
		{"push-ack = \"x\"", `f:1:1: push-ack "x": use "none", "majority" or "all"`},
		{"id = 1\nid = 2", `f:2:1: key id is already defined`},
		{"min-ttl = \"1s\"\nmin_ttl = \"2s\"", `f:2:1: min-ttl is set twice: it is in line 1, too`},
		{"id 1", `f:1:4: expected '=' after key`},
		{"[timing]\nsuspicion = \"1s\"", `f:1:2: unknown table "timing": settings have no tables, such as log-level = "info"`},
		{"timing.suspicion = \"1s\"", `f:1:1: unknown key "timing.suspicion": settings have no dots, such as log-level = "info"`},
		{"b = 1\nid = \"x\"\n[a]\n", "f:1:1: unknown key \"b\"\nf:2:1: id \"x\": want a whole number that is not too large\nf:3:2: unknown table \"a\": settings have no tables, such as log-level = \"info\""},
		{`{"suspicon": "1s"}`, `f:1:2: unknown key "suspicon": did you mean suspicion?`},
		{"{\"id\": 1,\n  \"id\": 2}", `f:2:3: id is set twice: it is in line 1, too`},
		{`{"id": {"a": 1}}`, `f:1:2: id has to be a text, a number, true or false, or a list of these`},
		{`{"id": 1`, `f:1:9: unexpected EOF: want one JSON object with the names of settings, or TOML`},
		{`{"id" = 1}`, `f:1:7: expected colon after object key: want one JSON object with the names of settings, or TOML`},
		{`{"id": 1} x`, `f:1:11: something follows the object: want one JSON object with the names of settings, or TOML`},
		{`{"id": 1}{}`, `f:1:11: something follows the object: want one JSON object with the names of settings, or TOML`},
	} {
		s, err := load(Sources{}, "f", []byte(x.text))
		if err == nil || s != nil || err.Error() != x.want {
			t.Errorf("%q:\n got %v\nwant %s", x.text, err, x.want)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%q: the error has type %T", x.text, err)
		}
	}
	from := Sources{Getenv: environment(map[string]string{"HOLDFAST_SERVER_HEARTBEAT": "soon", "HOLDFAST_SERVER_TLS_MIN": "1.1"}), Flags: map[string][]string{"id": {"x"}}}
	const want = "--id \"x\": want a whole number that is not too large\nHOLDFAST_SERVER_HEARTBEAT \"soon\": want a duration such as 300ms, 10s or 2h"
	if _, err := load(from, "", nil); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	from = Sources{Getenv: environment(map[string]string{"HOLDFAST_SERVER_TLS_MIN": "1.1"}), Flags: map[string][]string{"max-connections-per-address": {"-1"}}}
	const checked = "--max-connections-per-address -1: use 1 or more\nHOLDFAST_SERVER_TLS_MIN \"1.1\": use 1.3 or 1.2"
	if _, err := load(from, "", nil); err == nil || err.Error() != checked {
		t.Errorf("got %v", err)
	}
	if _, err := Load(Sources{File: "/not/there"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A mistake in the file counts, though a flag has the setting, too: the file is for the next start as well.
func TestOverriddenMistakeIsTold(t *testing.T) {
	if _, err := load(Sources{Flags: map[string][]string{"heartbeat": {"40ms"}}}, "f", []byte(`heartbeat = "soon"`)); err == nil {
		t.Error("it is taken")
	}
}

func TestDifference(t *testing.T) {
	one, err := load(Sources{}, "f", []byte("id = 1\nlog-level = \"warn\"\nweb-origins = [\"https://a.example\"]"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := load(Sources{}, "f", []byte("id = 2\nweb-origins = [\"https://b.example\"]\nheartbeat = \"40ms\"\nhistory-age = \"2h\""))
	if err != nil {
		t.Fatal(err)
	}
	live, restart := one.Difference(two)
	if !slices.Equal(live, []string{"web-origins", "log-level", "history-age"}) || !slices.Equal(restart, []string{"id", "heartbeat"}) {
		t.Errorf("got %v and %v", live, restart)
	}
}

// The flags of a command give what was on its line, and nothing else.
func TestGiven(t *testing.T) {
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(fl, nil)
	fl.String("other", "", "")
	if err := fl.Parse([]string{"--id", "3", "--names", "a,b", "--names", "c", "--other", "x"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(Given(fl)); got != "map[id:[3] names:[a b c]]" {
		t.Errorf("got %s", got)
	}
}

// Any file is good, with values that read back as the same, or has mistakes whose places are in it.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{"", "id = 1", "{\"id\": 1}", "a.b = [1]\n[c]\nd = {e = 1}", "names = [\"a,b\", \"\"]", "[[x]]\ny = '''\n'''", "\"id\" = 0x1", "'web-origins'=[]", "{\"id\":1,", "\ufeff{", "id=1\r\nvolume=\"\"\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := load(Sources{}, "f", []byte(text))
		if err == nil {
			for _, x := range s.All() {
				if x.set(slices.Clone(valuesOf(&x))) != nil {
					t.Errorf("%s: %q does not read back", x.Name, x.Value())
				}
			}
			return
		}
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			at := where(e)
			lines := strings.Split(text, "\n")
			if at != (Origin{}) && (at.Line < 1 || at.Line > len(lines) || at.Column < 1 || at.Column > len(lines[at.Line-1])+2) {
				t.Errorf("%v: no place in %q", e, text)
			}
		}
	})
}

func valuesOf(x *Setting) []string {
	if l := x.list(); l != nil {
		return l.GetSlice()
	}
	return []string{x.Value()}
}

// docs/configuration.md has every setting of a server, and docs/gateway.md those of a gateway. Write them anew with HOLDFAST_REWRITE=1, and read them.
func TestDocumentation(t *testing.T) {
	documented(t, "configuration.md", New().All(), "###", true)
	documented(t, "gateway.md", NewGateway().All(), "", false)
}

// documented compares the table of settings in a document.
func documented(t *testing.T, name string, all []Setting, heading string, reload bool) {
	t.Helper()
	path := filepath.Join("..", "..", "..", "docs", name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- settings: made by cmd/holdfast/settings -->\n", "<!-- end of settings -->\n"
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no place for the settings", path)
	}
	want := before + begin + documentation(all, heading, reload) + end + after
	if os.Getenv("HOLDFAST_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Errorf("%s is not what the settings are: write it anew with HOLDFAST_REWRITE=1", path)
	}
}

// documentation returns a table of settings, one for each group if there are headings. It says when a change takes effect if some wait for a reload.
func documentation(all []Setting, heading string, reload bool) string {
	var b strings.Builder
	columns, line := "| setting | type | default | |", "|---|---|---|---|"
	if reload {
		columns, line = "| setting | type | default | takes effect | |", "|---|---|---|---|---|"
	}
	group := Group("")
	for i, x := range all {
		if x.Hidden {
			continue
		}
		switch {
		case heading != "" && x.Group != group:
			group = x.Group
			fmt.Fprintf(&b, "\n%s %s\n\n%s\n%s\n", heading, group, columns, line)
		case heading == "" && i == 0:
			fmt.Fprintf(&b, "\n%s\n%s\n", columns, line)
		}
		effect, def := "", "–"
		if reload {
			effect = " at a restart |"
		}
		if x.Live {
			effect = " at a reload |"
		}
		if d := x.Default(); d != "" {
			def = "`" + d + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |%s %s |\n", x.Name, x.Type(), def, effect, strings.ReplaceAll(x.Help, "|", `\|`))
	}
	b.WriteString("\n")
	return b.String()
}

// A gateway's settings are from the same sources as a server's, in the same order, under a name of its own in the environment.
func TestGateway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.toml")
	if err := os.WriteFile(file, []byte("site = \"file:1\"\nlisten = \"file:2\"\ndrain = \"3s\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOLDFAST_GATEWAY_SITE": "env:1", "HOLDFAST_GATEWAY_LISTEN": "env:2", "HOLDFAST_SERVER_DRAIN": "9s"}
	g, err := LoadGateway(Sources{Flags: map[string][]string{"site": {"flag:1"}}, Getenv: func(name string) string { return env[name] }, File: file})
	if err != nil || g.Complete() != nil {
		t.Fatal(err, g.Complete())
	}
	if got := fmt.Sprint(g.Site, " ", g.Listen, " ", g.Drain, " ", g.LogLevel); got != "flag:1 env:2 3s info" {
		t.Errorf("got %s", got)
	}
	if NewGateway().Complete() == nil {
		t.Error("a gateway runs without a site")
	}
	for _, x := range []struct{ name, value, want string }{
		{"site", "holdfast://h:1", `--site "holdfast://h:1": join string`},
		{"listen", "7601", `--listen "7601": use HOST:PORT`},
		{"max-connections", "0", "--max-connections 0: use 1 or more"},
		{"max-connections-per-address", "0", "--max-connections-per-address 0: use 1 or more"},
		{"drain", "-1s", "--drain -1s: use 0 or more"},
		{"log-format", "xml", `--log-format "xml": use json or console`},
	} {
		_, err := LoadGateway(Sources{Flags: map[string][]string{x.name: {x.value}}})
		if err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	if _, err := LoadGateway(Sources{File: file + "x"}); err == nil {
		t.Error("a file that is not there is none")
	}
}

// A server is one of a volume, or of a site, and never of both.
func TestComplete(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", "--id and --volume are needed"},
		{"volume = \"/v\"", "--id and --volume are needed"},
		{"id = 1", "or --id and --site"},
		{"id = 1\nvolume = \"/v\"", ""},
		{"id = 1\nsite = \"/s\"", ""},
		{"id = 1\nsite = \"/s\"\ncell = 0", ""},
		{"id = 1\nsite = \"/s\"\nvolume = \"/v\"", "volume (f:3:1) and site (f:2:1) are set"},
		{"id = 1\nvolume = \"/v\"\ncell = 1", "cell is set and site is not"},
		{"id = 1\nsite = \"/s\"\nsecrets = \"/x\"", "are on their volumes"},
		{"id = 1\nsite = \"/s\"\nws-listen = \"h:1\"", "ws-listen is deprecated, and there is none with --site"},
	} {
		s, err := load(Sources{}, "f", []byte(x.text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Complete(); (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %q", x.text, err, x.want)
		}
	}
}

// No two cells have a place in common, and each has the same one whoever starts its server.
func TestPlacesOfCells(t *testing.T) {
	s, err := load(Sources{}, "f", []byte("site = \"/s\"\ndata-dir = \"/d\"\nlisten = \"h:7601\"\nmetrics-listen = \":7901\"\nunix = \"/run/x.sock\""))
	if err != nil {
		t.Fatal(err)
	}
	for cell, want := range map[int]Places{
		AllCells: {"/d", "h:7601", ":7901", "/run/x.sock"},
		0:        {"/d/cell-0", "h:7601", ":7901", "/run/x.sock.0"},
		3:        {"/d/cell-3", "h:7604", ":7904", "/run/x.sock.3"},
	} {
		if p, err := s.PlacesOf(cell); err != nil || p != want {
			t.Errorf("cell %d: %+v, %v", cell, p, err)
		}
	}
	for _, x := range []struct{ listen, want string }{{"", ""}, {"h:0", "h:0"}, {"[::1]:1", "[::1]:3"}, {"h:65534", ""}, {"h:http", ""}} {
		got, err := PortOf(x.listen, 2)
		if got != x.want || (err == nil) != (x.want != "" || x.listen == "") {
			t.Errorf("%q: %q, %v", x.listen, got, err)
		}
		s.Listen, s.MetricsListen = "", x.listen
		if _, also := s.PlacesOf(2); (err == nil) != (also == nil) {
			t.Errorf("metrics at %q: %v", x.listen, also)
		}
	}
	if p, err := New().PlacesOf(1); p != (Places{}) || err != nil {
		t.Errorf("what is not set: %+v, %v", p, err)
	}
	s.DataDir, s.MetricsListen = "none", ""
	if p, err := s.PlacesOf(1); p.DataDir != "none" || err != nil {
		t.Errorf("no data directory: %+v, %v", p, err)
	}
}
