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

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// probeTime is how long a server may take to say what it is.
	probeTime = 250 * time.Millisecond
	// silenceTime is how long a round goes on after the first answer.
	silenceTime = 40 * time.Millisecond
	// maxServers bounds the connections, should servers name ever new primaries.
	maxServers = 32
	// maxAnswer is the longest answer that is taken, in bytes: a keep-alive may
	// list millions of grants.
	maxAnswer = 256 << 20
)

// server is one server and the connection to it.
type server struct {
	addr  string
	conn  *grpc.ClientConn
	stub  pb.LockServiceClient
	meant *meant // of all servers
	// heard is when it last answered anything, on the client's clock.
	heard atomic.Int64
	pulse pulse // of its watches
	// session is the open one, or nil. While somebody sees to that, opening.done is
	// not nil; it is closed when it is open or cannot be opened.
	session atomic.Pointer[session]
	opening struct {
		sync.Mutex
		done chan struct{}
	}
	sessionless atomic.Int64 // until then it is not asked for one, on the client's clock
	// longLists says that an answer to a keep-alive was too long: it broke a session.
	longLists atomic.Bool
}

// servers knows the servers and which one is believed to be primary. The belief
// costs time when it is wrong, nothing else.
type servers struct {
	dial      []grpc.DialOption
	clock     Clock
	meant     meant
	estranged func(error) // is told when every server belongs to another cluster
	listed    int         // the first so many of mu.all are the user's endpoints
	rounds    sync.WaitGroup
	belief    atomic.Pointer[belief] // never nil

	mu struct {
		sync.Mutex
		all    []*server
		probe  *probe // under way, shared by all who want to know
		closed bool
	}
}

// belief is who is believed to be primary, nil if nobody is, and the highest epoch
// heard of.
type belief struct {
	primary *server
	epoch   cluster.Epoch
}

const (
	// unackedWait is how long sent bytes may stand unacknowledged before the
	// connection breaks, on Linux by TCP_USER_TIMEOUT. After a partition a new
	// connection is faster than the old one's retransmissions.
	unackedWait = 2 * time.Second
	// quietWait is after how long without a word, while an answer is awaited, gRPC
	// asks whether the server is there at all.
	quietWait = time.Minute
)

func newServers(o Options, estranged func(error)) (*servers, error) {
	s := &servers{clock: o.Clock, estranged: estranged}
	s.dial = append([]grpc.DialOption{
		grpc.WithPerRPCCredentials(&s.meant),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
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
	}, o.DialOptions...)
	s.belief.Store(&belief{})
	for _, addr := range o.Endpoints {
		if _, err := s.add(addr); err != nil {
			s.close()
			return nil, err
		}
	}
	s.listed = len(s.mu.all)
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
	conn, err := grpc.NewClient(addr, s.dial...)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", addr, err)
	}
	v := &server{addr: addr, conn: conn, stub: pb.NewLockServiceClient(conn), meant: &s.meant, pulse: pulse{asking: make(chan struct{}, 1)}}
	s.mu.all = append(s.mu.all, v)
	return v, nil
}

func (s *servers) close() {
	s.mu.Lock()
	all := s.mu.all
	s.mu.closed = true
	s.mu.Unlock()
	for _, v := range all {
		v.conn.Close() //nolint:errcheck // it says only that it is closed already
	}
	s.rounds.Wait()
}

// primary is who is believed to be primary, nil if nobody is.
func (s *servers) primary() *server { return s.belief.Load().primary }

// believe takes v for the primary on the word of an answer from that epoch. Late
// words from older epochs change nothing.
func (s *servers) believe(v *server, epoch cluster.Epoch) {
	s.think(func(b belief) belief {
		if epoch >= b.epoch || b.primary == nil {
			b.primary = v
		}
		b.epoch = max(b.epoch, epoch)
		return b
	})
}

// doubt ends the belief in v.
func (s *servers) doubt(v *server) {
	s.think(func(b belief) belief {
		if b.primary == v {
			b.primary = nil
		}
		return b
	})
}

// think changes the belief. Most words only confirm it.
func (s *servers) think(change func(belief) belief) {
	for {
		old := s.belief.Load()
		b := change(*old)
		if b == *old || s.belief.CompareAndSwap(old, &b) {
			return
		}
	}
}

func (s *servers) list() ([]*server, cluster.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.all), s.belief.Load().epoch
}

// addresses are the endpoints that the user gave.
func (s *servers) addresses() []string {
	all, _ := s.list()
	addrs := make([]string, 0, s.listed)
	for _, v := range all[:s.listed] {
		addrs = append(addrs, v.addr)
	}
	return addrs
}

// finding is what a round of questions brought to light.
type finding struct {
	// to is whom to ask; nil = nobody is known who could answer.
	to    *server
	epoch cluster.Epoch
	rank  rank
	// takeover says that some server is about to become primary.
	takeover bool
	err      error // why a server did not answer
	// others counts the servers of other clusters. Where all are, nobody is to be found.
	others int
	lost   bool
}

// rank orders findings of one epoch.
type rank int

const (
	_ rank = iota // nothing is known
	// rankDumb: it answers but does not say what it is.
	rankDumb
	rankFencing
	// rankNamed: another server says that this one is primary.
	rankNamed
	// rankPrimary: it says so itself.
	rankPrimary
)

// better prefers the newer epoch, because an old primary may not know yet that it is deposed.
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

// locate asks all servers at once who is primary. Everybody who asks at the same
// time shares one round.
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
		// The round is everybody's: it does not end with the one who began it.
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

// run is one round. Once somebody has said something, it does not wait for long
// for those who are silent, for they are dead or paused.
func (s *servers) run(ctx context.Context, p *probe) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	all, known := s.list()
	answers := make(chan finding, len(all))
	for _, v := range all {
		s.rounds.Go(func() { answers <- s.ask(ctx, v) })
	}
	var silence <-chan time.Time
	for n := 0; n < len(all); n++ {
		select {
		case f := <-answers:
			p.found = p.found.merge(f)
			if f.err == nil && silence == nil {
				silence = time.After(silenceTime)
			}
		case <-silence:
			n = len(all)
		}
		if p.found.rank == rankPrimary && p.found.epoch >= known {
			break // nobody can know better
		}
	}
	if p.found.rank >= rankNamed {
		s.believe(p.found.to, p.found.epoch)
	}
	if p.found.lost = p.found.others == len(all); p.found.lost {
		s.estranged(p.found.err)
	}
	s.mu.Lock()
	s.mu.probe = nil
	s.mu.Unlock()
	close(p.done)
}

// ask asks one server what it is and whom it believes to be primary.
func (s *servers) ask(ctx context.Context, v *server) finding {
	r, err := v.stub.Status(ctx, &pb.StatusRequest{Local: true})
	if err != nil {
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			return finding{err: fmt.Errorf("%s: %w", v.addr, err)}
		}
		return finding{to: v, rank: rankDumb}
	}
	if err := v.met(r, nil); err != nil {
		return finding{err: err, others: 1}
	}
	v.heard.Store(int64(s.clock.Now()))
	f := finding{epoch: cluster.Epoch(r.GetEpoch())}
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
	if addr := r.GetPrimary().GetGrpc(); addr != "" {
		if named, err := s.add(addr); err == nil {
			f.to, f.rank = named, rankNamed
		}
	}
	return f
}
