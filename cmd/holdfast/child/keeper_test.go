// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// inRole starts a process that has a file in a role.
func inRole(t *testing.T, f *os.File, role Role, report string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "role", string(role), report)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestRolesDoNotCount: two who wait, hold or guard a lock of one open file do not keep it for each other.
func TestRolesDoNotCount(t *testing.T) {
	f, o := openTemp(t)
	for _, role := range []Role{Waits, Guards, Holds, Shares, Lost} {
		if len(role) > 15 {
			t.Errorf("the kernel cuts %s", role)
		}
		inRole(t, f, role, "")
		if o.Shared() {
			t.Errorf("a process that is called %s counts", role)
		}
	}
	user := holder(t, f)
	o.find()
	if !o.Shared() || o.shut() {
		t.Error("a process without a role does not count")
	}
	end(user)
	if !o.shut() {
		t.Error("processes with roles keep it")
	}
}

// TestRoleThatComesLater: the oldest user may turn out to be a flock that waits.
func TestRoleThatComesLater(t *testing.T) {
	f, o := openTemp(t)
	waits, _ := readProcess(inRole(t, f, Waits, "").Process.Pid)
	o.users, o.due = []user{{waits, 3}}, time.Now().Add(time.Hour)
	if !o.shut() {
		t.Error("a process that was a user before it had a role keeps the file")
	}
}

// TestKeepers finds those that have the lock, or have lost it, with their reports.
func TestKeepers(t *testing.T) {
	f, o := openTemp(t)
	other, _ := openTemp(t)
	inRole(t, f, Waits, "")
	inRole(t, f, Guards, "")
	inRole(t, other, Holds, "of another file")
	want := map[Role]string{Holds: "first", Shares: "second", Lost: strings.Repeat("third", 1000)}
	for role, report := range want {
		inRole(t, f, role, report)
	}
	all := o.Keepers()
	if len(all) != len(want) {
		t.Fatalf("got %v, want three", all)
	}
	for _, k := range all {
		if report, err := k.Report(); err != nil || string(report) != want[k.Role()] {
			t.Errorf("process %d, %s, reports %.40q, %v", k.PID(), k.Role(), report, err)
		}
	}
	gone := all[0]
	gone.p.start++
	if report, err := gone.Report(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another process with its number reports %q, %v", report, err)
	}
	if err := gone.Release(time.Minute); err != nil {
		t.Errorf("another process has its number, and counts: %v", err)
	}
}

// TestLossIsSeen: a keeper that has lost its lock does not pass for one that has it.
func TestLossIsSeen(t *testing.T) {
	_, o := openTemp(t)
	this := func() Role {
		p, _ := readProcess(os.Getpid())
		return Role(p.name)
	}
	defer o.As(this()) //nolint:errcheck // other tests do not look at it
	for _, role := range []Role{Waits, Holds} {
		if err := o.As(role); err != nil || this() != role {
			t.Errorf("this is %s, %v, want %s", this(), err, role)
		}
	}
	r := &runner{file: o, lease: full{}, opt: Options{OnLost: Leave}, speaker: newSpeaker(nil)}
	r.end(context.Canceled)
	if this() != Lost {
		t.Errorf("a keeper that has lost its lock is %s", this())
	}
}
