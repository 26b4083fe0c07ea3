// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestLowWaterIsTheLowestOpenNumber(t *testing.T) {
	s := &newIdentity("@1", false, 1).seq
	rng := rand.New(rand.NewPCG(1, 2))
	open := map[cluster.RequestID]bool{}
	last := cluster.RequestID(0)
	for range 10_000 {
		if rng.IntN(2) == 0 || len(open) == 0 {
			id, _ := s.take(waitClass(rng.IntN(2)), false)
			if id != last+1 {
				t.Fatalf("took %d after %d", id, last)
			}
			last, open[id] = id, true
		} else {
			for id := range open { // any one
				s.done(id)
				delete(open, id)
				break
			}
		}
		want := last + 1
		for id := range open {
			want = min(want, id)
		}
		if got := s.lowWater(); got != want {
			t.Fatalf("low water is %d, want %d", got, want)
		}
	}
}

// However many requests were open at once, further ones take no more memory.
func TestRequestsTakeNoMemoryOneByOne(t *testing.T) {
	s := &newIdentity("@1", false, 1<<40).seq
	var open []RequestID
	for range 100 {
		id, _ := s.take(waiting, false)
		open = append(open, id)
	}
	if n := testing.AllocsPerRun(1000, func() {
		id, _ := s.take(waiting, false)
		s.done(open[0])
		copy(open, open[1:])
		open[len(open)-1] = id
	}); n != 0 {
		t.Errorf("%v allocations for a request", n)
	}
	if s.lowWater() != open[0] || s.mu.waits != len(open) {
		t.Errorf("low water is %d with %d waits, want %d with %d", s.lowWater(), s.mu.waits, open[0], len(open))
	}
}

func TestLeaseCountsFromTheSendingLessAMargin(t *testing.T) {
	var l lease
	if l.over(time.Hour) {
		t.Error("a lease that counts nothing is over")
	}
	l.extend(time.Second, 10*time.Second)
	want := time.Second + 10*time.Second - 100*time.Millisecond - 10*time.Millisecond
	if l.deadline != want || l.over(want-1) || !l.over(want) {
		t.Errorf("deadline is %v, want %v", l.deadline, want)
	}
	l.extend(500*time.Millisecond, 10*time.Second) // the answer to an older question comes late
	if l.deadline != want {
		t.Errorf("an older answer moved the deadline to %v", l.deadline)
	}
}

func TestLimitEndsALeaseThatWasCountedLonger(t *testing.T) {
	var l lease
	l.extend(3*time.Second, 8*time.Second)
	l.bound(3*time.Second, 5*time.Second)
	l.extend(3*time.Second, 5*time.Second)
	end := 8*time.Second - driftMargin(5*time.Second)
	if l.deadline != end {
		t.Errorf("counted until %v of a grant that ends at 8 s", l.deadline)
	}
	l.bound(time.Second, 7*time.Second) // the answer to an older question comes late
	l.extend(time.Second, 7*time.Second)
	if l.deadline != end {
		t.Errorf("an older answer moved the deadline to %v", l.deadline)
	}
	l.bound(6*time.Second, 8*time.Second) // a new primary counts afresh
	l.extend(6*time.Second, 10*time.Second)
	if want := 14*time.Second - driftMargin(8*time.Second); l.deadline != want {
		t.Errorf("counted until %v, with a new limit at %v", l.deadline, want)
	}
}

func TestMonotonicClock(t *testing.T) {
	for name, c := range map[string]Clock{"system": systemClock(), "fallback": newMonotonicClock()} {
		last := c.Now()
		for range 1000 {
			now := c.Now()
			if now < last {
				t.Fatalf("%s clock went from %v to %v", name, last, now)
			}
			last = now
		}
	}
}

// A machine that sleeps may stop its monotonic time: then the time of day tells.
func TestFallbackClockSeesASleep(t *testing.T) {
	c := newMonotonicClock()
	before := c.Now()
	(*[2]uint64)(unsafe.Pointer(&c.mu.last))[0] -= 3600 << 30 // its wall time, and not its monotonic one
	if now := c.Now(); now-before < time.Hour {
		t.Errorf("an hour later by the time of day it went on by %v", now-before)
	}
	(*[2]uint64)(unsafe.Pointer(&c.mu.last))[0] += 3600 << 30 // the time of day is set back
	before = c.Now()
	if now := c.Now(); now < before {
		t.Errorf("from %v it went back to %v", before, now)
	}
}

// What an attempt brought says whether the answer is the operation's, and whether the attempt
// may have been executed.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		err                 error
		final, unsent, over bool
	}{
		{status.Error(codes.Unavailable, "reset"), false, false, false},
		{status.Error(codes.Internal, "reset"), false, false, false},
		{context.DeadlineExceeded, false, false, false},
		{status.Error(codes.Unimplemented, "no such method"), true, true, false},
		{status.Error(codes.Unauthenticated, "no certificate"), true, true, false},
		{status.Error(codes.ResourceExhausted, "the answer is too long"), true, false, false},
		{&wire.Error{Status: cluster.StatusUnknown}, false, false, true},
		{&wire.Error{Status: cluster.StatusUnknown, RetryAfter: time.Second}, false, false, false},
		{&wire.Error{Status: cluster.StatusSecondaryMode}, false, true, true},
		{&wire.Error{Status: cluster.StatusNoQuorum}, false, true, false},
		{&wire.Error{Status: cluster.StatusHeld}, true, true, false},
	} {
		if v := judge((*pb.Answer)(nil), c.err); v.Verdict.Final() != c.final || v.Verdict.Doubtful() == c.unsent || v.over != c.over || v.Err == nil {
			t.Errorf("%v: %+v, want final %v, unsent %v, over %v", c.err, v, c.final, c.unsent, c.over)
		}
	}
}

func TestWaitIsCountedOffOnce(t *testing.T) {
	s := &newIdentity("me", true, 1).seq
	prior, _ := s.take(prompt, true) // keeps the wait from being forgotten
	id, _ := s.take(waiting, true)
	s.done(id)
	s.done(id)
	if s.mu.waits != 0 {
		t.Errorf("%d waits are open", s.mu.waits)
	}
	s.done(prior)
	if s.lowWater() != id+1 {
		t.Errorf("low water is %d", s.lowWater())
	}
}

func TestErrorsTellWhatToDo(t *testing.T) {
	held := &HeldError{Lock: "a/b", Holder: &wire.Holder{Client: "@7", Token: 9, Host: "h1", PID: 3, Command: "make"}, QueueLength: 2}
	lost := &LostError{Lock: "a", Token: 3, Reason: LossRefused, Cause: wire.ErrInvalidToken}
	unknown := &CallError{Op: "append", Lock: "a", Client: "@7", Request: 4, Unknown: true, Tries: 3, Err: errors.New("reset")}
	for _, c := range []struct {
		err  error
		is   []error
		text []string
	}{
		{held, []error{wire.ErrHeld}, []string{`"a/b"`, "h1, make (pid 3)", "token 9", "2 waiting", "try later"}},
		{lost, []error{ErrLost, wire.ErrInvalidToken}, []string{"refused", "acquire it again"}},
		{unknown, []error{wire.ErrUnknown}, []string{"3 tries", "outcome of request 4 of client @7"}},
		{&CallError{Op: "append", Err: &wire.Error{Status: cluster.StatusFileQuarantined}}, []error{wire.ErrFileQuarantined}, []string{"rotate"}},
	} {
		for _, is := range c.is {
			if !errors.Is(c.err, is) {
				t.Errorf("%v is not %v", c.err, is)
			}
		}
		for _, text := range c.text {
			if !strings.Contains(c.err.Error(), text) {
				t.Errorf("%q does not say %q", c.err, text)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Endpoints: []string{""}}, {Endpoints: []string{"a:1,b:2"}}, {Endpoints: []string{"a:1"}, ClientID: "@5"},
		{Endpoints: []string{"a:1"}, ClientID: "~x"}, {Endpoints: []string{"a:1"}, Budget: -1},
	} {
		if c, err := New(o); err == nil {
			c.Close()
			t.Errorf("options %+v were taken", o)
		}
	}
	h := Holder{Host: strings.Repeat("ä", 200), Command: "a\xffb"}.complete().proto()
	if len(h.User)+len("@")+len(h.Host) > cluster.MaxText || h.Command != "a?b" || h.Pid == 0 || h.User == "" {
		t.Errorf("holder %v", h)
	}
}

func TestSystemClockNeverGoesBack(t *testing.T) {
	c := systemClock()
	last := c.Now()
	for began := time.Now(); time.Since(began) < 5*bootFresh; {
		now := c.Now()
		if now < last || now > last+time.Second {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
}

// What would be dialed in vain for the whole budget is refused at once.
func TestNewRefusesWhatIsNoAddress(t *testing.T) {
	for _, e := range []string{"localhost", "http://localhost:7601", "https://h", "h:", "h:0", "h:70000", "h:http", "1.2.3.4", "[::1]", "dns:///h:7601", "passthrough:///x"} {
		if _, err := New(Options{Endpoints: []string{"ok:7601", e}}); err == nil || !strings.Contains(err.Error(), e) {
			t.Errorf("%q: %v", e, err)
		}
	}
	for _, e := range []string{"localhost:7601", "[::1]:7601", "unix:/run/h.sock"} {
		c, err := New(Options{Endpoints: []string{e}})
		if err != nil {
			t.Errorf("%q: %v", e, err)
			continue
		}
		c.Close() //nolint:errcheck // nothing was asked
	}
}

func TestTimeOutTellsWhatAServerSaidLast(t *testing.T) {
	var said lastError
	if err := said.beside(context.DeadlineExceeded); err != context.DeadlineExceeded {
		t.Errorf("nobody said anything: %v", err)
	}
	said.note(&wire.Error{Status: cluster.StatusStorageUnavailable, Message: "the volume is full"})
	said.note(errors.New("connection refused"))
	err := said.beside(context.DeadlineExceeded)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the volume is full") {
		t.Errorf("got %v", err)
	}
	if errors.Is(err, wire.ErrStorageUnavailable) {
		t.Error("a time-out passes for a refusal, though a later attempt may have been executed")
	}
}
