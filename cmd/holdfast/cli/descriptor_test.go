// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// kept is a keeper that does what the test says; released is true once it was asked to release.
type kept struct {
	role     child.Role
	report   string
	ended    bool
	released bool
}

func (k *kept) PID() int { return 7 }

func (k *kept) Role() child.Role { return k.role }

func (k *kept) Report() ([]byte, error) {
	if k.ended {
		return nil, os.ErrNotExist
	}
	return []byte(k.report), nil
}

func (k *kept) Release(time.Duration) error {
	k.released = true
	return nil
}

// TestSettle compares what a descriptor has with what is asked for.
func TestSettle(t *testing.T) {
	report := func(lock string) string {
		return fmt.Sprintf(`{"status":"OK","lock":%q,"token":5,"epoch":3,"pid":7}`, lock)
	}
	for name, c := range map[string]struct {
		keeper         kept
		shared, unlock bool
		lock           string
		token          cluster.Token // of the lock that is held as it is asked for
		released       bool
		words          string // of the refusal
		code           int
	}{
		"the same":              {kept{role: child.Holds, report: report("a")}, false, false, "a", 5, false, "", 0},
		"the same, shared":      {kept{role: child.Shares, report: report("a")}, true, false, "a", 5, false, "", 0},
		"the other mode":        {kept{role: child.Shares, report: report("a")}, false, false, "a", 0, true, "", 0},
		"another lock":          {kept{role: child.Holds, report: report("b")}, false, false, "a", 0, false, "descriptor 9 has lock b, and not a: release it with holdfast flock -u 9, or", exitUsage},
		"another lock, shared":  {kept{role: child.Holds, report: report("b")}, true, false, "a", 0, false, "descriptor 9 has lock b", exitUsage},
		"lost":                  {kept{role: child.Lost, report: report("a")}, false, false, "a", 0, false, "was lost", exitLost},
		"ended":                 {kept{role: child.Holds, ended: true}, false, false, "a", 0, false, "", 0},
		"says nothing":          {kept{role: child.Holds}, false, false, "a", 0, false, "does not say which", exitUsage},
		"unlock any":            {kept{role: child.Holds, report: report("b")}, false, true, "", 0, true, "", 0},
		"unlock this":           {kept{role: child.Shares, report: report("a")}, false, true, "a", 0, true, "", 0},
		"unlock another":        {kept{role: child.Holds, report: report("b")}, false, true, "a", 0, false, "descriptor 9 has lock b", exitUsage},
		"unlock what was lost":  {kept{role: child.Lost, report: report("a")}, false, true, "", 0, true, "", 0},
		"another one's reports": {kept{role: child.Holds, report: strings.Replace(report("a"), ":7", ":8", 1)}, false, false, "a", 0, false, "does not say which", exitUsage},
	} {
		x := &flocking{running: running{app: &app{Env: silent()}, lock: cluster.LockName(c.lock)}, unlock: c.unlock, descriptor: 9}
		x.lease.shared = c.shared
		body, err := x.settle([]keeper{&c.keeper})
		if (body != nil) != (c.token != 0) || body != nil && body.Token != c.token {
			t.Errorf("%s: got %+v, want token %d", name, body, c.token)
		}
		if (err != nil) != (c.words != "") || err != nil && (!strings.Contains(err.Error(), c.words) || exitCode(err) != c.code) {
			t.Errorf("%s: got error %v, want %q", name, err, c.words)
		}
		if c.keeper.released != c.released {
			t.Errorf("%s: asked to release: %v", name, c.keeper.released)
		}
	}
}

// followed runs a script as the keeper, and returns what became of it.
func followed(t *testing.T, ctx context.Context, script string, settle func() (*descriptorBody, error)) (*descriptorBody, error) {
	t.Helper()
	x := &flocking{running: running{app: &app{Env: silent()}}}
	cmd := exec.Command("sh", "-c", script)
	type outcome struct {
		body *descriptorBody
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		body, err := x.follow(ctx, cmd, settle)
		done <- outcome{body, err}
	}()
	select {
	case o := <-done:
		return o.body, o.err
	case <-time.After(time.Minute):
		cmd.Process.Kill() //nolint:errcheck // it has ended
		t.Fatal("flock waits for a keeper that waits for the end of the file")
		return nil, nil
	}
}

// aKeeper is a script that holds a lock until it is asked to release it; it says "went" in the file $F
// when flock has answered.
const aKeeper = `trap 'echo released >> $F; exit 0' USR1; echo '{"status":"OK","lock":"a","token":5}'; read go; echo $go >> $F; while :; do sleep 0.02; done`

// TestInterruptedKeeperReleases: a Ctrl-C just after the keeper was told to go on leaves no lock, and
// nobody waits.
func TestInterruptedKeeperReleases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	t.Setenv("F", file)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		for text := []byte{}; len(text) == 0; text, _ = os.ReadFile(file) {
			<-time.After(time.Millisecond)
		}
		interrupt()
	}()
	body, err := followed(t, ctx, aKeeper, func() (*descriptorBody, error) { return nil, nil })
	if text, _ := os.ReadFile(file); body != nil || !errors.Is(err, errInterrupted) || string(text) != "go\nreleased\n" {
		t.Errorf("got %+v, %v, and the keeper said %q", body, err, text)
	}
}

// TestTwoAtOnceOfOneDescriptor: what one has got is the other's, too, which else would wait for itself.
func TestTwoAtOnceOfOneDescriptor(t *testing.T) {
	for name, want := range map[string]error{"held": nil, "refused": errNotKept} {
		looks := 0
		body, err := followed(t, t.Context(), `read go; exit 1`, func() (*descriptorBody, error) {
			if looks++; looks < 2 {
				return nil, nil
			}
			if want != nil {
				return nil, want
			}
			return &descriptorBody{Token: 9}, nil
		})
		if !errors.Is(err, want) || (body == nil) != (want != nil) || body != nil && body.Token != 9 {
			t.Errorf("%s: got %+v, %v", name, body, err)
		}
	}
}

// TestOwnKeeperIsNotAnother: a flock whose keeper has the lock looks for no other.
func TestOwnKeeperIsNotAnother(t *testing.T) {
	line, err := json.Marshal(descriptorBody{Status: "OK", Lock: "a", Token: 5})
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`echo '%[1]s'; read go; sleep 1.2; echo '%[1]s'; sleep 0.1`, line)
	body, err := followed(t, t.Context(), script, func() (*descriptorBody, error) { return &descriptorBody{Token: 9}, nil })
	if err != nil || body == nil || body.Token != 5 {
		t.Errorf("got %+v, %v, want token 5", body, err)
	}
}
