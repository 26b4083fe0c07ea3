// SPDX-License-Identifier: Apache-2.0

package text

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// fakeService is a real lock table behind the calls of a Door, with leases and waits.
type fakeService struct {
	t testing.TB

	mu      sync.Mutex
	table   *locktable.Table
	heard   map[cluster.ClientID]time.Time
	granted map[cluster.Token]time.Time
	waits   map[place]chan locktable.Outcome
	// before, if not nil, sees every call, and may answer in its place.
	before func(name string) (cluster.Status, bool)
	// lose reports whether the answer to this call is lost behind its execution.
	lose func(name string) bool
	// lag is how many looks OWN's table is behind, and age how old it is.
	lag uint64
	age time.Duration
	// minLSN is what OWN wanted to know last.
	minLSN uint64
}

type place struct {
	client  cluster.ClientID
	request cluster.RequestID
}

var _ Service = (*fakeService)(nil)

func newService(t testing.TB) *fakeService {
	return &fakeService{
		t: t, table: locktable.New(), heard: map[cluster.ClientID]time.Time{}, granted: map[cluster.Token]time.Time{},
		waits: map[place]chan locktable.Outcome{},
	}
}

// Call implements Service.
func (s *fakeService) Call(ctx context.Context, name string, body []byte) httpapi.Reply {
	s.mu.Lock()
	before, lose := s.before, s.lose
	s.mu.Unlock()
	if before != nil {
		if status, instead := before(name); instead {
			return reply(locktable.Outcome{Status: status})
		}
	}
	if ctx.Err() != nil {
		return reply(locktable.Outcome{Status: cluster.StatusUnknown})
	}
	out := s.execute(ctx, name, body)
	if lose != nil && lose(name) {
		out = locktable.Outcome{Status: cluster.StatusUnknown}
	}
	return reply(out)
}

func reply(out locktable.Outcome) httpapi.Reply {
	b, err := json.Marshal(wire.BodyOf(convert.FromOutcome(&out)))
	if err != nil {
		panic(err)
	}
	return httpapi.Reply{Status: out.Status, Body: b}
}

func (s *fakeService) execute(ctx context.Context, name string, body []byte) locktable.Outcome {
	switch name {
	case "acquire", "release", "cancel":
		o := ops.Named(name)
		q, err := o.Request(decodedMessage(s.t, body, o.New()), "")
		if err != nil {
			s.t.Errorf("%s: %v", body, err)
		}
		return s.ask(ctx, q)
	case "verify":
		q := decodedMessage(s.t, body, &pb.VerifyRequest{})
		return s.verify(cluster.LockName(q.GetLock()), cluster.Token(q.GetToken()))
	case "renew":
		q := decodedMessage(s.t, body, &pb.RenewLeaseRequest{})
		return s.renew(cluster.LockName(q.GetLock()), cluster.Token(q.GetToken()))
	}
	s.t.Errorf("there is no operation %q", name)
	return locktable.Outcome{Status: cluster.StatusInvalidArgument}
}

func decodedMessage[M proto.Message](t testing.TB, body []byte, m M) M {
	if err := wire.Decode(body, m); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	return m
}

// ask has the table decide, and waits where it says so.
func (s *fakeService) ask(ctx context.Context, q *locktable.Request) locktable.Outcome {
	if status, message := q.Validate(cluster.DefaultTiming()); status != cluster.StatusOK {
		return locktable.Outcome{Status: status, Message: message}
	}
	s.mu.Lock()
	s.expire()
	recs, d := s.table.Decide(q, 1, locktable.FileFacts{}, nil)
	s.apply(recs)
	s.heard[q.Client] = time.Now()
	if !d.Pending {
		s.mu.Unlock()
		return d.Outcome
	}
	at := place{q.Client, q.ID}
	if s.waits[at] == nil {
		s.waits[at] = make(chan locktable.Outcome, 16)
	}
	answer := s.waits[at]
	s.mu.Unlock()
	over := time.NewTimer(q.Wait)
	defer over.Stop()
	leases := time.NewTicker(time.Second)
	defer leases.Stop()
	for {
		select {
		case out := <-answer:
			return out
		case <-leases.C:
			s.mu.Lock()
			s.expire()
			s.mu.Unlock()
		case <-over.C:
			s.mu.Lock()
			s.apply(s.table.DecideWaitTimeout(q.Client, q.ID, 1, nil))
			s.mu.Unlock()
		case <-ctx.Done():
			return locktable.Outcome{Status: cluster.StatusUnknown}
		}
	}
}

// apply changes the table and answers those who waited, all who share a place.
func (s *fakeService) apply(recs []locktable.Record) {
	for i := range recs {
		r := &recs[i]
		if err := s.table.Apply(r); err != nil {
			s.t.Errorf("apply: %v", err)
		}
		if r.Kind == locktable.KindGrant {
			s.granted[r.LSN.Token()] = time.Now()
		}
		at := place{r.Client, r.Request}
		if answer := s.waits[at]; answer != nil && r.Kind != locktable.KindEnqueue {
			for range cap(answer) {
				answer <- locktable.OutcomeOf(r)
			}
			delete(s.waits, at)
		}
	}
}

func (s *fakeService) left(g *locktable.Grant) time.Duration {
	from := s.granted[g.Token]
	if heard := s.heard[g.Client]; heard.After(from) {
		from = heard
	}
	return time.Until(from.Add(g.TTL))
}

// expire ends the leases that are over.
func (s *fakeService) expire() {
	for again := true; again; {
		again = false
		for l := range s.table.Locks("", "") {
			if l.Grant.Token != 0 && s.left(&l.Grant) <= 0 {
				s.apply(s.table.DecideExpire(l.Name, l.Grant.Token, "", 1, nil))
				again = true
				break
			}
		}
	}
}

func (s *fakeService) verify(lock cluster.LockName, token cluster.Token) locktable.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	l, _ := s.table.Lock(lock)
	out := locktable.Outcome{Status: cluster.StatusInvalidToken, Lock: lock, Token: token, LSN: s.table.LSN()}
	switch g := l.Grant; {
	case g.Token == 0:
	case g.Token == token:
		out.Status, out.Client = cluster.StatusOK, g.Client
	default:
		out.Holder = &locktable.LockHolder{Client: g.Client, Token: g.Token}
	}
	return out
}

func (s *fakeService) renew(lock cluster.LockName, token cluster.Token) locktable.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	g, ok := s.table.Live(lock, token)
	if !ok {
		return locktable.Outcome{Status: cluster.StatusInvalidToken}
	}
	s.heard[g.Client] = time.Now()
	return locktable.Outcome{Status: cluster.StatusOK, Token: token, TTL: g.TTL}
}

// Authenticate implements Service: whoever says so is alice.
func (s *fakeService) Authenticate(credential string, _ net.Addr) (*access.Caller, error) {
	if credential != "alice" {
		return nil, errors.New("the credential is wrong")
	}
	return &access.Caller{Identity: "user:alice"}, nil
}

// Lock implements Service.
func (s *fakeService) Lock(_ context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.minLSN = q.GetMinLsn()
	if s.lag > 0 && q.GetMinLsn() > 0 {
		s.lag-- // it catches up
		return &pb.GetLockResponse{Status: pb.Status_STATUS_SECONDARY_MODE}, nil
	}
	if s.lag > 0 { // it knows of nothing yet
		return &pb.GetLockResponse{Status: pb.Status_STATUS_OK, Lock: &pb.Lock{}}, nil
	}
	r := &pb.GetLockResponse{Status: pb.Status_STATUS_OK, Lock: &pb.Lock{}, AgeMs: s.age.Milliseconds()}
	if l, ok := s.table.Lock(cluster.LockName(q.GetLock())); ok {
		r.Lock.Grant = convert.FromGrant(&l.Grant, 0, false)
	}
	return r, nil
}

// line is the lock as people see it: its holder and who waits.
func (s *fakeService) line(lock cluster.LockName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	l, _ := s.table.Lock(lock)
	text := none
	if l.Grant.Token != 0 {
		text = ownerOf(l.Grant.Client, lock)
	}
	for w := range s.table.Waiters(lock) {
		text += " " + ownerOf(w.Client, lock)
	}
	return text
}

// hold takes a lock as somebody else does, by another front end.
func (s *fakeService) hold(lock cluster.LockName, client cluster.ClientID) {
	q := &locktable.Request{Op: locktable.OpAcquire, Client: client, ID: 1, Lock: lock, TTL: time.Minute}
	if out := s.ask(s.t.Context(), q); out.Status != cluster.StatusOK {
		s.t.Errorf("hold: %v", out)
	}
}

// tell sets what sees the calls, and what loses their answers.
func (s *fakeService) tell(before func(string) (cluster.Status, bool), lose func(string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.lose = before, lose
}

// refusing answers these calls with a status, and nothing else.
func refusing(status cluster.Status, names ...string) func(string) (cluster.Status, bool) {
	return func(name string) (cluster.Status, bool) {
		for _, x := range names {
			if x == name || x == "" {
				return status, true
			}
		}
		return 0, false
	}
}

// once says yes to the first call of this name.
func once(name string) func(string) bool {
	var first sync.Once
	return func(x string) (yes bool) {
		if x == name {
			first.Do(func() { yes = true })
		}
		return yes
	}
}
