// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// steady takes and releases one lock until the context ends. Not one call may fail.
func steady(ctx context.Context, t *testing.T, endpoint string, turns *atomic.Int64) (stop func()) {
	t.Helper()
	return steadyWith(ctx, t, clientlib.Options{Endpoints: []string{endpoint}, Budget: cluster.Patience}, turns)
}

// steadyWith is steady with a client of these options.
func steadyWith(ctx context.Context, t *testing.T, o clientlib.Options, turns *atomic.Int64) (stop func()) {
	t.Helper()
	endpoint := o.Endpoints[0]
	c, err := clientlib.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			l, err := c.Acquire(context.WithoutCancel(ctx), "steady", clientlib.AcquireOptions{Wait: clientlib.Forever})
			if err == nil {
				err = l.Release(context.WithoutCancel(ctx))
			}
			if err != nil {
				t.Errorf("a call by %s fails: %v", endpoint, err)
				return
			}
			turns.Add(1)
		}
	}()
	return func() {
		end()
		<-ended
		c.Close() //nolint:errcheck // the end of its test
	}
}

// TestFromPlainTextToTLS offers TLS to clients while some are at work, and requires it, with a failover after each: no
// call fails, neither of clients that began before, nor of those that come right then.
func TestFromPlainTextToTLS(t *testing.T) {
	needFaults(t)
	c := cluster.New(t, options())
	for _, name := range []string{"ca.crt", "keys.json", "secrets"} { // as an older version leaves a volume
		if err := os.RemoveAll(filepath.Join(c.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	c.StartAll()
	c.AwaitReplicas(cluster.Patience)
	var turns atomic.Int64
	goOn := func(what string) {
		t.Helper()
		from := turns.Load()
		cluster.Await(t, cluster.Patience, what, func() bool { return turns.Load() > from+50 })
	}
	defer steady(t.Context(), t, c.Dir(), &turns)()
	goOn("plain text")
	run := func(args ...string) string {
		t.Helper()
		out, err := c.Run(append(args, "--volume", c.Dir())...)
		if err != nil {
			t.Fatalf("holdfast %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(out)
	}
	run("secure", "offer")
	defer steady(t.Context(), t, c.Dir(), &turns)() // before the servers have seen it
	goOn("what comes right after the offer")
	defer steady(t.Context(), t, run("join"), &turns)()
	for _, step := range []string{"offered", "required"} {
		for _, s := range c.Servers() { // each of them may be primary, and all connections are made anew
			s.Kill()
			s.Start()
			c.AwaitReplicas(cluster.Patience)
			goOn("TLS that is " + step)
		}
		cluster.Await(t, cluster.Patience, "all servers to answer over TLS", func() bool {
			_, err := c.Run("secure", "require", "--clients", "--volume", c.Dir())
			return err == nil
		})
		goOn("TLS that is just required")
	}
}
