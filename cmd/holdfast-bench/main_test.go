// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/work"
)

// TestMain runs the helpers that the tests start, which are this program again.
func TestMain(m *testing.M) {
	helper.Main(work.Helpers())
	os.Exit(m.Run())
}

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := root()
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"run nothing", `workload "nothing"`},
		{"run -o xml", "use table or json"},
		{"run --repeat 0", "--repeat 0"},
		{"run --endpoints h:1 --binary b", "give one"},
		{"run --binary /no/such/binary --dir " + t.TempDir(), "make build"},
		{"run own --clients some", "use one, each"},
		{"run own --wait -1s", "--wait"},
		{"run connections --connections 0", "--connections 0"},
		{"run connections --connections 1000000000 --binary true --dir " + t.TempDir(), "this machine allows"},
		{"runs", "unknown command"},
	} {
		if _, err := execute(t, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

// TestWhatTheMachineDoesNotAllow is an error where it was asked for, and left out of all workloads.
func TestWhatTheMachineDoesNotAllow(t *testing.T) {
	chosen, err := work.Find([]string{"own", "connections"})
	if err != nil {
		t.Fatal(err)
	}
	f := &flags{Options: work.DefaultOptions()}
	f.Connections = 1 << 30
	r := &bench.Report{}
	all, err := f.possible(chosen, r)
	if err != nil || len(all) != 1 || all[0].Name != "own" || len(r.Skipped) != 1 || !strings.Contains(r.Skipped[0], "this machine allows") {
		t.Errorf("%d workloads, left out %q, %v", len(all), r.Skipped, err)
	}
	f.named = true
	if _, err := f.possible(chosen, r); err == nil || !strings.Contains(err.Error(), "this machine allows") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsOnlyDoneToOwnServersIsLeftOut(t *testing.T) {
	out, err := execute(t, "run", "failover", "pause", "--endpoints", "127.0.0.1:1", "--dir", t.TempDir())
	if err != nil || strings.Count(out, "left out: ") != 2 {
		t.Errorf("%v, %s", err, out)
	}
}

// TestOwnServers runs short workloads against three real servers.
func TestOwnServers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	rows := runOwn(t, "own", "append", "ceiling", "watch", "holders", "noisy", "churn", "--workers", "2", "--size", "100", "--churn-rate", "100",
		"--watchers", "7", "--watch-own", "--watch-rate", "50", "--holders", "20", "--holders-kills", "1")
	for _, name := range []string{
		"own", "append", "ceiling", "watch, 7 watchers of own keys", "watch, from the answer, 7 watchers of own keys", "failover, few locks held",
		"holders", "holders, while held", "failover, 20 locks held", "holders, release", "noisy, alone", "noisy, beside the neighbour", "churn", "churn, appends",
	} {
		m := rows[name].Median
		// A watcher may always be before the answer.
		if m.Operations == 0 || m.Latency == nil || m.Latency.P99 <= 0 && !strings.Contains(name, "from the answer") {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := rows["own"].Median; m.ServerCPU == nil || len(m.ServerCores) != 3 {
		t.Errorf("%+v", m)
	}
	looked := map[string]int{}
	for _, s := range rows["churn"].Series {
		looked[s.Name] = len(s.Values)
	}
	for _, name := range []string{"server 1 resident", "server 3 descriptors", "epochs bytes", "clients", "client goroutines"} {
		if looked[name] < 3 {
			t.Errorf("%d looks at %s", looked[name], name)
		}
	}
}

// runOwn runs short workloads against servers of their own, which leave nothing behind, and returns
// the last row of each name.
func runOwn(t *testing.T, args ...string) map[string]bench.Row {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "holdfast")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/holdfast-lock/holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build holdfast: %v\n%s", err, out)
	}
	data := filepath.Join(dir, "data")
	out, err := execute(t, append([]string{"run", "--binary", binary, "--dir", data, "-o", "json", "--duration", "300ms", "--warmup", "100ms", "--repeat", "1"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if r.Options["duration"] != "300ms" || r.Versions["holdfast"] == "" {
		t.Fatalf("%+v", r)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	rows := map[string]bench.Row{}
	for _, row := range r.Rows {
		rows[row.Workload] = row
	}
	return rows
}

// TestManyClients runs the workloads of many connections and of a starved machine, with few and a little.
func TestManyClients(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	rows := runOwn(t, "watchers", "connections", "starved", "--workers", "2", "--watchers", "5", "--rate", "50",
		"--connections", "6", "--processes", "2", "--lease", "3s", "--starve-loops", "1")
	for name, operations := range map[string]int64{
		"watchers, a connection each, 5 watchers of own keys": 1, "connections, connect": 6, "connections, keep-alives": 1,
		"connections, failover": 6, "starved, quiet before": 1, "starved, under load": 1, "starved, after the load": 1,
	} {
		if m := rows[name].Median; m.Operations < operations {
			t.Errorf("%s: %+v, want %d operations", name, m, operations)
		}
	}
	for name, figure := range map[string]string{
		"connections, connect": "resident memory per connected client", "connections, failover": "locks lost by the kills",
		"starved, after the load": "terms that began without a cause",
	} {
		if !slices.ContainsFunc(rows[name].Figures, func(f bench.Figure) bool { return strings.HasPrefix(f.Name, figure) }) {
			t.Errorf("%s has no figure %q", name, figure)
		}
	}
}
