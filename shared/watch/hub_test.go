// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

func TestWhoIsToldWhat(t *testing.T) {
	story := []locktable.Record{grant("a"), grant("a/b"), appended("a/b", 2), expire("a", 1), term(), grant("b")}
	for name, x := range map[string]struct {
		o    Options
		want string
	}{
		"everything":      {Options{}, " 1:grant:a 2:grant:a/b 4:expire:a 5:term: 6:grant:b"},
		"one name":        {Options{Lock: "a"}, " 1:grant:a 4:expire:a 5:term:"},
		"a prefix":        {Options{Prefix: "a/"}, " 2:grant:a/b 5:term:"},
		"a longer prefix": {Options{Prefix: "a/b/c"}, " 5:term:"},
		"appends":         {Options{Kinds: KindsOf(locktable.KindAppend)}, " 3:append:a/b 5:term:"},
		"one kind":        {Options{Prefix: "a", Kinds: KindsOf(locktable.KindExpire)}, " 4:expire:a 5:term:"},
		"after an LSN":    {Options{After: 3}, " 4:expire:a 5:term: 6:grant:b"},
		"after the end":   {Options{After: 6}, ""},
		"after the next":  {Options{After: 9}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := fed(t, true)
			x.o.Resume = true
			early := x.o
			early.After = 0
			w := watching(t, h, early)
			for i := range story {
				s.commit(story[i])
			}
			late := watching(t, h, x.o)
			if got := taken(late); got != x.want {
				t.Errorf("resumed: %s, want %s", got, x.want)
			}
			if got := taken(w); x.o.After == 0 && got != x.want {
				t.Errorf("live: %s, want %s", got, x.want)
			}
		})
	}
}

func TestOneBatchTellsHowFar(t *testing.T) {
	h, s := fed(t, false)
	w := watching(t, h, Options{Lock: "a", Resume: true})
	s.commit(grant("a"), grant("b"))
	s.commit(expire("a", 1), expire("b", 2), grant("c"))
	h.Flush()
	b := w.Take()
	if len(b.Events) != 2 || b.LSN != 5 || b.Epoch != 1 || b.End != nil {
		t.Errorf("batch: %+v", b)
	}
	s.commit(expire("c", 5))
	h.Flush()
	if b = w.Take(); len(b.Events) != 0 || b.LSN != 6 {
		t.Errorf("bookmark: %+v", b)
	}
	other := watching(t, h, Options{Resume: true, After: 5})
	if b = other.Take(); text(b.Events) != " 6:expire:c" || b.Events[0].Token != 5 {
		t.Errorf("resumed: %+v", b)
	}
}

// A message is made once, whoever is told it.
func TestAnEventIsMadeOnce(t *testing.T) {
	h, s := fed(t, false)
	w, x := watching(t, h, Options{Resume: true}), watching(t, h, Options{Lock: "a", Resume: true})
	s.commit(grant("a"))
	h.Flush()
	late := watching(t, h, Options{Resume: true})
	if e := w.Take().Events[0]; e != x.Take().Events[0] || e != late.Take().Events[0] {
		t.Error("three messages for one event")
	}
}

func TestFeedsTakeTurns(t *testing.T) {
	h, s := fed(t, true)
	w := watching(t, h, Options{Resume: true})
	s.commit(grant("a"))
	old := s.feed
	s.feed = h.Feed(false)
	s.feed.Begin(s.at, 2) // where the old one stood
	s.commit(grant("b"))
	old.Frames(s.at, wal.Position{LSN: 9}, 1, nil, nil)
	old.End("late")
	if got := taken(w); got != " 1:grant:a 2:grant:b" {
		t.Errorf("a feed that went on: %s", got)
	}
	third := h.Feed(true)
	third.Begin(wal.Position{LSN: 20, Chain: 7}, 3)
	if got := taken(w); got != " end NONE gap true" {
		t.Errorf("a feed that began elsewhere: %s", got)
	}
	if b := w.Take(); b.LSN != 2 {
		t.Errorf("everything was told up to 2, not to %d", b.LSN)
	}
	if _, end := h.Watch(Options{Resume: true, After: 2}); end == nil || !end.Gap || !strings.Contains(end.Message, "LSN 2") {
		t.Errorf("resume before the gap: %+v", end)
	}
	w = watching(t, h, Options{Resume: true, After: 20})
	third.End("the term ended")
	if got := taken(w); got != " end SECONDARY_MODE gap false" {
		t.Errorf("the end: %s", got)
	}
	if _, end := h.Watch(Options{Resume: true, After: 20}); end == nil || end.Status != cluster.StatusSecondaryMode {
		t.Errorf("a watch without a feed: %+v", end)
	}
}

// A client may have been told more elsewhere than this server knows yet.
func TestAClientThatIsAheadIsToldNothingTwice(t *testing.T) {
	h, s := fed(t, true)
	s.commit(grant("a"))
	w := watching(t, h, Options{Resume: true, After: 3})
	s.commit(grant("b"))
	s.commit(grant("c"))
	h.Flush()
	if b := w.Take(); b.LSN != 3 || len(b.Events) > 0 {
		t.Errorf("up to LSN %d, told%s", b.LSN, text(b.Events))
	}
	s.commit(grant("d"))
	if got := taken(w); got != " 4:grant:d" {
		t.Errorf("told%s", got)
	}
}

// At the primary nobody can be ahead: who is comes from another volume, or mistyped.
func TestAClientThatIsAheadOfThePrimaryBeginsAnew(t *testing.T) {
	h, s := fed(t, false)
	s.commit(grant("a"))
	if w, end := h.Watch(Options{Resume: true, After: 2}); end == nil || !end.Gap || !strings.Contains(end.Message, "ends at LSN 1") {
		t.Errorf("it is taken for one that was told all: %v, %+v", w != nil, end)
	}
	s.commit(grant("b"))
	w := watching(t, h, Options{Resume: true, After: 2})
	s.commit(grant("c"))
	h.Flush()
	if got := taken(w); got != " 3:grant:c" {
		t.Errorf("told%s", got)
	}
}

func TestFramesThatDoNotFollowAreAGap(t *testing.T) {
	h, s := fed(t, true)
	w := watching(t, h, Options{Resume: true})
	s.commit(grant("a"))
	s.encode(grant("lost"))
	s.commit(grant("c"))
	if got := taken(w); got != " 1:grant:a end NONE gap true" {
		t.Errorf("told%s", got)
	}
	w = watching(t, h, Options{Resume: true, After: 2})
	if got := taken(w); got != " 3:grant:c" {
		t.Errorf("behind it: told%s", got)
	}
}

// Of two logs that show the same LSN, only the one with the same chain value is the same.
func TestAnotherLogIsAGap(t *testing.T) {
	h, s := fed(t, true)
	w := watching(t, h, Options{Resume: true})
	s.commit(grant("a"))
	h.Feed(true).Begin(wal.Position{LSN: s.at.LSN, Chain: s.at.Chain + 1}, 2)
	if got := taken(w); got != " 1:grant:a end NONE gap true" {
		t.Errorf("another log: %s", got)
	}
}

func TestTheRingIsBounded(t *testing.T) {
	h, s := fed(t, false)
	const frames = 3 * ringBytes / (chunkOverhead + 100)
	for range frames {
		s.commit(grant("a"))
	}
	h.in.Lock()
	if h.in.bytes > ringBytes || h.in.bytes < ringBytes/2 {
		t.Errorf("%d bytes are kept", h.in.bytes)
	}
	oldest := h.in.ring[0].before.LSN
	h.in.Unlock()
	if _, end := h.Watch(Options{Resume: true, After: oldest - 1}); end == nil || !end.Gap {
		t.Errorf("resume before what is kept: %+v", end)
	}
	w := watching(t, h, Options{Resume: true, After: oldest, Kinds: KindsOf()})
	if n := len(w.Take().Events); n != frames-int(oldest) {
		t.Errorf("%d events, want %d", n, frames-int(oldest))
	}
	// Whoever begins without a resume needs none of what was thrown away.
	if w := watching(t, h, Options{}); w.Take().End != nil {
		t.Error("a fresh watch has missed something")
	}
}

// Frames that are thrown away before they were handed out are missing, and that is said.
func TestAHubThatIsTooSlowIsAGap(t *testing.T) {
	h, s := fed(t, false)
	w := watching(t, h, Options{Resume: true})
	s.commit(grant("told"))
	h.Flush()
	for range 2 * ringBytes / (chunkOverhead + 100) {
		s.commit(grant("a"))
	}
	if got := taken(w); got != " 1:grant:told end NONE gap true" {
		t.Errorf("told%.200s", got)
	}
	if b := w.Take(); b.LSN != 1 || !strings.Contains(b.End.Message, "fast enough") {
		t.Errorf("the end: %+v", b)
	}
}

func TestNobodyWatchingCostsNoDecoding(t *testing.T) {
	h, s := fed(t, false)
	s.commit(grant("a"))
	w := watching(t, h, Options{Resume: true, After: 1})
	if !h.in.feed.Watched() {
		t.Error("the feed does not know of the watcher")
	}
	s.commit(grant("b"))
	if w.Close(); h.in.feed.Watched() {
		t.Error("the feed knows of a watcher that is closed")
	}
	select {
	case <-h.wake: // for b
	default:
	}
	s.commit(grant("c"))
	select {
	case <-h.wake:
		t.Error("the hub was woken for nobody")
	default:
	}
	if h.Flush(); h.in.ring[0].events != nil || h.in.ring[2].events != nil {
		t.Error("frames were decoded for nobody")
	}
}

func TestASlowWatcherIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := fed(t, false)
		ctx, stop := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		slow, quick := watching(t, h, Options{Prefix: "a", Resume: true}), watching(t, h, Options{Prefix: "a", Resume: true})
		_ = slow.Take()
		got := 0
		for i := range 2 * maxPending {
			s.commit(grant(fmt.Sprintf("a/%d", i)))
			if i%1000 == 999 {
				<-quick.Wake()
				synctest.Wait()
				got += len(quick.Take().Events)
			}
		}
		synctest.Wait()
		if got += len(quick.Take().Events); got != 2*maxPending {
			t.Errorf("the quick one got %d events", got)
		}
		b := slow.Take()
		if b.End == nil || b.End.Status != cluster.StatusCancelled || !strings.Contains(b.End.Message, "behind") || b.LSN != 0 || len(b.Events) != 0 {
			t.Fatalf("the slow one: %+v", b)
		}
		slow.Close()
		again := watching(t, h, Options{Prefix: "a", Resume: true, After: b.LSN})
		if n := len(again.Take().Events); n != 2*maxPending {
			t.Errorf("resumed: %d events", n)
		}
		stop(errors.New("enough"))
		if err := <-done; err == nil || err.Error() != "enough" {
			t.Error(err)
		}
		if end := quick.Take().End; end == nil || end.Status != cluster.StatusSecondaryMode {
			t.Errorf("the hub has ended: %+v", end)
		}
		if _, end := h.Watch(Options{}); end == nil {
			t.Error("a watch at a hub that has ended")
		}
	})
}

func TestASilentReplicaServesNobody(t *testing.T) {
	for _, pushed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h, s := fed(t, pushed)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { h.Run(ctx) }) //nolint:errcheck // it is stopped
			defer running.Wait()
			defer stop()
			w := watching(t, h, Options{Resume: true})
			for range 10 {
				time.Sleep(time.Second)
				s.feed.Alive()
			}
			if end := w.Take().End; end != nil {
				t.Fatalf("ended while it was fed: %+v", end)
			}
			time.Sleep(7 * time.Second)
			end := w.Take().End
			if (end != nil) != pushed {
				t.Errorf("pushed %v, silent: %+v", pushed, end)
			}
			if _, refused := h.Watch(Options{}); (refused != nil) != pushed {
				t.Errorf("pushed %v, a new watch: %+v", pushed, refused)
			}
			s.commit(grant("a")) // fed again
			if w = watching(t, h, Options{Resume: true}); len(w.Take().Events) != 1 {
				t.Error("it resumes when it is fed again")
			}
		})
	}
}

// A reset that its client does not read leaves no more room than a watch has.
func TestASlowWatcherIsCutBehindItsReset(t *testing.T) {
	h, s := fed(t, false)
	w := watching(t, h, Options{})
	s.commit(grant("a"))
	if _, ok := w.Settle(0); !ok {
		t.Fatal(w.Take().End)
	}
	for i := range maxPending + 1 {
		s.commit(grant(fmt.Sprintf("a/%d", i)))
	}
	other := watching(t, h, Options{})
	defer other.Close()
	if b := w.Take(); b.End == nil || b.End.Status != cluster.StatusCancelled {
		t.Errorf("%d events wait, %+v", len(b.Events), b.End)
	}
}

func TestSettle(t *testing.T) {
	h, s := fed(t, false)
	s.commit(grant("a"))
	w := watching(t, h, Options{Prefix: "a", Kinds: KindsOf(locktable.KindBreak)})
	s.commit(grant("b"))
	s.commit(expire("a", 1))
	s.commit(grant("a/b"), appended("a/b", 4), term(), expire("a/b", 4))
	changed, ok := w.Settle(4)
	if !ok || text(changed) != " 3:expire:a 4:grant:a/b" {
		t.Errorf("changed: %s %v", text(changed), ok)
	}
	if b := w.Take(); text(b.Events) != " 6:term:" || b.LSN != 7 {
		t.Errorf("behind it: %+v", b)
	}
	for _, at := range []cluster.LSN{1, 99} {
		if _, ok := watching(t, h, Options{}).Settle(at); ok {
			t.Errorf("settled at LSN %d, which the hub does not know of", at)
		}
	}
	w = watching(t, h, Options{})
	h.Feed(true).Begin(wal.Position{LSN: 50}, 2)
	if _, ok := w.Settle(50); ok || !w.Take().End.Gap {
		t.Error("settled over a gap")
	}
}

func TestFramesThatNobodyCanRead(t *testing.T) {
	h, s := fed(t, true)
	w := watching(t, h, Options{Resume: true})
	s.commit(grant("a"))
	before, frame := s.encode(grant("b"))
	frame[len(frame)-1] ^= 1
	s.feed.Frames(before, s.at, 1, frame, nil)
	if got := taken(w); got != " 1:grant:a end NONE gap true" {
		t.Errorf("damaged frame: %s", got)
	}
	if _, end := h.Watch(Options{Resume: true, After: 1}); end == nil || !end.Gap {
		t.Errorf("resume over it: %+v", end)
	}
}

func TestLosses(t *testing.T) {
	h, s := fed(t, false)
	var told []string
	tell := func(losses []Loss) {
		for _, x := range losses {
			l := x.Ended
			told = append(told, fmt.Sprintf("%s %d %v then %d", l.Lock, l.Token, l.Reason, l.SuccessorToken))
		}
	}
	lose := func(client cluster.ClientID, r locktable.Record, lsn cluster.LSN) Loss {
		r.LSN = lsn
		return LossOf(&locktable.Grant{Lock: r.Lock, Token: r.Token, Client: client, Request: 9}, &r)
	}
	s.commit(grant("a"), grant("b"), grant("c"))
	stop := h.Losses("c", 0, tell)
	others := h.Losses("other", 0, func([]Loss) { t.Error("somebody else was told") })
	before, frame := s.encode(expire("a", 1), grant("x"), grant("a"), expire("b", 2), grant("b/b"))
	s.feed.Frames(before, s.at, 1, frame, []Loss{lose("c", expire("a", 1), 4), lose("c", expire("b", 2), 7)})
	s.commit(grant("z"))
	h.Flush()
	want := "[a 1 LOSS_REASON_EXPIRED then 6 b 2 LOSS_REASON_EXPIRED then 0]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	told = nil
	stop()
	others()
	for after, want := range map[cluster.LSN]string{0: "[]", 3: want, 4: "[b 2 LOSS_REASON_EXPIRED then 0]", 7: "[]"} {
		told = nil
		h.Losses("c", after, tell)()
		if got := fmt.Sprint(told); got != want {
			t.Errorf("after %d: %s, want %s", after, got, want)
		}
	}
	if len(h.mu.losses) != 0 || h.in.losing {
		t.Error("the hub remembers who left")
	}
}

// What takes everything is told to all, and where losses may be missing that is told.
func TestLossesOfAll(t *testing.T) {
	h, s := fed(t, true)
	var told []string
	tell := func(losses []Loss) {
		for _, x := range losses {
			told = append(told, fmt.Sprintf("%q %v", x.Ended.Lock, x.Ended.Reason))
		}
		if len(losses) == 0 {
			told = append(told, "missed")
		}
	}
	wants := func(want string) {
		t.Helper()
		h.Flush()
		if got := fmt.Sprint(told); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		told = nil
	}
	s.commit(grant("a"))
	defer h.Losses("c", 1, tell)()
	clear := locktable.Record{Kind: locktable.KindForceClear}
	before, frame := s.encode(clear)
	clear.LSN = s.at.LSN
	s.feed.Frames(before, s.at, 1, frame, []Loss{ClearedOf(&clear)})
	wants(`["" LOSS_REASON_FORCE_CLEARED]`)
	s.feed.Begin(wal.Position{LSN: 90, Chain: 7}, 2)
	wants("[missed]")
	h.Losses("c", 50, tell)()
	wants("[missed]")
	h.Losses("c", 90, tell)()
	wants("[]")
}

// Several who share a lock may lose it in one frame. Each is told who came behind.
func TestSeveralLoseALockAtOnce(t *testing.T) {
	h, s := fed(t, false)
	s.commit(grant("a"), grant("a"), grant("a")) // the hub does not look at modes
	var told []string
	defer h.Losses("c", 0, func(losses []Loss) {
		for _, x := range losses {
			told = append(told, fmt.Sprintf("%d then %d", x.Ended.Token, x.Ended.SuccessorToken))
		}
	})()
	var losses []Loss
	for i := range cluster.Token(3) {
		r := expire("a", i+1)
		r.LSN = cluster.LSN(4 + i)
		losses = append(losses, LossOf(&locktable.Grant{Lock: "a", Token: i + 1, Client: "c"}, &r))
	}
	before, frame := s.encode(expire("a", 1), expire("a", 2), expire("a", 3), grant("a"), grant("a"))
	s.feed.Frames(before, s.at, 1, frame, losses)
	h.Flush()
	if got, want := fmt.Sprint(told), "[1 then 7 2 then 7 3 then 7]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// A clear ends many grants by one record. What is lost behind it has its successor all the same.
func TestManyAreLostByOneRecord(t *testing.T) {
	h, s := fed(t, false)
	s.commit(grant("a"), grant("a"), grant("b"))
	var told []string
	defer h.Losses("c", 0, func(losses []Loss) {
		for _, x := range losses {
			told = append(told, fmt.Sprintf("%s %d then %d", x.Ended.Lock, x.Ended.Token, x.Ended.SuccessorToken))
		}
	})()
	lose := func(r locktable.Record, lsn cluster.LSN, lock string, token cluster.Token) Loss {
		r.LSN = lsn
		return LossOf(&locktable.Grant{Lock: cluster.LockName(lock), Token: token, Client: "c"}, &r)
	}
	cleared := locktable.Record{Kind: locktable.KindForceClear}
	before, frame := s.encode(cleared, grant("a"), expire("a", 5), grant("a"))
	s.feed.Frames(before, s.at, 1, frame, []Loss{lose(cleared, 4, "a", 1), lose(cleared, 4, "a", 2), lose(cleared, 4, "b", 3), lose(expire("a", 5), 6, "a", 5)})
	h.Flush()
	if got, want := fmt.Sprint(told), "[a 1 then 5 a 2 then 5 b 3 then 0 a 5 then 7]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}
