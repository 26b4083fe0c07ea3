// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/internal/watchtest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// runs runs a mirror until the test ends.
func runs(t *testing.T, m *Mirror) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for running := false; !running; { // who asks before is told how the Run before ended
		m.mu.RLock()
		running = m.mu.running
		m.mu.RUnlock()
		runtime.Gosched()
	}
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
}

// TestAMirrorIsTheTable: whatever happens, and over servers that are behind, are cut
// off or had a snapshot, each state that a mirror shows is that of the table at its LSN.
func TestAMirrorIsTheTable(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	happened, watched := map[locktable.Kind]int{}, int32(0)
	for seed := range seeds {
		x := newTables(t, uint64(seed), 3)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { mirrorStory(t, x) })
		for k, n := range x.happens {
			happened[k] += n
		}
		for _, s := range x.servers {
			watched += s.watched.Load()
		}
	}
	t.Logf("%d watches, records: %v", watched, happened)
	if watched < int32(3*seeds) {
		t.Errorf("%d watches in %d stories", watched, seeds)
	}
	for k := locktable.KindGrant; k.Known() && !testing.Short(); k++ {
		told := k != locktable.KindOpenClient && k != locktable.KindForgetClient && k != locktable.KindHandedOver && k != locktable.KindAlready
		if told && happened[k] == 0 {
			t.Errorf("no %v happened", k)
		}
	}
}

func mirrorStory(t *testing.T, x *tables) {
	const steps = 500
	for range 20 {
		x.step()
	}
	c := x.client(t)
	m := NewMirror(c, Options{Prefix: "p/", Bookmark: 100 * time.Millisecond})
	runs(t, m)
	changes := copyChanges(t, x, m)
	states := 0
	for i := range steps {
		x.step()
		switch x.rng.IntN(25) {
		case 0:
			x.servers[1+x.rng.IntN(2)].snapshot()
		case 1: // all who watch there have to go elsewhere
			s := x.servers[x.rng.IntN(3)]
			s.feed.End("the term ended")
			s.feed.Begin(s.at, 1)
		}
		if i%20 < 19 {
			continue
		}
		x.servers[1].catchUp()
		x.servers[2].catchUp()
		if err := m.WaitUntil(t.Context(), func(v View) bool {
			states++
			want, ok := x.at(v.LSN())
			if !ok || !maps.Equal(v.locks, want) || v.Len() != len(want) {
				t.Errorf("at LSN %d the mirror shows\n%v, the table\n%v", v.LSN(), v.sorted(), want)
			}
			return v.LSN() >= x.lsn() || t.Failed()
		}); err != nil {
			t.Fatal(err)
		}
	}
	changes()
	listed := map[clientlib.LockName]LockState{}
	for l, err := range c.List(t.Context(), "p/") {
		if err != nil {
			t.Fatal(err)
		}
		listed[l.Name] = lockStateOf(&l)
	}
	got := slices.Collect(m.All())
	for _, l := range got {
		if listed[l.Name] != l || len(got) != len(listed) {
			t.Errorf("the mirror shows\n%v, the servers list\n%v", got, listed)
		}
	}
	if states < steps/20 {
		t.Errorf("only %d states were looked at", states)
	}
}

// copyChanges makes a copy of a mirror from its Changes: these make the same states.
func copyChanges(t *testing.T, x *tables, m *Mirror) (end func()) {
	copied := map[clientlib.LockName]LockState{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c, err := range m.Changes(ctx) {
			if copied[c.Lock.Name] = c.Lock; c.Gone || err != nil {
				delete(copied, c.Lock.Name)
			}
			if want, _ := x.at(c.LSN); err == nil && c.Last && !maps.Equal(copied, want) {
				t.Errorf("at LSN %d the changes make\n%v, the table is\n%v", c.LSN, copied, want)
			}
		}
	}()
	return func() { stop(); <-done }
}

// TestAMirrorKnowsEveryKind is for whoever adds one: say what it does to a lock.
func TestAMirrorKnowsEveryKind(t *testing.T) {
	for n := range pb.EventKind_name {
		word := wire.EventWord(pb.EventKind(n))
		if _, err := wire.ParseEventWord(word); err != nil {
			continue // nobody is told
		}
		fits := false
		for _, e := range []clientlib.Event{ // to a lock that is free and to one that has everything
			{Kind: clientlib.EventKind(word), Lock: "free", Token: 1}, {Kind: clientlib.EventKind(word), Lock: "busy", Token: 1},
		} {
			m := newMirrorOf(clientlib.LockInfo{Name: "busy", Holder: &clientlib.HolderInfo{Token: 1}, QueueLength: 1, FileCount: 1})
			m.take(&e)
			fits = m.commit(2, 1) || fits
		}
		if !fits {
			t.Errorf("%s never fits", word)
		}
	}
}

func TestAMirrorOfOneLock(t *testing.T) {
	x := newTables(t, 1, 1)
	acquire := func(lock clientlib.LockName) {
		x.ask(locktable.Request{Op: locktable.OpAcquire, Client: "c", Lock: lock, TTL: time.Minute, Wait: time.Hour})
	}
	acquire("p/1")
	m := NewMirror(x.client(t), Options{Lock: "p/1", Bookmark: 100 * time.Millisecond})
	if _, known := m.Age(); known || m.LSN() != 0 {
		t.Error("it knows something")
	}
	runs(t, m)
	acquire("p/10")
	acquire("p/1")
	if err := m.WaitUntil(t.Context(), func(v View) bool { return v.LSN() == 3 }); err != nil {
		t.Fatal(err)
	}
	l, ok := m.Get("p/1")
	if _, other := m.Get("p/10"); other || !ok || !l.Held() || l.Holder.Token != 1 || l.QueueLength != 1 || l.TTL != time.Minute {
		t.Errorf("%+v", l)
	}
	m.View(func(v View) {
		if all := slices.Collect(v.All()); v.Len() != 1 || v.Epoch() != 1 || len(all) != 1 || all[0] != l {
			t.Errorf("%+v", all)
		}
	})
	if age, known := m.Age(); !known || age < 0 || age > 20*time.Second {
		t.Errorf("age %v", age)
	}
	if err := m.Run(t.Context()); !errors.Is(err, errMirrorRuns) {
		t.Errorf("a second Run: %v", err)
	}
}

// mirrored is a mirror of a log whose servers say what the test likes.
func mirrored(t *testing.T) (*watchtest.Log, []*watchtest.Server, *Mirror) {
	log, servers, endpoints := watchtest.Serve(t)
	c, err := clientlib.New(clientlib.Options{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it cannot fail
	return log, servers, NewMirror(c, Options{})
}

func until(t *testing.T, m *Mirror, lsn cluster.LSN) (locks int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := m.WaitUntil(ctx, func(v View) bool { locks = v.Len(); return v.LSN() >= lsn }); err != nil {
		t.Fatalf("LSN %d: %v", lsn, err)
	}
	return locks
}

// What does not fit, or is of a kind that this library does not know, is no reason to
// guess: the state stays as it was, and comes again.
func TestAMirrorThatCannotFollowBeginsAnew(t *testing.T) {
	log, servers, m := mirrored(t)
	log.Add("a")
	runs(t, m)
	if n := until(t, m, 1); n != 2 { // the two locks of each reset
		t.Fatalf("%d locks", n)
	}
	// One message, whose first event fits.
	log.Tell(&pb.Event{Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: "b"}, &pb.Event{Kind: 99, Lock: "b"})
	if n := until(t, m, 3); n != 2 || m.LSN() != 3 {
		t.Errorf("%d locks at LSN %d", n, m.LSN())
	}
	asks := 0
	for _, s := range servers {
		s.Set(func() {
			for _, q := range s.Asks {
				if asks++; q.AfterLsn != nil {
					t.Errorf("it asked to go on: %v", s.Asks)
				}
			}
		})
	}
	if asks != 2 {
		t.Errorf("%d watches", asks)
	}
}

func TestWhatDoesNotFit(t *testing.T) {
	for name, e := range map[string]clientlib.Event{
		"unknown kind":          {Kind: "99", Lock: "free"},
		"grant of a held lock":  {Kind: clientlib.EventGrant, Lock: "held", Token: 4},
		"release by nobody":     {Kind: clientlib.EventRelease, Lock: "free"},
		"another token":         {Kind: clientlib.EventExpire, Lock: "held", Token: 4},
		"nobody waits":          {Kind: clientlib.EventWaitTimeout, Lock: "held"},
		"nobody waits (cancel)": {Kind: clientlib.EventCancel, Lock: "held"},
		"no file":               {Kind: clientlib.EventUnbind, Lock: "held"},
		"metadata of nobody":    {Kind: clientlib.EventMetadata, Lock: "free"},
		"an old ask":            {Kind: clientlib.EventAsk, Lock: "held", Token: 4},
	} {
		m := newMirrorOf(clientlib.LockInfo{Name: "held", Holder: &clientlib.HolderInfo{Token: 1}})
		m.take(&e)
		if m.commit(2, 1) || m.LSN() != 1 {
			t.Errorf("%s fits", name)
		}
	}
	m := newMirrorOf()
	for _, e := range []clientlib.Event{
		{Kind: clientlib.EventTerm}, {Kind: clientlib.EventHandedOver}, {Kind: clientlib.EventAppend, Lock: "l"}, {Kind: clientlib.EventRotate, Lock: "l"}, {Kind: clientlib.EventQuarantine}, {Kind: clientlib.EventCancel},
	} {
		m.take(&e)
	}
	if !m.commit(8, 1) || m.mu.view.Len() != 0 {
		t.Error("what changes no lock does not fit")
	}
}

// A state that was told in part is not shown, nor is it built upon.
func TestAMirrorShowsNoHalfReset(t *testing.T) {
	log, servers, m := mirrored(t)
	log.Add("a", "b")
	for _, s := range servers {
		s.Set(func() { s.Halves = 1 })
	}
	runs(t, m)
	if n := until(t, m, 2); n != 2 {
		t.Errorf("%d locks", n)
	}
	if total := servers[0].Served() + servers[1].Served() + servers[2].Served(); total < 2 {
		t.Errorf("%d watches", total)
	}
}

func TestAMirrorGoesOnWhereItWas(t *testing.T) {
	log, servers, m := mirrored(t)
	log.Add("a", "b")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	until(t, m, 2)
	waits := make(chan error, 2)
	go func() { waits <- m.WaitUntil(t.Context(), func(View) bool { return false }) }()
	go func() {
		for _, err := range m.Changes(t.Context()) {
			if err != nil {
				waits <- err
			}
		}
	}()
	stop()
	for _, err := range []error{<-done, <-waits, <-waits} {
		if call, ok := errors.AsType[*clientlib.CallError](err); !ok || call.Op != "watch" || !errors.Is(err, context.Canceled) {
			t.Errorf("the end: %v", err)
		}
	}
	if m.LSN() != 2 {
		t.Error("what was known is forgotten")
	}
	if err := m.WaitUntil(t.Context(), func(View) bool { return true }); err != nil {
		t.Errorf("the state is there: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	runs(t, m)
	if err := m.WaitUntil(short, func(View) bool { return false }); err == nil {
		t.Error("no error when the context ended")
	}
	log.Add("c")
	if n := until(t, m, 3); n != 3 {
		t.Errorf("%d locks", n)
	}
	for _, s := range servers {
		s.Set(func() {
			for _, q := range s.Asks[max(0, len(s.Asks)-1):] {
				if q.AfterLsn != nil && *q.AfterLsn != 2 {
					t.Errorf("asked %v", q)
				}
			}
		})
	}
}

// still is a source of which nothing comes, and whose clock stands still.
type still struct{ source }

func (still) Clock() clientlib.Clock { return still{} }

func (still) Now() time.Duration { return 0 }

// newMirrorOf is a mirror that follows nothing and has these locks at LSN 1.
func newMirrorOf(locks ...clientlib.LockInfo) *Mirror {
	m := newMirror(still{}, Options{})
	m.before = map[clientlib.LockName]LockState{}
	m.take(&clientlib.Event{Kind: clientlib.EventReset, Reset: &clientlib.Reset{Last: true, Locks: locks}})
	m.commit(1, 1)
	return m
}

// A loop over Changes that is slow is told each lock once, as it is then.
func TestChangesAreCollected(t *testing.T) {
	m := newMirrorOf()
	lsn := cluster.LSN(1)
	happens := func(kind clientlib.EventKind, lock clientlib.LockName, token cluster.Token) {
		t.Helper()
		if lsn++; kind == clientlib.EventGrant {
			token = lsn.Token()
		}
		m.take(&clientlib.Event{Kind: kind, LSN: lsn, Lock: lock, Token: token, Time: time.UnixMilli(0)})
		if !m.commit(lsn, 1) {
			t.Fatalf("%s of %s does not fit", kind, lock)
		}
	}
	resets := func(locks ...clientlib.LockInfo) {
		lsn++
		m.take(&clientlib.Event{Kind: clientlib.EventReset, LSN: lsn, Reset: &clientlib.Reset{Last: true, Locks: locks}})
		m.commit(lsn, 1)
	}
	happens(clientlib.EventGrant, "b", 0) // 2
	happens(clientlib.EventGrant, "a", 0) // 3
	var rounds []string
	round := ""
	step := 0
	for c, err := range m.Changes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		round += fmt.Sprintf(" %s:%d", c.Lock.Name, c.Lock.Holder.Token)
		if c.Gone {
			round += " gone"
		}
		if !c.Last {
			continue
		}
		rounds = append(rounds, fmt.Sprintf("%s at %d", round, c.LSN))
		round = ""
		switch step++; step {
		case 1: // while the loop is busy
			happens(clientlib.EventRelease, "a", 3)
			happens(clientlib.EventGrant, "a", 0)
			happens(clientlib.EventGrant, "c", 0)
			happens(clientlib.EventEnqueue, "c", 0)
			happens(clientlib.EventRelease, "b", 2)
		case 2:
			resets(clientlib.LockInfo{Name: "c", Holder: &clientlib.HolderInfo{Token: 6}, QueueLength: 1}, clientlib.LockInfo{Name: "d", Holder: &clientlib.HolderInfo{Token: 9}})
		case 3:
			happens(clientlib.EventForceClear, "", 0)
		}
		if step == 4 {
			break
		}
	}
	want := "[ a:3 b:2 at 3  a:5 b:0 gone c:6 at 8  a:0 gone d:9 at 9  c:0 gone d:0 gone at 10]"
	if got := fmt.Sprint(rounds); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(m.mu.followers) != 0 {
		t.Error("the mirror remembers a loop that was left")
	}
}

// A reset that misses a piece is none.
func TestAMirrorWantsEveryPiece(t *testing.T) {
	for _, parts := range [][]int{{1}, {0, 2}, {0, 1, 1}} {
		m := newMirrorOf(clientlib.LockInfo{Name: "a", Holder: &clientlib.HolderInfo{Token: 1}})
		for i, part := range parts {
			m.take(&clientlib.Event{Kind: clientlib.EventReset, Reset: &clientlib.Reset{Part: part, Last: i == len(parts)-1, Locks: []clientlib.LockInfo{{Name: "b", QueueLength: 1}}}})
		}
		if m.commit(9, 1) || shown(m) != "1 [a:1]" {
			t.Errorf("parts %v: %s", parts, shown(m))
		}
	}
}

// shown is a mirror in few words.
func shown(m *Mirror) string {
	var words []string
	for l := range m.All() {
		words = append(words, fmt.Sprintf("%s:%d", l.Name, l.Holder.Token))
		if l.QueueLength > 0 {
			words[len(words)-1] += fmt.Sprintf("+%d", l.QueueLength)
		}
	}
	return fmt.Sprint(m.LSN(), " ", words)
}

// A message that does not fit is taken back as a whole.
func TestAMirrorTakesBackWhatDoesNotFit(t *testing.T) {
	m := newMirrorOf(clientlib.LockInfo{Name: "a", Holder: &clientlib.HolderInfo{Token: 1}}, clientlib.LockInfo{Name: "b", QueueLength: 1})
	for _, e := range []clientlib.Event{
		{Kind: clientlib.EventRelease, Lock: "a", Token: 1}, {Kind: clientlib.EventGrant, Lock: "b", Token: 7}, {Kind: clientlib.EventEnqueue, Lock: "c"},
		{Kind: clientlib.EventForceClear}, {Kind: clientlib.EventEnqueue, Lock: "d"}, {Kind: clientlib.EventExpire, Lock: "d", Token: 3},
	} {
		m.take(&e)
	}
	if m.commit(9, 1) {
		t.Error("it fits")
	}
	if got, want := shown(m), "1 [a:1 b:0+1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
