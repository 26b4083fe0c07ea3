// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// probeTime is how long a server may take to report its role. A round gives it askTime where a connection has to be made.
	probeTime = 250 * time.Millisecond
	// askTime is how long a server may take to answer a question. Those who ask wait as long as they want
	// to; an answer that comes later is good for the next of them.
	askTime = deafTime
	// silenceTime is how long a round goes on when all servers are asked and one has answered.
	silenceTime = 40 * time.Millisecond
	// turnTime is how long a round waits for one server before it asks the next one, too.
	turnTime = 15 * time.Millisecond
	// maxServers bounds the connections, should servers name ever new primaries.
	maxServers = 32
	// maxAnswer is the longest answer that is taken, in bytes: a keep-alive may
	// list millions of grants.
	maxAnswer = 256 << 20
)

// server is one server and the connections to it.
type server struct {
	addr  string
	grpc  func() (*grpc.ClientConn, error) // for streams, and for calls that sessions do not carry; made when it is used
	stub  pb.LockServiceClient             // makes calls over either connection
	dial  func(ctx context.Context, addr string) (conduit, error)
	known *wire.KnownCluster // the same of all servers
	// heard is when it last answered anything, on the client's clock.
	heard    atomic.Int64
	liveness livenessTimer // of streams from it
	// link is the open connection, or nil; session is the same once this client has begun one on it.
	link, session atomic.Pointer[session]
	connecting    connecting
	// asking is the question that is under way; nil if there is none.
	asking struct {
		sync.Mutex
		now *roleQuery
	}
	sessionless atomic.Int64 // until then it is not asked for one, on the client's clock
	// longLists is set when an answer to a keep-alive was too long and broke a session.
	longLists atomic.Bool
}

// servers has the servers of the cluster, and which one is believed to be the primary. A wrong
// belief costs time, nothing else.
type servers struct {
	c        *Client
	dial     dialer
	grpc     []grpc.DialOption
	dialGRPC join.Dialer
	clock    Clock
	known    wire.KnownCluster
	failover func(primary string, epoch Epoch, without time.Duration) // of Hooks; may be nil
	lost     func(error)                                              // is called when every server belongs to another cluster
	listed   int                                                      // the first so many of mu.all are the user's endpoints
	rounds   sync.WaitGroup
	belief   atomic.Pointer[belief] // never nil
	learned  atomic.Int64           // when a server was last asked where the others are, on the client's clock
	// gateway is set once an answer came through a gateway: servers may be out of this client's reach, or have their addresses in another
	// network, so it stays with its endpoints.
	gateway atomic.Bool

	mu struct {
		sync.Mutex
		all    []*server
		conns  []*grpc.ClientConn
		probe  *probe // under way, shared by all who want to know
		closed bool
	}
}

// belief is the server that is believed to be the primary, nil if none is, and the highest epoch
// that was heard of.
type belief struct {
	primary *server
	epoch   Epoch
	doubted time.Duration // since when there is no primary, on the client's clock
}

const (
	// unackedWait is how long sent bytes may stand unacknowledged before the
	// connection breaks, on Linux by TCP_USER_TIMEOUT. After a partition a new
	// connection is faster than the old one's retransmissions.
	unackedWait = 2 * time.Second
	// quietWait is for how long nothing may arrive, while an answer is awaited, before gRPC asks
	// whether the server is there at all.
	quietWait = time.Minute
	// idleWait is after how long without a call a gRPC connection is closed.
	idleWait = 10 * time.Second
)

func newServers(c *Client, lost func(error)) (*servers, error) {
	o := &c.opt
	dial := o.Dialer
	if dial == nil {
		dial = dialNetwork
	}
	s := &servers{c: c, dial: o.trust.Dialer(frames.Protocol, dial), dialGRPC: o.trust.Dialer(join.GRPC, dial), clock: o.Clock, failover: o.Hooks.Failover, lost: lost}
	s.grpc = []grpc.DialOption{
		grpc.WithPerRPCCredentials(&s.known),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the dialer makes connections that are secure
		// A proxy for the web is not the way to a lock service.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		// Retries are ours: gRPC knows nothing of request IDs.
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 75 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: quietWait, Timeout: unackedWait}),
		// What goes this way is rare, and thousands of clients are connected.
		grpc.WithIdleTimeout(idleWait),
		// With windows of a fixed size gRPC does not ping to measure one.
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(1 << 20),
	}
	s.belief.Store(&belief{})
	for _, addr := range o.Endpoints {
		if _, err := s.add(addr); err != nil {
			s.close()
			return nil, err
		}
	}
	s.listed = len(s.mu.all)
	s.learned.Store(int64(s.clock.Now()))
	return s, nil
}

// add returns the server with the address, made if need be. It does not connect.
func (s *servers) add(addr string) (*server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.mu.all {
		if v.addr == addr {
			return v, nil
		}
	}
	if s.mu.closed {
		return nil, ErrClosed
	}
	if len(s.mu.all) >= maxServers {
		return nil, fmt.Errorf("server %s: %d servers are known already", addr, len(s.mu.all))
	}
	v := &server{addr: addr, dial: s.framed, known: &s.known, liveness: livenessTimer{asking: make(chan struct{}, 1)}}
	v.grpc = sync.OnceValues(func() (*grpc.ClientConn, error) { return s.connectGRPC(addr) })
	v.stub = pb.NewLockServiceClient(route{s.c, v})
	s.mu.all = append(s.mu.all, v)
	return v, nil
}

// learnEvery is how often a client that gets answers asks where the servers are by now: all of those that it was given may be
// replaced by and by, without a failover by which it would notice.
const learnEvery = 10 * time.Second

// refresh asks a server that has answered where the servers are, now and then, in the background.
func (s *servers) refresh(v *server) {
	now, last := s.clock.Now(), s.learned.Load()
	if now-time.Duration(last) < learnEvery || !s.learned.CompareAndSwap(last, int64(now)) || !s.begins() {
		return
	}
	go func() {
		defer s.rounds.Done()
		s.ask(s.c.linked, v)
	}()
}

// learn adds the servers that one of the cluster has named. Without a primary they are asked, like those that the client was given.
func (s *servers) learn(addresses []string) {
	if s.gateway.Load() {
		return
	}
	for _, addr := range addresses {
		if _, err := s.add(addr); err != nil {
			return // enough are known
		}
	}
}

func (s *servers) close() {
	s.mu.Lock()
	conns := s.mu.conns
	s.mu.closed = true
	s.mu.Unlock()
	for _, conn := range conns {
		conn.Close() //nolint:errcheck // it says only that it is closed already
	}
	s.rounds.Wait()
}

// connectGRPC makes the gRPC connection to a server: rarely, for it has goroutines of its own.
func (s *servers) connectGRPC(addr string) (*grpc.ClientConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, status.Error(codes.Canceled, ErrClosed.Error())
	}
	b := credential.Source(s.c.opt.Credential).Bearer()
	options := append(slices.Clip(s.grpc), grpc.WithContextDialer(b.Dialer(s.dialGRPC)), grpc.WithPerRPCCredentials(b))
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err == nil {
		s.mu.conns = append(s.mu.conns, conn)
	}
	return conn, err
}

// named returns the server at the address that an answer names as the primary's. It returns nil if the answer names none, if enough are
// known, or if the client stays with its gateways.
func (s *servers) named(addr string) *server {
	if addr == "" || s.gateway.Load() {
		return nil
	}
	v, err := s.add(addr)
	if err != nil {
		return nil
	}
	return v
}

// primary returns the server that is believed to be the primary, nil if none is.
func (s *servers) primary() *server { return s.belief.Load().primary }

// believe takes v for the primary, because of an answer from that epoch. Late answers from older
// epochs change nothing.
func (s *servers) believe(v *server, epoch Epoch) {
	s.reportTerm(s.change(func(b belief) belief {
		if epoch >= b.epoch || b.primary == nil {
			b.primary = v
		}
		b.epoch = max(b.epoch, epoch)
		return b
	}))
}

// doubt ends the belief in v.
func (s *servers) doubt(v *server) {
	s.change(func(b belief) belief {
		if b.primary == v {
			b.primary = nil
			if s.failover != nil {
				b.doubted = s.clock.Now()
			}
		}
		return b
	})
}

// change replaces the belief by what to makes of it, and returns both. Most answers only confirm it.
func (s *servers) change(to func(belief) belief) (before, now belief) {
	for {
		old := s.belief.Load()
		b := to(*old)
		if b == *old || s.belief.CompareAndSwap(old, &b) {
			return *old, b
		}
	}
}

func (s *servers) list() ([]*server, Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.all), s.belief.Load().epoch
}

// addresses returns the endpoints that the user gave.
func (s *servers) addresses() []string {
	all, _ := s.list()
	addrs := make([]string, 0, s.listed)
	for _, v := range all[:s.listed] {
		addrs = append(addrs, v.addr)
	}
	return addrs
}

// finding is the result of a round of questions, or of one of them.
type finding struct {
	// to is the server to send requests to; nil = none is known.
	to    *server
	epoch Epoch
	rank  rank
	// takeover is set when a server is about to become the primary.
	takeover bool
	err      error // why a server did not answer
	// others counts the servers of other clusters; lost is set when all are.
	others int
	lost   bool
}

// rank orders findings of one epoch.
type rank int

const (
	_ rank = iota // nothing is known
	// rankAnswers: it answers without a role.
	rankAnswers
	rankFencing
	// rankNamed: another server names it as the primary.
	rankNamed
	// rankPrimary: it reports so itself.
	rankPrimary
)

// better reports whether f is preferred to g: the newer epoch is, because an old primary may not
// know yet that its term has ended.
func (f finding) better(g finding) bool {
	if (f.to == nil) != (g.to == nil) {
		return f.to != nil
	}
	if f.epoch != g.epoch {
		return f.epoch > g.epoch
	}
	return f.rank > g.rank
}

// merge is the better of two, with what both know.
func (f finding) merge(g finding) finding {
	best, takeover, others, err := f, f.takeover || g.takeover, f.others+g.others, f.err
	if err == nil || g.others > 0 {
		err = g.err
	}
	if g.better(f) {
		best = g
	}
	best.takeover, best.others, best.err = takeover, others, err
	return best
}

// probe is one round of questions to all servers.
type probe struct {
	done  chan struct{}
	found finding // after done
}

// locate asks all servers at once which one is the primary. Callers at the same time share one
// round.
func (s *servers) locate(ctx context.Context) finding {
	s.mu.Lock()
	p := s.mu.probe
	switch {
	case p == nil && s.mu.closed:
		s.mu.Unlock()
		return finding{err: ErrClosed}
	case p == nil:
		p = &probe{done: make(chan struct{})}
		s.mu.probe = p
		// The round is shared: it does not end with the caller that began it.
		shared := context.WithoutCancel(ctx)
		s.rounds.Go(func() { s.run(shared, p) })
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.found
	case <-ctx.Done():
		return finding{err: context.Cause(ctx)}
	}
}

// run is one round. It asks one server after the other until one says that it is the primary: each
// server is a connection, and thousands of clients may look at the same time. The next one is asked
// when the last one has answered, or was silent for a moment. When all are asked and one has answered
// the round does not wait for long for the silent ones, for they are dead or paused. When none has answered
// after probeTime, it ends, unless a connection is being made: thousands of clients come to a new primary at the same
// time, and if they began anew, the dead primary first, that would be most of the work of all machines. Then it waits until
// all questions have ended.
func (s *servers) run(ctx context.Context, p *probe) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := time.NewTimer(probeTime)
	defer enough.Stop()
	all, known := s.list()
	answers := make(chan finding, len(all))
	next := time.NewTimer(0)
	defer next.Stop()
	var silence <-chan time.Time
	for asked, answered, heard := 0, 0, false; answered < len(all); {
		select {
		case f := <-answers:
			answered++
			heard = heard || f.err == nil
			p.found = p.found.merge(f)
			next.Reset(0)
		case <-next.C:
			if asked == len(all) {
				break
			}
			v := all[asked]
			asked++
			s.rounds.Go(func() { answers <- s.ask(ctx, v) })
			next.Reset(turnTime)
		case <-silence:
			answered = len(all)
		case <-enough.C:
			if !slices.ContainsFunc(all, (*server).connects) {
				cancel(context.DeadlineExceeded) // each question returns whom it did not hear
			}
		}
		if p.found.rank == rankPrimary && p.found.epoch >= known {
			break // no server can know better
		}
		if heard && asked == len(all) && silence == nil {
			silence = time.After(silenceTime)
		}
	}
	if p.found.rank >= rankNamed {
		s.believe(p.found.to, p.found.epoch)
	}
	if p.found.lost = p.found.others == len(all); p.found.lost {
		s.lost(p.found.err)
	}
	s.mu.Lock()
	s.mu.probe = nil
	s.mu.Unlock()
	close(p.done)
}

// roleQuery is one question to one server, shared by all who want to know.
type roleQuery struct {
	done  chan struct{}
	found finding // after done
}

// ask asks one server for its role and for the primary that it knows. Those who ask while a question
// is under way share its answer: on a starved machine further ones would only delay it.
func (s *servers) ask(ctx context.Context, v *server) finding {
	v.asking.Lock()
	q := v.asking.now
	if q == nil {
		q = &roleQuery{done: make(chan struct{})}
		if !s.begins() {
			v.asking.Unlock()
			return finding{err: status.Error(codes.Canceled, ErrClosed.Error())}
		}
		v.asking.now = q
		go func() {
			defer s.rounds.Done()
			ctx, cancel := context.WithTimeout(s.c.linked, askTime)
			defer cancel()
			if q.found = s.put(ctx, v); q.found.rank == rankPrimary {
				s.believe(v, q.found.epoch)
			}
			v.asking.Lock()
			v.asking.now = nil
			v.asking.Unlock()
			close(q.done)
		}()
	}
	v.asking.Unlock()
	select {
	case <-q.done:
		return q.found
	case <-ctx.Done():
		return finding{err: fmt.Errorf("%s: %w", v.addr, context.Cause(ctx))}
	}
}

// begins counts one more goroutine of rounds, which calls rounds.Done, unless all is closed.
func (s *servers) begins() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		s.rounds.Add(1)
	}
	return !s.mu.closed
}

// put puts a question to a server.
func (s *servers) put(ctx context.Context, v *server) finding {
	r, err := v.stub.Status(ctx, &pb.StatusRequest{Local: true})
	if other, ok := otherCluster(err); ok {
		return finding{err: other, others: 1}
	}
	if err != nil {
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			return finding{err: fmt.Errorf("%s: %w", v.addr, err)}
		}
		return finding{to: v, rank: rankAnswers}
	}
	if err := v.checkCluster(r, nil); err != nil {
		return finding{err: err, others: 1}
	}
	v.heard.Store(int64(s.clock.Now()))
	if r.GetGateway() {
		s.gateway.Store(true)
	}
	s.learn(r.GetMemberClients())
	s.c.cells.heard(len(r.GetCells()) > 0)
	f := finding{epoch: Epoch(r.GetEpoch())}
	switch r.GetRole() {
	case pb.Role_ROLE_PRIMARY:
		f.to, f.rank = v, rankPrimary
		return f
	case pb.Role_ROLE_FENCING:
		f.to, f.rank, f.takeover = v, rankFencing, true
		return f
	case pb.Role_ROLE_CANDIDATE:
		f.takeover = true
	}
	if named := s.named(r.GetPrimary().GetClient()); named != nil {
		f.to, f.rank = named, rankNamed
	}
	return f
}

const (
	// watchInquiry is for how long a server may send nothing before a watch asks it whether
	// it is there, and watchProbe how long the answer may take.
	watchInquiry = 2 * time.Second
	watchProbe   = time.Second
)

// livenessTimer is what all streams from one server share to notice that it is silent.
type livenessTimer struct {
	asking chan struct{} // has room for one caller, which asks the server
	// failed is when the server last gave no answer, on the client's clock; 0 = never.
	failed atomic.Int64
}

// guard calls lost, once, when a server is silent for watchInquiry and does not answer a question
// either, until stop is called. One question serves all streams from the server.
func (c *Client) guard(ctx context.Context, v *server, lost func()) (stop func()) {
	began := c.opt.Clock.Now()
	var t *time.Timer
	var mu sync.Mutex // t is set before it is used
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(watchInquiry, func() {
		if !c.answers(ctx, v, began) {
			lost()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			t.Reset(watchInquiry)
		}
	})
	return func() { t.Stop() }
}

// answers reports whether a server was heard lately or answers now.
func (c *Client) answers(ctx context.Context, v *server, began time.Duration) bool {
	lately := func(at *atomic.Int64) bool {
		t := time.Duration(at.Load())
		return t >= began && t > c.opt.Clock.Now()-watchInquiry
	}
	if lately(&v.heard) {
		return true
	}
	select {
	case v.liveness.asking <- struct{}{}:
		defer func() { <-v.liveness.asking }()
	case <-ctx.Done():
		return true
	}
	if lately(&v.heard) || lately(&v.liveness.failed) {
		return lately(&v.heard)
	}
	asked, cancel := context.WithTimeout(ctx, watchProbe)
	defer cancel()
	if c.servers.ask(asked, v).err == nil || ctx.Err() != nil {
		return true // or the caller has ended
	}
	v.liveness.failed.Store(int64(c.opt.Clock.Now()))
	return false
}
