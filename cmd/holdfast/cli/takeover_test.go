// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// survivor is server 3 of three, the only one that answers.
type survivor struct {
	fake
	mu      sync.Mutex
	addr    string // its own
	serves  bool   // it becomes primary when it is permitted
	refuses string // what it says instead
	primary bool
	asked   []*pb.TakeoverRequest
}

func (s *survivor) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &pb.StatusResponse{Status: pb.Status_STATUS_OK, ClusterId: "0123456789abcdef0123456789abcdef", ServerId: 3, Role: pb.Role_ROLE_REPLICA, Servers: []*pb.Server{
		{Id: 1, Role: pb.Role_ROLE_UNREACHABLE, Client: "127.0.0.1:1"}, {Id: 2, Role: pb.Role_ROLE_UNREACHABLE, Client: "127.0.0.1:1"},
		{Id: 3, Role: pb.Role_ROLE_REPLICA, Client: s.addr, Reachable: true},
	}}
	if s.primary {
		r.Role, r.Servers[2].Role, r.Primary = pb.Role_ROLE_PRIMARY, pb.Role_ROLE_PRIMARY, &pb.Primary{Id: 3, Client: s.addr}
	}
	return r, nil
}

func (s *survivor) Takeover(_ context.Context, q *pb.TakeoverRequest) (*pb.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, q)
	if s.refuses != "" {
		return refused(pb.Status_STATUS_ERROR, "", s.refuses), nil
	}
	x := ok("", 0)
	if s.primary {
		x.Message = "server 3 is the primary of epoch 7 already"
	}
	s.primary = s.primary || s.serves
	return x, nil
}

// TestTakeover: one server is asked, once, with --yes only, and the command waits until it serves.
func TestTakeover(t *testing.T) {
	for name, x := range map[string]struct {
		s     *survivor
		args  string
		code  int
		says  string
		asked int
	}{
		"without --yes":            {&survivor{serves: true}, "takeover", 2, "make sure that the other servers are gone for good", 0},
		"it serves":                {&survivor{serves: true}, "takeover --yes --reason fire", 0, "server 3 is primary, without a majority", 1},
		"by its number":            {&survivor{serves: true}, "takeover --yes --server 3 --reason fire", 0, "server 3 is primary", 1},
		"it is primary already":    {&survivor{primary: true}, "takeover --yes --reason fire", 0, "server 3 is the primary of epoch 7 already", 1},
		"one that does not answer": {&survivor{serves: true}, "takeover --yes --server 2", 1, "no server answers", 0},
		"one that is none":         {&survivor{serves: true}, "takeover --yes --server 7", 2, "there is no server 7", 0},
		"it refuses":               {&survivor{refuses: "refused: server 1 writes to the volume as primary"}, "takeover --yes --reason fire", 1, "server 1 writes to the volume as primary", 1},
		"it does not serve":        {&survivor{}, "takeover --yes --wait 50ms --reason fire", 1, "does not serve after 50ms: holdfast status tells why", 1},
	} {
		s := x.s
		addr := startService(t, s)
		s.mu.Lock()
		s.addr = addr
		s.mu.Unlock()
		r := run("", addr, words(x.args)...)
		if (r.code == 0) != (x.code == 0) || !strings.Contains(r.out+r.errs, x.says) {
			t.Errorf("%s: got %+v, want %d and %q", name, r, x.code, x.says)
		}
		if len(s.asked) != x.asked {
			t.Errorf("%s: it was asked %d times, want %d", name, len(s.asked), x.asked)
		} else if x.asked > 0 && (s.asked[0].GetServer() != 3 || !strings.HasPrefix(s.asked[0].GetReason(), "fire, holdfast takeover by ")) {
			t.Errorf("%s: it was asked %v", name, s.asked[0])
		}
	}
}
