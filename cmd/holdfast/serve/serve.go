// SPDX-License-Identifier: Apache-2.0

// Package serve runs one server: a node on the operating system's filesystem,
// behind the front ends for clients and for the other servers.
//
// At the end the node hands the primary role over while the front ends still answer, so
// that clients learn where to go; then the front ends stop.
package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peergrpc"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// Options configure a server.
type Options struct {
	Server cluster.ServerID
	Volume string // the directory on the share
	// Site is the directory of a site, in place of Volume, of which Cell is served; "" = Volume is of no site.
	Site    string
	Cell    cluster.CellID
	Secrets string // a directory of this host with the volume's secrets; "" = they are on the volume
	DataDir string // a directory of this server's own; "" = the default one, NoDataDir = none
	Bind    string // the host to listen on; "" = the one in CLUSTER
	Listen  string // the host and port to listen on for clients; "" = those in CLUSTER, or Bind
	// Socket is the path of a Unix socket for clients, who are known by it; "" = none.
	Socket string
	// Also are further addresses for clients.
	Also []string
	// Live has the settings that may change while the server runs; nil = the defaults, for ever.
	Live *LiveSettings
	// Reload has the settings read anew, for an operator who asks by the data directory (AskReload); nil = never.
	Reload func() Reloaded
	// Metrics is a host and port for /metrics and the probes in plain text, without callers; "" = none of its own.
	Metrics string
	// Slow is how long a call may take before it is logged; 0 = for ever.
	Slow time.Duration
	// Names are further names and addresses by which clients reach this server, for its certificate.
	Names []string
	// Connections is how many connections clients may have in all, where descriptors allow that; 0 = Connections.
	Connections int
	// TLS12 has clients served over TLS 1.2, too.
	TLS12   bool
	Timing  cluster.Timing
	Version string
	// UnsafeFilesystem starts on a filesystem that the doctor refuses.
	UnsafeFilesystem bool
	// History bounds the history of grants that ended, where Live does not.
	History primary.HistoryOptions
	Log     zerolog.Logger
	// Stuck is called when the process has to exit; see node.Options.
	Stuck func(error)

	open func(string) (*osfs.FS, error) // nil = osfs.Open
	// unlisted is how long a server waits until it is added; 0 = unlistedWait.
	unlisted time.Duration
	// canonical looks up the canonical name of a host; nil = by the resolver of this one.
	canonical func(ctx context.Context, host string) (string, error)
}

// endWait bounds how long clients may take to receive the last answers.
const endWait = time.Second

// Run serves until ctx ends, then hands over and returns nil. If the volume's directory was
// mounted anew, it opens the volume again and goes on. It returns an error that wraps
// ErrFilesystem, ErrNoAccess or ErrDataDirUsed if it refuses to start.
func Run(ctx context.Context, opt Options) error {
	if opt.open == nil {
		opt.open = osfs.Open
	}
	if opt.canonical == nil {
		opt.canonical = net.DefaultResolver.LookupCNAME
	}
	if opt.Live == nil {
		opt.Live = NewLive(Live{})
	}
	opt.History.Bounds = opt.Live.historyBounds
	var p process
	defer p.unlock()
	p.traces = trace.New(trace.Options{Server: opt.Server, Version: opt.Version, Log: opt.Log})
	defer p.traces.Close()
	if err := opt.Live.traceTo(p.traces); err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	if err := p.ofCell(ctx, &opt); err != nil {
		return err
	}
	for {
		err := serveOnce(ctx, opt, &p)
		if !errors.Is(err, node.ErrReopen) || ctx.Err() != nil {
			return err
		}
		opt.Log.Error().Err(err).Str("volume", opt.Volume).Msg("opening the volume again")
	}
}

// process is what outlives the opening of the volume. The zero value is ready.
type process struct {
	// known is what is known to be committed: what the path leads to next may be an old copy.
	known replica.Known
	// locked is the lock of the data directory, or nil.
	locked *flock.Flock
	// control takes the requests of operators in that directory, or is nil.
	control net.Listener
	meter   meter.Meter
	traces  *trace.Recorder
	// cells are those of the site, nil for a volume of none.
	cells *otherCells
}

// serveOnce serves a volume until it is to be opened again.
func serveOnce(ctx context.Context, opt Options, p *process) (err error) {
	fsys, c, err := openVolume(ctx, &opt, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	list, err := awaitListed(ctx, fsys, c, &opt)
	if err != nil {
		return err
	}
	c.Servers = list.Servers
	self, _ := c.Servers.Find(opt.Server)
	warnings, err := trusted(ctx, &opt)
	if err != nil {
		return err
	}
	ports, err := listen(self, &opt)
	if err != nil {
		return err
	}
	defer ports.close()
	if opt.DataDir, err = dataDir(opt.DataDir, c.ID, opt.Server, opt.Log); err != nil {
		return err
	}
	if err := p.lock(&opt); err != nil {
		return err
	}
	tuning, tuned := context.WithCancel(ctx)
	defer tuned()
	secured := &clientTLS{fs: fsys, id: c.ID, hosts: hostsOf(c.Servers, &opt), peers: peerHosts(c.Servers), log: opt.Log, outside: newOutside(&opt)}
	keys, who, err := openSecurity(ctx, &opt, fsys, c, secured)
	if err != nil {
		return fmt.Errorf("volume %s: %w", opt.Volume, err)
	}
	peers := peergrpc.New(opt.Server, c, keys)
	var n *node.Node
	copies := &copied{fs: fsys, log: opt.Log}
	watched := newAuditor(&opt, fsys, func() bool { return n.LogFull() })
	nodeOpt := node.Options{
		Server: opt.Server, Members: &list, FS: fsys, Address: self.Client, DataDir: opt.DataDir, Timing: opt.Timing, Peers: peers, Log: opt.Log,
		Random: rand.Reader, Rand: mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64())), Stuck: opt.Stuck, Version: opt.Version, Path: opt.Volume, Warnings: warnings, History: opt.History,
		Trouble: copies.trouble(watched.Trouble), Key: keys.ID(), Disowned: keys.Disowned, Rules: who.Rules, Restart: opt.Live.Restart,
		Moved: func() bool { return moved(fsys, opt.Volume, c.ID) }, Known: p.known, Meter: &p.meter, Slow: opt.Slow, Traces: p.traces.Traces(),
	}
	if p.cells != nil {
		nodeOpt.Own, nodeOpt.Cells = p.cells.owns, p.cells.tell
	}
	n, err = atVolume(ctx, &opt, func() (*node.Node, error) {
		n, err := node.New(nodeOpt)
		if err == nil { // the guard is held
			keys.Keep()
		}
		return n, err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("volume %s: %w", opt.Volume, err), peers.Close())
	}
	peers.OnBroken(n.ConnectionBroke)
	defer watched.begin(opt.Version, who.Rules().Version())()
	fronts := newFronts(n, c, keys, secured, who, watched, p.traces, &opt)
	go secured.learnName(tuning, &opt)
	keepUp(tuning, keys, secured, copies, func() { who.run(tuning, watched.rulesChanged, fronts.endForbidden) })
	opt.Log.Info().Uint32("server", uint32(opt.Server)).Str("volume", opt.Volume).Stringer("cluster", c.ID).Bool("peers_tls_only", keys.Required()).Str("version", opt.Version).
		Str("filesystem", fsys.Kind().Name).Strs("clients", ports.addresses()).Str("metrics", ports.metricsAddress()).Str("peer", self.Peer).Int("pid", os.Getpid()).Msg("server starts")
	err = run(ctx, n, fronts, fronts.serving(ports, who, &opt), opt.Log)
	p.known = n.Known()
	return errors.Join(err, peers.Close())
}

// keepUp keeps up to date, until ctx ends, what the server knows of the volume beside its log.
func keepUp(ctx context.Context, keys *peertls.Keys, secured *clientTLS, copies *copied, callers func()) {
	go tuneGC(ctx)
	go copies.run(ctx)
	go keys.Run(ctx)
	go secured.run(ctx)
	go callers()
}

// openSecurity reads what the volume says about TLS, with other servers and with clients, and about callers.
func openSecurity(ctx context.Context, opt *Options, fsys *osfs.FS, c volume.Cluster, secured *clientTLS) (keys *peertls.Keys, who *callers, err error) {
	keys, err = atVolume(ctx, opt, func() (*peertls.Keys, error) {
		if err := secured.keep(time.Now()); err != nil {
			return nil, err
		}
		return peertls.New(peertls.Options{Self: opt.Server, Members: c.Servers, FS: secured.fs, Log: opt.Log})
	})
	if err == nil {
		who, err = atVolume(ctx, opt, func() (*callers, error) { return openCallers(fsys, c, opt.Log) })
	}
	return keys, who, err
}

// moved reports whether a path leads to the volume of a cluster, and not to what is open.
func moved(fsys *osfs.FS, path string, id cluster.ID) bool {
	found, err := osfs.Open(path)
	if err != nil {
		return false
	}
	defer found.Close() //nolint:errcheck // descriptors of directories
	c, err := volume.ReadCluster(found)
	return err == nil && c.ID == id && !fsys.Same(found)
}

// run runs the front ends and the node. If one ends, it ends the other.
func run(parent context.Context, n *node.Node, f *fronts, serving map[string]func() error, log zerolog.Logger) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	go announce(ctx, n, log)
	ended := make(chan struct{}, len(serving))
	for name, serve := range serving {
		go func() {
			stop(fmt.Errorf("%s front end: %w", name, serve())) // does nothing when the node has ended
			ended <- struct{}{}
		}()
	}
	err := n.Run(ctx)
	stop(err)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.stop()
		for range cap(ended) {
			<-ended
		}
	}()
	select {
	case <-stopped:
	case <-time.After(2 * endWait): // gRPC waits for the handshake of silent connections
		log.Warn().Msg("connections that never said anything are cut")
	}
	cause := context.Cause(parent)
	if cause == nil || !errors.Is(err, cause) {
		return err
	}
	if err.Error() != cause.Error() { // the end was asked for, and something else went wrong
		log.Warn().Err(err).Msg("end")
	}
	return nil
}

// ports are the listeners.
type ports struct {
	peer    net.Listener
	clients []net.Listener
	socket  *net.UnixListener // or nil
	metrics net.Listener      // or nil
}

// listen opens all ports before anything else is done: a server that cannot be reached must
// not be primary.
func listen(m cluster.Member, opt *Options) (*ports, error) {
	peer, err := bound(m.Peer, opt.Bind)
	if err != nil {
		return nil, err
	}
	clients, err := clientAddresses(m, opt)
	if err != nil {
		return nil, err
	}
	p := &ports{}
	if p.peer, err = listenOn("peer", peer); err != nil {
		return nil, err
	}
	for _, addr := range clients {
		l, err := listenOn("client", addr)
		if err != nil {
			p.close()
			return nil, err
		}
		p.clients = append(p.clients, l)
	}
	if opt.Metrics != "" {
		if p.metrics, err = listenOn("metrics", opt.Metrics); err != nil {
			p.close()
			return nil, err
		}
	}
	if opt.Socket != "" {
		if p.socket, err = listenSocket(opt.Socket); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

// clientAddresses returns where a server listens for clients. Other servers and clients know the addresses of CLUSTER.
func clientAddresses(m cluster.Member, opt *Options) ([]string, error) {
	first, err := bound(m.Client, opt.Bind)
	if err != nil {
		return nil, err
	}
	all := []string{cmp.Or(opt.Listen, first)}
	if m.OldHTTP != "" {
		old, err := bound(m.OldHTTP, opt.Bind)
		if err != nil {
			return nil, err
		}
		all = append(all, old)
	}
	return append(all, opt.Also...), nil
}

// bound returns an address with the host that is to be bound, if there is one.
func bound(addr, host string) (string, error) {
	if host == "" {
		return addr, nil
	}
	_, port, err := net.SplitHostPort(addr)
	return net.JoinHostPort(host, port), err
}

func listenOn(name, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError(name, addr, err)
	}
	return l, nil
}

func listenError(name, addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("the %s address %s is in use: is this server running already? (%w)", name, addr, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("the %s address %s is not of this host: use --bind, or run this server where CLUSTER says (%w)", name, addr, err)
	default:
		return fmt.Errorf("listen for %s on %s: %w", name, addr, err)
	}
}

// close closes the listeners. Those that were closed already are no error.
func (p *ports) close() {
	for _, l := range append([]net.Listener{p.peer}, p.clients...) {
		l.Close() //nolint:errcheck // its server has closed it, or never used it
	}
	if p.socket != nil {
		p.socket.Close() //nolint:errcheck // as above
	}
	if p.metrics != nil {
		p.metrics.Close() //nolint:errcheck // as above
	}
}

// metricsAddress returns where the metrics are served by themselves, "" for nowhere.
func (p *ports) metricsAddress() string {
	if p.metrics == nil {
		return ""
	}
	return p.metrics.Addr().String()
}

// addresses returns where the clients' listeners listen.
func (p *ports) addresses() (all []string) {
	for _, l := range p.clients {
		all = append(all, l.Addr().String())
	}
	if p.socket != nil {
		all = append(all, p.socket.Addr().String())
	}
	return all
}
