// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// TestEachCallIsCountedOnce: a repeat is one more call, and what it repeats happened once.
func TestEachCallIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter.Meter{}
		x := serve(t, newDisk(t), 1, primary.Options{Meter: m})
		a := x.ok(acquire("a", 1, "l", 0))
		x.ok(acquire("a", 1, "l", 0))
		x.sees(acquire("b", 1, "l", 0), cluster.StatusHeld)
		for range 3 {
			x.ok(appendTo("a", 2, "l", a.Token, "f", "four"))
		}
		x.keepAlive("a", 1)
		x.do(&locktable.Request{Op: locktable.OpAcquire}) // refused before it is queued
		time.Sleep(5 * time.Second)
		for range 2 {
			x.ok(release("a", 3, "l", a.Token))
		}
		c := m.Snapshot()
		for _, want := range []struct {
			op     meter.Op
			status cluster.Status
			n      uint64
		}{
			{meter.Op(locktable.OpAcquire), cluster.StatusOK, 2},
			{meter.Op(locktable.OpAcquire), cluster.StatusHeld, 1},
			{meter.Op(locktable.OpAcquire), cluster.StatusInvalidArgument, 1},
			{meter.Op(locktable.OpAppend), cluster.StatusOK, 3},
			{meter.Op(locktable.OpRelease), cluster.StatusOK, 2},
			{meter.OpKeepAlive, cluster.StatusOK, 1},
		} {
			if got := c.Requests[want.op][want.status]; got != want.n {
				t.Errorf("%v %v: counted %d, want %d", want.op, want.status, got, want.n)
			}
		}
		if n := c.Seconds[locktable.OpAppend].Count(); n != 3 {
			t.Errorf("%d appends took some time, want 3", n)
		}
		if c.Appended != 4 {
			t.Errorf("%d bytes were appended, want 4", c.Appended)
		}
		if c.Hold.Count() != 1 || c.Hold.Sum < 5 || c.Hold.Sum > 6 {
			t.Errorf("%d holds of %v s", c.Hold.Count(), c.Hold.Sum)
		}
		if c.Takeover.Count() != 1 || c.Sync.Count() == 0 || c.Check.Count() < c.Sync.Count() {
			t.Errorf("takeovers %d, syncs %d, checks %d", c.Takeover.Count(), c.Sync.Count(), c.Check.Count())
		}
		x.end() //nolint:errcheck // the test's
		x.sees(acquire("b", 2, "l", 0), cluster.StatusSecondaryMode)
		if got := m.Snapshot().Requests[locktable.OpAcquire][cluster.StatusSecondaryMode]; got != 1 {
			t.Errorf("behind the end %d are counted, want 1", got)
		}
	})
}

// TestAWaitInAQueueIsNoTimeOfTheServer also shows that calls without an answer are counted when the term ends.
func TestAWaitInAQueueIsNoTimeOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter.Meter{}
		x := serve(t, newDisk(t), 1, primary.Options{Meter: m, Slow: time.Second})
		a := x.ok(acquire("a", 1, "l", 0))
		answer := x.later(acquire("b", 1, "l", time.Minute))
		last := x.later(acquire("c", 1, "l", time.Minute))
		time.Sleep(10 * time.Second)
		x.ok(release("a", 2, "l", a.Token))
		if out := <-answer; out.Status != cluster.StatusOK {
			t.Fatalf("answered %v", out.Status)
		}
		c := m.Snapshot()
		if c.Wait.Count() != 1 || c.Wait.Sum < 9.9 || c.Wait.Sum > 10.1 {
			t.Errorf("%d waits of %v s", c.Wait.Count(), c.Wait.Sum)
		}
		if sum := c.Seconds[locktable.OpAcquire].Sum; sum > 1 {
			t.Errorf("the acquires took %v s", sum)
		}
		if lines := x.log.having("slow call"); len(lines) > 0 {
			t.Errorf("who waits for a lock is slow: %v", lines)
		}
		x.end() //nolint:errcheck // the test's
		<-last
		if got := m.Snapshot().Requests[locktable.OpAcquire][cluster.StatusUnknown]; got != 1 {
			t.Errorf("%d acquires are counted as UNKNOWN, want 1", got)
		}
	})
}

func TestExpiredAndBrokenAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter.Meter{}
		x := serve(t, newDisk(t), 1, primary.Options{Meter: m})
		defer x.end() //nolint:errcheck // the test's
		x.ok(acquire("a", 1, "l", 0))
		b := x.ok(acquire("b", 1, "m", 0))
		x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "m", Token: b.Token, Actor: "op", Reason: "test"})
		time.Sleep(40 * time.Second)
		if c := m.Snapshot(); c.Expired != 1 || c.Broken != 1 || c.Hold.Count() != 2 {
			t.Errorf("expired %d, broken %d, holds %d", c.Expired, c.Broken, c.Hold.Count())
		}
	})
}

// TestSlowCalls: a line tells where the time went, there is one each second at most, and none is lost.
func TestSlowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{Slow: 500 * time.Millisecond})
		defer x.end() //nolint:errcheck // the test's
		x.ok(acquire("a", 1, "quick", 0))
		if lines := x.log.having("slow call"); len(lines) > 0 {
			t.Fatalf("a quick call: %v", lines)
		}
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpDatasync {
				time.Sleep(600 * time.Millisecond)
			}
			return volumetest.Proceed()
		})
		q := acquire("b", 1, "tardy", 0)
		q.Identity = "user:alice"
		x.ok(q)
		lines := x.log.having("slow call")
		if len(lines) != 1 {
			t.Fatalf("%d lines: %v", len(lines), lines)
		}
		for _, part := range []string{`"op":"acquire"`, `"lock":"tardy"`, `"identity":"user:alice"`, `"sync":60`, `"check":`, `"queue":`, `"push":`, `"more":0`} {
			if !strings.Contains(lines[0], part) {
				t.Errorf("there is no %s in %s", part, lines[0])
			}
		}
		x.host.SetHook(nil)
		release := x.holdLoop()
		var answers []<-chan locktable.Outcome
		for i := range 5 {
			answers = append(answers, x.later(acquire("c", cluster.RequestID(i+1), cluster.LockName("l"+string(rune('a'+i))), 0)))
		}
		time.Sleep(3 * time.Second)
		release()
		for _, a := range answers {
			<-a
		}
		if lines = x.log.having("slow call"); len(lines) != 2 {
			t.Errorf("%d lines for six slow calls: %v", len(lines), lines)
		}
		time.Sleep(2 * time.Second)
		release = x.holdLoop()
		answer := x.later(acquire("d", 1, "late", 0))
		time.Sleep(3 * time.Second)
		release()
		<-answer
		if lines = x.log.having("slow call"); len(lines) != 3 || !strings.Contains(lines[2], `"more":`) || strings.Contains(lines[2], `"more":0`) {
			t.Errorf("the next line does not tell of the ones before: %v", lines)
		}
	})
}

// TestAppendSaysItsWrite: the parts of an append end with the write to its file.
func TestAppendSaysItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{Slow: 500 * time.Millisecond})
		defer x.end() //nolint:errcheck // the test's
		a := x.ok(acquire("a", 1, "l", 0))
		x.ok(appendTo("a", 2, "l", a.Token, "f", "one"))
		x.slow("files/f", 700*time.Millisecond)
		x.ok(appendTo("a", 3, "l", a.Token, "f", "two"))
		lines := x.log.having("slow call")
		if len(lines) != 1 || !strings.Contains(lines[0], `"write":70`) || !strings.Contains(lines[0], `"file":"f"`) {
			t.Errorf("logged %v", lines)
		}
	})
}

// TestALoopThatWaitsForTheVolumeIsNotLate: to start the process anew would help nothing.
func TestALoopThatWaitsForTheVolumeIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end() //nolint:errcheck // the test's
		time.Sleep(time.Minute)
		if late := x.p.Late(time.Now()); late > 0 {
			t.Errorf("an idle loop is late by %v", late)
		}
		hang := make(chan struct{})
		x.host.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpDatasync {
				<-hang
			}
			return volumetest.Proceed()
		})
		answer := x.later(acquire("a", 1, "l", 0))
		time.Sleep(time.Minute)
		if late := x.p.Late(time.Now()); late > 0 {
			t.Errorf("with a volume that hangs, the loop is late by %v", late)
		}
		close(hang)
		<-answer
		release := x.holdLoop()
		time.Sleep(time.Minute)
		if late := x.p.Late(time.Now()); late < 59*time.Second {
			t.Errorf("a loop that is stuck is late by %v", late)
		}
		release()
	})
}

func TestSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		a := x.ok(acquire("a", 1, "l", 0))
		x.later(acquire("b", 1, "l", time.Hour))
		x.ok(appendTo("a", 2, "l", a.Token, "f", "text"))
		for range 30 {
			time.Sleep(10 * time.Second)
			x.keepAlive("a", 1)
		}
		s := x.p.Sizes(time.Now())
		if s.Grants != 1 || s.Waiters != 1 || s.Clients != 2 || s.Receipts == 0 || s.Files["open"] != 1 || s.Files["sealed"] != 0 {
			t.Errorf("sizes: %+v", s)
		}
		if s.OldestGrant < 299*time.Second || s.OldestGrant > 301*time.Second || s.LogBytes == 0 || s.LogLimit == 0 || s.PendingBytes != 0 {
			t.Errorf("sizes: %+v", s)
		}
		x.stop(errors.New("over"))
		<-x.done
		if _, err := x.p.Read(context.Background(), nil); err != nil {
			t.Error(err)
		}
		if err := x.vol.Close(); err != nil {
			t.Error(err)
		}
	})
}
