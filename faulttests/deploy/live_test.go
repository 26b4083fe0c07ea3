// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

var faults = flag.Bool("faults", false, "watch every fault of scripts with Prometheus, which takes minutes")

// faster is how much shorter the rules' durations are here, so that two minutes are six seconds.
const faster = 20

// hurry makes every duration of a file of rules shorter.
func hurry(rules string) string {
	duration := regexp.MustCompile(`(for: |\[|offset )(\d+[smh])`)
	return duration.ReplaceAllStringFunc(rules, func(s string) string {
		x := duration.FindStringSubmatch(s)
		d, err := time.ParseDuration(x[2])
		if err != nil {
			return s
		}
		return fmt.Sprintf("%s%dms", x[1], (d / faster).Milliseconds())
	})
}

// prometheus is one that watches a cluster by the rules of docs/deploy, in a hurry.
type prometheus struct {
	t   *testing.T
	url string
}

// watched starts a Prometheus, which ends with the test, beside a cluster.
func watched(t *testing.T, c *cluster.Cluster) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}\nrule_files: [rules.yml]\n" +
		"scrape_configs:\n  - job_name: holdfast-test\n    static_configs: [{targets: [" + strings.Join(c.Endpoints(), ", ") + "]}]\n"
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": hurry(read(t, rules))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := fmt.Sprintf("127.0.0.1:%d", cluster.FreePorts(t))
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address, "--query.lookback-delta", "2s", "--log.level", "warn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
	})
	p := &prometheus{t, "http://" + address}
	cluster.Await(t, cluster.Patience, "Prometheus to see three servers", func() bool { return slices.Equal(p.ask("sum(up)", ""), []string{"3"}) })
	return p
}

// ask returns the values of a label in what a query gives, sorted; of no label, its values.
func (p *prometheus) ask(query, label string) (all []string) {
	_, body := get(p.t.Context(), p.url+"/api/v1/query?query="+url.QueryEscape(query), "")
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return nil // it starts
	}
	for _, r := range answer.Data.Result {
		if label == "" {
			all = append(all, fmt.Sprint(r.Value[1]))
		} else {
			all = append(all, r.Metric[label])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// firing are the names of the alerts that fire now.
func (p *prometheus) firing() []string { return p.ask(`ALERTS{alertstate="firing"}`, "alertname") }

// fired are the names of those that fired since a time, whether they do now or not.
func (p *prometheus) fired(since time.Time) []string {
	return p.ask(fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing"}[%dms])`, time.Since(since).Milliseconds()+1), "alertname")
}

// awaitFiring waits until these alerts fire, and no other.
func (p *prometheus) awaitFiring(want ...string) {
	p.t.Helper()
	slices.Sort(want)
	var now []string
	if !cluster.Poll(p.t.Context(), 3*cluster.Patience, func() bool { now = p.firing(); return slices.Equal(now, want) }) {
		p.t.Fatalf("%q fire, want %q", now, want)
	}
}

// calm watches for so long as an alert that waits for two minutes needs twice, and wants none to fire.
func (p *prometheus) calm() {
	p.t.Helper()
	began := time.Now()
	cluster.Poll(p.t.Context(), 4*time.Minute/faster, func() bool { return false })
	if all := p.fired(began); len(all) > 0 {
		p.t.Errorf("%q fired", all)
	}
}

// fault is one of those of faulttests/scripts, as an operator sees it who has nothing but alerts.
type fault struct {
	name  string
	fires []string
	long  bool // it runs only with -faults
	begin func(*cluster.Cluster)
	end   func(*cluster.Cluster)
}

// theFaults are all of them. One that fires nothing has all of it in begin.
func theFaults(t *testing.T) []fault {
	var old *cluster.Server
	primary := func(c *cluster.Cluster) *cluster.Server {
		c.AwaitReplicas(cluster.Patience)
		return c.AwaitPrimary(cluster.Patience)
	}
	tour := func(c *cluster.Cluster) {
		for _, args := range [][]string{{"run", "a-lock", "--", "true"}, {"handover"}, {"status"}} {
			if out, err := c.Run(args...); err != nil {
				t.Errorf("holdfast %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
	return []fault{
		{"crash-all", []string{"NoPrimary", "ServerUnreachable"}, false, (*cluster.Cluster).KillAll, (*cluster.Cluster).StartAll},
		{"crash-primary", []string{"ServerUnreachable"}, true,
			func(c *cluster.Cluster) { old = primary(c); old.Kill() },
			func(*cluster.Cluster) { old.Start() }},
		{"pause-primary", []string{"ServerUnreachable"}, true,
			func(c *cluster.Cluster) { old = primary(c); old.Stop() },
			func(*cluster.Cluster) { old.Cont() }},
		{"same-id", nil, true, func(c *cluster.Cluster) {
			if said, running, err := primary(c).Second(cluster.Patience); running || err == nil {
				t.Errorf("a second process under one ID: %v, %s", err, said)
			}
		}, nil},
		{"tour", nil, true, tour, nil},
		{"crash-each", []string{"ReignsFlap"}, true, func(c *cluster.Cluster) {
			for range 5 {
				s := primary(c)
				_, epoch := c.Primary(t.Context())
				s.Kill()
				s.Start()
				c.AwaitTerm(cluster.Patience, epoch)
			}
		}, func(*cluster.Cluster) {}},
	}
}

// TestAlertsOfRealFaults has a Prometheus watch real servers through each fault of faulttests/scripts, by rules whose minutes are
// seconds: the alerts that should fire do, no other does, and they resolve when the fault is over.
func TestAlertsOfRealFaults(t *testing.T) {
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skipf("prometheus is needed (Debian: the package of that name): %v", err)
	}
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, cluster.Options{Binary: binary})
	c.AwaitReplicas(cluster.Patience)
	p := watched(t, c)
	for _, f := range theFaults(t) {
		if f.long && !*faults {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			p := &prometheus{t, p.url}
			p.awaitFiring()
			began := time.Now()
			f.begin(c)
			if f.fires == nil {
				p.calm()
				return
			}
			p.awaitFiring(f.fires...)
			f.end(c)
			p.awaitFiring()
			c.AwaitReplicas(cluster.Patience)
			if all := p.fired(began); !slices.Equal(all, f.fires) {
				t.Errorf("%q fired, want %q", all, f.fires)
			}
			t.Logf("%q fired and resolved within %v", f.fires, time.Since(began).Round(time.Second))
		})
	}
}
