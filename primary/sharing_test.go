// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// share is acquire in shared mode.
func share(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, wait time.Duration) *locktable.Request {
	q := acquire(c, id, lock, wait)
	q.Mode = locktable.ModeShared
	return q
}

func downgrade(c cluster.ClientID, id cluster.RequestID, lock cluster.LockName, token cluster.Token) *locktable.Request {
	return &locktable.Request{Op: locktable.OpDowngrade, Client: c, ID: id, Lock: lock, Token: token}
}

func reader(i int) cluster.ClientID { return cluster.ClientID(fmt.Sprintf("r%03d", i)) }

// grants lists who holds a lock.
func (x *term) grants(lock cluster.LockName) (all []locktable.Grant) {
	x.t.Helper()
	x.read(func(v serving.View) {
		for g := range v.Table.Grants(lock) {
			all = append(all, g)
		}
	})
	return all
}

// TestAPhaseOfManyOutlivesACrash has a phase that takes several frames, and a kill at
// every moment of it. Whoever waited to share the lock does so in the end, under the
// token it was told of, and the writer behind them still waits.
func TestAPhaseOfManyOutlivesACrash(t *testing.T) {
	const readers = 300
	told, untold, cut := 0, 0, 0
	for _, after := range []time.Duration{5, 15, 25, 35, 45, 55, 75} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(t)
			x := serve(t, d, 1, primary.Options{})
			held := x.ok(acquire("w1", 1, "l", 0))
			x.later(acquire("w2", 1, "l", locktable.WaitForever))
			var answers []<-chan locktable.Outcome
			for i := range readers {
				answers = append(answers, x.later(share(reader(i), 1, "l", locktable.WaitForever)))
			}
			x.host.SetHook(func(c volumetest.Call) volumetest.Action {
				if c.Op == volumetest.OpWriteAt && strings.Contains(c.Name, "wal-") {
					time.Sleep(10 * time.Millisecond)
				}
				return volumetest.Proceed()
			})
			x.later(release("w1", 2, "l", held.Token))
			time.Sleep(after * time.Millisecond)
			x.kill()
			y := serve(t, d, 2, primary.Options{})
			defer y.end() //nolint:errcheck // it is stopped
			time.Sleep(time.Second)
			tokens, by := map[cluster.ClientID]cluster.Token{}, map[cluster.Epoch]int{}
			for _, g := range y.grants("l") {
				tokens[g.Client] = g.Token
				by[g.Epoch]++
			}
			if len(by) == 2 {
				cut++
			}
			if _, held := tokens["w1"]; len(tokens) != readers && (len(tokens) != 1 || !held) {
				t.Errorf("%d of %d readers hold the lock after a crash", len(tokens), readers)
			}
			for i, answer := range answers {
				select {
				case out := <-answer:
					if out.Status == cluster.StatusUnknown {
						untold++
					} else if told++; out.Status != cluster.StatusOK || out.Token != tokens[reader(i)] {
						t.Errorf("%s was told %+v, and holds %d", reader(i), out, tokens[reader(i)])
					}
				default:
					t.Errorf("%s has no answer", reader(i))
				}
			}
			if q := y.queue("l"); q[0] != "w2" || len(tokens) == readers && len(q) != 1 {
				t.Errorf("there wait %v", q)
			}
		})
	}
	if told == 0 || untold == 0 || cut == 0 {
		t.Errorf("%d readers were told before a crash, %d were not, %d crashes were amid the phase: not all was tried", told, untold, cut)
	}
}

// TestEachSharerHasALeaseOfItsOwn, over a failover too.
func TestEachSharerHasALeaseOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		for i := range 3 {
			x.ok(share(reader(i), 1, "l", 0))
		}
		waits := x.later(acquire("w", 1, "l", locktable.WaitForever))
		keep := func(y *term, clients ...int) {
			y.keepAlive("w", -1)
			for range 4 {
				time.Sleep(10 * time.Second) // the TTL is 30 s
				for _, i := range clients {
					y.keepAlive(reader(i), 1)
				}
				y.keepAlive("w", -1)
			}
		}
		keep(x, 0, 1)
		if g := x.grants("l"); len(g) != 2 || g[0].Client != reader(0) || g[1].Client != reader(1) {
			t.Errorf("a silent one of three holders leaves %+v", g)
		}
		x.unanswered(waits, "while two share the lock")
		x.kill()
		y := serve(t, d, 2, primary.Options{})
		defer y.end() //nolint:errcheck // it is stopped
		keep(y, 0)
		if g := y.grants("l"); len(g) != 1 || g[0].Client != reader(0) {
			t.Errorf("after the failover the one that is heard must hold: %+v", g)
		}
		time.Sleep(20 * time.Second)
		y.keepAlive("w", -1)
		time.Sleep(11 * time.Second)
		if g := y.grants("l"); len(g) != 1 || g[0].Client != "w" || g[0].Mode != locktable.ModeExclusive {
			t.Errorf("behind the last of them it is the writer's turn: %+v", g)
		}
	})
}

// TestOnlyAnExclusiveTokenAppends: a refusal opens no file and leaves the grant alone.
func TestOnlyAnExclusiveTokenAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		g := x.ok(share("c1", 1, "l", 0))
		x.sees(appendTo("c1", 2, "l", g.Token, "f", "x"), cluster.StatusInvalidArgument)
		if files := d.Files("files/"); len(files) > 0 {
			t.Errorf("a refused append made %v", files)
		}
		w := x.ok(acquire("c2", 1, "m", 0))
		x.ok(appendTo("c2", 2, "m", w.Token, "f", "one\n"))
		reads := x.later(share("c1", 3, "m", locktable.WaitForever))
		x.ok(downgrade("c2", 3, "m", w.Token))
		if out := <-reads; out.Status != cluster.StatusOK {
			t.Errorf("a reader behind a downgrade: %+v", out)
		}
		x.sees(appendTo("c2", 4, "m", w.Token, "f", "two\n"), cluster.StatusInvalidArgument)
		if out, err := x.p.Renew(t.Context(), "m", w.Token); err != nil || out.Status != cluster.StatusOK {
			t.Errorf("the downgraded token: %+v, %v", out, err)
		}
		if got := content(d, "f"); got != "one\n" {
			t.Errorf("the file has %q", got)
		}
	})
}

// TestClearWaitsForEverySharer: under failover-policy clear the next term outlasts the
// longest lease, which need not be that of the oldest holder.
func TestClearWaitsForEverySharer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{Timing: timing})
		x.ok(share("c1", 1, "l", 0))
		long := share("c2", 1, "l", 0)
		long.TTL = time.Minute
		x.ok(long)
		x.kill()
		began := time.Now()
		y := serve(t, d, 2, primary.Options{Timing: timing})
		defer y.end() //nolint:errcheck // it is stopped
		if took := time.Since(began); took < time.Minute {
			t.Errorf("served after %v: a lease of a minute may be alive", took)
		}
		if g := y.grants("l"); len(g) != 0 {
			t.Errorf("still held by %+v", g)
		}
	})
}

// TestEveryHolderIsToldOfAClear: with all others each of those who share a lock hears, when it
// comes back, that a failover under failover-policy clear took its grant.
func TestEveryHolderIsToldOfAClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{Timing: timing})
		held := map[cluster.ClientID]cluster.Token{}
		for i := range 3 {
			held[reader(i)] = x.ok(share(reader(i), 1, "l", 0)).Token
		}
		held["w"] = x.ok(acquire("w", 1, "m", 0)).Token
		x.ok(acquire("~w", 1, "n", 0)) // whom nobody could tell
		x.kill()
		h := watch.New(time.Second)
		y := serve(t, d, 2, primary.Options{Timing: timing, Watch: h.Feed(false)})
		defer y.end() //nolint:errcheck // it is stopped
		y.ok(acquire("x", 1, "l", 0))
		h.Flush()
		for c, token := range held {
			var losses []*pb.Loss
			h.Losses(c, cluster.LSN(token), func(l []watch.Loss) { losses = lossesOf(l) })()
			if len(losses) != 2 || losses[1].Lock != "" || losses[0].Token != uint64(token) || losses[0].Reason != pb.LossReason_LOSS_REASON_FORCE_CLEARED ||
				losses[0].Lsn == 0 || losses[0].Epoch != 2 || losses[0].RequestId != 1 {
				t.Errorf("%s, who held token %d, is told %v", c, token, losses)
			}
		}
	})
}

// TestAReaderBehindADowngradeFindsWhatWasWritten: who is let in has its answer when the file has
// all that was appended before, and not while that is on its way.
func TestAReaderBehindADowngradeFindsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		w := x.ok(acquire("w", 1, "l", 0))
		x.ok(appendTo("w", 2, "l", w.Token, "f", "one\n"))
		reads := x.later(share("r", 1, "l", locktable.WaitForever))
		gate := volumetest.NewGate()
		defer gate.Resume() // the end waits for the writer
		x.host.SetHook(on(volumetest.OpWriteAt, "files/", volumetest.Pause(gate)))
		writes := x.later(appendTo("w", 3, "l", w.Token, "f", "two\n"))
		x.ok(downgrade("w", 4, "l", w.Token))
		late := x.later(share("r", 2, "l", 0))
		time.Sleep(time.Second)
		x.unanswered(reads, "while an append before the downgrade is not written")
		x.unanswered(late, "likewise")
		x.unanswered(writes, "while it is not written")
		x.host.SetHook(nil)
		gate.Resume()
		for _, answer := range []<-chan locktable.Outcome{writes, reads, late} {
			if out := <-answer; out.Status != cluster.StatusOK {
				t.Errorf("got %+v", out)
			}
		}
		if got := content(d, "f"); got != "one\ntwo\n" {
			t.Errorf("the readers find %q", got)
		}
	})
}
