// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// script is a transport whose answers the test writes. The Elector under test is
// server 2 of three.
type script struct {
	e     *election.Elector
	ping  func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error)
	vote  func(to cluster.ServerID) election.Vote
	mu    sync.Mutex
	self  election.Status // guarded by mu
	asks  atomic.Int32    // pre-votes sent
	pings [4]atomic.Int32
	told  atomic.Int32 // of strangers
}

func (s *script) status() election.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.self
}

func (s *script) change(f func(*election.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.self)
}

func (s *script) Ping(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
	s.pings[to].Add(1)
	return s.ping(ctx, to, p)
}

func (s *script) PreVote(_ context.Context, to cluster.ServerID, _ election.Ask) (election.Vote, error) {
	s.asks.Add(1)
	return s.vote(to), nil
}

// calm answers as server 1, the primary, and servers 2 and 3, replicas.
func calm(_ context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
	pong := election.Pong{From: to, Nonce: uint64(to), Seq: p.Seq}
	if to == 1 {
		pong.Status = election.Status{Role: election.RolePrimary, Epoch: 1}
	}
	return pong, nil
}

// quiet answers as three replicas.
func quiet(_ context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
	return election.Pong{From: to, Nonce: uint64(to), Seq: p.Seq}, nil
}

// run tells a story about a scripted world.
func run(t *testing.T, s *script, story func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.self.Able = true
		if s.vote == nil {
			s.vote = func(to cluster.ServerID) election.Vote { return election.Vote{From: to, Nonce: uint64(to)} }
		}
		s.e = election.New(election.Options{
			Self: 2, Nonce: 2, Members: cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}}, Timing: cluster.DefaultTiming(),
			Transport: s, Status: s.status, OnStranger: func(election.Stranger) { s.told.Add(1) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.e.Run(ctx) }) //nolint:errcheck // the cause of cancel
		story(t)
		cancel()
		wg.Wait()
	})
}

func wait(d time.Duration) { <-time.After(d) }

func heard(from cluster.ServerID, seq uint64, st election.Status) election.Ping {
	return election.Ping{From: from, Nonce: uint64(from), Seq: seq, Status: st}
}

func TestOneResetIsNoSuspicion(t *testing.T) {
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		if to == 1 && p.Seq%5 == 0 {
			return election.Pong{}, errRefused
		}
		return calm(ctx, to, p)
	}}
	run(t, s, func(t *testing.T) {
		wait(200 * time.Millisecond)
		for range 3000 {
			wait(time.Millisecond)
			if id, _, ok := s.e.Primary(); !ok || id != 1 {
				t.Fatalf("the primary is %d (%v)", id, ok)
			}
		}
		if n := s.asks.Load(); n > 0 {
			t.Errorf("%d pre-votes for single resets", n)
		}
	})
}

func TestStaleAnswerCountsForNothing(t *testing.T) {
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		if to == 1 && p.Seq == 20 {
			wait(225 * time.Millisecond) // the last word of the primary overtaken by newer ones
			return calm(ctx, to, p)
		}
		if to == 1 && p.Seq > 20 {
			return quiet(ctx, to, p)
		}
		return calm(ctx, to, p)
	}}
	run(t, s, func(t *testing.T) {
		wait(500 * time.Millisecond)
		for _, _, ok := s.e.Primary(); ok; _, _, ok = s.e.Primary() {
			wait(time.Millisecond)
		}
		for range 1000 {
			wait(time.Millisecond)
			if id, _, ok := s.e.Primary(); ok {
				t.Fatalf("server %d is the primary again", id)
			}
		}
	})
}

func TestAnswerIsAsOldAsItsPing(t *testing.T) {
	var dead atomic.Bool
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		if to == 1 && dead.Load() {
			<-ctx.Done()
			return election.Pong{}, ctx.Err()
		}
		if to == 1 {
			wait(250 * time.Millisecond)
		}
		return calm(ctx, to, p)
	}}
	run(t, s, func(t *testing.T) {
		wait(2 * time.Second)
		if id, _, _ := s.e.Primary(); id != 1 {
			t.Fatalf("the primary is %d", id)
		}
		dead.Store(true)
		wait(310 * time.Millisecond)
		if _, _, ok := s.e.Primary(); ok {
			t.Error("answers that arrived late kept the primary alive")
		}
	})
}

func TestNewPrimaryIsAskedAtOnce(t *testing.T) {
	s := &script{ping: calm}
	run(t, s, func(t *testing.T) {
		wait(2 * time.Second)
		for range 3 {
			wait(70 * time.Millisecond)
			before := s.pings[3].Load()
			s.e.HandlePing(heard(3, uint64(before)+1, election.Status{Role: election.RoleFencing, Epoch: 2}))
			wait(time.Millisecond)
			if n := s.pings[3].Load(); n != before+1 {
				t.Errorf("%d pings to a server that says it is primary", n-before)
			}
		}
	})
}

// TestNomineeLearnsThatItIsAMember: a primary hands over to a server that became a member a moment ago, and does not know it yet. It takes over when it does,
// if that is soon.
func TestNomineeLearnsThatItIsAMember(t *testing.T) {
	for after, want := range map[time.Duration]bool{100 * time.Millisecond: true, 400 * time.Millisecond: false} {
		s := &script{ping: calm}
		run(t, s, func(t *testing.T) {
			s.e.SetMembers(cluster.Members{{ID: 1}, {ID: 2, Joining: true}, {ID: 3}})
			wait(time.Second)
			if !s.e.Nominate() {
				t.Fatal("it is not nominated")
			}
			wait(after)
			select {
			case <-s.e.Elected():
				t.Error("it took over before it was a member")
			default:
			}
			for range 2 { // the elector looks once more at the term on offer
				s.e.SetMembers(cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}})
				synctest.Wait()
			}
			elected := false
			select {
			case <-s.e.Elected():
				elected = true
			case <-time.After(10 * time.Millisecond):
			}
			if elected != want {
				t.Errorf("it learned it after %v: elected %t, want %t", after, elected, want)
			}
		})
	}
}

// TestNomineeThatIsTooLate: another server is primary by the time that the nominee learns that it is a member.
func TestNomineeThatIsTooLate(t *testing.T) {
	primary := &atomic.Uint32{}
	primary.Store(1)
	s := &script{ping: func(_ context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		pong := election.Pong{From: to, Nonce: uint64(to), Seq: p.Seq}
		if id := primary.Load(); uint32(to) == id {
			pong.Status = election.Status{Role: election.RolePrimary, Epoch: cluster.Epoch(id)}
		}
		return pong, nil
	}}
	run(t, s, func(t *testing.T) {
		s.e.SetMembers(cluster.Members{{ID: 1}, {ID: 2, Joining: true}, {ID: 3}})
		wait(time.Second)
		s.e.Nominate()
		primary.Store(3)
		wait(100 * time.Millisecond)
		s.e.SetMembers(cluster.Members{{ID: 1}, {ID: 2}, {ID: 3}})
		select {
		case <-s.e.Elected():
			t.Error("it ends the term of a primary that it hears")
		case <-time.After(time.Second):
		}
	})
}

// TestBrokenConnectionIsAskedAbout at once, however lately the server was pinged, and where one breaks after the other, a few times in a heartbeat.
func TestBrokenConnectionIsAskedAbout(t *testing.T) {
	s := &script{ping: calm}
	run(t, s, func(t *testing.T) {
		wait(2*time.Second + time.Millisecond) // a moment after the heartbeat
		before := s.pings[1].Load()
		for range 100 { // within 5 ms
			s.e.Broke(1)
			wait(50 * time.Microsecond)
		}
		if n := s.pings[1].Load() - before; n != 1 {
			t.Errorf("%d pings after connections broke, want 1", n)
		}
		for range 300 { // within 15 ms
			s.e.Broke(1)
			wait(50 * time.Microsecond)
		}
		if n := s.pings[1].Load() - before; n != 2 {
			t.Errorf("%d pings after more connections broke, want 2", n)
		}
		s.e.Broke(9) // who was removed meanwhile
	})
}

func TestOfferIsWithdrawnForAPrimary(t *testing.T) {
	var hasTerm atomic.Bool
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		if hasTerm.Load() {
			return calm(ctx, to, p)
		}
		return quiet(ctx, to, p)
	}}
	run(t, s, func(t *testing.T) {
		for s.e.HandlePing(heard(3, 1, election.Status{})).Status.Role != election.RoleCandidate {
			wait(time.Millisecond)
		}
		hasTerm.Store(true)
		wait(60 * time.Millisecond)
		select {
		case <-s.e.Elected():
			t.Error("a term is on offer beside a primary")
		default:
		}
	})
}

func TestNoPollRightAfterATerm(t *testing.T) {
	s := &script{ping: quiet}
	run(t, s, func(t *testing.T) {
		<-s.e.Elected()
		s.e.Done(nil, time.Minute)
		before := s.asks.Load()
		wait(290 * time.Millisecond)
		if n := s.asks.Load(); n != before {
			t.Errorf("%d questions although the successor had no time to show", n-before)
		}
		wait(200 * time.Millisecond)
		<-s.e.Elected()
	})
}

func TestVerdictOutOfDateIsDropped(t *testing.T) {
	var s *script
	s = &script{ping: quiet, vote: func(to cluster.ServerID) election.Vote {
		if s.asks.Load() <= 2 {
			s.change(func(st *election.Status) { st.Role = election.RoleFencing }) // something else made it claim meanwhile
		}
		return election.Vote{From: to, Nonce: uint64(to)}
	}}
	run(t, s, func(t *testing.T) {
		select {
		case <-s.e.Elected(): // an offer lasts for a moment only
			t.Error("a term is on offer to a server that is primary already")
		case <-time.After(2 * time.Second):
		}
	})
}

func TestAbleNeedsAMajorityAndStorage(t *testing.T) {
	var deaf atomic.Bool
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		if deaf.Load() {
			<-ctx.Done()
			return election.Pong{}, ctx.Err()
		}
		return calm(ctx, to, p)
	}}
	run(t, s, func(t *testing.T) {
		able := func() bool { return s.e.HandlePing(election.Ping{From: 9}).Status.Able }
		if able() {
			t.Error("able before anybody answered")
		}
		wait(100 * time.Millisecond)
		if !able() {
			t.Error("not able although all is well")
		}
		s.change(func(st *election.Status) { st.Storage = 6 * time.Second })
		if able() {
			t.Error("able with storage that is not live")
		}
		s.change(func(st *election.Status) { st.Storage = 0 })
		deaf.Store(true)
		wait(1400 * time.Millisecond)
		if able() {
			t.Error("able without a majority")
		}
	})
}

func TestWhatAPrimaryAsks(t *testing.T) {
	s := &script{ping: quiet, self: election.Status{Role: election.RolePrimary, Epoch: 3}}
	run(t, s, func(t *testing.T) {
		s.e.HandlePing(heard(3, 1, election.Status{}))
		for range 3 {
			wait(time.Second) // answers are fresh all the time
		}
		check := func(what string, majority, fresh bool) {
			t.Helper()
			if m, f := s.e.Majority(), s.e.FreshStorageElsewhere(); m != majority || f != fresh {
				t.Errorf("%s: majority %v, fresh storage %v; want %v, %v", what, m, f, majority, fresh)
			}
		}
		check("no ping for long", false, true)
		s.e.HandlePing(heard(3, 2, election.Status{Able: true}))
		check("after a ping", true, true)
		s.e.HandlePing(heard(3, 3, election.Status{Able: true, Storage: 4 * time.Second}))
		s.e.HandlePing(heard(1, 4, election.Status{Storage: 4 * time.Second}))
		check("the share stalls", true, false)
		s.e.HandlePing(heard(3, 4, election.Status{Able: true}))
		check("it comes back", true, false)
		if id, epoch, ok := s.e.Primary(); id != 2 || epoch != 3 || !ok {
			t.Errorf("the primary is %d@%d (%v)", id, epoch, ok)
		}
		wait(1100 * time.Millisecond)
		check("after a silence", false, false)
		s.e.HandlePing(heard(3, 1, election.Status{}))
		check("a ping that was overtaken", false, false)
		wait(2 * time.Second)
		check("the share has been back for long; answers still come", false, true)
	})
}

func TestVoteRestsOnAProbe(t *testing.T) {
	type server = func(context.Context, cluster.ServerID, election.Ping) (election.Pong, error)
	var first atomic.Pointer[server]
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		if f := first.Load(); f != nil && to == 1 {
			return (*f)(ctx, to, p)
		}
		return calm(ctx, to, p)
	}}
	silent := server(func(ctx context.Context, _ cluster.ServerID, _ election.Ping) (election.Pong, error) {
		<-ctx.Done()
		return election.Pong{}, ctx.Err()
	})
	replica, primary := server(quiet), server(calm)
	ask := election.Ask{From: 3, Nonce: 3}
	run(t, s, func(t *testing.T) {
		wait(time.Second)
		if v := s.e.HandlePreVote(t.Context(), ask); !v.HearsPrimary || v.Primary != 1 {
			t.Errorf("a live primary: %+v", v)
		}
		first.Store(&replica)
		if v := s.e.HandlePreVote(t.Context(), ask); v.HearsPrimary {
			t.Errorf("a primary that has just become a replica: %+v", v)
		}
		first.Store(&primary)
		wait(time.Second)
		first.Store(&silent)
		wait(220 * time.Millisecond)
		first.Store(&primary)
		if v := s.e.HandlePreVote(t.Context(), ask); !v.HearsPrimary {
			t.Errorf("a primary that answers again: %+v", v)
		}
		first.Store(&silent)
		wait(220 * time.Millisecond)
		began := time.Now()
		if v := s.e.HandlePreVote(t.Context(), ask); v.HearsPrimary || time.Since(began) > 50*time.Millisecond {
			t.Errorf("a primary silent for 270ms: %+v after %v", v, time.Since(began))
		}
	})
}

func TestPrimaryWithoutStorageIsReplaced(t *testing.T) {
	s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		pong, err := calm(ctx, to, p)
		pong.Status.Storage = 6 * time.Second
		return pong, err
	}}
	run(t, s, func(t *testing.T) {
		s.change(func(st *election.Status) { st.Storage = 3 * time.Second })
		wait(10 * time.Second)
		if n := s.asks.Load(); n > 0 {
			t.Errorf("%d votes asked for while nobody writes", n)
		}
		if id, _, ok := s.e.Primary(); !ok || id != 1 {
			t.Errorf("callers are sent to %d (%v)", id, ok)
		}
		s.change(func(st *election.Status) { st.Storage = 0 })
		began := time.Now()
		<-s.e.Elected()
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("a term after %v; the primary should have had half of the storage time-out", took)
		}
	})
}

func TestSlowFirstAnswerIsWaitedFor(t *testing.T) {
	for _, primary := range []cluster.ServerID{1, 3} {
		s := &script{ping: func(_ context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
			st := election.Status{Able: true}
			if to == primary {
				wait(200 * time.Millisecond)
				st = election.Status{Role: election.RolePrimary, Epoch: 1}
			}
			return election.Pong{From: to, Nonce: uint64(to), Seq: p.Seq, Status: st}, nil
		}}
		run(t, s, func(t *testing.T) {
			wait(5 * time.Second)
			if n := s.asks.Load(); n > 0 {
				t.Errorf("%d votes asked for beside server %d", n, primary)
			}
		})
	}
}

func TestOneTermAtATime(t *testing.T) {
	s := &script{ping: quiet}
	s.vote = func(to cluster.ServerID) election.Vote {
		if s.asks.Load() <= 2 {
			s.e.Nominate() // while a poll is under way
		}
		wait(50 * time.Millisecond)
		return election.Vote{From: to, Nonce: uint64(to)}
	}
	run(t, s, func(t *testing.T) {
		<-s.e.Elected()
		select {
		case <-s.e.Elected():
			t.Error("a second term before the first was done")
		case <-time.After(5 * time.Second):
		}
	})
}

// TestLowestLevel: a server counts while it is heard, and one that tells none has 1.
func TestLowestLevel(t *testing.T) {
	s := &script{self: election.Status{Role: election.RolePrimary, Epoch: 3, FeatureLevel: 4}}
	s.ping = func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		<-ctx.Done()
		return election.Pong{}, ctx.Err()
	}
	run(t, s, func(t *testing.T) {
		check := func(what string, want uint32) {
			t.Helper()
			if got := s.e.LowestLevel(); got != want {
				t.Errorf("%s: level %d, want %d", what, got, want)
			}
		}
		check("nobody is heard", 4)
		s.e.HandlePing(heard(1, 1, election.Status{FeatureLevel: 5}))
		check("a higher one", 4)
		s.e.HandlePing(heard(3, 1, election.Status{FeatureLevel: 3}))
		check("a lower one", 3)
		s.e.HandlePing(heard(1, 2, election.Status{}))
		check("one that tells none", 1)
		s.e.HandlePing(heard(1, 3, election.Status{FeatureLevel: 4}))
		check("it was upgraded", 3)
		wait(1100 * time.Millisecond)
		check("after a silence", 4)
	})
}

// TestLevelIsToldFor: what a server says of its level counts from when it began to say so, without a silence.
func TestLevelIsToldFor(t *testing.T) {
	s := &script{self: election.Status{Role: election.RolePrimary, Epoch: 3, FeatureLevel: 4}}
	s.ping = func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		<-ctx.Done()
		return election.Pong{}, ctx.Err()
	}
	run(t, s, func(t *testing.T) {
		seq := uint64(0)
		says := func(level uint32, every time.Duration, times int) {
			for range times {
				seq++
				s.e.HandlePing(heard(3, seq, election.Status{FeatureLevel: level}))
				wait(every)
			}
		}
		check := func(what string, want time.Duration) {
			t.Helper()
			if got := s.e.Peers()[1].LevelFor; got != want {
				t.Errorf("%s: for %v, want %v", what, got, want)
			}
		}
		check("nothing is heard", 0)
		says(4, 500*time.Millisecond, 6)
		check("it goes on", 3*time.Second)
		says(3, 500*time.Millisecond, 2)
		check("another level", time.Second)
		says(4, 500*time.Millisecond, 1)
		check("back again", 500*time.Millisecond)
		wait(2 * time.Second)
		check("a silence", 0)
		says(4, 500*time.Millisecond, 2)
		check("behind the silence", time.Second)
	})
}

// Of two that say that they are primary, the one with the higher epoch is the primary.
func TestTheLaterTermIsThePrimary(t *testing.T) {
	for later, epochs := range map[cluster.ServerID][4]cluster.Epoch{1: {1: 7, 3: 6}, 3: {1: 6, 3: 7}} {
		s := &script{ping: func(_ context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
			return election.Pong{From: to, Nonce: uint64(to), Seq: p.Seq, Status: election.Status{Role: election.RolePrimary, Epoch: epochs[to]}}, nil
		}}
		run(t, s, func(t *testing.T) {
			wait(time.Second)
			if id, epoch, ok := s.e.Primary(); id != later || epoch != 7 || !ok {
				t.Errorf("the primary is %d@%d (%v), want %d@7", id, epoch, ok, later)
			}
		})
	}
}

// A primary that this server does not reach is the one that another names, but not this server
// itself, which knows better.
func TestThePrimaryThatAnotherNames(t *testing.T) {
	for named, want := range map[cluster.ServerID]bool{1: true, 2: false, 3: false, 0: false} {
		s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
			if to == 1 {
				<-ctx.Done()
				return election.Pong{}, ctx.Err()
			}
			return election.Pong{From: to, Nonce: uint64(to), Seq: p.Seq, Primary: named, Status: election.Status{Epoch: 5}}, nil
		}}
		run(t, s, func(t *testing.T) {
			s.change(func(st *election.Status) { st.Able = false })
			wait(time.Second)
			if id, epoch, ok := s.e.Primary(); ok != want || ok && (id != named || epoch != 5) {
				t.Errorf("server 3 names %d: the primary is %d@%d (%v)", named, id, epoch, ok)
			}
		})
	}
}

// Who answers in another's name, or to another ping, has not answered.
func TestOnlyTheAnswerToAPingCounts(t *testing.T) {
	for name, wrong := range map[string]func(*election.Pong){
		"another server": func(p *election.Pong) { p.From = 3 },
		"another ping":   func(p *election.Pong) { p.Seq += 100 },
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
				pong, err := calm(ctx, to, p)
				if to == 1 {
					wrong(&pong)
				}
				return pong, err
			}}
			run(t, s, func(t *testing.T) {
				wait(200 * time.Millisecond)
				if id, _, ok := s.e.Primary(); ok {
					t.Errorf("the primary is %d", id)
				}
			})
		})
	}
}

// What is no refusal is a ping without an answer: the next one may have one.
func TestNoSuspicionFor(t *testing.T) {
	for name, odd := range map[string]func(n uint64) error{
		"deadlines that are shorter than ours": func(n uint64) error { return context.DeadlineExceeded },
		"calls that somebody cancelled":        func(n uint64) error { return context.Canceled },
		"resets of two pings at one time": func(n uint64) error {
			wait([]time.Duration{60, 15, 30}[min(n, 2)] * time.Millisecond) // the third is sent for the first reset
			if n < 2 {
				return errRefused
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
				if to == 1 && 20 <= p.Seq && p.Seq < 23 {
					if err := odd(p.Seq - 20); err != nil {
						return election.Pong{}, err
					}
				}
				return calm(ctx, to, p)
			}}
			run(t, s, func(t *testing.T) {
				wait(200 * time.Millisecond)
				for range 2000 {
					wait(time.Millisecond)
					if id, _, ok := s.e.Primary(); !ok || id != 1 {
						t.Fatalf("the primary is %d (%v)", id, ok)
					}
				}
				if n := s.asks.Load(); n > 0 {
					t.Errorf("%d pre-votes", n)
				}
			})
		})
	}
}
