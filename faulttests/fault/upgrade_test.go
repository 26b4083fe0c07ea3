// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// beforeLevels is the last revision whose binary does not know the record of the feature level.
const beforeLevels = "058551d12b3ab5d6e488f17d947ab686dbf494b5"

// buildRevision builds the holdfast of a revision of this repository, and returns the binary's path. It skips the test where the
// history is not there.
func buildRevision(t *testing.T, revision string) string {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var said bytes.Buffer
	archive := exec.CommandContext(ctx, "git", "archive", "--format=tar", revision)
	archive.Dir = ".." + string(filepath.Separator) + ".." // git archives the directory it runs in
	archive.Stderr = &said
	content, err := archive.Output()
	if err != nil {
		t.Skipf("the binary of revision %s cannot be built: this needs git, and a clone with its history (git fetch --unshallow): %v: %s", revision, err, said.String())
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", tree)
	unpack.Stdin = bytes.NewReader(content)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	binary := filepath.Join(dir, "holdfast")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./cmd/holdfast")
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build revision %s: %v: %s", revision, err, out)
	}
	return binary
}

// upgrade is what holdfast upgrade --check tells.
type upgrade struct {
	Level    uint32   `json:"feature_level"`
	Next     uint32   `json:"next_level"`
	WaitsFor []string `json:"upgrade_waits_for"`
}

func upgradeOf(t *testing.T, c *cluster.Cluster) (u upgrade) {
	t.Helper()
	out, err := c.Run("upgrade", "--check", "-o", "json")
	if jsonErr := json.Unmarshal([]byte(out), &u); jsonErr != nil {
		t.Fatalf("upgrade --check: %v, %v: %s", err, jsonErr, out)
	}
	if (err != nil) != (len(u.WaitsFor) > 0) {
		t.Errorf("upgrade --check: %v, and it waits for %q", err, u.WaitsFor)
	}
	return u
}

// roll has the servers run another binary one after the other, the primary last.
func (b *battle) roll(t *testing.T, what, binary string) {
	t.Helper()
	p, _ := b.awaitTerm(t, 0)
	for _, s := range b.c.Servers() {
		if s != p {
			b.replace(t, what, s, binary, 300*time.Millisecond)
		}
	}
	b.replace(t, what, p, binary, 300*time.Millisecond)
}

// TestRollingUpgrade upgrades the servers of the revision before there was a record of the feature level, under load and one after
// the other, takes all of them back, upgrades them again, and finishes the upgrade: from then on, and not before, older
// servers refuse the cluster, say why, and leave it as it is.
func TestRollingUpgrade(t *testing.T) {
	needFaults(t)
	old := buildRevision(t, beforeLevels)
	o := options()
	o.Init = old
	c := cluster.New(t, o)
	use := func(binary string) {
		for _, s := range c.Servers() {
			s.Binary = binary
		}
	}
	use(old)
	c.StartAll()
	c.AwaitReplicas(cluster.Patience)
	b := newBattleOn(t, c, sourceText(t, 4<<20), 4, *faultSeed)
	for _, w := range b.workers { // the old servers do not know limits
		w.Places = slices.DeleteFunc(w.Places, func(p traffic.Place) bool { return p.Limit > 0 })
	}
	_, stop := b.work(t.Context())
	began := time.Now()

	b.roll(t, "upgrade", "")
	if u := upgradeOf(t, c); u.Level != locktable.BaseLevel || u.Next != locktable.MaxLevel {
		t.Errorf("after the upgrade: %+v", u)
	}
	b.roll(t, "way back", old)
	p, _ := b.awaitTerm(t, 0)
	for _, s := range c.Servers() {
		if s != p {
			b.replace(t, "upgrade", s, "", 300*time.Millisecond)
		}
	}
	if out, err := c.Run("upgrade", "--finish", "--wait", "0s"); err == nil || !strings.Contains(out, "it runs an older version") {
		t.Errorf("finished while the primary is an older one: %v: %s", err, out)
	}
	b.replace(t, "upgrade", p, "", 300*time.Millisecond)

	out, err := c.Run("upgrade", "--finish", "--wait", "0s")
	if err == nil || !strings.Contains(out, "has said so for") {
		t.Errorf("finished before all servers have said for long enough that they can: %v: %s", err, out)
	}
	for _, what := range []string{"finish", "finish again"} {
		if out, err := c.Run("upgrade", "--finish", "--wait", "1m"); err != nil || !strings.Contains(out, fmt.Sprintf("feature level %d", locktable.MaxLevel)) {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
	if u := upgradeOf(t, c); u.Level != locktable.MaxLevel || u.Next != 0 || len(u.WaitsFor) > 0 {
		t.Errorf("after the finish: %+v", u)
	}
	b.refuses(t, old)
	use("")
	c.StartAll()
	b.awaitTerm(t, 0)
	c.AwaitReplicas(cluster.Patience)
	traffic.Rest(t.Context(), time.Second)
	t.Logf("rolled for %v", time.Since(began).Round(time.Millisecond))
	stop()
	b.end(t)
	if v, err := check.CheckLog(check.LogOptions{Dir: b.archive}, &check.Report{}); err != nil || v.Raised != 1 {
		t.Errorf("the log has %d records that raise the level, %v", v.Raised, err)
	}
}

// refuses stops all servers and starts older ones in their place: none becomes primary, and they say why.
func (b *battle) refuses(t *testing.T, old string) {
	t.Helper()
	b.c.TermAll()
	for _, s := range b.c.Servers() {
		s.Binary = old
	}
	b.c.StartAll()
	cluster.Await(t, cluster.Patience, "older servers to refuse the cluster", func() bool {
		for _, s := range b.c.Servers() {
			if log := s.Log(); strings.Contains(log, "unknown record field 31") || strings.Contains(log, "written by a newer version") {
				return true
			}
		}
		return false
	})
	traffic.Rest(t.Context(), 2*time.Second)
	if p, epoch := b.c.Primary(t.Context()); p != nil {
		t.Errorf("server %d of an older version serves epoch %d after the upgrade was finished", p.Member.ID, epoch)
	}
	b.c.TermAll()
}
