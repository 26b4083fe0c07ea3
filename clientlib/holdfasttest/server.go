// SPDX-License-Identifier: Apache-2.0

package holdfasttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/nettest"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// patience bounds how long a test waits for the servers to do what they do in milliseconds.
const patience = 30 * time.Second

// Option changes what Start starts.
type Option func(*options)

type options struct {
	servers int
	rules   string
	secured bool
}

// Servers starts this many servers, of which one is the primary: 3, or another odd number up to 7. The default is one,
// which starts faster.
func Servers(n int) Option { return func(o *options) { o.servers = n } }

// Rules has the servers enforce these access rules: TOML, as holdfast access edit shows it. Then a client needs a
// credential, see Server.Credential, for all that the rules do not permit to "anonymous".
func Rules(toml string) Option {
	return func(o *options) { o.rules, o.secured = toml, true }
}

// Server is a running cluster. Its methods are safe for use by several goroutines. Those that cannot do what they say
// end the test with Fatal, so they are for the goroutine of the test.
type Server struct {
	tb    testing.TB
	disk  *volumetest.Disk
	about volume.Cluster
	auth  *auth.Authenticator
	key   volume.SigningKey
	clock *clock
	// paused is cut while the service is silent.
	paused *nettest.Gate

	members []*member // by ID, from 1

	mu struct {
		sync.Mutex
		shared  *clientlib.Client
		clients map[*clientlib.Client]*nettest.Gate
		apart   map[cluster.ServerID]bool // cut off from the others
	}
}

// Start starts a cluster, which ends with the test, and waits until it serves. It ends the test with Fatal if it
// cannot.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	o := options{servers: 1}
	for _, f := range opts {
		f(&o)
	}
	if o.servers < 1 || o.servers > 7 || o.servers%2 == 0 {
		tb.Fatalf("holdfasttest: %d servers: use 1, 3, 5 or 7", o.servers)
	}
	s := &Server{tb: tb, disk: volumetest.New(1), clock: newClock(), paused: nettest.NewGate()}
	s.mu.clients, s.mu.apart = map[*clientlib.Client]*nettest.Gate{}, map[cluster.ServerID]bool{}
	tb.Cleanup(s.stop)
	if err := s.start(o); err != nil {
		tb.Fatalf("holdfasttest: start: %v", err)
	}
	return s
}

func (s *Server) start(o options) error {
	var servers cluster.Members
	for i := range o.servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		id := cluster.ServerID(i + 1)
		s.members = append(s.members, newMember(s, id, l))
		servers = append(servers, cluster.Member{ID: id, Client: l.Addr().String(), Peer: fmt.Sprintf("server-%d.invalid:1", id)})
	}
	host := s.disk.Host(0, volumetest.ProfileLocal())
	err := s.format(host, servers, o)
	host.Kill()
	if err != nil {
		return err
	}
	for _, m := range s.members {
		if err := m.start(); err != nil {
			return fmt.Errorf("server %d: %w", m.id, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = s.primary(ctx)
	return err
}

// format makes the volume, and reads what it says about callers.
func (s *Server) format(host *volumetest.Host, servers cluster.Members, o options) (err error) {
	s.about, err = volume.InitWith(host, servers, rand.Reader, func(volume.Cluster) error {
		if !o.secured {
			return nil
		}
		if _, err := access.Parse([]byte(o.rules), 1); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		return volume.PublishRules(host, rand.Reader, 0, []byte(o.rules))
	})
	if err != nil {
		return err
	}
	return errors.Join(volume.OfferSigning(host, rand.Reader), s.openAuth(host))
}

// openAuth reads the rules, which do not change any more, and the key with which servers sign.
func (s *Server) openAuth(host vfs.FS) error {
	version, text, err := access.Newest(host)
	if err != nil {
		return err
	}
	rules, err := access.Parse(text, version)
	if version == 0 {
		rules, err = nil, nil
	}
	if err != nil {
		return err
	}
	keys, err := volume.ReadSigningKeys(host)
	if err != nil {
		return err
	}
	s.auth, s.key = auth.New(s.about.ID, func() *accessRules { return rules }), keys[0]
	s.auth.SetKeys(keys)
	return nil
}

// stop ends clients first: they are open when the test ends.
func (s *Server) stop() {
	s.Resume()
	s.Heal()
	s.mu.Lock()
	clients := s.mu.clients
	s.mu.clients = nil
	s.mu.Unlock()
	for c, gate := range clients {
		gate.Mend()
		c.Close() //nolint:errcheck // it is nil
	}
	for _, m := range s.members {
		m.end()
	}
}

// Endpoints returns the addresses of the servers, host:port each, for clients of every kind.
func (s *Server) Endpoints() []string {
	var all []string
	for _, m := range s.members {
		all = append(all, m.listener.Addr().String())
	}
	return all
}

// URL returns the address of a server for clients over HTTP, such as "http://127.0.0.1:40001".
func (s *Server) URL() string { return "http://" + s.Endpoints()[0] }

// Client returns a client of the servers, always the same one. It may do everything, whatever the rules are.
func (s *Server) Client() *clientlib.Client {
	s.tb.Helper()
	s.mu.Lock()
	c := s.mu.shared
	s.mu.Unlock()
	if c != nil {
		return c
	}
	o := clientlib.Options{}
	if s.auth.Rules() != nil {
		o.Credential = s.operator
	}
	c = s.NewClient(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.shared == nil {
		s.mu.shared = c // else it is one more, which is closed with the others
	}
	return s.mu.shared
}

// NewClient returns one more client, as another process would have it. Of o it replaces Endpoints; a Clock that is nil
// becomes one that Advance moves. It is closed at the end of the test, and may be closed before.
func (s *Server) NewClient(o clientlib.Options) *clientlib.Client {
	s.tb.Helper()
	gate, dial := nettest.NewGate(), o.Dialer
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	o.Endpoints = s.Endpoints()
	o.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return through(c, gate), nil
	}
	if o.Clock == nil {
		o.Clock = s.clock
	}
	c, err := clientlib.New(o)
	if err != nil {
		s.tb.Fatalf("holdfasttest: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.clients == nil {
		c.Close() //nolint:errcheck // it is nil
		s.tb.Fatal("holdfasttest: a new client after the end of the test")
	}
	s.mu.clients[c] = gate
	return c
}

// clock is that of clients: the time that passes, and what Advance adds.
type clock struct {
	began time.Time
	mu    sync.Mutex
	ahead time.Duration
}

func newClock() *clock { return &clock{began: time.Now()} }

// Now implements clientlib.Clock.
func (c *clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.began) + c.ahead
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}
