// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
		{"runs", "unknown command"},
	} {
		if _, err := execute(t, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
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
	dir := t.TempDir()
	binary := filepath.Join(dir, "holdfast")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/holdfast-lock/holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build holdfast: %v\n%s", err, out)
	}
	data := filepath.Join(dir, "data")
	out, err := execute(t, "run", "own", "append", "ceiling", "watch", "holders", "churn", "--binary", binary, "--dir", data, "-o", "json",
		"--workers", "2", "--size", "100", "--duration", "300ms", "--warmup", "100ms", "--repeat", "1", "--churn-rate", "100",
		"--watchers", "7", "--watch-own", "--watch-rate", "50", "--holders", "20", "--holders-kills", "1")
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
	rows := map[string]bench.Row{}
	for _, row := range r.Rows {
		rows[row.Workload] = row
	}
	for _, name := range []string{
		"own", "append", "ceiling", "watch, 7 watchers of own keys", "watch, from the answer, 7 watchers of own keys", "failover, few locks held",
		"holders", "holders, while held", "failover, 20 locks held", "holders, release", "churn", "churn, appends",
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
	if left, err := os.ReadDir(data); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
