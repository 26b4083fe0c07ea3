// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// fakeCluster is a table that several fakeServers serve, with the service's
// rules for repeats and nothing of its durability.
type fakeCluster struct {
	mu struct {
		sync.Mutex
		members  []string // where the servers are by now
		gateway  bool     // clients come through one
		lsn      uint64
		epoch    uint64
		primary  *fakeServer
		nonces   map[uint64]string
		locks    map[string]*fakeLock
		receipts map[fakeKey]*pb.Answer
		waits    map[fakeKey]*fakeWait
		lowWater map[string]uint64
		kept     map[string]int // receipts of a client
		seen     []seen
		opened   int
		log      fakeLog
		// asks are told with each keep-alive of their holders.
		asks []*pb.AskToRelease
		// old says that a repeated Acquire is told the whole TTL.
		old       bool
		unwritten bool // appends are committed and not in their files
		// unmarked says that what a lock remembers is not known, and ignored.
		unmarked bool
	}
}

// maxOutstanding is how many receipts the service keeps for an opened client.
const maxOutstanding = 1 << 16

type fakeKey struct {
	client string
	id     uint64
}

type fakeLock struct {
	client  string
	token   uint64
	request uint64 // that the grant answered
	queue   []*fakeWait
	// terms of the live grant, and when it began and was renewed last.
	terms            fakeTerms
	granted, renewed time.Time
	// older is the token of somebody who shares the lock, and more that of others whom
	// no answer lists.
	older uint64
	more  uint32
}

// fakeTerms is for how long a grant lives, in milliseconds.
type fakeTerms struct {
	ttl, maxHold int64
	heartbeat    bool
	marked       bool
	// limit and weight are told with the grant; locks of the fake have one holder whatever they are.
	limit, weight uint32
}

func (f *fakeCluster) termsOf(r *pb.AcquireRequest) fakeTerms {
	marked := !f.mu.unmarked && (r.AfterToken != 0 || r.Remember || r.Once != "")
	terms := fakeTerms{ttl: r.TtlMs, maxHold: r.MaxHoldMs, heartbeat: r.Heartbeat, marked: marked}
	if !f.mu.unmarked && r.Limit != 0 {
		terms.limit, terms.weight = r.Limit, max(1, r.Weight)
	}
	return terms
}

// hear renews the lease, as any word of its client does unless it wants heartbeats.
func (l *fakeLock) hear() {
	if !l.terms.heartbeat {
		l.renewed = time.Now()
	}
}

// left is what is left of the lease, in milliseconds.
func (l *fakeLock) left() int64 {
	left := l.terms.ttl - time.Since(l.renewed).Milliseconds()
	if l.terms.maxHold > 0 {
		left = min(left, l.holdLeft())
	}
	return max(0, left)
}

// holdLeft is what is left of the max hold, in milliseconds; 0 where there is none.
func (l *fakeLock) holdLeft() int64 {
	if l.terms.maxHold == 0 {
		return 0
	}
	return max(1, l.terms.maxHold-time.Since(l.granted).Milliseconds())
}

type fakeWait struct {
	key     fakeKey
	lock    string
	terms   fakeTerms
	wait    int64
	granted chan struct{} // closed with the grant
}

// seen is one attempt as it reached a server.
type seen struct {
	op       string
	server   string
	client   string
	id, low  uint64
	wait     int64
	held     uint32
	token    uint64
	executed bool
	mode     pb.Mode
	passed   bool // the call says that its token was passed on
}

func newFakeCluster() *fakeCluster {
	f := &fakeCluster{}
	f.mu.epoch, f.mu.lsn = 1, 100
	f.mu.nonces = map[uint64]string{}
	f.mu.locks = map[string]*fakeLock{}
	f.mu.receipts = map[fakeKey]*pb.Answer{}
	f.mu.waits = map[fakeKey]*fakeWait{}
	f.mu.lowWater = map[string]uint64{}
	f.mu.kept = map[string]int{}
	f.mu.log.grown = make(chan struct{})
	return f
}

// server adds a server; the first one is primary.
func (f *fakeCluster) server(addr string) *fakeServer {
	s := &fakeServer{f: f, addr: addr}
	s.mu.up = make(chan struct{})
	close(s.mu.up)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.primary == nil {
		f.mu.primary = s
	}
	return s
}

// setPrimary makes s the primary of a new epoch; nil = nobody.
func (f *fakeCluster) setPrimary(s *fakeServer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.primary = s
	f.mu.epoch++
}

// end ends the grant of a lock, as an expiry or a break does.
func (f *fakeCluster) end(lock string) {
	f.finish(lock, &pb.Event{Kind: pb.EventKind_EVENT_KIND_EXPIRE})
}

func (f *fakeCluster) free(lock string) {
	l := f.mu.locks[lock]
	l.client, l.token = "", 0
	if len(l.queue) > 0 {
		w := l.queue[0]
		l.queue = l.queue[1:]
		delete(f.mu.waits, w.key)
		f.grantOn(w.key, lock, w.terms)
		close(w.granted)
	}
}

func (f *fakeCluster) grant(key fakeKey, lock string, ttl int64) *pb.Answer {
	return f.grantOn(key, lock, fakeTerms{ttl: ttl})
}

func (f *fakeCluster) grantOn(key fakeKey, lock string, terms fakeTerms) *pb.Answer {
	f.mu.lsn++
	l := f.lock(lock)
	l.client, l.token, l.request, l.terms, l.granted, l.renewed = key.client, f.mu.lsn, key.id, terms, time.Now(), time.Now()
	a := &pb.Answer{Status: pb.Status_STATUS_OK, Lock: lock, Token: f.mu.lsn, TtlMs: terms.ttl, Epoch: f.mu.epoch, Lsn: f.mu.lsn, Marked: terms.marked, Limit: terms.limit, Weight: terms.weight}
	f.record(&pb.Event{Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: lock, Token: f.mu.lsn})
	f.keep(key, a)
	return a
}

func (f *fakeCluster) keep(key fakeKey, a *pb.Answer) {
	f.mu.receipts[key] = a
	f.mu.kept[key.client]++
}

func (f *fakeCluster) lock(name string) *fakeLock {
	if f.mu.locks[name] == nil {
		f.mu.locks[name] = &fakeLock{}
	}
	return f.mu.locks[name]
}

// holder is the live token of a lock.
func (f *fakeCluster) holder(lock string) (string, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lock(lock).client, f.lock(lock).token
}

// attempts lists what was seen of an operation.
func (f *fakeCluster) attempts(op string) []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.mu.seen), func(s seen) bool { return s.op != op })
}

// executed says how many attempts of an operation were.
func (f *fakeCluster) executed(op string) (n int) {
	for _, a := range f.attempts(op) {
		if a.executed {
			n++
		}
	}
	return n
}

// repeat answers what needs no execution.
func (f *fakeCluster) repeat(key fakeKey, low uint64) *pb.Answer {
	for l := f.mu.lowWater[key.client]; l < low && key.client[0] == '@'; l++ {
		if gone := (fakeKey{key.client, l}); f.mu.receipts[gone] != nil {
			delete(f.mu.receipts, gone)
			f.mu.kept[key.client]--
		}
	}
	f.mu.lowWater[key.client] = max(f.mu.lowWater[key.client], low)
	if a := f.mu.receipts[key]; a != nil {
		again := &pb.Answer{Status: a.Status, Lock: a.Lock, Token: a.Token, TtlMs: a.TtlMs, Epoch: a.Epoch, Lsn: a.Lsn, Receipt: a.Receipt, Repeat: true}
		l := f.lock(a.Lock)
		switch {
		case a.TtlMs == 0:
		case l.token != a.Token:
			again.Status = pb.Status_STATUS_LEASE_EXPIRED
		case !f.mu.old:
			l.hear()
			again.TtlMs = l.left()
		}
		return again
	}
	if key.id < f.mu.lowWater[key.client] || f.forgotten(key.client) {
		return refusal(cluster.StatusStaleRequest)
	}
	if f.mu.kept[key.client] >= maxOutstanding {
		return refusal(cluster.StatusInvalidArgument)
	}
	return nil
}

func (f *fakeCluster) forgotten(client string) bool {
	if client == "" || client[0] != '@' {
		return false
	}
	for _, c := range f.mu.nonces {
		if c == client {
			return false
		}
	}
	return true
}

func refusal(s cluster.Status) *pb.Answer { return &pb.Answer{Status: pb.Status(s)} }

// fakeServer is one server.
type fakeServer struct {
	pb.UnimplementedLockServiceServer
	f    *fakeCluster
	addr string
	// older says that it knows neither digests nor the requests of grants.
	older atomic.Bool
	mu    struct {
		sync.Mutex
		down bool
		up   chan struct{} // closed unless paused
		role pb.Role       // instead of replica
		// drop says whose answers get lost after the execution; it is asked once each time.
		drop func(op string) bool
		// lag says how long an answer is under way.
		lag      func(op string) time.Duration
		sessions bool
		// reset, if not OK, is how the next session ends at its first operation, which is
		// executed; there is no welcome before it.
		reset    codes.Code
		opened   int         // sessions
		stream   *fakeStream // the newest
		streamed int         // operations in them
		longest  int         // message, in bytes
		// dropKeepAlive loses the answers to keep-alives.
		dropKeepAlive bool
		// stuck is a client whose keep-alives are not answered.
		stuck string
		// refuse replaces the answer before anything is done.
		refuse func(op string) error
	}
}

func (s *fakeServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// pause stops the server as SIGSTOP does, until the returned function is called.
func (s *fakeServer) pause() (resume func()) {
	up := make(chan struct{})
	s.set(func() { s.mu.up = up })
	return sync.OnceFunc(func() { close(up) })
}

// dropOnce loses the next answer to op.
func (s *fakeServer) dropOnce(op string) {
	done := false
	s.set(func() {
		s.mu.drop = func(o string) bool {
			hit := o == op && !done
			done = done || hit
			return hit
		}
	})
}

// enter is what comes before any operation.
func (s *fakeServer) enter(ctx context.Context, op string) error {
	s.mu.Lock()
	down, up, refuse := s.mu.down, s.mu.up, s.mu.refuse
	s.mu.Unlock()
	if down {
		return status.Error(codes.Unavailable, "connection refused")
	}
	select {
	case <-up:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if refuse != nil {
		if err := refuse(op); err != nil {
			return err
		}
	}
	if op == "status" {
		return nil
	}
	s.f.mu.Lock()
	p, epoch := s.f.mu.primary, s.f.mu.epoch
	s.f.mu.Unlock()
	if p == s {
		return nil
	}
	e := &wire.Error{Status: cluster.StatusSecondaryMode, Epoch: cluster.Epoch(epoch)}
	if p != nil {
		e.Primary = &wire.Primary{Client: p.addr}
	}
	return e.GRPCStatus().Err()
}

// leave is what comes after: the answer may be lost.
func (s *fakeServer) leave(op string, a *pb.Answer) (*pb.Answer, error) {
	s.mu.Lock()
	drop, slow := s.mu.drop, time.Duration(0)
	lost := s.mu.down || drop != nil && drop(op)
	if s.mu.lag != nil {
		slow = s.mu.lag(op)
	}
	s.mu.Unlock()
	time.Sleep(slow)
	if lost {
		return nil, status.Error(codes.Unavailable, "connection reset")
	}
	return a, nil
}

func (s *fakeServer) note(n seen) {
	n.server = s.addr
	s.f.mu.seen = append(s.f.mu.seen, n)
}

func (s *fakeServer) OpenClient(ctx context.Context, r *pb.OpenClientRequest) (*pb.Answer, error) {
	if err := s.enter(ctx, "open"); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	id, repeat := s.f.mu.nonces[r.Nonce]
	if !repeat {
		s.f.mu.lsn++
		id = fmt.Sprintf("@%d", s.f.mu.lsn)
		s.f.mu.nonces[r.Nonce] = id
		s.f.mu.opened++
	}
	s.f.mu.Unlock()
	return s.leave("open", &pb.Answer{Status: pb.Status_STATUS_OK, ClientId: id, Repeat: repeat})
}

func (s *fakeServer) ForgetClient(ctx context.Context, r *pb.ForgetClientRequest) (*pb.Answer, error) {
	if err := s.enter(ctx, "forget"); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	s.note(seen{op: "forget", client: r.ClientId})
	a := &pb.Answer{Status: pb.Status_STATUS_OK, ClientId: r.ClientId}
	for _, l := range s.f.mu.locks {
		if l.client == r.ClientId {
			a = refusal(cluster.StatusInvalidArgument)
		}
	}
	if a.Status == pb.Status_STATUS_OK {
		maps.DeleteFunc(s.f.mu.nonces, func(_ uint64, id string) bool { return id == r.ClientId })
	}
	s.f.mu.Unlock()
	return s.leave("forget", a)
}

func (s *fakeServer) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.Answer, error) {
	if err := s.enter(ctx, "acquire"); err != nil {
		return nil, err
	}
	key := fakeKey{r.ClientId, r.RequestId}
	s.f.mu.Lock()
	s.note(seen{op: "acquire", client: r.ClientId, id: r.RequestId, low: r.LowWater, wait: r.GetWaitMs(), mode: r.Mode})
	if a := s.f.repeat(key, r.LowWater); a != nil {
		s.f.mu.Unlock()
		return s.leave("acquire", a)
	}
	l := s.f.lock(r.Lock)
	w := s.f.mu.waits[key]
	switch {
	case w != nil:
	case l.token == 0:
		a := s.f.grantOn(key, r.Lock, s.f.termsOf(r))
		s.f.mu.Unlock()
		return s.leave("acquire", a)
	case r.GetWaitMs() == 0:
		a := refusal(cluster.StatusHeld)
		a.Holder, a.QueueLength = &pb.LockHolder{ClientId: l.client, Token: l.token, Host: "elsewhere"}, uint32(len(l.queue))
		s.f.mu.Unlock()
		return s.leave("acquire", a)
	default:
		w = &fakeWait{key: key, lock: r.Lock, terms: s.f.termsOf(r), wait: r.GetWaitMs(), granted: make(chan struct{})}
		s.f.mu.waits[key] = w
		l.queue = append(l.queue, w)
	}
	s.f.mu.Unlock()
	select {
	case <-w.granted:
		s.f.mu.Lock()
		a := s.f.mu.receipts[key]
		s.f.mu.Unlock()
		return s.leave("acquire", a)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (s *fakeServer) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.Answer, error) {
	return s.change(ctx, "release", fakeKey{r.ClientId, r.RequestId}, r.LowWater, r.Lock, r.Token, func(a *pb.Answer) {
		s.f.record(&pb.Event{Kind: pb.EventKind_EVENT_KIND_RELEASE, Lock: r.Lock, Token: r.Token})
		s.f.free(r.Lock)
	})
}

func (s *fakeServer) Downgrade(ctx context.Context, r *pb.DowngradeRequest) (*pb.Answer, error) {
	return s.change(ctx, "downgrade", fakeKey{r.ClientId, r.RequestId}, r.LowWater, r.Lock, r.Token, func(a *pb.Answer) {
		s.f.record(&pb.Event{Kind: pb.EventKind_EVENT_KIND_DOWNGRADE, Lock: r.Lock, Token: r.Token})
	})
}

func (s *fakeServer) Extend(ctx context.Context, r *pb.ExtendRequest) (*pb.Answer, error) {
	return s.change(ctx, "extend", fakeKey{r.ClientId, r.RequestId}, r.LowWater, r.Lock, r.Token, func(a *pb.Answer) {
		l := s.f.lock(r.Lock)
		l.terms.ttl, l.renewed, a.TtlMs = r.TtlMs, time.Now(), r.TtlMs
		s.f.record(&pb.Event{Kind: pb.EventKind_EVENT_KIND_EXTEND, Lock: r.Lock, Token: r.Token, TtlMs: r.TtlMs})
	})
}

func (s *fakeServer) FileAppend(ctx context.Context, r *pb.FileAppendRequest) (*pb.Answer, error) {
	return s.change(ctx, "append", fakeKey{r.ClientId, r.RequestId}, r.LowWater, r.Lock, r.Token, func(a *pb.Answer) {
		a.Receipt = &pb.Receipt{
			File: r.File, Length: int64(len(r.Data)), Crc32C: r.GetCrc32C(), Lsn: a.Lsn, Token: r.Token, Epoch: a.Epoch, Generation: 1,
		}
		s.f.record(&pb.Event{
			Kind: pb.EventKind_EVENT_KIND_APPEND, Lock: r.Lock, Token: r.Token, File: r.File, Length: a.Receipt.Length, Crc32C: r.GetCrc32C(), Generation: 1,
		})
	})
}

// change is any operation under a token.
func (s *fakeServer) change(ctx context.Context, op string, key fakeKey, low uint64, lock string, token uint64, do func(*pb.Answer)) (*pb.Answer, error) {
	if err := s.enter(ctx, op); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	n := seen{op: op, client: key.client, id: key.id, low: low, token: token}
	said, _ := metadata.FromOutgoingContext(ctx) // of a stub without a network
	n.passed = len(said.Get(wire.PassedOnKey)) > 0
	a := s.f.repeat(key, low)
	switch {
	case a != nil:
	case s.f.lock(lock).token != token:
		a = refusal(cluster.StatusInvalidToken)
	default:
		s.f.mu.lsn++
		a = &pb.Answer{Status: pb.Status_STATUS_OK, Lock: lock, Token: token, Lsn: s.f.mu.lsn, Epoch: s.f.mu.epoch}
		do(a)
		if s.f.mu.unwritten {
			a.Status, a.Committed = pb.Status_STATUS_UNKNOWN, true
		}
		s.f.keep(key, a)
		n.executed = true
	}
	s.note(n)
	s.f.mu.Unlock()
	return s.leave(op, a)
}

func (s *fakeServer) RenewLease(ctx context.Context, r *pb.RenewLeaseRequest) (*pb.Answer, error) {
	if err := s.enter(ctx, "renew"); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	s.note(seen{op: "renew", token: r.Token})
	l := s.f.lock(r.Lock)
	a := refusal(cluster.StatusInvalidToken)
	if l.token == r.Token {
		l.renewed = time.Now()
		a = &pb.Answer{Status: pb.Status_STATUS_OK, Lock: r.Lock, Token: r.Token, TtlMs: l.left(), HoldLeftMs: l.holdLeft(), Epoch: s.f.mu.epoch}
		for _, ask := range s.f.mu.asks {
			if ask.Token == r.Token {
				a.Ask = ask
			}
		}
	}
	s.f.mu.Unlock()
	return s.leave("renew", a)
}

func (s *fakeServer) KeepAlive(ctx context.Context, r *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	if err := s.enter(ctx, "keepalive"); err != nil {
		return nil, err
	}
	stuck := false
	s.set(func() { stuck = s.mu.stuck == r.ClientId })
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.note(seen{op: "keepalive", client: r.ClientId, held: r.Held})
	if stuck {
		s.f.mu.Unlock()
		<-ctx.Done()
		s.f.mu.Lock()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if s.f.forgotten(r.ClientId) {
		return &pb.KeepAliveResponse{Status: pb.Status_STATUS_STALE_REQUEST}, nil
	}
	out := &pb.KeepAliveResponse{Status: pb.Status_STATUS_OK, Epoch: s.f.mu.epoch, Lsn: s.f.mu.lsn}
	held := cluster.Digest(0)
	for name, l := range s.f.mu.locks {
		if l.token != 0 && l.client == r.ClientId {
			l.hear()
			out.Grants = append(out.Grants, &pb.HeldLock{Lock: name, Token: l.token, RequestId: l.request})
			held = held.With(cluster.Token(l.token))
		}
	}
	for _, a := range s.f.mu.asks {
		if s.f.lock(a.Lock).client == r.ClientId {
			out.Asks = append(out.Asks, a)
		}
	}
	s.mu.Lock()
	lost := s.mu.dropKeepAlive
	s.mu.Unlock()
	if lost {
		return nil, status.Error(codes.Unavailable, "connection reset")
	}
	out.Differs = len(out.Grants) != int(r.Held) && r.Held != wire.HeldNotReported
	if s.older.Load() {
		for _, g := range out.Grants {
			g.RequestId = 0
		}
	} else if out.Compared = r.Digest != nil; out.Compared {
		out.Differs = held != cluster.Digest(r.GetDigest())
	}
	if !out.Differs {
		out.Grants = nil
	}
	return out, nil
}

func (s *fakeServer) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.Answer, error) {
	if err := s.enter(ctx, "cancel"); err != nil {
		return nil, err
	}
	key := fakeKey{r.ClientId, r.RequestId}
	s.f.mu.Lock()
	s.note(seen{op: "cancel", client: r.ClientId, id: r.RequestId, low: r.LowWater})
	a := s.f.repeat(key, r.LowWater)
	if a == nil {
		if w := s.f.mu.waits[key]; w != nil {
			delete(s.f.mu.waits, key)
			l := s.f.lock(w.lock)
			l.queue = slices.DeleteFunc(l.queue, func(x *fakeWait) bool { return x == w })
		}
		a = refusal(cluster.StatusCancelled)
		s.f.keep(key, a)
	}
	s.f.mu.Unlock()
	return s.leave("cancel", a)
}

func (s *fakeServer) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	if err := s.enter(ctx, "status"); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &pb.StatusResponse{Status: pb.Status_STATUS_OK, Role: s.mu.role, Epoch: s.f.mu.epoch, MemberClients: s.f.mu.members, Gateway: s.f.mu.gateway}
	if p := s.f.mu.primary; p != nil {
		r.Primary = &pb.Primary{Client: p.addr}
		if p == s {
			r.Role = pb.Role_ROLE_PRIMARY
		}
	}
	return r, nil
}

func tokenOf(n uint64) cluster.Token { return cluster.Token(n) }
