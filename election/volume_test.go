// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// three is for how long a volume that shows nothing stale has to be still.
const three = 3 * time.Second

// Of two servers the other one follows when the volume has been still for three beats of the primary:
// neither before, nor much later, whatever ended it.
func TestOneOfTwoFollows(t *testing.T) {
	for name, fault := range map[string]func(*world, cluster.ServerID){
		"killed": (*world).kill, "paused": (*world).pause,
		"without a volume": func(w *world, id cluster.ServerID) {
			w.server(id).change(func(s *server) { s.mu.noVolume = true })
		},
	} {
		var all []time.Duration
		for place := cluster.ServerID(1); place <= 2; place++ {
			for phase := range 10 {
				bubble(t, 2, func(t *testing.T, w *world) {
					w.placePrimary(place)
					w.advance(time.Duration(phase) * 101 * time.Millisecond)
					before := w.claims()
					fault(w, place)
					_, took := w.awaitPrimary(10*time.Second, not(place))
					all = append(all, took)
					w.advance(30 * time.Second)
					if id, ok := w.primary(); !ok || id == place || w.claims() != before+1 {
						t.Errorf("server %d %s: server %d (%v) is primary after %d claims", place, name, id, ok, w.claims()-before)
					}
				})
			}
		}
		slices.Sort(all)
		least, most := three-1200*time.Millisecond, three+700*time.Millisecond
		if name == "without a volume" { // it answers, and its storage has to be old
			least, most = 4*time.Second, 7*time.Second
		}
		t.Logf("%s: the other one is primary after %v (median), %v (longest)", name, all[len(all)/2], all[len(all)-1])
		if all[0] < least || all[len(all)-1] > most {
			t.Errorf("%s: it took %v to %v, want %v to %v", name, all[0], all[len(all)-1], least, most)
		}
	}
}

// A cut between two servers ends no term, in one direction or in both, for whatever time.
func TestCutBetweenTwoEndsNothing(t *testing.T) {
	for place := cluster.ServerID(1); place <= 2; place++ {
		for name, cuts := range map[string][][2]cluster.ServerID{"both ways": {{1, 2}, {2, 1}}, "1 to 2": {{1, 2}}, "2 to 1": {{2, 1}}} {
			bubble(t, 2, func(t *testing.T, w *world) {
				w.placePrimary(place)
				for _, x := range cuts {
					w.cut(x[0], x[1])
				}
				w.staysStable(10 * time.Minute)
				v := w.server(3 - place).e.VolumeVote()
				if !v.Asked || v.Yes || v.Risen != place || v.Ago > 2*time.Second {
					t.Errorf("cut %s, server %d is primary: the other one says %+v", name, place, v)
				}
				w.healLinks()
				w.staysStable(20 * time.Second)
			})
		}
	}
}

// The last of two keeps its term when the other one goes, and has it again after a restart.
func TestLastOfTwoServes(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.placePrimary(1)
		w.kill(2)
		w.staysStable(10 * time.Minute)
		w.kill(1)
		w.start(1)
		_, took := w.awaitPrimary(10*time.Second, only(1))
		if took < three || took > three+time.Second {
			t.Errorf("alone, it is primary again after %v", took)
		}
		w.start(2)
		w.staysStable(10 * time.Second)
		w.kill(1)
		w.awaitPrimary(10*time.Second, only(2))
	})
}

// A takeover that takes long is as good as a primary to a server that is cut off from it.
func TestSlowTakeoverIsSeenOnTheVolume(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.placePrimary(1)
		w.server(2).change(func(s *server) { s.mu.slowFence = time.Minute })
		w.isolate(1)
		w.kill(1)
		w.awaitFencing(10*time.Second, only(2))
		w.start(1)
		w.awaitPrimary(2*time.Minute, only(2))
		w.staysStable(time.Minute)
		if w.claims() != 2 {
			t.Errorf("%d claims, want one by each", w.claims())
		}
	})
}

// A server whose own writes do not come back has no vote of the volume, for as long as that and three
// beats more: when a share that stalled comes back, the primary may be the last to notice. The
// primary waits, too.
func TestStillnessOfAStalledShareCountsForNothing(t *testing.T) {
	for i, stall := range []time.Duration{4 * time.Second, 5 * time.Second, 6 * time.Second, 10 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(stall), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, w *world) {
				w.placePrimary(1)
				w.isolate(1)
				w.advance(time.Second + time.Duration(i)*210*time.Millisecond) // at another moment between two beats
				for _, id := range w.members.IDs() {
					w.server(id).change(func(s *server) { s.mu.noVolume = true })
				}
				w.advance(stall)
				w.server(2).change(func(s *server) { s.mu.noVolume = false })
				w.advance(2 * time.Second)
				w.server(1).change(func(s *server) { s.mu.noVolume, s.mu.probed = false, time.Now() })
				w.staysStable(time.Minute)
				if w.claims() != 1 {
					t.Errorf("%d claims: a stall of the share ended a term", w.claims())
				}
			})
		})
	}
}

// A server that slept has seen nothing meanwhile.
func TestSleepIsNoStillness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 1)
		defer w.stop()
		w.timing.Staleness = time.Second // five seconds are needed, which is longer than a primary has to be heard after a sleep
		w.startAll()
		w.placePrimary(1)
		for _, id := range w.members.IDs() {
			w.server(id).change(func(s *server) { s.mu.fresh = true }) // a write may come back before anything else runs
		}
		w.isolate(1)
		w.advance(time.Second)
		w.pause(1)
		w.pause(2)
		w.advance(time.Minute) // the host of both
		w.resume(2)
		w.advance(4 * time.Second)
		w.resume(1)
		w.staysStable(time.Minute)
		if w.claims() != 1 {
			t.Errorf("%d claims: a sleep ended a term", w.claims())
		}
	})
}

// Where the volume shows old signs to both, and they do not hear each other, they depose each other
// less and less often.
func TestTwoThatDeposeEachOtherBackOff(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.placePrimary(1)
		w.isolate(1)
		w.advance(time.Second)
		within := func(d time.Duration) int {
			before := w.claims()
			for end := time.Now().Add(d); time.Now().Before(end); w.advance(500 * time.Millisecond) {
				// Each server sees that of the other one rise only for a moment after its own term.
				w.mu.Lock()
				for id := range w.members.IDs() {
					id := cluster.ServerID(id + 1)
					w.mu.stale[id] = map[cluster.ServerID]election.Sign{3 - id: {Beat: uint64(w.mu.epoch)}}
				}
				w.mu.Unlock()
			}
			return w.claims() - before
		}
		first := within(time.Minute)
		within(10 * time.Minute)
		later := within(10 * time.Minute)
		t.Logf("claims: %d in the first minute, %d in the last ten", first, later)
		if first < 2 || later > 6 {
			t.Errorf("%d claims in the first minute, %d in the last ten", first, later)
		}
		w.mu.Lock()
		clear(w.mu.stale)
		w.mu.Unlock()
		w.healLinks()
		w.settles(15 * time.Second)
		id, _ := w.primary()
		w.kill(id)
		w.awaitPrimary(5*time.Second, not(id)) // they had heard each other
	})
}

// A server whose term was ended by one that sees old signs waits for beats of that one before it
// claims again, whatever it saw before its own term.
func TestDeposedServerWaitsForBeats(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.placePrimary(1)
		w.isolate(1)
		w.mu.Lock()
		w.mu.stale[2] = map[cluster.ServerID]election.Sign{1: {}}
		w.mu.Unlock()
		w.awaitPrimary(10*time.Second, only(2))
		w.staysStable(time.Minute)
		if w.claims() != 2 {
			t.Errorf("%d claims, want one by each", w.claims())
		}
	})
}

// The last of three serves by an operator's permission, which is good for one term; others that reach
// a majority need none.
func TestPermissionIsForOneTerm(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.placePrimary(1)
		w.kill(1)
		w.kill(2)
		w.advance(time.Minute)
		if id, ok := w.primary(); ok {
			t.Fatalf("server %d is primary, one of three", id)
		}
		e := w.server(3).e
		if v := e.VolumeVote(); !v.Asked || v.Yes || v.Risen != 0 || v.Still < v.Needed || v.Needed != three {
			t.Errorf("the last of three says %+v", v)
		}
		e.Permit(time.Now().Add(10 * time.Second))
		w.awaitPrimary(2*time.Second, only(3))
		w.staysStable(time.Minute)
		before := w.claims()
		w.server(3).change(func(s *server) { s.mu.resign <- struct{}{} })
		w.advance(time.Minute)
		if id, ok := w.primary(); ok || w.claims() != before {
			t.Errorf("server %d (%v) is primary after %d claims by a permission that was used", id, ok, w.claims()-before)
		}
		w.start(1)
		w.awaitPrimary(5*time.Second, anybody)
		w.staysStable(10 * time.Second)
	})
}

// A permission that nothing came of lapses, and a server that goes on ends it.
func TestPermissionLapses(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.placePrimary(1)
		w.isolate(3)
		w.advance(10 * time.Second)
		e := w.server(3).e
		e.Permit(time.Now().Add(time.Minute))
		w.advance(2 * time.Second)
		w.kill(1)
		w.kill(2)
		w.advance(40 * time.Second)
		if id, ok := w.primary(); ok {
			t.Errorf("server %d is primary by a permission that a primary outlived", id)
		}
		w.server(3).change(func(s *server) { s.mu.unable = true })
		e.Permit(time.Now().Add(5 * time.Second))
		w.advance(6 * time.Second)
		w.server(3).change(func(s *server) { s.mu.unable = false })
		w.advance(20 * time.Second)
		if id, ok := w.primary(); ok {
			t.Errorf("server %d is primary by a permission that has lapsed", id)
		}
	})
}

// What looks make of a server's vote, one at a time.
func TestVolumeVote(t *testing.T) {
	type look struct {
		at    time.Duration
		beat  uint64
		takes time.Duration
	}
	for name, c := range map[string]struct {
		looks   []look
		storage time.Duration // at the end
		stale   time.Duration
		want    bool
	}{
		"no look":                      {nil, 0, 0, false},
		"one look":                     {[]look{{0, 5, 0}}, 0, 0, false},
		"two looks, three beats apart": {[]look{{0, 5, 0}, {three, 5, 0}}, 0, 0, true},
		"a moment less":                {[]look{{0, 5, 0}, {three - 1, 5, 0}}, 0, 0, false},
		"it rose at the end":           {[]look{{0, 5, 0}, {three, 5, 0}, {three + 1, 6, 0}}, 0, 0, false},
		"it rose at the beginning":     {[]look{{0, 5, 0}, {1, 6, 0}, {three + 1, 6, 0}}, 0, 0, true},
		"it fell":                      {[]look{{0, 5, 0}, {three, 4, 0}}, 0, 0, false},
		"the first look took long":     {[]look{{0, 5, time.Second}, {three, 5, 0}}, 0, 0, false},
		"the last look took long":      {[]look{{0, 5, 0}, {three - time.Second, 5, time.Second}}, 0, 0, false},
		"the last look took a second":  {[]look{{0, 5, 0}, {three, 5, 1100 * time.Millisecond}}, 0, 0, true},
		"the last look is old":         {[]look{{0, 5, 0}, {three, 5, 5100 * time.Millisecond}}, 0, 0, false},
		"own writes are old":           {[]look{{0, 5, 0}, {three, 5, 0}}, 2500 * time.Millisecond, 0, false},
		"a stale filesystem":           {[]look{{0, 5, 0}, {three + time.Second, 5, 0}}, 0, time.Second, false},
		"a stale filesystem, longer":   {[]look{{0, 5, 0}, {three + 2*time.Second, 5, 0}}, 0, time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			timing := cluster.DefaultTiming()
			timing.Staleness = c.stale
			var st election.Status
			e := election.New(election.Options{Self: 2, Members: cluster.Members{{ID: 1}, {ID: 2}}, Timing: timing, Status: func() election.Status { return st }})
			began := time.Now()
			for _, x := range c.looks {
				at := began.Add(x.at)
				wait(time.Until(at.Add(x.takes)))
				e.Saw(election.Look{Began: at, Ended: time.Now(), Signs: map[cluster.ServerID]election.Sign{1: {Beat: x.beat}, 2: {}}})
			}
			st.Storage = c.storage
			if v := e.VolumeVote(); v.Yes != c.want || !v.Asked {
				t.Errorf("%s: %+v, want %v", name, v, c.want)
			}
		})
	}
}

// A look after this server's own term begins the wait anew: it does not look while it is primary.
func TestOwnTermIsNoStillness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var st election.Status
		e := election.New(election.Options{Self: 2, Members: cluster.Members{{ID: 1}, {ID: 2}}, Timing: cluster.DefaultTiming(), Status: func() election.Status { return st }})
		look := func() {
			now := time.Now()
			e.Saw(election.Look{Began: now, Ended: now, Signs: map[cluster.ServerID]election.Sign{1: {Beat: 5}}})
		}
		look()
		wait(three)
		e.Done(errors.New("deposed"), three)
		wait(time.Second)
		look()
		if v := e.VolumeVote(); v.Yes || v.Still != time.Second {
			t.Errorf("a second after its own term: %+v", v)
		}
	})
}
