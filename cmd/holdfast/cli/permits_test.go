// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
)

// TestPermitsOfAnOlderServer: a server that does not know limits grants the lock without one. A command gives that back, and prints no token.
func TestPermitsOfAnOlderServer(t *testing.T) {
	addr := startFake(t)
	if r := runProgram(addr, "acquire", "older", "--limit", "5"); r.code != 2 || r.out != "" || !strings.Contains(r.errs, "does not know locks with a limit") {
		t.Errorf("an older server: %+v", r)
	}
	if r := runProgram(addr, "acquire", "pool", "--limit", "5", "--weight", "2"); r.code != 0 || r.out != "17\n" {
		t.Errorf("one that knows them: %+v", r)
	}
}
