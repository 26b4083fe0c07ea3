// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
)

// TestCopyIsServedBeside serves a copy of the volume on other addresses while the servers of
// the volume serve: their primary keeps its term, appends are acknowledged, and each server
// names the process that uses its ID.
func TestCopyIsServedBeside(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	h := hold(t, newClient(t, c), "beside")
	h.mustAppend(t, "before\n")
	p, epoch := c.Primary(t.Context())
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", c.Dir(), copied).CombinedOutput(); err != nil {
		t.Fatalf("cp -a: %v\n%s", err, out)
	}
	const served = 20 * time.Second
	var strangers sync.WaitGroup
	for _, s := range c.Servers() {
		strangers.Go(func() {
			said, running, err := s.Second(served, "--volume", copied, "--bind", "127.0.0.2")
			if !running {
				t.Errorf("server %d on the copy ended: %v, said:\n%s", s.Member.ID, err, said)
			}
		})
	}
	for began, n := time.Now(), 0; time.Since(began) < served-2*time.Second; n++ {
		h.mustAppend(t, fmt.Sprintf("beside, line %d\n", n))
		traffic.Rest(t.Context(), 200*time.Millisecond)
	}
	now, at := c.Primary(t.Context())
	if now != p || at != epoch {
		t.Errorf("beside the copy the primary of epoch %d became that of epoch %d", epoch, at)
	}
	for _, s := range c.Servers() {
		body, err := s.Status(t.Context())
		if err != nil {
			t.Error(err)
			continue
		}
		own := body.Servers[s.Member.ID-1]
		for where, text := range map[string]string{"status": strings.Join(own.Volume.Warnings, "\n"), "log": s.Log()} {
			for _, want := range []string{fmt.Sprintf("USES SERVER ID %d AND DOES NOT WRITE TO THIS VOLUME", s.Member.ID), copied, "127.0.0."} {
				if !strings.Contains(text, want) {
					t.Errorf("the %s of server %d does not tell %q:\n%s", where, s.Member.ID, want, text)
				}
			}
		}
		if own.Conflict {
			t.Errorf("server %d is in conflict with a process on a copy", s.Member.ID)
		}
	}
	strangers.Wait()
	h.mustAppend(t, "after\n")
}
