// SPDX-License-Identifier: Apache-2.0

// Package serve runs one server: a node on the operating system's filesystem,
// behind the front ends for clients and for the other servers.
//
// At the end the node hands the primary role over while the front ends still answer, so
// that clients learn where to go; then the front ends stop.
package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peergrpc"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// Options configure a server.
type Options struct {
	Server  cluster.ServerID
	Volume  string // the directory on the share
	DataDir string // a directory of this server's own; "" = the default one, NoDataDir = none
	Bind    string // the host to listen on; "" = the one in CLUSTER
	// Doors are further front ends, each on its own listener.
	Doors   []Door
	Timing  cluster.Timing
	Version string
	// UnsafeFilesystem starts on a filesystem that the doctor refuses.
	UnsafeFilesystem bool
	// History bounds the history of grants that ended.
	History primary.HistoryOptions
	Log     zerolog.Logger
	// Stuck is called when the process has to exit; see node.Options.
	Stuck func(error)

	open func(string) (*osfs.FS, error) // nil = osfs.Open
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
	var p process
	defer p.unlock()
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
}

// serveOnce serves a volume until it is to be opened again.
func serveOnce(ctx context.Context, opt Options, p *process) (err error) {
	fsys, err := atVolume(ctx, &opt, func() (*osfs.FS, error) {
		f, err := opt.open(opt.Volume)
		if err != nil {
			return nil, fmt.Errorf("%w: is the share mounted? A new volume is made with holdfast init", err)
		}
		return f, nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	c, err := atVolume(ctx, &opt, func() (volume.Cluster, error) { return volume.ReadCluster(fsys) })
	if err != nil {
		return fmt.Errorf("volume %s: %w", opt.Volume, err)
	}
	self, ok := c.Servers.Find(opt.Server)
	if !ok {
		return fmt.Errorf("server %d is not one of the servers %v of volume %s: use one of these IDs", opt.Server, c.Servers.IDs(), opt.Volume)
	}
	warnings, err := trusted(ctx, &opt)
	if err != nil {
		return err
	}
	ports, err := listen(self, opt.Bind, opt.Doors)
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
	for _, d := range opt.Doors {
		opt.Log.Info().Str("front_end", d.Name).Str("address", d.Addr).Msg("listening")
	}
	tuning, tuned := context.WithCancel(ctx)
	defer tuned()
	go tuneGC(tuning)
	peers := peergrpc.New(opt.Server, c)
	nodeOpt := node.Options{
		Server: opt.Server, FS: fsys, Address: self.GRPC, DataDir: opt.DataDir, Timing: opt.Timing, Peers: peers, Log: opt.Log,
		Random: rand.Reader, Rand: mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64())), Stuck: opt.Stuck, Version: opt.Version, Path: opt.Volume, Warnings: warnings, History: opt.History,
		Moved: func() bool { return moved(fsys, opt.Volume, c.ID) }, Known: p.known,
	}
	n, err := atVolume(ctx, &opt, func() (*node.Node, error) { return node.New(nodeOpt) })
	if err != nil {
		return errors.Join(fmt.Errorf("volume %s: %w", opt.Volume, err), peers.Close())
	}
	opt.Log.Info().Uint32("server", uint32(opt.Server)).Str("volume", opt.Volume).Stringer("cluster", c.ID).Str("version", opt.Version).
		Str("filesystem", fsys.Kind().Name).Str("grpc", self.GRPC).Str("http", self.HTTP).Str("peer", self.Peer).Int("pid", os.Getpid()).Msg("server starts")
	err = run(ctx, n, newFronts(n, c, opt.Doors, opt.Log), ports, opt.Log)
	p.known = n.Known()
	return errors.Join(err, peers.Close())
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
func run(parent context.Context, n *node.Node, f *fronts, p *ports, log zerolog.Logger) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	ended := make(chan struct{}, 3+len(f.doors))
	serve := func(name string, f func() error) {
		go func() {
			stop(fmt.Errorf("%s front end: %w", name, f())) // does nothing when the node has ended
			ended <- struct{}{}
		}()
	}
	clients := newRoom(log)
	serve("peer", func() error { return f.peer.Serve(p.peer) })
	serve("gRPC", func() error { return f.grpc.Serve(clients.listener(p.grpc)) })
	serve("HTTP", func() error { return f.http.Serve(clients.listener(p.http)) })
	for i, d := range f.doors {
		serve(f.names[i], func() error { return d.Serve(clients.listener(p.doors[i])) })
	}
	err := n.Run(ctx)
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

// fronts are the front ends.
type fronts struct {
	peer, grpc *grpc.Server
	http       *http.Server
	doors      []Front
	names      []string // of the doors
}

func newFronts(n *node.Node, c volume.Cluster, doors []Door, log zerolog.Logger) *fronts {
	f := &fronts{peer: grpc.NewServer(peergrpc.ServerOptions()...), grpc: grpc.NewServer(grpcapi.Options()...)}
	peergrpc.Register(f.peer, c.ID.String(), n)
	grpcapi.Register(f.grpc, service.New(n, service.Options{}))
	h := httpapi.New(service.New(n, service.Options{}), httpapi.Options{Log: log})
	f.http = h.Server()
	for _, d := range doors {
		f.doors, f.names = append(f.doors, d.New(h.Door(), log)), append(f.names, d.Name)
	}
	return f
}

// stop stops the front ends; calls in flight may be answered for endWait.
func (f *fronts) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	cut := context.AfterFunc(ctx, func() { f.grpc.Stop(); f.peer.Stop() })
	defer cut()
	var ending sync.WaitGroup
	for _, d := range f.doors {
		ending.Go(func() { d.Stop(ctx) })
	}
	if err := f.http.Shutdown(ctx); err != nil {
		f.http.Close() //nolint:errcheck // they had their time
	}
	ending.Wait()
	f.grpc.GracefulStop()
	f.peer.Stop()
}

// ports are the listeners.
type ports struct {
	grpc, http, peer net.Listener
	doors            []net.Listener
}

// listen opens all ports before anything else is done: a server that cannot be reached must
// not be primary.
func listen(m cluster.Member, bind string, doors []Door) (*ports, error) {
	p := &ports{doors: make([]net.Listener, len(doors))}
	for _, x := range []struct {
		name string
		addr string
		to   *net.Listener
	}{{"gRPC", m.GRPC, &p.grpc}, {"HTTP", m.HTTP, &p.http}, {"peer", m.Peer, &p.peer}} {
		addr := x.addr
		if bind != "" {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, errors.Join(err, p.close())
			}
			addr = net.JoinHostPort(bind, port)
		}
		if err := listenOn(x.name, addr, x.to); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	for i, d := range doors {
		if err := listenOn(d.Name, d.Addr, &p.doors[i]); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

func listenOn(name, addr string, to *net.Listener) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return listenError(name, addr, err)
	}
	*to = l
	return nil
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
func (p *ports) close() error {
	for _, l := range append([]net.Listener{p.grpc, p.http, p.peer}, p.doors...) {
		if l != nil {
			l.Close() //nolint:errcheck // its server has closed it, or never used it
		}
	}
	return nil
}
