// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// ask is a break with a grace.
func ask(id cluster.RequestID, lock cluster.LockName, grace time.Duration) *locktable.Request {
	return &locktable.Request{
		Op: locktable.OpBreak, Client: "op", ID: id, Lock: lock, Grace: grace, Actor: "me", Reason: "maintenance",
	}
}

// kept is what a keep-alive of a client is told that holders are asked.
func (x *term) kept(client cluster.ClientID) []locktable.Ask {
	x.t.Helper()
	_, asks, out, err := x.p.KeepAlive(x.t.Context(), client, serving.Belief{Held: -1})
	if err != nil || out.Status != cluster.StatusOK {
		x.t.Fatalf("keep-alive: %v, %v", out.Status, err)
	}
	return asks
}

// TestAHolderIsAskedThenBroken: told at once, with renewals and keep-alives, and broken
// when the grace is over and not before, with the loss saying what was appended last.
func TestAHolderIsAskedThenBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h, _ := watched(t, cluster.Timing{})
		defer x.end() //nolint:errcheck // it is stopped
		var heard []watch.Loss
		defer h.Losses("c1", 0, func(l []watch.Loss) { heard = append(heard, l...) })()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(acquire("c1", 2, "other", 0))
		receipt := x.ok(appendTo("c1", 3, "l", g.Token, "f", "one\n"))
		x.ok(&locktable.Request{Op: locktable.OpUnbind, Client: "c1", ID: 9, Lock: "l", Token: g.Token, File: "f"})
		waits := x.later(acquire("c2", 1, "l", locktable.WaitForever))
		asked := x.ok(ask(1, "l", 20*time.Second))
		h.Flush()
		if len(heard) != 1 || heard[0].Ask == nil || heard[0].Ask.Token != uint64(g.Token) || heard[0].Ask.Actor != "me" ||
			heard[0].Ask.Reason != "maintenance" || heard[0].Ask.RemainingMs != 20_000 || heard[0].Ask.RequestId != 1 {
			t.Fatalf("told %v", heard)
		}
		if again := x.ok(ask(1, "l", 20*time.Second)); again.LSN != asked.LSN || !again.Repeat {
			t.Errorf("the repeat: %+v", again)
		}
		time.Sleep(15 * time.Second)
		x.unanswered(waits, "within the grace")
		for _, a := range x.kept("c1") {
			if a.Lock != "l" || a.Remaining > 5*time.Second || a.Remaining < 4*time.Second {
				t.Errorf("kept alive: %+v", a)
			}
		}
		if out, err := x.p.Renew(t.Context(), "l", g.Token); err != nil || out.Ask == nil || out.Ask.Reason != "maintenance" {
			t.Errorf("renewed: %+v, %v", out, err)
		}
		if asks := x.kept("c2"); len(asks) > 0 {
			t.Errorf("somebody else is asked: %+v", asks)
		}
		successor := <-waits
		h.Flush()
		want := &pb.Receipt{File: "f", Length: 4, Lsn: uint64(receipt.LSN), Token: uint64(g.Token)}
		if len(heard) != 2 || heard[1].Ended == nil {
			t.Fatalf("told %v", heard)
		}
		loss := heard[1].Ended
		if loss.Reason != pb.LossReason_LOSS_REASON_BROKEN || loss.Actor != "me" || loss.SuccessorToken != uint64(successor.Token) ||
			loss.LastAppend.GetFile() != want.File || loss.LastAppend.GetLsn() != want.Lsn || loss.LastAppend.GetLength() != want.Length || loss.LastAppend.GetEpoch() == 0 {
			t.Errorf("the loss: %v", loss)
		}
		x.sees(appendTo("c1", 4, "l", g.Token, "f", "late\n"), cluster.StatusInvalidToken)
		if _, live := x.remaining("other", g.Token+1); !live {
			t.Error("another lock of the holder was broken as well")
		}
	})
}

// TestAnAskEndsWithItsGrant: who lets go in time is not broken, nor the next holder.
func TestAnAskEndsWithItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(ask(1, "l", 10*time.Second))
		waits := x.later(acquire("c2", 1, "l", time.Minute))
		x.ok(release("c1", 2, "l", g.Token))
		next := <-waits
		time.Sleep(12 * time.Second)
		if _, live := x.remaining("l", next.Token); !live || len(x.kept("c2")) > 0 {
			t.Error("the next holder was asked or broken")
		}
	})
}

// TestAnAskIsCountedAfresh by the next term, and a later one takes its place.
func TestAnAskIsCountedAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(ask(1, "l", 20*time.Second))
		time.Sleep(15 * time.Second)
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		time.Sleep(15 * time.Second)
		if asks := y.kept("c1"); len(asks) != 1 || asks[0].Remaining > 5*time.Second {
			t.Fatalf("asked: %+v", asks)
		}
		y.ok(ask(2, "l", 8*time.Second))
		time.Sleep(7 * time.Second)
		if _, live := y.remaining("l", g.Token); !live {
			t.Fatal("broken before the second grace was over")
		}
		time.Sleep(1100 * time.Millisecond)
		if _, live := y.remaining("l", g.Token); live {
			t.Error("not broken after the second grace")
		}
	})
}

// TestALongGrace is longer than the wheel of times reaches.
func TestALongGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(ask(1, "l", 3*time.Minute))
		for range 17 {
			time.Sleep(10 * time.Second)
			x.keepAlive("c1", 1)
		}
		if _, live := x.remaining("l", g.Token); !live {
			t.Fatal("broken within the grace")
		}
		time.Sleep(11 * time.Second)
		if _, live := x.remaining("l", g.Token); live {
			t.Error("not broken when the grace was over")
		}
	})
}
