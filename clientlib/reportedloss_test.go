// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A clear of very many holders does not name each. It ends all that was granted before
// it, also what somebody else acquired, and nothing that was granted after it: a session
// tells again what happened behind the oldest token.
func TestClearThatNamesNobodyEndsAllBeforeIt(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		began := time.Now()
		l := w.acquire("a", AcquireOptions{TTL: time.Hour})
		waited := w.acquire("b", AcquireOptions{TTL: time.Hour, Wait: Forever})
		w.others("c")
		_, token := w.holder("c")
		attached := w.c.Attach("c", tokenOf(token))
		w.mu.Lock()
		w.mu.lsn++
		cleared, epoch := w.mu.lsn, w.mu.epoch
		w.mu.Unlock()
		after := w.acquire("d", AcquireOptions{TTL: time.Hour})
		w.servers[0].tell(&pb.SessionResponse{Losses: []*pb.Loss{
			{Reason: pb.LossReason_LOSS_REASON_FORCE_CLEARED, Lsn: cleared, Epoch: epoch},
		}})
		synctest.Wait()
		for _, x := range []*Lock{l, waited, attached} {
			if reason(x) != LossCleared {
				t.Errorf("%s ended with %q", x.Name(), reason(x))
				continue
			}
			if e := lossOf(t, x); e.LSN != cluster.LSN(cleared) || e.Token != x.Token() || e.Final {
				t.Errorf("%s: %+v", x.Name(), e)
			}
		}
		if after.Context().Err() != nil {
			t.Errorf("what was granted after it: %q", reason(after))
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

// What a session tells of a grant while its answer is being handed out, the handle is told
// when it comes, and not with the next keep-alive only.
func TestToldBeforeThereIsAHandle(t *testing.T) {
	for name, test := range map[string]struct {
		tell func(token uint64) *pb.SessionResponse
		told func(l *Lock) bool
	}{
		"broken": {func(token uint64) *pb.SessionResponse {
			return &pb.SessionResponse{Losses: []*pb.Loss{{Lock: "a", Token: token, Reason: pb.LossReason_LOSS_REASON_BROKEN, Actor: "ann"}}}
		}, func(l *Lock) bool { return reason(l) == LossBroken }},
		"cleared": {func(token uint64) *pb.SessionResponse {
			return &pb.SessionResponse{Losses: []*pb.Loss{{Reason: pb.LossReason_LOSS_REASON_FORCE_CLEARED, Lsn: token + 1}}}
		}, func(l *Lock) bool { return reason(l) == LossCleared }},
		"asked": {func(token uint64) *pb.SessionResponse {
			return &pb.SessionResponse{Asks: []*pb.AskToRelease{{Lock: "a", Token: token, Lsn: token + 1, Actor: "ann", RemainingMs: 1000}}}
		}, func(l *Lock) bool { s := l.State(); return s.Asked != nil && s.Asked.Actor == "ann" }},
		"of another grant": {func(token uint64) *pb.SessionResponse {
			return &pb.SessionResponse{
				Losses: []*pb.Loss{{Lock: "a", Token: token - 1, Reason: pb.LossReason_LOSS_REASON_BROKEN}, {Reason: pb.LossReason_LOSS_REASON_FORCE_CLEARED, Lsn: token - 1}},
				Asks:   []*pb.AskToRelease{{Lock: "a", Token: token - 1, Lsn: token, Actor: "ann"}},
			}
		}, func(l *Lock) bool { s := l.State(); return s.Phase == PhaseValid && s.Asked == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, Options{}, func(t *testing.T, w *world) {
				w.servers[0].set(func() { // the renewal of a grant that is handed out
					w.servers[0].mu.lag = func(op string) time.Duration {
						if op == "renew" {
							return 100 * time.Millisecond
						}
						return 0
					}
				})
				got := make(chan *Lock, 1)
				go func() { got <- w.acquire("a", AcquireOptions{TTL: time.Hour, MaxHold: time.Hour}) }()
				time.Sleep(50 * time.Millisecond)
				_, token := w.holder("a")
				w.servers[0].tell(test.tell(token))
				l := <-got
				if !test.told(l) {
					t.Errorf("the handle: %+v, %v", l.State(), context.Cause(l.Context()))
				}
				w.c.renewer.mu.Lock()
				defer w.c.renewer.mu.Unlock()
				if n := len(w.c.renewer.mu.early); n != 0 {
					t.Errorf("of %d locks is kept what was told early", n)
				}
			})
		})
	}
}

// A session that begins behind the oldest lock that is held misses no loss of any.
func TestLossesAreAskedForFromTheOldestLockOn(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		var oldest *Lock
		for _, name := range []cluster.LockName{"a", "b", "c", "d"} {
			if l := w.acquire(name, AcquireOptions{}); oldest == nil {
				oldest = l
			}
		}
		if got := w.c.renewer.lossesAfter(oldest.owner); got != cluster.LSN(oldest.Token()) {
			t.Errorf("asks for what was lost after LSN %d, the oldest token is %d", got, oldest.Token())
		}
		if got := w.c.renewer.lossesAfter("another"); got != 0 {
			t.Errorf("another, who holds nothing: %d", got)
		}
	})
}

// What this handle was told of its last append stays where the service's word is older: that
// file was unbound since.
func TestLastAppendOfALoss(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{})
		r, err := l.Append(t.Context(), "f", []byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			told  *pb.Receipt
			last  cluster.LSN
			final bool
		}{
			{nil, r.LSN, false},
			{&pb.Receipt{Lsn: uint64(r.LSN) - 1}, r.LSN, false},
			{&pb.Receipt{Lsn: uint64(r.LSN)}, r.LSN, true},
			{&pb.Receipt{Lsn: uint64(r.LSN) + 1}, r.LSN + 1, true},
		} {
			if e := l.reportedLoss(&pb.Loss{Lock: "a", LastAppend: c.told}); e.LastAppend.LSN != c.last || e.Final != c.final {
				t.Errorf("told %v: the last append is at LSN %d, final %v; want %d, %v", c.told, e.LastAppend.LSN, e.Final, c.last, c.final)
			}
		}
	})
}

// A client that does nothing but hold has its next session soon after one broke, not with
// the next keep-alive: until then nobody could tell it of a loss, nor that it is asked.
func TestHolderHasItsNextSessionSoon(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: time.Hour})
		waited := w.acquire("b", AcquireOptions{TTL: time.Hour, Wait: Forever})
		synctest.Wait()
		w.servers[0].set(func() { w.servers[0].mu.stream.fail(status.Error(codes.Unavailable, "reset")) })
		time.Sleep(renewSoonAfter + renewSoonSpread)
		synctest.Wait()
		s := w.c.servers.primary().session.Load()
		if s == nil || waited.from == l.from || waited.from.known != s {
			t.Errorf("session %p", s)
			return
		}
		w.servers[0].tell(&pb.SessionResponse{Losses: []*pb.Loss{{Lock: "a", Token: uint64(l.Token()), Reason: pb.LossReason_LOSS_REASON_BROKEN}}})
		synctest.Wait()
		if reason(l) != LossBroken {
			t.Errorf("ended with %q", reason(l))
		}
	})
}

// The same where the session ends while the leases are renewed: a registration that was answered
// before that is not named on the next session until it is kept alive again.
func TestSessionThatEndsDuringARenewal(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		w.others("b")
		a, b := w.waitFor(t.Context(), "a"), w.waitFor(t.Context(), "b")
		synctest.Wait()
		w.end("a")
		w.end("b")
		registrations := []*registration{(<-a).from, (<-b).from}
		synctest.Wait()
		p := w.servers[0]
		var n atomic.Int32
		p.set(func() {
			p.mu.refuse = func(op string) error {
				if op != "keepalive" {
					return nil
				}
				switch n.Add(1) {
				case 2: // of three, so that one of the two registrations at least was answered
					time.Sleep(50 * time.Millisecond)
					p.set(func() { p.mu.stream.fail(status.Error(codes.Unavailable, "reset")) })
				case 4: // the second one again
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			}
		})
		for n.Load() < 4 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(renewSoonAfter + renewSoonSpread)
		synctest.Wait()
		s := w.c.servers.primary().session.Load()
		for _, from := range registrations {
			if s == nil || from == w.c.main || from.known != s {
				t.Errorf("session %p, and the registration is known on %p", s, from.known)
			}
		}
	})
}
