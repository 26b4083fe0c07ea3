// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
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

// The range of ports to use: below those that systems give to outgoing connections.
const (
	lowestPort  = 12000
	highestPort = 30000
	portTries   = 200
)

// FreePorts returns a base such that base..base+2, base+100..102 and so on up to
// base+400..402 are free on loopback, which are the ports of three servers of dev. It does not
// reserve them: if another process takes one first, the test fails.
func FreePorts() (int, error) {
	for range portTries {
		base := lowestPort + rand.IntN(highestPort-lowestPort)
		if allFree(base) {
			return base, nil
		}
	}
	return 0, errors.New("not enough free ports on loopback")
}

func allFree(base int) bool {
	for _, offset := range []int{0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302, 400, 401, 402} {
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
