// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// TestUnsafeFilesystem: servers on three hosts over a disk of one host are refused, unless told otherwise.
func TestUnsafeFilesystem(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	if f.Kind().Network {
		t.Skipf("%s may be shared by hosts", f.Kind().Name)
	}
	members := cluster.Members{
		{ID: 1, GRPC: "h1:1", HTTP: "h1:2", Peer: "h1:3"}, {ID: 2, GRPC: "h2:1", HTTP: "h2:2", Peer: "h2:3"}, {ID: 3, GRPC: "h3:1", HTTP: "h3:2", Peer: "h3:3"},
	}
	if _, err := volume.Init(t.Context(), f, members, rand.Reader); err != nil {
		t.Fatal(err)
	}
	opt := Options{Server: 1, Volume: dir}
	if err := Run(t.Context(), opt); !errors.Is(err, ErrFilesystem) || !strings.Contains(err.Error(), "belongs to one host") || !strings.Contains(err.Error(), "--unsafe-filesystem") {
		t.Errorf("got %v", err)
	}
	opt.UnsafeFilesystem = true
	warnings, err := trusted(t.Context(), &opt)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "UNSAFE") {
		t.Errorf("got %q, %v", warnings, err)
	}
}
