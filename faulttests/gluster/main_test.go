// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"flag"
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
)

var (
	faults = flag.Bool("faults", false, "run the tests on GlusterFS; they take minutes")
	rounds = flag.Int("faults.rounds", 500, "how many rounds a measurement has")
)

// start makes a volume, if tests that take long are asked for and it can be made.
func start(t *testing.T, opt gluster.Options) *gluster.Volume {
	t.Helper()
	if !*faults {
		t.Skip("GlusterFS takes minutes: give -faults")
	}
	return gluster.Start(t, opt)
}

// build makes the binary to test.
func build(t *testing.T) string {
	t.Helper()
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
