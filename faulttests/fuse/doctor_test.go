// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
)

// TestDoctor shows holdfast's doctor two hosts. It refuses those that cache, and
// says of which its fences could not live with.
func TestDoctor(t *testing.T) {
	if !*faults {
		t.Skip("takes a minute: give -faults")
	}
	s := newShare(t)
	binary, err := cluster.Build(t.TempDir())
	must(t, err)
	for _, c := range []struct {
		name           string
		profile        fuse.Profile
		verdict, fence string
	}{
		{"strict", fuse.Strict(), "warn", "ok"}, // it does not know this filesystem
		{"stale", fuse.Stale(time.Second), "refuse", "ok"},
		{"stale direct", fuse.StaleDirect(time.Second), "refuse", "refuse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, two := mount(t, s, c.profile), mount(t, s, c.profile)
			out, err := exec.CommandContext(t.Context(), binary, "doctor", one.Dir(), two.Dir()).CombinedOutput()
			must(t, one.Unmount())
			must(t, two.Unmount())
			lines := "\n" + strings.Join(strings.Fields(string(out)), " ")
			if (err != nil) != (c.verdict == "refuse") || !strings.HasSuffix(lines, "verdict: "+c.verdict) || !strings.Contains(lines, " "+c.fence+" fence: ") {
				t.Errorf("doctor: %v; want the verdict %s, and %s for the fence\n%s", err, c.verdict, c.fence, out)
			}
		})
	}
}
