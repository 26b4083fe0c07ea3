// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/ceiling"
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
	c := command()
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"nothing", `workload "nothing"`},
		{"-o xml", "use table, json or markdown"},
		{"-o markdown --repeat 2", "--repeat 3"},
		{"--clients some", "use one, each"},
		{"--wait -1s", "--wait"},
		{"--peers zookeeper", "use etcd, redis, postgres, ceiling"},
		{"--duration 0", "--duration 0s"},
	} {
		if _, err := execute(t, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestMissingPeersSayHowToGetThem(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nothing")
	o := &options{etcd: nowhere, redis: nowhere, pg: nowhere}
	for _, p := range peers() {
		if p.name == ceiling.Name {
			continue // it is this program
		}
		_, _, err := p.start(t.Context(), o, t.TempDir())
		missing, ok := errors.AsType[*missingError](err)
		if !ok || missing.advice == "" {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, began := 0, time.Now()
		if err := poll(t.Context(), func() (bool, error) { asked++; return asked == 11, nil }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 10*pollLeast || took > 10*pollMost {
			t.Errorf("10 pauses took %v", took)
		}
		broken := errors.New("broken")
		if err := poll(t.Context(), func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := poll(ctx, func() (bool, error) { return false, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestPeers compares shortly with every peer that is there.
func TestPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many servers")
	}
	dir, err := os.MkdirTemp("", "compare-") // the user postgres may not get into t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of a test
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "holdfast")
	if out, err := exec.Command("go", "build", "-C", "../../..", "-o", binary, "./cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build holdfast: %v\n%s", err, out)
	}
	out, err := execute(t, "own", "append", "--binary", binary, "--dir", filepath.Join(dir, "data"), "-o", "json",
		"--workers", "2", "--duration", "200ms", "--warmup", "50ms", "--repeat", "1")
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	rows := map[string]int{}
	for _, x := range r.Rows {
		rows[x.Target]++
	}
	for target, n := range rows { // of two workloads, and of two shapes where there are two
		if want := map[string]int{"holdfast": 4, "etcd": 4, "redis": 2, "postgres": 2, "ceiling": 4}[target]; n != want {
			t.Errorf("%d rows of %s, want %d", n, target, want)
		}
	}
	if here := len(peers()) - len(r.Skipped); len(rows) != 1+here || len(r.Ratios) != 4*here {
		t.Errorf("%d services and %d ratios with %d peers", len(rows), len(r.Ratios), here)
	}
	t.Logf("%v, left out: %v", r.Versions, r.Skipped)
}
