// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// phases collects what States yields, with the time, until it ends.
type phases struct {
	began time.Time
	ended chan struct{}
	mu    sync.Mutex
	all   []State
	at    []time.Duration
}

func (w *world) observe(ctx context.Context, l *Lock) *phases {
	p := &phases{began: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for s := range l.States(ctx) {
			p.mu.Lock()
			p.all, p.at = append(p.all, s), append(p.at, time.Since(p.began))
			p.mu.Unlock()
		}
	}()
	synctest.Wait()
	return p
}

// words are the phases that were told so far.
func (p *phases) words() (words []Phase) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.all {
		words = append(words, s.Phase)
	}
	return words
}

func (p *phases) expect(t *testing.T, want ...Phase) {
	t.Helper()
	if got := p.words(); !slices.Equal(got, want) {
		t.Errorf("phases %v, want %v", got, want)
	}
}

func TestJeopardyAndSafe(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		p := w.observe(t.Context(), l)
		time.Sleep(time.Minute)
		p.expect(t, PhaseValid)
		before := l.State()
		if before.Err != nil || time.Until(before.Deadline) < ttl/2 {
			t.Errorf("a valid lock: %+v", before)
		}
		refuse := (&wire.Error{Status: cluster.StatusStorageUnavailable, Message: "the volume hangs"}).GRPCStatus().Err()
		w.servers[0].set(func() { w.servers[0].mu.refuse = func(op string) error { return refuse } })
		cut := time.Now()
		for l.State().Phase == PhaseValid {
			time.Sleep(time.Millisecond)
		}
		p.expect(t, PhaseValid, PhaseJeopardy)
		p.mu.Lock()
		s := p.all[1]
		p.mu.Unlock()
		if left := time.Until(s.Deadline); left > ttl/2 || left < ttl/2-2*driftMargin(ttl) {
			t.Errorf("in jeopardy %v before the deadline", left)
		}
		if !errors.Is(s.Err, wire.ErrStorageUnavailable) || !strings.Contains(s.Err.Error(), "the volume hangs") {
			t.Errorf("jeopardy because of %v", s.Err)
		}
		if d := time.Since(cut); d > ttl/2 {
			t.Errorf("in jeopardy %v after the last answer", d)
		}
		w.servers[0].set(func() { w.servers[0].mu.refuse = nil })
		time.Sleep(time.Second)
		p.expect(t, PhaseValid, PhaseJeopardy, PhaseValid)
		if s := l.State(); s.Err != nil || time.Until(s.Deadline) < ttl/2 {
			t.Errorf("safe again: %+v", s)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		p.expect(t, PhaseValid, PhaseJeopardy, PhaseValid, PhaseReleased)
		if s := p.all[3]; s.Err != ErrReleased || !s.Deadline.IsZero() {
			t.Errorf("released: %+v", s)
		}
	})
}

func TestJeopardyAndLost(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		p := w.observe(t.Context(), l)
		for _, s := range w.servers {
			defer s.pause()()
		}
		<-p.ended
		p.expect(t, PhaseValid, PhaseJeopardy, PhaseLost)
		// To the nanosecond: it is what others reckon with.
		if p.at[1] != ttl/2+1 || p.at[2] != ttl-driftMargin(ttl) {
			t.Errorf("told after %v", p.at)
		}
		if err := p.all[1].Err; err == nil || !strings.Contains(err.Error(), "no answer within 1s") {
			t.Errorf("jeopardy because of %v", err)
		}
		lost, ok := errors.AsType[*LostError](p.all[2].Err)
		if !ok || lost.Reason != LossNotRenewed || lost.Cause == nil || !strings.Contains(lost.Error(), "no answer within 1s") {
			t.Errorf("lost: %v", p.all[2].Err)
		}
		if lost != context.Cause(l.Context()) || l.State() != p.all[2] {
			t.Errorf("the context says %v, the state %+v", context.Cause(l.Context()), l.State())
		}
	})
}

// A clock that leaps is noticed by whoever looks, and all others hear of it.
func TestStateAfterASleepOfTheMachine(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		p := w.observe(t.Context(), l)
		for _, s := range w.servers {
			s.set(func() { s.mu.down = true })
		}
		w.clock.sleep(ttl * 3 / 5)
		if s := l.State(); s.Phase != PhaseJeopardy || time.Until(s.Deadline) > ttl*2/5 {
			t.Errorf("woken up: %+v", s)
		}
		p.expect(t, PhaseValid, PhaseJeopardy)
		for _, s := range w.servers {
			s.set(func() { s.mu.down = false })
		}
		time.Sleep(2 * time.Second)
		p.expect(t, PhaseValid, PhaseJeopardy, PhaseValid)
		w.clock.sleep(time.Hour)
		if s := l.State(); s.Phase != PhaseLost || !errors.Is(s.Err, ErrLost) {
			t.Errorf("after an hour: %+v", s)
		}
		<-p.ended
	})
}

// Who is busy with one state hears of the latest then, not of all.
func TestTheLatestStateWins(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		var got []Phase
		for s := range l.States(t.Context()) {
			got = append(got, s.Phase)
			if s.Phase == PhaseValid {
				w.servers[0].set(func() { w.servers[0].mu.down = true })
				time.Sleep(ttl * 3 / 4)
				w.end("a")
				w.servers[0].set(func() { w.servers[0].mu.down = false })
				<-l.Context().Done()
			}
		}
		if !slices.Equal(got, []Phase{PhaseValid, PhaseLost}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestStatesEndWithTheirContext(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		ctx, cancel := context.WithCancel(t.Context())
		p := w.observe(ctx, l)
		cancel()
		<-p.ended
		p.expect(t, PhaseValid)
		for s := range l.States(t.Context()) {
			if s.Phase != PhaseValid {
				t.Errorf("got %+v", s)
			}
			break // leaves nothing behind
		}
		q := w.observe(t.Context(), l)
		w.c.Close()
		<-q.ended
		q.expect(t, PhaseValid, PhaseLost)
		if reason(l) != LossClosed {
			t.Errorf("got %v", q.all[1].Err)
		}
	})
}

func TestStateOfAnAttachedLock(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		l := w.c.Attach("a", tokenOf(token))
		p := w.observe(t.Context(), l)
		time.Sleep(time.Hour)
		if s := l.State(); s != (State{Phase: PhaseValid}) {
			t.Errorf("nothing is counted: %+v", s)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl * 3 / 4)
		p.expect(t, PhaseValid, PhaseJeopardy)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.expect(t, PhaseValid, PhaseJeopardy, PhaseValid)
		<-p.ended
		p.expect(t, PhaseValid, PhaseJeopardy, PhaseValid, PhaseJeopardy, PhaseLost)
	})
}

// However many are held, nobody is there for one of them, and nothing is allocated
// for it while nothing changes.
func TestManyLocksCostNothingWhileNothingChanges(t *testing.T) {
	const locks = 2000
	bubble(t, Options{}, true, func(t *testing.T, w *world) {
		before := runtime.NumGoroutine()
		var all []*Lock
		for i := range locks {
			l := w.acquire(cluster.LockName(fmt.Sprintf("l%d", i)), AcquireOptions{TTL: ttl})
			all = append(all, l)
			l.State()
		}
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines for %d locks", n, locks)
		}
		if n := testing.AllocsPerRun(10, func() { w.c.renewer.plan() }); n > 4 {
			t.Errorf("a look at %d locks allocates %v times", locks, n)
		}
		for _, l := range all {
			if l.mu.changed != nil {
				t.Fatal("somebody waits who has never asked")
			}
		}
	})
}

// lossOf runs until the lock is lost and returns why.
func lossOf(t *testing.T, l *Lock) *LostError {
	t.Helper()
	<-l.Context().Done()
	lost, ok := errors.AsType[*LostError](context.Cause(l.Context()))
	if !ok {
		t.Fatalf("cause: %v", context.Cause(l.Context()))
	}
	return lost
}

// What a session tells is in the error, in full.
func TestToldLosses(t *testing.T) {
	receipt := &pb.Receipt{File: "f", Offset: 40, Length: 2, Lsn: 107, Crc32C: 5, Generation: 1}
	for _, c := range []struct {
		loss   *pb.Loss
		reason LossReason
		is     error
		text   string
	}{
		{&pb.Loss{Reason: pb.LossReason_LOSS_REASON_EXPIRED}, LossExpired, wire.ErrLeaseExpired, "ran out"},
		{&pb.Loss{Reason: pb.LossReason_LOSS_REASON_BROKEN, Actor: "ann", Message: "it hangs"}, LossBroken, wire.ErrInvalidToken, `"ann": it hangs`},
		{&pb.Loss{Reason: pb.LossReason_LOSS_REASON_FORCE_CLEARED}, LossCleared, wire.ErrInvalidToken, "policy clear"},
		{&pb.Loss{Reason: pb.LossReason_LOSS_REASON_RELEASED}, LossReleased, wire.ErrInvalidToken, "had the token"},
		{&pb.Loss{Reason: 99}, LossRefused, wire.ErrInvalidToken, "did not say"},
		{&pb.Loss{LastAppend: receipt}, LossRefused, wire.ErrInvalidToken, ""},
		{&pb.Loss{LastAppend: &pb.Receipt{Lsn: 1}}, LossRefused, wire.ErrInvalidToken, ""},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			inSession(t, Options{}, func(t *testing.T, w *world) {
				l := w.acquire("a", AcquireOptions{})
				if _, err := l.Append(t.Context(), "f", []byte("one")); err != nil {
					t.Fatal(err)
				}
				c.loss.Lock, c.loss.Token, c.loss.Lsn, c.loss.Epoch, c.loss.SuccessorToken = "a", uint64(l.Token()), 110, 2, 111
				w.servers[0].tell(&pb.SessionResponse{Losses: []*pb.Loss{c.loss}})
				e := lossOf(t, l)
				if e.Reason != c.reason || !errors.Is(e, c.is) || !errors.Is(e, ErrLost) || !strings.Contains(e.Error(), c.text) {
					t.Errorf("got %+v: %v", e, e)
				}
				if e.LSN != 110 || e.Epoch != 2 || e.Successor != 111 || e.Actor != c.loss.Actor || e.Message != c.loss.Message {
					t.Errorf("got %+v", e)
				}
				// Where the service does not name the last append, or an older one, it is this side's.
				told := c.loss.LastAppend.GetLsn() > uint64(l.Token())
				if e.Final != told || e.LastAppend == nil || (e.LastAppend.Offset == 40) != told {
					t.Errorf("final %v, last append %+v", e.Final, e.LastAppend)
				}
				if err := l.Release(t.Context()); err != error(e) || len(w.attempts("release")) != 0 {
					t.Errorf("release: %v", err)
				}
			})
		})
	}
}

// A session that follows one which broke asks for what was lost in between.
func TestNextSessionAsksForLosses(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		first := w.acquire("a", AcquireOptions{})
		w.acquire("b", AcquireOptions{})
		if err := errors.Join(w.c.keepOnly(t.Context(), first)...); err != nil {
			t.Fatal(err)
		}
		w.servers[0].dropOnce("acquire")
		w.acquire("c", AcquireOptions{})
		synctest.Wait()
		w.acquire("d", AcquireOptions{})
		var hello *pb.SessionHello
		w.servers[0].set(func() { hello = w.servers[0].mu.stream.hello })
		if got := hello.GetLossesAfterLsn(); got != uint64(first.Token()) {
			t.Errorf("asked for the losses after %d, want %d", got, first.Token())
		}
	})
}

// keepOnly releases all locks but one.
func (c *Client) keepOnly(ctx context.Context, keep *Lock) (errs []error) {
	c.renewer.mu.Lock()
	var all []*Lock
	for _, l := range c.renewer.mu.locks {
		if l != keep {
			all = append(all, l)
		}
	}
	c.renewer.mu.Unlock()
	for _, l := range all {
		errs = append(errs, l.Release(ctx))
	}
	return errs
}

// TestAskedToLetGo: told at once, and once, however often the service says it.
func TestAskedToLetGo(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: 30 * time.Second})
		other := w.acquire("b", AcquireOptions{})
		states := make(chan State, 9)
		go func() {
			for s := range l.States(t.Context()) {
				states <- s
			}
			close(states)
		}()
		if s := <-states; s.Asked != nil || s.Phase != PhaseValid {
			t.Fatalf("at first: %+v", s)
		}
		a := &pb.AskToRelease{Lock: "a", Token: uint64(l.Token()), Lsn: 200, Actor: "ann", Reason: "maintenance", GraceMs: 20_000, RemainingMs: 15_000}
		began := time.Now()
		w.servers[0].tell(&pb.SessionResponse{Asks: []*pb.AskToRelease{a, a}})
		s := <-states
		if s.Asked == nil || s.Asked.Actor != "ann" || s.Asked.Reason != "maintenance" || s.Phase != PhaseValid {
			t.Fatalf("asked: %+v", s)
		}
		if in := s.Asked.Until.Sub(began); in < 15*time.Second || in > 16*time.Second {
			t.Errorf("until %v from now", in)
		}
		later := &pb.AskToRelease{Lock: "a", Token: uint64(l.Token()), Lsn: 201, Actor: "bob", RemainingMs: 1_000}
		w.servers[0].tell(&pb.SessionResponse{Asks: []*pb.AskToRelease{a, later}})
		if s := <-states; s.Asked.Actor != "bob" {
			t.Errorf("asked again: %+v", s.Asked)
		}
		if other.State().Asked != nil {
			t.Error("another lock is asked for")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for s := range states {
			if s.Phase != PhaseReleased {
				t.Errorf("behind the release: %+v", s)
			}
		}
	})
}

// TestAskComesWithAKeepAlive: a holder without a session hears it, too.
func TestAskComesWithAKeepAlive(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: ttl})
		w.mu.Lock()
		w.mu.asks = []*pb.AskToRelease{{Lock: "a", Token: uint64(l.Token()), Lsn: 200, Actor: "ann", GraceMs: 60_000, RemainingMs: 60_000}}
		w.mu.Unlock()
		time.Sleep(ttl / 2)
		if s := l.State(); s.Asked == nil || s.Asked.Actor != "ann" {
			t.Errorf("half a TTL later: %+v", s)
		}
	})
}

// TestAskComesWithARenewal: a holder that only renews by itself hears it, too.
func TestAskComesWithARenewal(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, w *world) {
		w.others("a")
		_, token := w.holder("a")
		w.mu.Lock()
		w.mu.asks = []*pb.AskToRelease{{Lock: "a", Token: token, Lsn: 200, Actor: "ann", RemainingMs: 60_000}}
		w.mu.Unlock()
		l := w.c.Attach("a", tokenOf(token))
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := l.State(); s.Asked == nil || s.Asked.Actor != "ann" {
			t.Errorf("renewed: %+v", s)
		}
	})
}

// TestHeartbeatsOfTheHolder: keep-alives of its client do not extend what this side counts.
func TestHeartbeatsOfTheHolder(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		l := w.acquire("a", AcquireOptions{TTL: 10 * time.Second, Heartbeat: true})
		plain := w.acquire("b", AcquireOptions{TTL: 10 * time.Second})
		for range 3 {
			time.Sleep(7 * time.Second)
			if err := l.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(7 * time.Second)
		if s := l.State(); s.Phase != PhaseJeopardy || !errors.Is(s.Err, errNoHeartbeat) {
			t.Errorf("without a heartbeat: %+v", s)
		}
		time.Sleep(4 * time.Second)
		if e := lossOf(t, l); e.Reason != LossNotRenewed || !strings.Contains(e.Error(), "heartbeat") {
			t.Errorf("lost: %v", e)
		}
		if s := plain.State(); s.Phase != PhaseValid {
			t.Errorf("the other lock: %+v", s)
		}
	})
}

// TestTheMostALockIsHeld: this side ends it by its own count, also cut off.
func TestTheMostALockIsHeld(t *testing.T) {
	inSession(t, Options{}, func(t *testing.T, w *world) {
		began := time.Now()
		l := w.acquire("a", AcquireOptions{TTL: 10 * time.Second, MaxHold: 25 * time.Second})
		time.Sleep(20 * time.Second)
		if s := l.State(); s.Phase == PhaseLost {
			t.Fatalf("too early: %+v", s)
		}
		<-l.Context().Done()
		if held := time.Since(began); held > 25*time.Second || held < 24*time.Second {
			t.Errorf("held for %v", held)
		}
		if !l.State().Final {
			t.Error("its state does not say that this was the end of it")
		}
		if e := lossOf(t, l); e.Reason != LossHeldTooLong || !strings.Contains(e.Error(), "as long as it may") {
			t.Errorf("lost: %v", e)
		}
		if _, err := w.c.Acquire(t.Context(), "b", AcquireOptions{TTL: 10 * time.Second, MaxHold: time.Second}); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("shorter than a TTL: %v", err)
		}
	})
}
