// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// TestRulesComeIntoForce gives rules to a volume whose servers serve, and a key to a service. The servers' user goes on
// without a failed call, whoever has no credential is refused, and the service gets its own locks and no other, over TLS
// and through a failover. When its key is revoked it loses its session, and then its lock.
func TestRulesComeIntoForce(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	run := func(args ...string) string {
		t.Helper()
		out, err := c.Run(append(args, "--volume", c.Dir())...)
		if err != nil {
			t.Fatalf("holdfast %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(strings.SplitN(out, "\n", 2)[0])
	}
	var turns atomic.Int64
	operator, err := auth.OperatorTicket(c.Dir(), "", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer steadyWith(t.Context(), t, with(c.Dir(), operator.Text), &turns)()
	run("access", "set", "--policy", "strict")
	key := run("key", "create", "ci")
	plain, err := clientlib.New(clientlib.Options{Endpoints: c.Endpoints(), Budget: cluster.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close() //nolint:errcheck // the end of the test
	cluster.Await(t, cluster.Patience, "whoever has no credential to be refused", func() bool {
		l, err := plain.Acquire(t.Context(), "service/ci/deploy", clientlib.AcquireOptions{TTL: time.Minute})
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil && !errors.Is(err, clientlib.ErrUnauthenticated) {
			t.Fatal(err)
		}
		return err != nil
	})
	ci := serviceWith(t, run("join"), key)
	if _, err := ci.Acquire(t.Context(), "elsewhere", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrPermissionDenied) {
		t.Errorf("a lock that the rules do not allow: %v", err)
	}
	var held *clientlib.Lock
	cluster.Await(t, cluster.Patience, "the service to get its lock", func() bool {
		held, err = ci.Acquire(t.Context(), "service/ci/build", clientlib.AcquireOptions{TTL: 2 * time.Second})
		return err == nil
	})
	c.AwaitPrimary(cluster.Patience).Kill()
	from := turns.Load()
	cluster.Await(t, cluster.Patience, "the next primary", func() bool { return turns.Load() > from+20 })
	select {
	case <-held.Context().Done():
		t.Fatalf("the lock is lost by a failover: %v", context.Cause(held.Context()))
	default:
	}
	run("key", "revoke", "ci")
	select {
	case <-held.Context().Done():
	case <-t.Context().Done():
		t.Fatal("the lock is held with a key that was revoked")
	}
	if _, err := ci.Acquire(t.Context(), "service/ci/build", clientlib.AcquireOptions{}); !errors.Is(err, clientlib.ErrUnauthenticated) {
		t.Errorf("a revoked key: %v", err)
	}
}

// with returns the options of a client that shows a credential.
func with(endpoint, credential string) clientlib.Options {
	return clientlib.Options{
		Endpoints: []string{endpoint}, Budget: cluster.Patience,
		Credential: func(context.Context, string) (string, error) { return credential, nil },
	}
}

// serviceWith returns a client that shows a key.
func serviceWith(t *testing.T, endpoint, key string) *clientlib.Client {
	t.Helper()
	c, err := clientlib.New(with(endpoint, key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the end of the test
	return c
}
