// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// result is what a command line left.
type result struct {
	code      int
	out, errs string
}

func run(stdin, endpoints string, args ...string) result {
	return runAt(nil, stdin, endpoints, args...)
}

// runAt runs a command whose text is read at another time.
func runAt(now func() time.Time, stdin, endpoints string, args ...string) result {
	var out, errs bytes.Buffer
	code := cli.Main(args, cli.Env{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Getenv: endpointsAt(endpoints), Now: now,
	})
	return result{code, out.String(), errs.String()}
}

// endpointsAt is an environment that has endpoints only.
func endpointsAt(endpoints string) func(string) string {
	return func(name string) string {
		if name == "HOLDFAST_ENDPOINTS" {
			return endpoints
		}
		return ""
	}
}

// readAt is when, and in which time zone, the transcript is read.
func readAt() time.Time {
	return time.Date(2023, 11, 15, 4, 0, 0, 0, time.FixedZone("", 5*3600+1800))
}

// TestTranscript runs the commands of testdata/transcript.txt against a service
// that always says the same. Write it anew with HOLDFAST_REWRITE=1, and read it.
func TestTranscript(t *testing.T) {
	const path = "testdata/transcript.txt"
	addr := startFake(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(b)) {
		command, ok := strings.CutPrefix(line, "$ ")
		if strings.HasPrefix(line, "#") {
			got.WriteString(line)
		}
		if !ok {
			continue
		}
		stdin, args := "", words(strings.TrimSpace(command))
		if args[0] == "echo" {
			stdin, args = args[1]+"\n", args[3:]
		}
		r := runAt(readAt, stdin, addr, args[1:]...)
		fmt.Fprintf(&got, "$ %s%s%s", command, r.out, r.errs)
		if r.code != 0 {
			fmt.Fprintf(&got, "[%d]\n", r.code)
		}
		got.WriteString("\n")
	}
	text := strings.TrimRight(strings.NewReplacer(addr, "ADDR").Replace(got.String()), "\n") + "\n"
	if os.Getenv("HOLDFAST_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text != string(b) {
		t.Errorf("%s: got\n%s", path, text)
	}
}

// words splits a command line as a shell does, as far as single quotes go.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}

// TestUsageErrors runs the lines of testdata/usage.txt.
func TestUsageErrors(t *testing.T) {
	b, err := os.ReadFile("testdata/usage.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if r := run("", "127.0.0.1:1", words(strings.TrimSpace(line))...); r.code != 2 || r.out != "" || !strings.HasPrefix(r.errs, "holdfast: ") {
			t.Errorf("holdfast %s: got code %d, output %q, errors %q, want code 2 and an error", line, r.code, r.out, r.errs)
		}
	}
}

func TestRunOfACommandThatIsNotThere(t *testing.T) {
	// Known before anybody asks for a lock: there is no service here.
	if r := run("", "127.0.0.1:1", "run", "a", "--", "no-such-command-anywhere"); r.code != 127 {
		t.Errorf("got %+v, want code 127", r)
	}
	if r := run("", "127.0.0.1:1", "run", "a", "--", "/"); r.code != 126 {
		t.Errorf("got %+v, want code 126", r)
	}
	if r := run("", "127.0.0.1:1", "elect", "a", "--", "no-such-command-anywhere"); r.code != 127 {
		t.Errorf("got %+v, want code 127", r)
	}
}

// full is a standard output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Who reads a token from a file on a full disk must not take nothing for one.
func TestResultThatCannotBeWritten(t *testing.T) {
	addr := startFake(t)
	for line, want := range map[string]string{
		"acquire a/b": "given back", "acquire a/b -o json": `"exit_code":5`, "acquire a/b --client-id c1 --request-id 7": "no space",
		"ls": "no space", "status -o json": `"exit_code":5`, "version": "no space", "cat log": "no space",
	} {
		var errs bytes.Buffer
		code := cli.Main(words(line), cli.Env{
			Stdin: strings.NewReader(""), Stdout: full{}, Stderr: &errs, Getenv: endpointsAt(addr),
		})
		if code != 5 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: code %d, %s", line, code, &errs)
		}
	}
}

func TestElectWithoutAService(t *testing.T) {
	for _, line := range []string{"elect a", "elect a --leader", "elect a --once -- true"} {
		r := run("", "127.0.0.1:1", append([]string{"--timeout", "50ms"}, words(line)...)...)
		if r.code != 4 || r.out != "" || !strings.Contains(r.errs, "127.0.0.1:1") || !strings.Contains(r.errs, "--endpoints") {
			t.Errorf("holdfast %s: got %+v", line, r)
		}
	}
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	args := []string{"init", "--volume", dir, "--server", "2=h2:8000", "--server", "1=h1", "--server", "3=a:1,c:3"}
	r := run("", "", append(args, "-o", "json")...)
	for _, want := range []string{
		`{"id":1,"client":"h1:7601","peer":"h1:7801"}`,
		`{"id":2,"client":"h2:8000","peer":"h2:8200"}`,
		`{"id":3,"client":"a:1","peer":"c:3"}`,
	} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("got %+v, want %s", r, want)
		}
	}
	if r := run("", "", args...); r.code != 5 || !strings.Contains(r.errs, "already") {
		t.Errorf("again: got %+v", r)
	}
	if r := run("", "", "fsck", "--volume", dir); r.code != 0 || !strings.Contains(r.out, "0 errors") {
		t.Errorf("fsck: got %+v", r)
	}
	if r := run("", "", "doctor", dir, "-o", "json"); !strings.Contains(r.out, `"servers [1 2 3]"`) && !strings.Contains(r.out, "servers [1 2 3]") {
		t.Errorf("doctor: got %+v", r)
	}
}

// TestInitSaysWhatServersMean: how many may fail, and that a number binds a server to its host.
func TestInitSaysWhatServersMean(t *testing.T) {
	const numbers = "with names of hosts for numbers, another host could take the place of a lost one without a change of the list of servers: see holdfast member"
	for _, x := range []struct {
		servers string
		notes   []string
	}{
		{"1=h1", []string{"while the only server is down, nothing is served: 3 go on without 1 of them"}},
		{"1=h1 2=h2", []string{"when one of 2 servers is gone, the other one follows after some 3 seconds, by the vote of the volume: of 3, after less than one"}},
		{"1=h1 2=h2 3=h3", nil},
		{"1=h1 2=h2 3=h3 4=10.0.0.4", []string{"4 servers go on without 1 of them, as 3 would: take an odd number", numbers}},
		{"1=127.0.0.1:7001 2=[::1]:7002 3=127.0.0.1:7003", nil},
		{"1=[fd00::1] 2=h2 3=h3", []string{numbers}},
	} {
		dir := filepath.Join(t.TempDir(), "volume")
		args := []string{"init", "--volume", dir}
		for _, s := range strings.Fields(x.servers) {
			args = append(args, "--server", s)
		}
		r := run("", "", args...)
		if r.code != 0 || strings.Count(r.out, "note: ") != len(x.notes) {
			t.Errorf("%s: got %+v, want %q", x.servers, r, x.notes)
		}
		for _, note := range x.notes {
			if !strings.Contains(r.out, "note: "+note+" (to begin again, remove "+dir+")\n") {
				t.Errorf("%s: got %s, want %q", x.servers, r.out, note)
			}
		}
	}
}

// TestHelpIsShort: the flags of all commands are told once.
func TestHelpIsShort(t *testing.T) {
	for _, line := range []string{"show --help", "file bind --help"} {
		r := run("", "", words(line)...)
		if r.code != 0 || strings.Contains(r.out, "--secrets") || !strings.Contains(r.out, "Flags of all commands, such as --endpoints and -o json: holdfast --help\n") {
			t.Errorf("%s: got %s", line, r.out)
		}
	}
	if r := run("", "", "--help"); !strings.Contains(r.out, "--secrets") {
		t.Errorf("got %s", r.out)
	}
}

// TestInitOfASlowShare prints the flags that all servers need; a fast share, and one that could not
// be measured, are made a volume like any other.
func TestInitOfASlowShare(t *testing.T) {
	const ms = time.Millisecond
	slow, fast := doctor.NewTiming(cluster.Latency{Check: 200 * ms, Write: 100 * ms}, 7), doctor.NewTiming(cluster.Latency{Check: ms, Write: 5 * ms}, 40)
	for _, c := range []struct {
		name      string
		t         *doctor.Timing
		err       error
		text, not string
		json      string
		errs      string
	}{
		{"slow", slow, nil, "the default timing is too tight here: a check takes up to 200ms, a synced write up to 100ms. All servers need the same flags", "",
			`"timing":{"rounds":7,"check":"200ms","write":"100ms","timer_late":"0s","flags":["--suspicion 900ms","--min-ttl 1.8s"]}`, ""},
		{"fast", fast, nil, "start on its host:  holdfast server --id 1 --volume ", "--suspicion", `"flags":[]}`, ""},
		{"unknown", nil, syscall.EIO, "start on its host:  holdfast server --id 1 --volume ", "--suspicion", `"timing":null`, "could not be measured: input/output error"},
	} {
		for _, format := range []string{"text", "json"} {
			var out, errs bytes.Buffer
			dir := filepath.Join(t.TempDir(), "volume")
			code := cli.Main([]string{"init", "--volume", dir, "--server", "1=h1", "--server", "2=h2", "--server", "3=h3", "-o", format}, cli.Env{
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
				Measure: func(of string) (*doctor.Timing, error) {
					if of != dir {
						t.Errorf("%s was measured", of)
					}
					return c.t, c.err
				},
			})
			want := c.text
			if format == "json" {
				want = c.json
			}
			if code != 0 || !strings.Contains(out.String(), want) || c.not != "" && strings.Contains(out.String(), c.not) || !strings.Contains(errs.String(), c.errs) || c.errs == "" && errs.Len() > 0 {
				t.Errorf("%s: %d, %s, %s; want %q", c.name, code, &out, &errs, want)
			}
			if servers := strings.Count(out.String(), " --suspicion 900ms --min-ttl 1.8s   (clients "); format == "text" && servers != map[bool]int{true: 3}[c.t == slow] {
				t.Errorf("%s: %d servers get the flags: %s", c.name, servers, &out)
			}
		}
	}
}

func TestInitRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", "init", "--volume", full, "--server", "1=h"); r.code != 5 || !strings.Contains(r.errs, "not empty") {
		t.Errorf("a directory that is not empty: got %+v", r)
	}
	if r := run("", "", "init", "--volume", full, "--server", "7=a:1,b:2,c:3"); r.code != 2 || !strings.Contains(r.errs, " use --server 7=a:1,c:3\n") {
		t.Errorf("three addresses: got %+v", r)
	}
	missing := filepath.Join(t.TempDir(), "not/there")
	if r := run("", "", "init", "--volume", missing, "--server", "1=h"); r.code != 5 || !strings.Contains(r.errs, "mounted") {
		t.Errorf("a parent that is not there: got %+v", r)
	}
}

// A volume within another one would lie among its protected files.
func TestInitInsideAVolume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, inside := range []string{"files/x", "y"} {
		inside = filepath.Join(dir, inside)
		if r := run("", "", "init", "--volume", inside, "--server", "1=h"); r.code != 5 || !strings.Contains(r.errs, "inside the volume "+dir) {
			t.Errorf("%s: got %+v", inside, r)
		}
		if _, err := os.Stat(inside); err == nil {
			t.Errorf("%s was made", inside)
		}
	}
}

// What init prints can be pasted, wherever one stands.
func TestInitSaysTheWholeCommandLine(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, x := range map[string]struct{ flags, want, not string }{
		"secure": {"", "export HOLDFAST_ENDPOINTS=" + dir + "/secure\n", "h1:7601,h2:7601"},
		"closed": {"--policy strict", "holdfast key create ci --volume " + dir + "/closed\n", "ANYBODY"},
		"open":   {"--policy open", "holdfast access set --policy team --volume " + dir + "/open\n", "key create"},
		"plain":  {"--plain", "export HOLDFAST_ENDPOINTS=h1:7601,h2:7601\n", "key create"},
	} {
		r := run("", "", append([]string{"init", "--volume", name, "--server", "1=h1", "--server", "2=h2"}, words(x.flags)...)...)
		for _, want := range []string{
			"holdfast server --id 2 --volume " + filepath.Join(dir, name) + " --data-dir /", "-2   (clients h2:7601", x.want,
		} {
			if r.code != 0 || !strings.Contains(r.out, want) || strings.Contains(r.out, x.not) {
				t.Errorf("%s: no %q, or %q, in %+v", name, want, x.not, r)
			}
		}
	}
}

func TestServerSaysWhatIsWrong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a listener
	taken := l.Addr().String()
	if r := run("", "", "init", "--volume", dir, "--server", "1="+taken+",127.0.0.1:1"); r.code != 0 {
		t.Fatalf("init: %+v", r)
	}
	config := filepath.Join(t.TempDir(), "config.json")
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		config string
		args   []string
		code   int
		want   string
	}{
		{`{}`, []string{"--id", "1", "--volume", t.TempDir()}, 5, "holdfast init"},
		{`{}`, []string{"--id", "1", "--volume", "/not/there"}, 5, "mounted"},
		{`{"id": 1}`, []string{"--volume", dir}, 5, "in use"},
		{`{"id": 9, "volume": "/not/there"}`, []string{"--id", "1", "--volume", dir}, 5, "in use"}, // flags win
		{`{"suspicion": "1ms"}`, []string{"--id", "1", "--volume", dir}, 2, "suspicion"},
		{`{"min_ttl": "10m", "max-ttl": "1m"}`, []string{"--id", "1", "--volume", dir}, 2, "max-ttl"},
		{`{"colour": "red"}`, []string{"--id", "1", "--volume", dir}, 2, "colour"},
		{`{"id": "one"}`, []string{"--volume", dir}, 2, "id"},
		{`id = 1`, []string{"--volume", dir}, 5, "in use"},
		{`{"id" = 1}`, []string{"--volume", dir}, 2, "JSON"},
	} {
		write(x.config)
		r := run("", "", append([]string{"server", "--config", config}, x.args...)...)
		if r.code != x.code || !strings.Contains(r.errs, x.want) {
			t.Errorf("%s %v: got %+v, want code %d and %q", x.config, x.args, r, x.code, x.want)
		}
	}
}

func TestDevNeedsItsPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a listener
	port := l.Addr().(*net.TCPAddr).Port
	r := run("", "", "dev", "--dir", t.TempDir(), "--base-port", fmt.Sprint(port))
	if r.code != 5 || !strings.Contains(r.errs, "in use") {
		t.Errorf("got %+v", r)
	}
}

func TestNoServiceIsSaid(t *testing.T) {
	for _, line := range []string{"status", "ls", "why a", "history a", "acquire a", "release a --token 1", "handover"} {
		r := run("", "127.0.0.1:1", append(words(line), "--timeout", "50ms")...)
		want := 4
		if line == "status" { // of a monitor: nobody serves
			want = 2
		}
		if r.code != want || !strings.Contains(r.errs, "no server answers: 127.0.0.1:1: connection refused") {
			t.Errorf("holdfast %s: got %+v", line, r)
		}
	}
}

// Who asked for JSON gets it, also where the command line is wrong before it says so.
func TestUsageErrorsInJSON(t *testing.T) {
	for _, line := range []string{"acquire x --ttl never -o json", "acquire x --ttl never --output=json", "acquire --nonsense -ojson", "-o=json ls a b", "nonsense --output json"} {
		r := run("", "", words(line)...)
		if r.code != 2 || !strings.Contains(r.out, `"status":"INVALID_ARGUMENT"`) || !strings.Contains(r.out, `"exit_code":2`) || r.errs != "" {
			t.Errorf("holdfast %s: got %+v", line, r)
		}
	}
	for _, line := range []string{"acquire x --ttl never", "acquire --nonsense -- -o json", "acquire x --ttl never -o text"} {
		if r := run("", "", words(line)...); r.code != 2 || r.out != "" {
			t.Errorf("holdfast %s: got %+v", line, r)
		}
	}
}
