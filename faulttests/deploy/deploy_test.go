// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/deploy"
)

const (
	rules     = "../../docs/deploy/prometheus/holdfast.rules.yml"
	ruleTests = "../../docs/deploy/prometheus/holdfast.test.yml"
	dashboard = "../../docs/deploy/grafana/holdfast.json"
	manual    = "../../docs/operate.md"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// queries are the expressions of the dashboard, by the title of their panel.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range d.Panels {
		for _, x := range p.Targets {
			all[p.Title] = append(all[p.Title], x.Expr)
		}
	}
	if len(all) < 15 {
		t.Fatalf("the dashboard has %d panels: its queries are somewhere else", len(all))
	}
	return all
}

// promtool runs it, if it is installed.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skipf("promtool is needed (Debian: in the package prometheus): %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRulesAreWellFormed(t *testing.T) { promtool(t, "check", "rules", "--lint-fatal", rules) }

func TestAlertsFireAndResolve(t *testing.T) { promtool(t, "test", "rules", ruleTests) }

// TestQueriesOfTheDashboardParse has promtool read them as rules.
func TestQueriesOfTheDashboardParse(t *testing.T) {
	var text strings.Builder
	text.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for title, all := range queries(t) {
		for i, x := range all {
			x = strings.ReplaceAll(x, "$__rate_interval", "5m")
			fmt.Fprintf(&text, "  - {record: 'query', expr: %q, labels: {panel: %q}}\n", x, fmt.Sprint(title, i))
		}
	}
	name := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", name)
}

func TestEveryAlertIsExplained(t *testing.T) {
	all := deploy.Alerts(read(t, rules))
	if len(all) < 15 {
		t.Errorf("only %d alerts: they are written in another way now", len(all))
	}
	for _, a := range all {
		for _, why := range a.Undocumented(read(t, manual), read(t, ruleTests)) {
			t.Error(why)
		}
	}
}

// site is three servers of dev with access rules and TLS.
type site struct {
	t           *testing.T
	binary, dir string
	base        int
}

// newSite runs the servers until the test ends.
func newSite(t *testing.T) *site {
	t.Helper()
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "volume"), base: cluster.FreePorts(t)}
	dev := exec.Command(binary, "dev", "--secure", "--dir", s.dir, "--base-port", fmt.Sprint(s.base), "--metrics-port", fmt.Sprint(s.base+100))
	dev.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		dev.Wait() //nolint:errcheck // it was told to end
	})
	cluster.Await(t, cluster.Patience, "three servers that are ready", func() bool {
		for id := range 3 {
			if code, _ := s.get(s.base+100+id, "/readyz", ""); code != http.StatusOK {
				return false
			}
		}
		return true
	})
	return s
}

// get asks a port for a path, with a credential; the code is 0 for no answer.
func (s *site) get(port int, path, key string) (code int, body string) {
	return get(s.t.Context(), fmt.Sprintf("http://127.0.0.1:%d%s", port, path), key)
}

// get asks for a URL, with a credential, "" for none; the code is 0 for no answer.
func get(ctx context.Context, of, key string) (code int, body string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, of, http.NoBody)
	if err != nil {
		return 0, ""
	}
	if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(b)
}

// types runs a command against some endpoints, and wants it to succeed or to fail.
func (s *site) types(endpoints string, succeeds bool, args ...string) {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), s.binary, args...)
	c.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+endpoints, "HOLDFAST_KEY=", "XDG_CONFIG_HOME="+s.t.TempDir())
	c.Stdin = strings.NewReader("a line\n")
	if out, err := c.CombinedOutput(); (err == nil) != succeeds {
		s.t.Fatalf("holdfast %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// absent are metrics that servers tell only after an event that the test does not bring about, with why.
func absent() map[string]string {
	return map[string]string{"holdfast_limited_total": "it needs hundreds of connections or minutes of failed logins"}
}

// TestServersTellWhatIsAskedFor provokes one event of each kind that is counted, and asks all servers.
func TestServersTellWhatIsAskedFor(t *testing.T) {
	s := newSite(t)
	plain := fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", s.base, s.base+1, s.base+2)
	s.types(s.dir, true, "append", "lock", "file")
	s.types(s.dir, false, "verify", "lock", "--token", "1")
	s.types(plain, false, "acquire", "lock")
	if code, _ := s.get(s.base, "/v1/locks", "hfk_wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong key: status %d", code)
	}
	asked := queries(t)
	for _, a := range deploy.Alerts(read(t, rules)) {
		asked[a.Name] = append(asked[a.Name], a.Text)
	}
	told := deploy.Metrics{}
	var missing []string
	cluster.Poll(t.Context(), cluster.Patience, func() bool { // a primary may not have heard of its replicas yet
		for id := range 3 {
			_, text := s.get(s.base+100+id, "/metrics", "")
			told.Add(text)
		}
		missing = nil
		for name, all := range asked {
			for _, why := range told.Unserved(strings.Join(all, "\n"), absent()) {
				missing = append(missing, name+": "+why)
			}
		}
		return len(missing) == 0
	})
	for _, why := range missing {
		t.Error(why)
	}
	for name, why := range absent() {
		if told[name] != nil {
			t.Errorf("%s is there, so it need not be left out because %s", name, why)
		}
	}
}

// TestWhatIsMissingIsFound is the control of the others.
func TestWhatIsMissingIsFound(t *testing.T) {
	told := deploy.Metrics{}
	told.Add("# TYPE holdfast_wait_seconds histogram\nholdfast_wait_seconds_bucket{le=\"1\"} 0\nholdfast_epoch 3\nholdfast_files{state=\"open\"} 1\nholdfast_x{a=\"b\",state=\"open\"} 1\n")
	for _, x := range []struct {
		expr string
		want []string
	}{
		{`holdfast_epoch + rate(holdfast_wait_seconds[5m]) + holdfast_wait_seconds_bucket{job="$job", le="1"}`, nil},
		{`holdfast_files{job="$job", state="open"} or holdfast_files{state!="none"} or holdfast_x{state="open"}`, nil},
		{`up{job=~"holdfast.*"} + holdfast_rare{why="x"}`, nil},
		{`sum(rate(holdfast_epochs[5m]))`, []string{"no server tells holdfast_epochs"}},
		{`holdfast_files{state="lost"}`, []string{`no holdfast_files has state="lost"`}},
		{`holdfast_files{status!="open"}`, []string{`no holdfast_files has status="`}},
		{`holdfast_x{tate="open"}`, []string{`no holdfast_x has tate="open"`}},
	} {
		if got := told.Unserved(x.expr, map[string]string{"holdfast_rare": "it is rare"}); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.expr, got, x.want)
		}
	}
	const good = "NoPrimary\n        expr: 1\n        labels: {severity: info}\n          summary: a\n          description: b\n          runbook_url: docs/operate.md#noprimary\n"
	const words, test = "\n### NoPrimary\n\n- Look at: a\n- Do: b\n", `{alertname="NoPrimary"}`
	for _, x := range []struct {
		text, manual, test string
		missing            int
	}{
		{good, words, test, 0},
		{strings.Replace(good, "#noprimary", "#monitoring", 1), words, test, 1},
		{strings.Replace(good, "severity", "strength", 1), words, test, 1},
		{good, "\n### NoPrimary\n\n- Look at: a\n\n### CoreBusy\n\n- Do: b\n", test, 1},
		{good, words, `{alertname="CoreBusy"}`, 1},
	} {
		all := deploy.Alerts("- alert: " + x.text)
		if len(all) != 1 || len(all[0].Undocumented(x.manual, x.test)) != x.missing {
			t.Errorf("%v: want one alert, of which %d is missing", all, x.missing)
		}
	}
}
