// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	primary = pb.Role_ROLE_PRIMARY
	replica = pb.Role_ROLE_REPLICA
)

func TestChoose(t *testing.T) {
	now := time.Now()
	lately, before := now.Add(-freshFor/2), now.Add(-freshFor)
	for _, x := range []struct {
		name     string
		views    []view
		at       string
		orphaned bool
		want     string
	}{
		{"nothing is known", nil, "", true, " false"},
		{"the primary", []view{{addr: "a", role: replica, epoch: 3, heard: lately}, {addr: "b", role: primary, epoch: 3, heard: lately}}, "", false, "b true"},
		{"never heard", []view{{addr: "b", role: primary, epoch: 3}}, "", true, " false"},
		{"not heard for long", []view{{addr: "b", role: primary, epoch: 3, heard: before}}, "b", false, " false"},
		{"a primary of an earlier epoch", []view{{addr: "a", role: primary, epoch: 3, heard: lately}, {addr: "b", role: replica, epoch: 4, heard: lately}}, "a", false, " false"},
		{"two primaries", []view{{addr: "a", role: primary, epoch: 3, heard: lately}, {addr: "b", role: primary, epoch: 4, heard: lately}}, "a", false, "b true"},
		{"an old word of a later epoch", []view{{addr: "a", role: primary, epoch: 3, heard: lately}, {addr: "b", role: replica, epoch: 4, heard: before}}, "a", false, "a true"},
		{"the primary under two addresses", []view{{addr: "a", role: primary, epoch: 3, heard: lately}, {addr: "b", role: primary, epoch: 3, heard: lately}}, "b", false, "b true"},
		{"no primary yet", []view{{addr: "a", role: replica, epoch: 3, heard: lately}}, "", false, " false"},
		{"no primary for long", []view{{addr: "a", role: replica, epoch: 3, heard: lately}, {addr: "b", role: replica, epoch: 4, heard: lately}}, "", true, "b false"},
		{"no primary for long, and a replica is used", []view{{addr: "a", role: replica, epoch: 4, heard: lately}, {addr: "b", role: replica, epoch: 4, heard: lately}}, "b", true, "b false"},
		{"a primary after long", []view{{addr: "a", role: replica, epoch: 4, heard: lately}, {addr: "b", role: primary, epoch: 4, heard: lately}}, "a", true, "b true"},
		{"a gateway", []view{{addr: "a", role: primary, epoch: 4, heard: lately, gateway: true}}, "", true, " false"},
	} {
		to := choose(x.views, now, target{addr: x.at}, x.orphaned)
		if got := fmt.Sprint(to.addr, " ", to.primary); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

// fakes are servers that say what they are.
type fakes struct {
	mu    sync.Mutex
	say   map[string]*pb.StatusResponse // nil = the server answers nothing, and the address of none refuses
	asked int                           // questions so far
	to    map[string]int                // those to each address
}

func (f *fakes) set(addr string, r *pb.StatusResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.say[addr] = r
}

func (f *fakes) ask(ctx context.Context, addr string) (*pb.StatusResponse, error) {
	f.mu.Lock()
	r, listens := f.say[addr]
	f.asked++
	if f.to == nil {
		f.to = map[string]int{}
	}
	f.to[addr]++
	f.mu.Unlock()
	if !listens {
		return nil, errors.New("connection refused")
	}
	if r == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r, nil
}

func (f *fakes) drop(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.say, addr)
}

func (f *fakes) questionsTo(addr string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to[addr]
}

func (f *fakes) questions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func says(role pb.Role, epoch uint64) *pb.StatusResponse {
	return &pb.StatusResponse{Role: role, Epoch: epoch, ClusterId: "c"}
}

// following runs a site in virtual time; moves has what it said of moves, as text.
func following(t *testing.T, addresses []string, f func(t *testing.T, s *site, said *fakes, moves chan string)) {
	synctest.Test(t, func(t *testing.T) {
		said, moves := &fakes{say: map[string]*pb.StatusResponse{}}, make(chan string, 10)
		s := newSite(zerolog.Nop())
		s.begin(addresses, "", false, said.ask, func(*pb.StatusResponse) {})
		s.moved = func(was, now target, answers bool) {
			moves <- fmt.Sprintf("%s to %s, answers %v", was.addr, now.addr, answers)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.run(ctx); close(ended) }()
		f(t, s, said, moves)
		cancel()
		<-ended
		select {
		case m := <-moves:
			t.Errorf("one move too many: %s", m)
		default:
		}
	})
}

// within wants a move in time.
func within(t *testing.T, moves chan string, limit time.Duration, want string) {
	t.Helper()
	select {
	case m := <-moves:
		if m != want {
			t.Errorf("%s, want %s", m, want)
		}
	case <-time.After(limit):
		t.Errorf("no move after %v, want %s", limit, want)
	}
}

// Connections follow the primary: at once where the former one is frozen, which no answer of its own says.
func TestFollowsThePrimary(t *testing.T) {
	following(t, []string{"a", "b"}, func(t *testing.T, s *site, said *fakes, moves chan string) {
		said.set("a", says(primary, 1))
		said.set("b", says(replica, 1))
		within(t, moves, askEvery, " to a, answers false")
		said.set("b", says(primary, 2)) // a handover: it tells later
		within(t, moves, 2*askEvery, "a to b, answers true")
		said.set("a", says(replica, 2))
		time.Sleep(time.Second)
		said.set("b", nil)
		time.Sleep(2 * askEvery) // it has been asked, and the next question finds that it is silent
		said.set("a", says(primary, 3))
		within(t, moves, 2*askEvery, "b to a, answers false")
		said.set("b", says(primary, 2)) // it wakes up, and does not know yet
		time.Sleep(time.Minute)
		if to := s.target(); to.addr != "a" || !to.primary || to.epoch != 3 {
			t.Errorf("connections go to %+v", to)
		}
	})
}

// Without a primary, connections wait for one, and go to a replica after a while: that knows what is wrong.
func TestWithoutAPrimary(t *testing.T) {
	following(t, []string{"a", "b"}, func(t *testing.T, s *site, said *fakes, moves chan string) {
		said.set("a", says(primary, 1))
		said.set("b", says(replica, 1))
		within(t, moves, askEvery, " to a, answers false")
		said.set("a", says(replica, 1))
		time.Sleep(without - askEvery)
		if to := s.target(); to.addr != "" {
			t.Errorf("connections go to %+v already", to)
		}
		if _, ok := s.await(t.Context(), time.Millisecond); ok {
			t.Error("it is not waited for a primary")
		}
		if to, ok := s.await(t.Context(), time.Second); !ok || to.addr != "a" || to.primary {
			t.Errorf("connections go to %+v, %v", to, ok)
		}
		said.set("b", says(primary, 2))
		within(t, moves, 2*askEvery, "a to b, answers true")
		said.mu.Lock()
		clear(said.say) // all are gone
		said.mu.Unlock()
		time.Sleep(freshFor + time.Second)
		if to := s.target(); to.addr != "" || s.latest().addr != "b" {
			t.Errorf("connections go to %+v, went to %+v", to, s.latest())
		}
		said.set("b", says(primary, 3)) // the same server is no move
		time.Sleep(time.Second)
		if to := s.target(); to.addr != "b" || to.epoch != 3 {
			t.Errorf("connections go to %+v", to)
		}
	})
}

// A gateway learns of servers that come later, and uses neither those of another cluster, nor gateways.
func TestServersOfTheSite(t *testing.T) {
	following(t, []string{"a", "stranger", "gateway"}, func(t *testing.T, s *site, said *fakes, moves chan string) {
		first := says(primary, 1)
		first.MemberClients = []string{"a", "later"}
		said.set("a", first)
		within(t, moves, askEvery, " to a, answers false")
		strange, through := says(primary, 9), says(primary, 9)
		strange.ClusterId, through.Gateway = "another", true
		said.set("stranger", strange)
		said.set("gateway", through)
		time.Sleep(time.Second)
		if to := s.target(); to.addr != "a" {
			t.Errorf("connections go to %+v", to)
		}
		said.set("later", says(primary, 2))
		within(t, moves, 2*askEvery, "a to later, answers true")
	})
}

// A server that answers nothing delays no question to others, and many that end no question make more than a few.
func TestQuestionsAreBounded(t *testing.T) {
	following(t, []string{"a", "b"}, func(t *testing.T, s *site, said *fakes, moves chan string) {
		said.set("a", nil)
		said.set("b", says(primary, 1))
		within(t, moves, askEvery, " to b, answers false")
		before := said.questions()
		for range 1000 {
			s.hasten()
			time.Sleep(time.Millisecond)
		}
		if n, most := said.questions()-before, 2*int(time.Second/askSoonest+2); n > most || n < 10 {
			t.Errorf("%d questions in a second, want %d at most", n, most)
		}
	})
}

// TestLateBeginWaitsForThePrimary: a site that has its servers later than its port waits for the primary as long as one that had them at once.
func TestLateBeginWaitsForThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &fakes{say: map[string]*pb.StatusResponse{"a": says(replica, 1)}}
		s := newSite(zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.run(ctx); close(ended) }()
		<-time.After(time.Minute)
		s.begin([]string{"a"}, "", false, said.ask, func(*pb.StatusResponse) {})
		<-time.After(without / 2)
		if to := s.target(); to.addr != "" {
			t.Errorf("after half of the time, connections go to %+v", to)
		}
		<-time.After(without)
		if to := s.target(); to.addr != "a" {
			t.Errorf("after the time, connections go to %+v", to)
		}
		cancel()
		<-ended
	})
}
