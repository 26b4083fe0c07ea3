// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Build builds the holdfast binary into dir and returns its path.
func Build(dir string) (string, error) {
	binary := filepath.Join(dir, "holdfast")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/holdfast-lock/holdfast/cmd/holdfast").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build holdfast: %w\n%s", err, out)
	}
	return binary, nil
}

// The ports to use are below those that systems give to outgoing connections. Servers 1 to 3 of a
// cluster have base+0 to +2 for clients and base+200 to +202 for each other, and the test those of the
// other three hundreds: 500 ports are shared by 33 clusters.
const (
	lowestPort  = 12000
	portBlock   = 500
	portBlocks  = 36
	portSpacing = 3
	perBlock    = 33
)

// FreePorts returns a base such that base..base+2, base+100..102 and base+200..202 are free on loopback:
// the ports of three servers of dev, and between them some for the test. No other test on this machine gets
// them before this one ends, also while its servers are down: a locked file stands for them.
func FreePorts(t testing.TB) int {
	t.Helper()
	return freePorts(t, 1)
}

// freePorts is FreePorts for as many clusters beside each other: the ports of the next one are portSpacing higher.
func freePorts(t testing.TB, clusters int) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "holdfast-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, slot := range rand.Perm(portBlocks * perBlock) {
		if slot%perBlock+clusters > perBlock {
			continue
		}
		base := lowestPort + slot/perBlock*portBlock + slot%perBlock*portSpacing
		var held []*os.File
		for len(held) < clusters {
			f := holdPorts(t, dir, base+len(held)*portSpacing)
			if f == nil {
				break
			}
			held = append(held, f)
		}
		if len(held) == clusters {
			t.Cleanup(func() { closeAll(held) })
			return base
		}
		closeAll(held)
	}
	t.Fatal("not enough free ports on loopback")
	return 0
}

// holdPorts returns the locked file that stands for the ports of one cluster, nil if they are not free.
func holdPorts(t testing.TB, dir string, base int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(base)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && allFree(base) {
		return f
	}
	f.Close() //nolint:errcheck // nothing was written
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close() //nolint:errcheck // nothing was written
	}
}

func allFree(base int) bool {
	for _, offset := range []int{0, 1, 2, 100, 101, 102, 200, 201, 202} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
		if err != nil {
			return false
		}
		if l.Close() != nil {
			return false
		}
	}
	return true
}
