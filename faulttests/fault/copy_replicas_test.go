// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// onCopy reports whether a server says that it has a copy of the volume, and is not able.
func onCopy(t *testing.T, s *cluster.Server) bool {
	t.Helper()
	body, err := s.Status(t.Context())
	if err != nil {
		return false
	}
	for _, x := range body.Servers {
		if x.ID == uint32(s.Member.ID) {
			return !x.Able && slices.ContainsFunc(x.Volume.Warnings, func(w string) bool { return strings.Contains(w, "a copy of the volume") })
		}
	}
	return false
}

// TestServersOnACopy starts both replicas on a copy of the volume that was made a moment ago. They
// say so, and are no majority for the primary, which does not find their keys on its volume. When it dies they,
// who are a majority, do not serve on the copy: what was
// acknowledged after it was made would be gone. When all are on the volume again, one serves.
func TestServersOnACopy(t *testing.T) {
	needFaults(t)
	opt := options()
	opt.Dirs = map[hf.ServerID]string{}
	c := cluster.Start(t, opt)
	c.AwaitReplicas(cluster.Patience)
	a := &appender{holding: hold(t, newClient(t, c), "original"), ledger: &check.Ledger{}}
	a.mustAppend(t, cluster.Patience)
	p, epoch := c.Primary(t.Context())
	copied := filepath.Join(t.TempDir(), "volume")
	for _, s := range c.Servers() {
		if s != p {
			s.Kill()
			opt.Dirs[s.Member.ID] = copied
		}
	}
	if out, err := exec.Command("cp", "-a", c.Dir(), copied).CombinedOutput(); err != nil { // with the modes of secrets/ and access/
		t.Fatalf("%v: %s", err, out)
	}
	c.StartAll()
	for _, s := range c.Servers() {
		if s != p {
			cluster.Await(t, cluster.Patience, "a server to say that it has a copy", func() bool { return onCopy(t, s) })
		}
	}
	cluster.Await(t, cluster.Patience, "the primary to step down", func() bool { now, _ := c.Primary(t.Context()); return now == nil })
	if cluster.Poll(t.Context(), 5*time.Second, func() bool { now, _ := c.Primary(t.Context()); return now != nil }) {
		t.Errorf("a server is primary of two volumes")
	}
	p.Kill()
	if cluster.Poll(t.Context(), 15*time.Second, func() bool { now, _ := c.Primary(t.Context()); return now != nil }) {
		t.Errorf("a server is primary on a copy of the volume")
	}
	if err := a.append(t.Context(), 3*time.Second); err == nil {
		t.Errorf("an append was done on a copy of the volume")
	}
	c.KillAll()
	clear(opt.Dirs)
	c.StartAll()
	c.AwaitTerm(cluster.Patience, epoch)
	a.mustAppend(t, cluster.Patience)
	c.AwaitReplicas(cluster.Patience)
	c.TermAll()
	if _, err := c.Fsck(); err != nil {
		t.Error(err)
	}
	for _, bad := range check.Judge(a.ledger, func(name hf.FileName) ([]byte, error) { return os.ReadFile(c.File(string(name))) }).Bad {
		t.Error(bad)
	}
}
