// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func TestOptions(t *testing.T) {
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, x := range []struct {
		name string
		o    leader.Options
		want string // in the error; "" = fine
	}{
		{"svc", leader.Options{}, ""},
		{"svc", leader.Options{TTL: 8 * time.Second, Grace: 4 * time.Second, Value: strings.Repeat("v", cluster.MaxMetadata)}, ""},
		{"", leader.Options{}, "name"},
		{"a b\n", leader.Options{}, "name"},
		{"svc", leader.Options{TTL: time.Microsecond}, "whole milliseconds"},
		{"svc", leader.Options{TTL: time.Second + 1}, "whole milliseconds"},
		{"svc", leader.Options{TTL: -time.Second}, "whole milliseconds"},
		{"svc", leader.Options{Grace: -1}, "at most half"},
		{"svc", leader.Options{TTL: 8 * time.Second, Grace: 4*time.Second + 1}, "at most half"},
		{"svc", leader.Options{Value: strings.Repeat("v", cluster.MaxMetadata+1)}, "at most 4096"},
		{"svc", leader.Options{Value: "\xff"}, "UTF-8"},
	} {
		_, err := leader.NewElection(c, cluster.LockName(x.name), x.o)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%q %+v: %v, want %q", x.name, x.o, err, x.want)
		}
	}
}

func TestCandidatesLeadOneAfterTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		one, two := a.election(leader.Options{}), b.election(leader.Options{})
		first := leads(t, one, "h1")
		next := make(chan *leader.Leadership, 1)
		go func() { next <- leads(t, two, "h2") }()
		time.Sleep(5 * ttl)
		if first.Context().Err() != nil || len(next) != 0 {
			t.Fatalf("the first leader: %v; %d others lead", context.Cause(first.Context()), len(next))
		}
		if got, err := two.Leader(t.Context()); err != nil || got.Token != first.Token() || got.Value != "h1" || got.Since.IsZero() || got.Holder.PID == 0 {
			t.Errorf("leader: %+v, %v", got, err)
		}
		if err := first.Proclaim(t.Context(), "h1:8080"); err != nil {
			t.Error(err)
		}
		if got, err := two.Leader(t.Context()); err != nil || got.Value != "h1:8080" {
			t.Errorf("after proclaiming: %+v, %v", got, err)
		}
		for range 2 {
			if err := first.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(context.Cause(first.Context()), leader.ErrResigned) {
			t.Errorf("the first leader's context ended with %v", context.Cause(first.Context()))
		}
		if err := first.Proclaim(t.Context(), "still me"); !errors.Is(err, leader.ErrResigned) {
			t.Errorf("who resigned proclaims: %v", err)
		}
		second := <-next
		if second.Token() <= first.Token() {
			t.Errorf("token %d comes after %d", second.Token(), first.Token())
		}
		if err := second.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := two.Leader(t.Context()); !errors.Is(err, leader.ErrNoLeader) {
			t.Errorf("nobody leads: %v", err)
		}
	})
}

// TestLockReleasedByItsUser is no Resign, but ends the leadership all the same.
func TestLockReleasedByItsUser(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := leads(t, w.process(clientlib.Options{}).election(leader.Options{}), "")
		if err := l.Lock().Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !errors.Is(context.Cause(l.Context()), leader.ErrResigned) {
			t.Errorf("the context ended with %v", context.Cause(l.Context()))
		}
	})
}

func TestContextEndsBeforeTheLeaseCan(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		const grace = 3 * time.Second
		l := leads(t, a.election(leader.Options{Grace: grace}), "")
		next := make(chan time.Time, 1)
		go func() {
			leads(t, b.election(leader.Options{}), "")
			next <- time.Now()
		}()
		time.Sleep(3 * ttl)
		a.net.Cut()
		cut, deadline := time.Now(), l.Deadline()
		if l.Context().Err() != nil || deadline.Before(cut.Add(ttl/2)) {
			t.Fatalf("when it is cut off: %v, %v left", context.Cause(l.Context()), deadline.Sub(cut))
		}
		over(t, l.Context())
		if early := time.Until(deadline); early < grace || early > grace+time.Millisecond {
			t.Errorf("the context ended %v before the deadline, want %v", early, grace)
		}
		if !errors.Is(context.Cause(l.Context()), leader.ErrNotRenewed) {
			t.Errorf("the context ended with %v", context.Cause(l.Context()))
		}
		at := <-next
		if late := at.Sub(deadline); late < 0 {
			t.Errorf("the next one leads %v before the deadline of the first", -late)
		}
		if at.Sub(cut) > ttl+time.Second {
			t.Errorf("the next one leads %v after the cut", at.Sub(cut))
		}
		if !l.Deadline().Equal(deadline) {
			t.Errorf("the deadline was %v and is %v", deadline, l.Deadline())
		}
	})
}

func TestContextTellsNoDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := leads(t, w.process(clientlib.Options{}).election(leader.Options{}), "")
		if at, ok := l.Context().Deadline(); ok {
			t.Fatalf("the context tells the deadline %v, which moves", at)
		}
		// A time-out longer than the lease is kept beside the lease.
		ctx, cancel := context.WithTimeout(l.Context(), 3*ttl)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || l.Context().Err() != nil {
			t.Errorf("%v; the leader: %v", ctx.Err(), context.Cause(l.Context()))
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMachineThatSleptDoesNotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.process(clientlib.Options{})
		l := leads(t, p.election(leader.Options{}), "")
		time.Sleep(time.Second)
		p.net.Cut() // before it is heard again
		p.clock.sleep(time.Hour)
		began := time.Now()
		over(t, l.Context())
		if took := time.Since(began); took > ttl/20 {
			t.Errorf("it noticed %v after it woke up", took)
		}
		if l.Deadline().After(time.Now()) {
			t.Errorf("there are %v left of a lease that ended long ago", time.Until(l.Deadline()))
		}
	})
}

func TestBrokenLeadershipEndsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		l := leads(t, a.election(leader.Options{}), "")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := b.c.Break(t.Context(), "svc", clientlib.BreakOptions{Actor: "ann", Reason: "moving"}); err != nil {
			t.Fatal(err)
		}
		over(t, l.Context())
		if took := time.Since(began); took > 100*time.Millisecond || !errors.Is(context.Cause(l.Context()), clientlib.ErrLost) {
			t.Errorf("the context ended after %v with %v", took, context.Cause(l.Context()))
		}
		if got := time.Until(l.Deadline()); got > ttl/4 || got < ttl/8 {
			t.Errorf("what it does may take %v to stop", got)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Errorf("resigning when all is lost: %v", err)
		}
	})
}

// TestLeaseRenewedAfterTheContextEnded is kept for nobody: at the deadline the next one
// leads, whoever forgets to resign.
func TestLeaseRenewedAfterTheContextEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		l := leads(t, a.election(leader.Options{}), "")
		next := make(chan time.Time, 1)
		go func() {
			leads(t, b.election(leader.Options{}), "")
			next <- time.Now()
		}()
		time.Sleep(ttl)
		a.net.Cut()
		over(t, l.Context())
		a.net.Mend()
		deadline := l.Deadline()
		time.Sleep(time.Until(deadline) - time.Millisecond)
		if moved := l.Deadline(); !moved.Equal(deadline) || !l.Lock().Expires().After(deadline) {
			t.Errorf("the lease lives until %v, and the deadline has moved from %v to %v", l.Lock().Expires(), deadline, moved)
		}
		if l.Lock().Context().Err() != nil || len(next) > 0 {
			t.Fatalf("the lock was to live until the deadline: %v", context.Cause(l.Lock().Context()))
		}
		select {
		case at := <-next:
			if late := at.Sub(deadline); late < 0 || late > 100*time.Millisecond {
				t.Errorf("the next one leads %v after the deadline", late)
			}
		case <-time.After(time.Minute):
			t.Error("the lease is kept alive for nobody")
			if err := l.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			<-next
		}
	})
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{})
		l := leads(t, a.election(leader.Options{}), "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.election(leader.Options{}).Campaign(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, err := b.election(leader.Options{}).Campaign(t.Context(), "\xff"); err == nil {
			t.Error("a value that is no text was taken")
		}
		time.Sleep(time.Second)
		if info, err := a.c.Get(t.Context(), "svc"); err != nil || info.QueueLength != 0 {
			t.Errorf("%d wait, %v", info.QueueLength, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		l, err := a.election(leader.Options{}).Campaign(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(ttl)
		if l.Context().Err() != nil {
			t.Errorf("the leadership ended with the campaign's context: %v", context.Cause(l.Context()))
		}
	})
}

// TestCandidateThatWasCutOff has lost its place, and stands in line again.
func TestCandidateThatWasCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process(clientlib.Options{}), w.process(clientlib.Options{Budget: time.Minute})
		l := leads(t, a.election(leader.Options{}), "")
		next := make(chan *leader.Leadership, 1)
		go func() { next <- leads(t, b.election(leader.Options{}), "") }()
		queue := func() int {
			info, err := a.c.Get(t.Context(), "svc")
			if err != nil {
				t.Fatal(err)
			}
			return info.QueueLength
		}
		time.Sleep(time.Second)
		b.net.Cut()
		time.Sleep(2 * ttl)
		if n := queue(); n != 0 {
			t.Fatalf("%d wait", n)
		}
		b.net.Mend()
		time.Sleep(5 * time.Second)
		if n := queue(); n != 1 {
			t.Fatalf("%d wait", n)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		<-next
	})
}
