// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// answered are the samples of the calls that the load makes.
const answered = `holdfast_requests_total{op="acquire",status="OK"}`

// scrape returns what a server tells at /metrics, "" if it does not answer.
func scrape(ctx context.Context, s *cluster.Server) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	code, text := get(ctx, "http://"+s.Member.HTTPAddress()+"/metrics", "")
	if code != http.StatusOK {
		return ""
	}
	return text
}

// value returns that of a sample, 0 if there is none.
func value(t *testing.T, text, sample string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, sample+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return f
		}
	}
	return 0
}

// shown is what all servers that answer tell together.
type shown struct {
	servers   int
	primaries float64
	epoch     float64 // of the primary
	answered  float64 // by the primary
}

func look(t *testing.T, c *cluster.Cluster) (x shown) {
	t.Helper()
	for _, s := range c.Servers() {
		text := scrape(t.Context(), s)
		if text == "" {
			continue
		}
		x.servers++
		if is := value(t, text, `holdfast_server_role{role="primary"}`); is > 0 {
			x.primaries += is
			x.epoch, x.answered = value(t, text, "holdfast_epoch"), value(t, text, answered)
		}
	}
	return x
}

// awaitCounting waits until so many servers answer, one of them is primary in a later epoch than behind, and its counter rises.
func awaitCounting(t *testing.T, c *cluster.Cluster, servers int, behind float64) (last shown) {
	t.Helper()
	what := fmt.Sprintf("%d servers, one primary behind epoch %v, and a counter that rises", servers, behind)
	cluster.Await(t, cluster.Patience, what, func() bool {
		before := last
		last = look(t, c)
		return last.servers == servers && last.primaries == 1 && last.epoch > behind &&
			before.epoch == last.epoch && before.answered > 0 && last.answered > before.answered
	})
	return last
}

// load acquires and releases a lock until the test ends.
func load(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client, err := clientlib.New(clientlib.Options{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if lock, err := client.Acquire(ctx, "busy", clientlib.AcquireOptions{Wait: cluster.Patience}); err == nil {
				lock.Release(ctx) //nolint:errcheck // if it failed, the lease ends
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close() //nolint:errcheck // the servers end next
	})
}

// TestAFailoverShows kills the primary under load: the metrics show a new epoch with one primary, which counts on, and the server
// that was killed comes back as a replica with counters that begin again.
func TestAFailoverShows(t *testing.T) {
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, cluster.Options{Binary: binary})
	c.AwaitReplicas(cluster.Patience)
	load(t, c)
	first := awaitCounting(t, c, 3, 0)
	old, _ := c.Primary(t.Context())
	if old == nil {
		t.Fatal("no primary")
	}
	old.Kill()
	second := awaitCounting(t, c, 2, first.epoch)
	old.Start()
	third := awaitCounting(t, c, 3, first.epoch)
	if third.epoch == second.epoch && third.answered < second.answered {
		t.Errorf("the counter of the primary fell from %v to %v", second.answered, third.answered)
	}
	c.AwaitReplicas(cluster.Patience)
	text := scrape(t.Context(), old)
	if value(t, text, "holdfast_epoch") != second.epoch {
		t.Skip("the machine is so busy that there was one more term")
	}
	if role := value(t, text, `holdfast_server_role{role="replica"}`); role != 1 || value(t, text, answered) != 0 {
		t.Errorf("the server that was killed has %v as replica, and answered %v calls since", role, value(t, text, answered))
	}
}
