// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A copy that is served when the servers of the volume have only just started, or that they
// find when they start, deposes nobody either.
func TestServersOnACopyAtTheStart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.copied()
		defer c.stop()
		w.awaitPrimary(time.Second, only(1))
		c.startAll()
		w.staysStable(10 * time.Second)
		for _, id := range w.members.IDs() {
			w.kill(id)
		}
		w.startAll()
		w.awaitPrimary(time.Second, only(1))
		w.staysStable(10 * time.Second)
	})
}

// beside runs a story about three servers and a copy of their volume, of which nobody serves yet.
func beside(t *testing.T, story func(t *testing.T, w, c *world)) {
	t.Helper()
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.advance(5 * time.Second)
		c := w.copied()
		defer c.stop()
		story(t, w, c)
	})
}

// whom lists the IDs that a server was told strangers of, in order.
func (s *server) whom() (ids []cluster.ServerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.strangers {
		ids = append(ids, x.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Servers on a copy of the volume, with the same addresses in it, depose nobody, and nobody is
// in conflict with them; each is reported.
func TestServersOnACopyDeposeNobody(t *testing.T) {
	beside(t, func(t *testing.T, w, c *world) {
		c.startAll()
		w.staysStable(30 * time.Second)
		for _, id := range w.members.IDs() {
			s := w.server(id)
			if len(s.mu.conflicts) > 0 {
				t.Errorf("server %d was told of conflicts %v", id, s.mu.conflicts)
			}
			if whom := s.whom(); !slices.Equal(whom, w.members.IDs()) {
				t.Errorf("server %d was told of strangers that use %v, want all three IDs", id, whom)
			}
		}
		if c.claims() > 0 {
			t.Errorf("the servers of the copy claimed %d times while those of the volume answer", c.claims())
		}
	})
}

// With a copy served, the servers of the volume elect as ever: a server that has just started
// believes in the others at once, and who follows is able.
func TestServersOnACopyHinderNoElection(t *testing.T) {
	beside(t, func(t *testing.T, w, c *world) {
		for _, id := range []cluster.ServerID{2, 3} {
			c.start(id)
		}
		w.advance(20 * time.Second)
		w.kill(1)
		_, took := w.awaitPrimary(time.Second, only(2))
		t.Logf("replaced after %v", took)
		w.start(1)
		w.advance(5 * time.Second)
		w.kill(2)
		_, took = w.awaitPrimary(time.Second, only(1))
		t.Logf("replaced after %v by a server that was started beside the copy", took)
		w.start(2)
		w.staysStable(20 * time.Second)
	})
}

// A server that is down is not spoken for by one on a copy, and comes back without a conflict.
func TestServerOnACopyIsNoOtherServer(t *testing.T) {
	beside(t, func(t *testing.T, w, c *world) {
		c.start(2)
		c.start(3)
		w.advance(5 * time.Second)
		w.kill(3)
		w.kill(2)
		w.advance(2 * w.timing.MajorityWindow)
		if w.server(1).e.Majority() {
			t.Error("the servers on the copy make a majority of the volume's")
		}
		w.advance(20 * time.Second)
		if role, _ := w.server(1).role(); role == election.RolePrimary {
			t.Error("server 1 is primary without a majority")
		}
		w.start(2)
		w.awaitPrimary(2*time.Second, only(1))
		w.start(3)
		w.staysStable(20 * time.Second)
		if c := w.server(1).mu.conflicts; len(c) > 0 {
			t.Errorf("server 1 was told of conflicts %v", c)
		}
	})
}

// The servers of a copy get no votes from those of the volume, whose primary is dead.
func TestServersOnACopyGetNoVotes(t *testing.T) {
	beside(t, func(t *testing.T, w, c *world) {
		for id := cluster.ServerID(1); id <= 3; id++ {
			c.start(id)
		}
		w.advance(5 * time.Second)
		for id := cluster.ServerID(1); id <= 3; id++ {
			vote := w.server(id%3+1).e.HandlePreVote(t.Context(), election.Ask{From: id, Nonce: c.server(id).nonce, Epoch: 1 << 40})
			if vote.From != 0 {
				t.Errorf("server %d on the copy is given the vote %+v", id, vote)
			}
			if told := w.server(id%3 + 1).e.HandlePing(election.Ping{From: 9}).Status; told.Epoch >= 1<<40 {
				t.Errorf("an epoch of the copy is believed: %+v", told)
			}
		}
	})
}

// Where the volume does not show who writes to it, two processes are a conflict; it ends when the
// volume shows one of them and not the other.
func TestConflictEndsWhenTheVolumeShowsOne(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.awaitPrimary(time.Second, only(1))
		w.server(3).change(func(s *server) { s.mu.old = true })
		w.kill(3)
		w.mu.Lock()
		w.mu.old = true
		w.mu.Unlock()
		w.start(3)
		w.advance(5 * time.Second)
		c := w.copied()
		defer c.stop()
		c.start(3)
		w.advance(4 * time.Second)
		if !w.server(1).e.Peers()[1].Conflict || w.server(3).e.HandlePing(election.Ping{From: 9}).Status.Able {
			t.Error("two processes, none of which shows on the volume, are no conflict")
		}
		w.server(3).change(func(s *server) { s.mu.old = false })
		w.advance(4 * time.Second)
		if w.server(1).e.Peers()[1].Conflict || !w.server(3).e.HandlePing(election.Ping{From: 9}).Status.Able {
			t.Error("a conflict although only one of the two shows on the volume")
		}
		if whom := w.server(1).whom(); !slices.Equal(whom, []cluster.ServerID{3}) {
			t.Errorf("server 1 was told of strangers that use %v, want 3", whom)
		}
	})
}

// aliveWithin is how often a process that lives sends a message at least.
const aliveWithin = time.Second

// event is something that befalls the Elector of a script.
type event = func(*script)

// pings is a ping under ID 3 by the process with this nonce.
func pings(nonce uint64) event {
	return func(s *script) {
		st := election.Status{LSN: cluster.LSN(nonce)}
		s.e.HandlePing(election.Ping{From: 3, Nonce: nonce, Seq: uint64(time.Now().UnixNano()), Status: st, About: "the copy", Address: "h:1"})
	}
}

// shows is a sign of life on the volume of the process with this nonce, under ID 3.
func shows(nonce uint64) event { return func(s *script) { s.e.Prove(3, nonce) } }

func pauses(d time.Duration) event { return func(*script) { wait(d) } }

// whose is what befell under ID 3, and what becomes of it.
type whose struct {
	events   []event
	counts   cluster.LSN // of whose ping
	conflict bool
	stranger uint64 // 0: none
}

func whoseMessages(refuse event) map[string]whose {
	both := func(s *script) { s.e.Prove(3, 7); s.e.Prove(3, 8) }
	many := func(s *script) {
		for nonce := range uint64(30) {
			for _, event := range []event{pings(100 + nonce), pings(7), pings(100 + nonce)} {
				event(s)
				wait(time.Millisecond)
			}
		}
	}
	alone := func(s *script) {
		for nonce := range uint64(30) {
			pings(100 + nonce)(s)
		}
	}
	return map[string]whose{
		"one":                              {[]event{pings(7)}, 7, false, 0},
		"a restart":                        {[]event{pings(7), pings(8)}, 8, false, 0},
		"a restart of one that was proven": {[]event{pings(7), shows(7), pings(8), pings(8)}, 7, false, 0},
		"which is silent from then on":     {[]event{pings(7), shows(7), pings(8), pauses(aliveWithin), pings(8)}, 8, false, 0},
		"and listens no more":              {[]event{pings(7), shows(7), refuse, pings(7), pings(8)}, 8, false, 0},
		"two, none proven yet":             {[]event{pings(7), pings(8), pings(7)}, 7, false, 0},
		"two, the second not proven yet":   {[]event{pings(7), pauses(4 * time.Second), pings(8), pings(7)}, 7, false, 0},
		"two, none proven for long":        {[]event{pings(7), pings(8), pauses(4 * time.Second), pings(7)}, 7, true, 0},
		"two, the first proven":            {[]event{pings(7), shows(7), pings(8), pings(7), pings(8)}, 7, false, 0},
		"the same for long":                {[]event{pings(7), shows(7), pings(8), pings(7), pauses(4 * time.Second), pings(7), pings(8)}, 7, false, 8},
		"two, the second proven":           {[]event{pings(7), pings(8), shows(8), pings(7)}, 8, false, 0},
		"two, the second proven unheard":   {[]event{pings(7), shows(8), pings(8), pings(7)}, 8, false, 0},
		"two, both proven":                 {[]event{pings(7), shows(7), pings(8), shows(8), pings(7), pings(8)}, 8, true, 0},
		"both proven, one after the other": {[]event{pings(7), shows(7), pings(8), pings(7), pings(8), shows(8), pings(8)}, 8, true, 0},
		"one ended before the other spoke": {[]event{pings(7), shows(7), pings(8), pings(7), pauses(2 * time.Second), shows(8), pings(8)}, 8, false, 0},
		"a conflict, and one is proven":    {[]event{pings(7), pings(8), pauses(4 * time.Second), pings(7), pings(8), shows(7), pings(7), pings(8)}, 7, false, 8},
		"a conflict, both proven":          {[]event{pings(7), pings(8), pauses(4 * time.Second), pings(7), both, pings(8), both}, 8, true, 0},
		"a conflict, a silent one proven":  {[]event{pings(7), pings(8), pauses(4 * time.Second), pings(7), pings(8), shows(9)}, 8, true, 0},
		"a stranger beside a dead server":  {[]event{pings(7), shows(7), pings(8), pings(7), pauses(time.Minute), pings(8)}, 7, false, 8},
		"that server's next process":       {[]event{pings(7), shows(7), pings(8), pings(7), pauses(time.Minute), pings(8), pings(9), pings(8)}, 9, false, 8},
		"a nonce with each message":        {[]event{pings(7), shows(7), many, pings(7)}, 7, false, 0},
		"many beside a silent server":      {[]event{pings(7), shows(7), pauses(2 * aliveWithin), alone, pings(7), pings(129)}, 7, false, 0},
		"the same, for long":               {[]event{pings(7), shows(7), many, pings(7), pauses(4 * time.Second), pings(129), pings(7)}, 7, false, 129},
	}
}

// TestWhoseMessagesCount has processes send pings under ID 3, and be seen on the volume.
func TestWhoseMessagesCount(t *testing.T) {
	var refuses atomic.Bool // nobody listens at the address of server 3; else nobody answers
	rows := whoseMessages(func(*script) { refuses.Store(true); wait(time.Second) })
	for name, x := range rows {
		t.Run(name, func(t *testing.T) {
			refuses.Store(false)
			s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
				switch {
				case to == 3 && refuses.Load():
					return election.Pong{}, errRefused
				case to == 3:
					<-ctx.Done()
					return election.Pong{}, ctx.Err()
				}
				return calm(ctx, to, p)
			}}
			run(t, s, func(t *testing.T) {
				for _, event := range x.events {
					wait(20 * time.Millisecond)
					event(s)
				}
				wait(100 * time.Millisecond)
				x.judge(t, s)
			})
		})
	}
}

func (x *whose) judge(t *testing.T, s *script) {
	t.Helper()
	p := s.e.Peers()[1]
	if p.Status.LSN != x.counts || p.Conflict != x.conflict {
		t.Errorf("the process whose messages count is %d, conflict %v; want %d, %v", p.Status.LSN, p.Conflict, x.counts, x.conflict)
	}
	var strangers []uint64
	for _, y := range s.e.Strangers() {
		strangers = append(strangers, y.Nonce)
		if y.ID != 3 || y.About != "the copy" || y.From != "h:1" {
			t.Errorf("the stranger is told as %+v", y)
		}
	}
	if want := x.stranger; want == 0 && len(strangers) > 0 || want != 0 && !slices.Contains(strangers, want) {
		t.Errorf("strangers %v, want %d", strangers, want)
	}
	if told := s.told.Load(); told != min(1, int32(x.stranger)) {
		t.Errorf("it was told of %d strangers", told)
	}
}

// TestProcessesWithTheOwnID has another process use the ID of a server, which is able or not by it.
func TestProcessesWithTheOwnID(t *testing.T) {
	const own, other = 2, 77
	var answers atomic.Uint64 // who answers at the own address
	ping := func(s *script) { s.e.HandlePing(election.Ping{From: 2, Nonce: other, Seq: 1}) }
	prove := func(nonce uint64) event { return func(s *script) { s.e.Prove(2, nonce) } }
	answer := func(s *script) { answers.Store(other); wait(time.Second); answers.Store(own) }
	for name, x := range map[string]struct {
		events []event
		able   bool
	}{
		"nobody":                          {nil, true},
		"none proven yet":                 {[]event{ping}, true},
		"the other not proven yet":        {[]event{pauses(4 * time.Second), ping}, true},
		"none proven for long":            {[]event{ping, pauses(4 * time.Second), ping}, false},
		"this one proven":                 {[]event{prove(own), ping}, true},
		"this one proven, and for long":   {[]event{prove(own), ping, pauses(4 * time.Second), ping}, true},
		"this one proven late":            {[]event{ping, pauses(4 * time.Second), ping, prove(own)}, true},
		"the other proven":                {[]event{prove(own), prove(other)}, false},
		"the other proven, and silent":    {[]event{prove(own), prove(other), pauses(11 * time.Second), prove(own)}, true},
		"both proven":                     {[]event{prove(own), prove(other), pauses(11 * time.Second), prove(own), ping}, false},
		"the other has the address":       {[]event{prove(own), answer}, false},
		"and this one is proven":          {[]event{prove(own), answer, pauses(4 * time.Second), prove(own)}, false},
		"the other had the address":       {[]event{prove(own), answer, pauses(11 * time.Second), prove(own), ping}, true},
		"only the other proven, at start": {[]event{ping, prove(other), pauses(4 * time.Second), prove(own)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			answers.Store(own)
			s := &script{ping: func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
				pong, err := calm(ctx, to, p)
				if to == 2 {
					pong.Nonce = answers.Load()
				}
				return pong, err
			}}
			run(t, s, func(t *testing.T) {
				wait(time.Second)
				for _, event := range x.events {
					event(s)
				}
				if able := s.e.HandlePing(election.Ping{From: 9}).Status.Able; able != x.able {
					t.Errorf("able: %v, want %v", able, x.able)
				}
			})
		})
	}
}

// TestStrangerAtTheAddressOfAServer: a process that was not seen on the volume answers at a server's
// address, votes and is able. It is not that server, which is alive and cannot be reached.
func TestStrangerAtTheAddressOfAServer(t *testing.T) {
	answers := election.Status{Able: true, Epoch: 1 << 40}
	s := &script{}
	s.ping = func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
		switch to {
		case 1:
			return election.Pong{}, errRefused
		case 3:
			return election.Pong{From: 3, Nonce: 33, Seq: p.Seq, Status: answers}, nil
		}
		return calm(ctx, to, p)
	}
	s.vote = func(to cluster.ServerID) election.Vote {
		return election.Vote{From: 3, Nonce: 33, Status: answers} // of server 1 this is no vote
	}
	run(t, s, func(t *testing.T) {
		s.e.HandlePing(heard(3, 1, election.Status{}))
		s.e.Prove(3, 3)
		for seq := range uint64(200) {
			s.e.HandlePing(heard(3, seq+2, election.Status{}))
			select {
			case <-s.e.Elected():
				t.Error("the votes of a stranger made a majority")
				return
			case <-time.After(50 * time.Millisecond):
			}
			if p := s.e.Peers()[1]; p.Reachable && seq > 30 {
				t.Errorf("a stranger is taken for server 3: %+v", p)
				return
			}
		}
		if told := s.e.HandlePing(election.Ping{From: 9}).Status; told.Epoch >= answers.Epoch {
			t.Errorf("the epoch of a stranger is believed: %+v", told)
		}
	})
}

// TestVoteOfAStranger: a vote counts only from the process that answers pings as that server.
func TestVoteOfAStranger(t *testing.T) {
	for voter, hasTerm := range map[uint64]bool{3: true, 33: false} {
		s := &script{}
		s.ping = func(ctx context.Context, to cluster.ServerID, p election.Ping) (election.Pong, error) {
			if to == 1 {
				return election.Pong{}, errRefused
			}
			return calm(ctx, to, p)
		}
		s.vote = func(cluster.ServerID) election.Vote { return election.Vote{From: 3, Nonce: voter} }
		run(t, s, func(t *testing.T) {
			s.e.HandlePing(heard(3, 1, election.Status{}))
			s.e.Prove(3, 3)
			select {
			case <-s.e.Elected():
				if !hasTerm {
					t.Error("the vote of a stranger made a majority")
				}
			case <-time.After(5 * time.Second):
				if hasTerm {
					t.Error("the vote of server 3 made no majority")
				}
			}
		})
	}
}
