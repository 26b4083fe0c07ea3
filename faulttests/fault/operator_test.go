// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestDeletedFence removes the fence of the term that serves. The primary may
// not speak any more, nobody may begin from nothing, fsck names the file, and
// recover brings everything back that was acknowledged.
func TestDeletedFence(t *testing.T) {
	needFaults(t)
	b := newBattle(t, sourceText(t, 200<<10), 3, *faultSeed)
	through, stop := b.work(t.Context())
	cluster.Await(t, cluster.Patience, "the text to be in", func() bool { return allClosed(through) })
	stop()
	b.c.AwaitReplicas(cluster.Patience)
	_, epoch := b.awaitTerm(t, 0)
	fence := fmt.Sprintf("epochs/%010d/fence", epoch)
	if err := os.Remove(filepath.Join(b.c.Dir(), filepath.FromSlash(fence))); err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, cluster.Patience, "the primary to notice", func() bool {
		p, _ := b.c.Primary(t.Context())
		return p == nil
	})
	b.c.KillAll()
	refuses(t, b.c, "fence")
	report, err := b.c.Fsck()
	if err == nil || !strings.Contains(err.Error(), fence) {
		t.Errorf("fsck does not name %s: %v, %+v", fence, err, report.Findings)
	}
	recovered(t, b.c)
	b.c.StartAll()
	b.c.AwaitPrimary(cluster.Patience)
	h := hold(t, newClient(t, b.c), "afterwards")
	h.mustAppend(t, "served again\n")
	b.c.TermAll()
	if _, err := b.c.Fsck(); err != nil {
		t.Error(err)
	}
	var r check.Report // the log jumps where it was recovered, so only files are judged
	b.ledger.Check(func(name hf.FileName) ([]byte, error) { return os.ReadFile(b.c.File(string(name))) }, &r)
	for _, bad := range r.Violations() {
		t.Error(bad)
	}
}

// recovered does what docs/recovery.md says about a damaged volume.
func recovered(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	said, err := c.Run("recover", "--volume", c.Dir(), "--yes")
	if err != nil {
		t.Logf("recover wants consent: %s", said)
		said, err = c.Run("recover", "--volume", c.Dir(), "--yes", "--accept-loss")
	}
	if err != nil {
		t.Fatalf("recover: %v\n%s", err, said)
	}
	t.Logf("recover: %s", said)
}
