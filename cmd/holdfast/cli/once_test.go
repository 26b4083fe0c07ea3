// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// onceLock is a lock that remembers the last slot that is done.
type onceLock struct {
	oneLock
	slot *slotOf
}

type slotOf struct {
	sync.Mutex
	asked, done string
}

func (l onceLock) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	l.slot.Lock()
	l.slot.asked = q.GetOnce()
	done := l.slot.done != "" && l.slot.done == q.GetOnce()
	l.slot.Unlock()
	if done {
		return refused(pb.Status_STATUS_ALREADY_DONE, q.GetLock(), ""), nil
	}
	return l.oneLock.Acquire(ctx, q)
}

func (l onceLock) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	a, err := l.oneLock.Release(ctx, q)
	l.slot.Lock()
	defer l.slot.Unlock()
	if q.GetDone() && a.GetStatus() == pb.Status_STATUS_OK {
		l.slot.done = l.slot.asked
	}
	return a, err
}

func (l onceLock) now() (asked, done string) {
	l.slot.Lock()
	defer l.slot.Unlock()
	return l.slot.asked, l.slot.done
}

// TestOnce: a slot is done when a command has ended well under the lock, and is told with an exit code of its own.
func TestOnce(t *testing.T) {
	l := onceLock{newOneLock(), &slotOf{}}
	addr := startService(t, l)
	if r := runProgram(addr, "run", "job", "--once", "1", "--", "false"); r.code != 1 {
		t.Errorf("false: %+v", r)
	}
	if _, done := l.now(); done != "" {
		t.Errorf("a command that failed has done slot %q", done)
	}
	for _, x := range []struct {
		args string
		code int
		errs string
	}{
		{"run job --once 1 -- true", 0, ""},
		{"run job --once 1 -- false", 7, "holdfast: slot 1 of lock job is done already: the command is not run\n"},
		{"run job --once 1 --done-exit-code 0 -q -- false", 0, ""},
		{"acquire job --once 1", 7, "holdfast: acquire job: it is done already\n"},
		{"acquire job --once 1 --shared", 2, "--once and --shared"},
		{"run job --once 1 --once-per 24h -- true", 2, "leave one of them out"},
		{"run job --once-per 90d -- true", 2, "--once-per"},
		{"run job --once-per 3000h -- true", 2, "at most"},
		{"run job --once-per= -- true", 2, "--once-per"},
		{"run job --once= -- true", 2, "use 1 to 64"},
		{"acquire job --once=", 2, "use 1 to 64"},
		{"acquire job --after-token 0", 2, "tokens begin at 1"},
		{"acquire job --after-token=", 2, "--after-token"},
	} {
		r := runProgram(addr, strings.Fields(x.args)...)
		if r.code != x.code || !strings.Contains(r.errs, x.errs) || x.errs == "" && r.errs != "" {
			t.Errorf("%s: %+v, want code %d and %q", x.args, r, x.code, x.errs)
		}
	}
	before := time.Now()
	if r := runProgram(addr, "run", "job", "--once-per", "24h", "--", "true"); r.code != 0 {
		t.Errorf("once per day: %+v", r)
	}
	day := func(at time.Time) string { return at.UTC().Format("2006-01-02") + "T00:00:00Z" }
	if _, done := l.now(); done != day(before) && done != day(time.Now()) {
		t.Errorf("the slot of today is %q", done)
	}
}

// undone is onceLock where the grant has ended when its holder says that it is done.
type undone struct{ onceLock }

func (undone) Release(_ context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	return refused(pb.Status_STATUS_INVALID_TOKEN, q.GetLock(), ""), nil
}

// TestOnceInVain: a command that has ended well, and whose slot is not marked, may run again. That is told.
func TestOnceInVain(t *testing.T) {
	addr := startService(t, undone{onceLock{newOneLock(), &slotOf{}}})
	if r := runProgram(addr, "run", "job", "--once", "1", "--", "true"); r.code != 0 || !strings.Contains(r.errs, "slot 1 is marked as done: it may run again") {
		t.Errorf("%+v", r)
	}
}
