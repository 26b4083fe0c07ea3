// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
)

// TestFrozenPrimaryIsReplaced freezes the primary again and again and tells how long it took
// until another server served: 500 ms at the median on a machine that does nothing else, of
// which 300 ms are suspicion.
func TestFrozenPrimaryIsReplaced(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	var took []time.Duration
	for range 8 {
		c.AwaitReplicas(cluster.Patience)
		traffic.Rest(t.Context(), 1500*time.Millisecond) // the replicas are able again
		old, epoch := c.Primary(t.Context())
		if old == nil {
			t.Fatal("no primary")
		}
		began := time.Now()
		old.Stop()
		c.AwaitTerm(cluster.Patience, epoch)
		took = append(took, time.Since(began))
		old.Cont()
		cluster.Await(t, cluster.Patience, "the old primary to be a replica", func() bool {
			body, err := old.Status(t.Context())
			return err == nil && body.Role == "replica"
		})
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("another server served after %v at the median, %v to %v", median, took[0], took[len(took)-1])
	if median > 4*time.Second { // on a machine that is so busy that servers allow for it (PROTOCOL 2.7)
		t.Errorf("a frozen primary was replaced after %v at the median", median)
	}
}

// TestFrozenClusterKeepsItsPrimary freezes all servers, as a machine does that is suspended, and
// wakes the primary up last. No server takes the others' silence, or its own, for an end.
func TestFrozenClusterKeepsItsPrimary(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	for range 3 {
		c.AwaitReplicas(cluster.Patience)
		traffic.Rest(t.Context(), 1500*time.Millisecond) // the replicas are able
		primary, epoch := c.Primary(t.Context())
		if primary == nil {
			t.Fatal("no primary")
		}
		for _, s := range c.Servers() {
			s.Stop()
		}
		traffic.Rest(t.Context(), 4*time.Second)
		for _, s := range c.Servers() {
			if s != primary {
				s.Cont()
			}
		}
		traffic.Rest(t.Context(), 200*time.Millisecond)
		primary.Cont()
		traffic.Rest(t.Context(), 3*time.Second)
		if _, now := c.Primary(t.Context()); now != epoch {
			t.Errorf("epoch %d became epoch %d while every server was alive", epoch, now)
		}
	}
}
