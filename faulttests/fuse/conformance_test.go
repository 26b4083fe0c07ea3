// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// TestConformance runs the suite of vfs.FS in a child, over the product's
// own filesystem code, on a mount of each profile.
func TestConformance(t *testing.T) {
	if dir := os.Getenv(envConform); dir != "" {
		conform(t, dir)
		return
	}
	for name, profile := range map[string]fuse.Profile{
		"strict":       fuse.Strict(),
		"stale":        fuse.Stale(time.Second),
		"stale direct": fuse.StaleDirect(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			m := mount(t, newShare(t), profile)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformance$", "-test.v", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), envConform+"="+m.Dir())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func conform(t *testing.T, dir string) {
	volumetest.Conformance(t, func(t *testing.T) vfs.FS {
		root, err := os.MkdirTemp(dir, "volume")
		must(t, err)
		v, err := osfs.Open(root)
		must(t, err)
		if kind := v.Kind(); !kind.Network || kind.Name != "fuse" {
			t.Errorf("kind %+v", kind)
		}
		return v
	})
}
