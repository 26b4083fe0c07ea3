// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

var (
	faults       = flag.Bool("faults", false, "run the tests with real faults; they take minutes")
	minDuration  = flag.Duration("faults.duration", 0, "repeat the main scenario for at least this long")
	minKills     = flag.Int("faults.kills", 30, "how often the main scenario kills a primary")
	textBytes    = flag.Int("faults.text", 10<<20, "how much text the main scenario appends, in bytes")
	faultSeed    = flag.Uint64("faults.seed", 0, "the seed of what the faults draw; 0 = from the time")
	idleTime     = flag.Duration("faults.idle", 5*time.Second, "for how long the idle servers of a site are measured")
	oldBinary    = flag.String("faults.old", "", "a holdfast binary that knows no TLS between servers, to upgrade from")
	binaryToTest = flag.String("faults.binary", "", "the holdfast binary to test; empty = build it")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if code, is := childMain(); is {
		os.Exit(code)
	}
	os.Exit(run(m))
}

// run builds the binary once for all tests.
func run(m *testing.M) int {
	if *faultSeed == 0 {
		*faultSeed = uint64(time.Now().UnixNano())
	}
	if *binaryToTest == "" {
		dir, err := os.MkdirTemp("", "holdfast-fault")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary directory
		if *binaryToTest, err = cluster.Build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// needFaults skips a test that takes long, unless it was asked for.
func needFaults(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("real faults take minutes: give -faults")
	}
}

func options() cluster.Options { return cluster.Options{Binary: *binaryToTest} }
