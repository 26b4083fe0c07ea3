// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
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

// TestDoubtsAboutTheFilesystem: what the doctor could not find out does not keep a server from
// starting, and status shows it for as long as the server runs.
func TestDoubtsAboutTheFilesystem(t *testing.T) {
	doubts := []string{"GlusterFS options: they cannot be told"}
	r := &doctor.Report{Doubts: doubts, Findings: []doctor.Finding{{Check: "GlusterFS options", Verdict: doctor.Warn, Detail: "they cannot be told"}}}
	var opt Options
	if warnings, err := opt.accept(r); err != nil || !slices.Equal(warnings, doubts) {
		t.Errorf("status is told %q, %v", warnings, err)
	}
	r.Findings = append(r.Findings, doctor.Finding{Check: "flock", Verdict: doctor.Refuse, Detail: "locks exclude nobody"})
	if _, err := opt.accept(r); !errors.Is(err, ErrFilesystem) {
		t.Errorf("refused and accepted: %v", err)
	}
	opt.UnsafeFilesystem = true
	if warnings, err := opt.accept(r); err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], "UNSAFE") || warnings[1] != doubts[0] {
		t.Errorf("status is told %q, %v", warnings, err)
	}
}
