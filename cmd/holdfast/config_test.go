// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// configured is one server with a configuration file and a data directory.
type configured struct {
	*world
	config, data, client string
}

func startConfigured(t *testing.T, text string) *configured {
	t.Helper()
	base, dir := freeBase(t), t.TempDir()
	c := &configured{world: &world{t: t, logs: &logs{}, dir: filepath.Join(dir, "volume")}, config: filepath.Join(dir, "1.toml"), data: filepath.Join(dir, "data")}
	c.client = fmt.Sprintf("127.0.0.1:%d", base)
	c.endpoints = c.client
	c.do("", "init", "--plain", "--volume", c.dir, "--server", fmt.Sprintf("1=%s,127.0.0.1:%d", c.client, base+200))
	c.write(text)
	c.cmd = exec.Command(os.Getenv(binaryEnv), "server", "--config", c.config)
	c.cmd.Stderr = c.logs
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cmd.Process.Kill() //nolint:errcheck // it may have ended
		c.cmd.Wait()         //nolint:errcheck // as it was told
		if t.Failed() {
			t.Logf("the server said:\n%s", c.logs)
		}
	})
	c.primary(0)
	return c
}

// write writes the configuration file: what each has, and this.
func (c *configured) write(text string) {
	c.t.Helper()
	text = fmt.Sprintf("id = 1\nvolume = %q\ndata-dir = %q\n%s", c.dir, c.data, text)
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// reload asks for a reload and returns the answer.
func (c *configured) reload(code int) (r struct {
	Changed []string `json:"changed"`
	Restart []string `json:"config_pending_restart"`
	Message string   `json:"message"`
}) {
	c.t.Helper()
	got := c.try("", "config", "reload", "--data-dir", c.data, "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != code {
		c.t.Fatalf("reload: %v, exit code %d, want %d", err, got.code, code)
	}
	return r
}

// admits reports whether a page of this origin may read what the server says.
func (c *configured) admits(origin string) bool {
	c.t.Helper()
	q, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://"+c.client+"/v1/status", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	q.Header.Set("Origin", origin)
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close() //nolint:errcheck // it is not read
	return r.Header.Get("Access-Control-Allow-Origin") == origin
}

// pending returns the settings that wait for a restart, as status has them.
func (c *configured) pending() string {
	c.t.Helper()
	var s struct {
		Servers []struct {
			Restart []string `json:"config_pending_restart"`
		} `json:"servers"`
	}
	if err := json.Unmarshal([]byte(c.try("", "status", "-o", "json").out), &s); err != nil || len(s.Servers) != 1 {
		c.t.Fatalf("status: %v, %+v", err, s)
	}
	return strings.Join(s.Servers[0].Restart, ",")
}

// A reload has what may change count at once, names what needs a restart, and changes nothing for a mistake.
func TestReload(t *testing.T) {
	const a, b = "https://a.example", "https://b.example"
	c := startConfigured(t, "web-origins = [\""+a+"\"]\n")
	if !c.admits(a) || c.admits(b) {
		t.Fatal("the origins of the file do not count")
	}

	c.write("web-origins = [\"" + b + "\"]\nlog-level = \"debug\"\n")
	equal(t, "changed", strings.Join(c.reload(0).Changed, " "), "web-origins log-level")
	if c.admits(a) || !c.admits(b) {
		t.Error("the origins of the reload do not count")
	}

	c.write("web-origins = [\"" + a + "\"]\nlog-level = \"debug\"\nsuspicon = \"1s\"\n")
	if r := c.reload(2); !strings.Contains(r.Message, c.config+`:6:1: unknown key "suspicon": did you mean suspicion?`) {
		t.Errorf("a mistake: %q", r.Message)
	}
	if c.admits(a) || !c.admits(b) {
		t.Error("a file with a mistake was used")
	}
	c.write("web-origins = [\"" + a + "\"]\ntls-cert = \"/not/there\"\ntls-key = \"/not/there\"\n")
	if r := c.reload(2); !strings.Contains(r.Message, "/not/there") {
		t.Errorf("a certificate that is not there: %q", r.Message)
	}
	if c.admits(a) || !c.admits(b) {
		t.Error("a file with a certificate that is not there was used")
	}

	c.write("web-origins = [\"" + a + "\"]\nlog-level = \"debug\"\nhistory-rate = 5\nunix = \"/tmp/x\"\ntls-min = \"1.2\"\n")
	r := c.reload(6)
	equal(t, "changed", strings.Join(r.Changed, " "), "web-origins")
	equal(t, "for a restart", strings.Join(r.Restart, " "), "unix tls-min history-rate")
	equal(t, "status", c.pending(), "unix,tls-min,history-rate")
	if out := c.try("", "status").out; !strings.Contains(out, "needs a restart for unix, tls-min, history-rate") {
		t.Errorf("status: %s", out)
	}
	if !c.admits(a) {
		t.Error("what needs no restart did not count")
	}
	for _, name := range r.Restart {
		if !strings.Contains(c.logs.String(), "needs a restart: "+name) {
			t.Errorf("the log does not say that %s needs a restart", name)
		}
	}

	c.write("web-origins = [\"" + b + "\"]\nlog-level = \"error\"\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "what SIGHUP reads", func() bool { return c.admits(b) && c.pending() == "" })
	before := c.logs.String()
	c.reload(0)
	equal(t, "lines of a log of errors", c.logs.String(), before)

	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if got := c.try("", "config", "reload", "--config", c.config); got.code != 4 {
		t.Errorf("a reload without a server: %+v", got)
	}
}

// Reloads, good and bad, as fast as signals come: no lock and no connection is lost, and no term ends.
func TestReloadStorm(t *testing.T) {
	config := filepath.Join(t.TempDir(), "all.toml")
	write := func(text string) {
		t.Helper()
		next := config + ".next"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, config); err != nil {
			t.Fatal(err)
		}
	}
	texts := []string{"max-connections-per-address = 5\nlog-level = \"error\"\n", "web-origins = [\"https://a.example\"]\nlog-level = \"error\"\n", "id = \"nonsense\"\n", "history-rate = 7\nlog-level = \"error\"\n"}
	write(texts[0])
	t.Setenv("HOLDFAST_SERVER_CONFIG", config)
	w := startDev(t)
	id, _ := w.primary(0)
	epoch := w.status().Epoch
	// A holder whose lease is short, and a command under a lock.
	holder := exec.Command(os.Getenv(binaryEnv), "run", "held", "--ttl", "1s", "--endpoints", w.endpoints, "--", "sleep", "3")
	var said bytes.Buffer
	holder.Stdout, holder.Stderr = &said, &said
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []*talk
	for s := range uint32(3) {
		lines = append(lines, w.talk(s+1))
	}
	lines[0].ask("SUCCESS", "LOCK,db,alice,1m")
	ended := make(chan error, 1)
	go func() { ended <- holder.Wait() }()
	storm := 0
	for over := false; !over; storm++ {
		write(texts[storm%len(texts)])
		for _, s := range w.servers {
			if err := syscall.Kill(s.PID, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		line := lines[storm%len(lines)]
		line.send("RENEW,db,alice")
		if said, err := line.r.ReadString('\n'); err != nil || strings.TrimSpace(said) != "SUCCESS" {
			t.Fatalf("after %d signals: %q, %v", storm, said, err)
		}
		select {
		case err := <-ended:
			if over = true; err != nil {
				t.Errorf("the command under the lock: %v\n%s", err, &said)
			}
		case <-time.After(2 * time.Millisecond):
		}
	}
	t.Logf("%d signals to each server", storm)
	if storm < 50 {
		t.Errorf("only %d signals", storm)
	}
	if now := w.status(); now.Epoch != epoch || now.Primary == nil || now.Primary.ID != id {
		t.Errorf("the term has ended: %+v, and it was epoch %d of server %d", now, epoch, id)
	}
}

// A service manager hears that the server is ready, and that it lives.
func TestServiceManagerHearsTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	m, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // a listener
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "150000")
	startConfigured(t, "")
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if err := m.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := m.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "told", string(b[:n]), want)
	}
}
