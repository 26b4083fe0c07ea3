// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/election"
)

// overrunning is in the environment of a test binary that is to overrun.
const overrunning = "HOLDFAST_ELECTION_OVERRUN"

// TestOverrunEndsTheProcess where nothing else was asked for.
func TestOverrunEndsTheProcess(t *testing.T) {
	if os.Getenv(overrunning) != "" {
		w := newWorld()
		p := w.process(clientlib.Options{})
		e := p.election(election.Options{TTL: time.Second})
		e.Run(t.Context(), func(context.Context, *election.Leadership) error { //nolint:errcheck // it does not return
			p.net.Cut()
			select {}
		})
		t.Fatal("it went on")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run", "^TestOverrunEndsTheProcess$")
	cmd.Env = append(os.Environ(), overrunning+"=1")
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != election.OverrunExitCode || !strings.Contains(string(out), `leadership of "svc"`) {
		t.Errorf("%v\n%s", err, out)
	}
}
