// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// askEvery is how often each server is asked what it is, and askSoonest how often while there is no primary, or connections end. askWait is
	// how long the answer may take.
	askEvery   = 200 * time.Millisecond
	askSoonest = 50 * time.Millisecond
	askWait    = time.Second
	// freshFor is how long an answer counts.
	freshFor = 2 * time.Second
	// without is how long there may be no primary before connections go to a replica, which answers reads, says what is wrong, and
	// passes some requests on itself. It is longer than a usual failover.
	without = 2 * time.Second
	// lastWords is how long a server that is not the primary any more has to send the answers that it has.
	lastWords = time.Second
	// maxServers bounds the servers that are asked, should they name ever new ones.
	maxServers = 32
	// connectionLife is after how long a connection for questions is made anew: where the rules demand an identity, servers close one of
	// nobody after 15 s.
	connectionLife = 10 * time.Second
)

// view is what is known of the server at an address.
type view struct {
	addr    string
	id      uint32
	role    pb.Role
	epoch   uint64
	heard   time.Time // when it said so; the zero time = never
	answers bool      // it answered the latest question
	gateway bool      // it is no server
}

// target is where connections go. The zero value is nowhere.
type target struct {
	addr    string
	id      uint32
	epoch   uint64
	primary bool
}

// choose returns where connections go, by what servers said at the time now. It is the primary of the highest epoch that any of them has
// heard of: one of an earlier epoch does not know yet that its term has ended. While no server is that, it is nowhere, or, if orphaned, the server
// with the newest epoch. A server that is there already, under several addresses maybe, is preferred to others that are as good.
func choose(views []view, now time.Time, at target, orphaned bool) (to target) {
	newest := uint64(0)
	for _, v := range views {
		if v.fresh(now) {
			newest = max(newest, v.epoch)
		}
	}
	for _, v := range views {
		x := target{v.addr, v.id, v.epoch, v.role == pb.Role_ROLE_PRIMARY && v.epoch == newest}
		if v.fresh(now) && (x.primary || orphaned) && x.better(to, at) {
			to = x
		}
	}
	return to
}

func (v view) fresh(now time.Time) bool {
	return !v.heard.IsZero() && now.Sub(v.heard) < freshFor && !v.gateway
}

// better reports whether connections rather go to t than to x, where they go to at now.
func (t target) better(x, at target) bool {
	switch {
	case x.addr == "":
		return true
	case t.primary != x.primary:
		return t.primary
	case t.epoch != x.epoch:
		return t.epoch > x.epoch
	}
	return t.addr == at.addr
}

// question asks the server at an address for its status.
type question func(ctx context.Context, addr string) (*pb.StatusResponse, error)

// site knows the servers of a volume, and where connections go. All of them go to one server.
type site struct {
	log   zerolog.Logger
	known wire.KnownCluster
	// ask and told are set by begin, before there are views. told is called with each answer of a server of this cluster, and must not wait for long.
	ask  question
	told func(*pb.StatusResponse)
	// moved is called when connections go to another server than before, and answers reports whether that one still answers. It must not wait.
	moved func(was, now target, answers bool)
	// hurry has an element where servers are to be asked at once.
	hurry chan struct{}

	mu struct {
		sync.Mutex
		views   []*view
		secure  bool
		now     target        // where connections go
		last    target        // where they went last, if now is nowhere
		since   time.Time     // when a server said last that it is the primary, or begin was called
		changed chan struct{} // is closed, and made anew, when now changes
	}
}

// newSite returns a site without servers.
func newSite(log zerolog.Logger) *site {
	s := &site{log: log, hurry: make(chan struct{}, 1)}
	s.mu.changed = make(chan struct{})
	return s
}

// begin has the servers at these addresses asked, of this cluster if it is not "". Secure is whether they are known by a certificate. It does nothing if it
// has begun.
func (s *site) begin(addresses []string, clusterID string, secure bool, ask question, told func(*pb.StatusResponse)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ask != nil {
		return
	}
	s.mu.secure = secure
	s.known.Check(clusterID)
	s.ask, s.told = ask, told
	s.mu.since = time.Now()
	s.learnLocked(addresses)
}

// requireTLS notes that the servers are known by a certificate.
func (s *site) requireTLS() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.secure = true
}

// requiresTLS reports whether they are: then clients have to speak TLS with them.
func (s *site) requiresTLS() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.secure
}

// begun reports whether begin was called.
func (s *site) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ask != nil
}

// learn adds servers.
func (s *site) learn(addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learnLocked(addresses)
}

func (s *site) learnLocked(addresses []string) {
	for _, a := range addresses {
		if len(s.mu.views) < maxServers && !slices.ContainsFunc(s.mu.views, func(v *view) bool { return v.addr == a }) {
			s.mu.views = append(s.mu.views, &view{addr: a})
		}
	}
}

// run asks the servers until ctx ends. A server that does not answer delays no question to others.
func (s *site) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	busy := map[*view]chan struct{}{} // is closed when the question is answered
	for {
		s.mu.Lock()
		views := slices.Clone(s.mu.views)
		s.mu.Unlock()
		for _, v := range views {
			if done := busy[v]; done != nil {
				select {
				case <-done:
				default:
					s.silent(v)
					continue
				}
			}
			done := make(chan struct{})
			busy[v] = done
			asking.Go(func() { defer close(done); s.look(ctx, v) })
		}
		if !retry.Rest(ctx, askSoonest) {
			return
		}
		if !s.target().primary {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askEvery - askSoonest):
		case <-s.hurry:
		}
	}
}

// look asks one server.
func (s *site) look(ctx context.Context, v *view) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	r, err := s.ask(ctx, v.addr)
	if err != nil {
		s.log.Debug().Err(err).Str("server", v.addr).Msg("a server does not say what it is")
		s.silent(v)
		return
	}
	if own, same := s.known.Check(r.GetClusterId()); !same {
		s.log.Warn().Str("server", v.addr).Str("cluster", r.GetClusterId()).Str("own", own).Msg("a server of another cluster is not used: look at the site")
		s.silent(v)
		return
	}
	if r.GetGateway() {
		s.log.Warn().Str("server", v.addr).Msg("a gateway is no server: give the servers' addresses as the site")
	} else {
		s.learn(r.GetMemberClients())
		s.told(r)
	}
	s.mu.Lock()
	v.id, v.role, v.epoch, v.heard, v.answers, v.gateway = r.GetServerId(), r.GetRole(), r.GetEpoch(), time.Now(), true, r.GetGateway()
	s.mu.Unlock()
	s.decide()
}

// silent notes that a server gives no answer.
func (s *site) silent(v *view) {
	s.mu.Lock()
	v.answers = false
	s.mu.Unlock()
	s.decide()
}

// decide chooses anew where connections go.
func (s *site) decide() {
	s.mu.Lock()
	defer s.mu.Unlock()
	views, was, now := make([]view, len(s.mu.views)), s.mu.now, time.Now()
	for i, v := range s.mu.views {
		views[i] = *v
	}
	to := choose(views, now, was, now.Sub(s.mu.since) >= without)
	if i := slices.IndexFunc(views, func(v view) bool { return v.addr == to.addr }); to.primary {
		s.mu.since = views[i].heard
	}
	if to == was {
		return
	}
	s.mu.now = to
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
	if to.addr == "" {
		s.log.Info().Str("last", was.addr).Msg("no server is known to be primary: new connections wait")
		s.mu.last = was
		return
	}
	if was.addr == "" {
		was = s.mu.last
	}
	if to.addr != was.addr && s.moved != nil {
		i := slices.IndexFunc(views, func(v view) bool { return v.addr == was.addr })
		go s.moved(was, to, i >= 0 && views[i].answers)
	}
}

// target returns where connections go.
func (s *site) target() target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.now
}

// latest returns where connections go, or went last.
func (s *site) latest() target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.now.addr == "" {
		return s.mu.last
	}
	return s.mu.now
}

// await returns where connections go. If that is nowhere, it waits, for so long at most, or until ctx ends.
func (s *site) await(ctx context.Context, limit time.Duration) (target, bool) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		s.mu.Lock()
		now, changed := s.mu.now, s.mu.changed
		s.mu.Unlock()
		if now.addr != "" {
			return now, true
		}
		select {
		case <-changed:
		case <-over.C:
			return now, false
		case <-ctx.Done():
			return now, false
		}
	}
}

// hasten has the servers asked at once: one of them has gone.
func (s *site) hasten() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// asker asks servers over gRPC, as somebody without a credential: every server says to everybody what it is.
type asker struct {
	dial join.Dialer

	mu struct {
		sync.Mutex
		conns map[string]*asked
	}
}

// asked is a connection for questions.
type asked struct {
	*grpc.ClientConn
	since time.Time
}

// overGRPC returns how servers are asked over gRPC that are recognized by trust, and ends that.
func overGRPC(trust *join.Trust) (ask question, end func()) {
	a := &asker{dial: trust.Dialer(join.GRPC, func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	})}
	a.mu.conns = map[string]*asked{}
	return a.status, a.close
}

func (a *asker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.mu.conns {
		c.Close() //nolint:errcheck // nothing is asked any more
	}
}

// status implements question. One goroutine at a time asks at an address.
func (a *asker) status(ctx context.Context, addr string) (*pb.StatusResponse, error) {
	c, err := a.connection(addr)
	if err != nil {
		return nil, err
	}
	return pb.NewLockServiceClient(c).Status(ctx, &pb.StatusRequest{Local: true})
}

func (a *asker) connection(addr string) (*asked, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.mu.conns[addr]
	if c != nil && time.Since(c.since) < connectionLife {
		return c, nil
	}
	if c != nil {
		c.Close() //nolint:errcheck // nothing is under way on it
	}
	made, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithContextDialer(a.dial), grpc.WithTransportCredentials(insecure.NewCredentials()), // the dialer makes connections that are secure
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: askEvery},
			MinConnectTimeout: askWait,
		}))
	if err != nil {
		return nil, err
	}
	c = &asked{made, time.Now()}
	a.mu.conns[addr] = c
	return c, nil
}
