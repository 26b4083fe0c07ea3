// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/fuse"
)

// A process that serves a mount must not use it: see the package doc. What
// tests want from a mount, they have done by children, which are this same
// binary with one of these in its environment.
const (
	envClient  = "HOLDFAST_FUSE_CLIENT"  // take orders from stdin, see client
	envConform = "HOLDFAST_FUSE_CONFORM" // the mount to run the conformance suite on
)

var faults = flag.Bool("faults", false, "run the tests that take minutes, too")

func TestMain(m *testing.M) {
	if os.Getenv(envClient) != "" {
		os.Exit(obey(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newShare makes a share of a fresh directory, or skips the test.
func newShare(t testing.TB) *fuse.Share {
	t.Helper()
	if err := fuse.Available(); err != nil {
		t.Skip(err)
	}
	backing := filepath.Join(t.TempDir(), "share")
	must(t, os.Mkdir(backing, 0o755))
	s, err := fuse.NewShare(backing, 1)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// mount attaches a host.
func mount(t testing.TB, s *fuse.Share, p fuse.Profile) *fuse.Mount {
	t.Helper()
	m, err := s.Mount(t.TempDir(), p)
	must(t, err)
	return m
}
