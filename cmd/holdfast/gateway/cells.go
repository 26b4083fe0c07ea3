// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// findEvery is how often a volume that cannot be read, or a port that is taken, is tried again.
	findEvery = time.Second
	// sayEvery is how often new trouble with a cell is logged.
	sayEvery = 10 * time.Second
)

// errOtherCluster means that a cell was recovered into another volume, maybe: a gateway stays with the cluster that it knows, as clients do.
var errOtherCluster = errors.New("another cell tells of another cluster there: if it was recovered into another volume, restart this gateway")

// cells are the gateways of a process: one for the volume, or one for each cell of the site, at a port of its own, which is as far from that of
// the first one as their numbers are. So clients that know one port know all, see sitemap.Through.
type cells struct {
	opt     Options
	ctx     context.Context // until then they take connections
	counts  *counts
	bounded func(net.Listener) net.Listener // all ports together take so many connections
	// asks returns how servers are asked that are recognized so, and ends that.
	asks    func(*join.Trust) (ask question, end func())
	first   *Gateway // that of the volume, or cell, which Options.Site names
	at      string   // where that listens: no name, so nobody has to look one up
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		id     *cluster.CellID             // which cell is the first one; nil if it is none, or not known yet
		of     map[cluster.CellID]*Gateway // those of the others
		failed map[cluster.CellID]failure  // why connections are not passed on to a cell
		ends   []func()                    // of asks
		over   bool                        // none begins any more
	}
}

// failure is why something was not possible, when a port was tried, and what was said of it.
type failure struct {
	why, said  string
	at, saidAt time.Time
}

// newCells listens for clients until ctx ends, at the port of the volume, and at those of the other cells as it learns of them: from the directory of
// the site if that is the endpoint, and from servers. It returns an error if it cannot listen.
func newCells(ctx context.Context, opt Options, asks func(*join.Trust) (question, func())) (*cells, error) {
	c := &cells{opt: opt, ctx: ctx, counts: new(counts), asks: asks}
	c.bounded = serve.Bounded(opt.Log, opt.Connections, opt.PerAddress, descriptors, func() { c.counts.refuse(tooMany) })
	c.mu.of, c.mu.failed = map[cluster.CellID]*Gateway{}, map[cluster.CellID]failure{}
	all, err := c.directory()
	if err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	var addresses []string
	var trust *join.Trust
	if len(all) == 0 {
		if addresses, trust, err = join.Resolve(opt.Site); err != nil {
			return nil, fmt.Errorf("site: %w", err)
		}
	}
	l, err := net.Listen("tcp", opt.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	c.at = l.Addr().String()
	opt.Log.Info().Stringer("clients", l.Addr()).Strs("site", opt.Site).Msg("gateway starts")
	c.first = c.begin(l)
	if len(all) == 0 {
		c.reach(c.first, addresses, trust, !trust.Plain(), "")
	}
	for _, x := range all {
		go c.find(x)
	}
	return c, nil
}

// directory returns the cells of the site of which the directory, or a volume in it, is the endpoint; none if it is something else. It notes which one is
// the first, which of a directory is its first one.
func (c *cells) directory() ([]sitemap.Cell, error) {
	dir := join.SiteDirectory(c.opt.Site)
	if dir == "" {
		return nil, nil
	}
	m, err := sitemap.Read(os.DirFS(dir), dir)
	if err != nil {
		return nil, err
	}
	site, at := filepath.Clean(dir), filepath.Clean(c.opt.Site[0])
	for _, x := range m.Cells {
		if at == site || len(x.Endpoints) > 0 && at == filepath.Clean(x.Endpoints[0]) {
			c.mu.id = &x.Cell
			return m.Cells, nil
		}
	}
	return nil, nil
}

// begin has a gateway take connections from l. It passes none on before it is told of servers, see reach.
func (c *cells) begin(l net.Listener) *Gateway {
	g := newGateway(c.opt, c.counts, newSite(c.opt.Log))
	c.running.Go(func() { g.run(c.ctx, c.bounded(l)) })
	return g
}

// reach has a gateway pass connections on to the servers at these addresses, of this cluster, "" = of whichever is there. Secure is whether clients have to
// speak TLS with them. Where it knows its servers already, nothing changes.
func (c *cells) reach(g *Gateway, addresses []string, trust *join.Trust, secure bool, clusterID string) {
	ask, end := c.asks(trust)
	told := func(r *pb.StatusResponse) { c.learn(r, trust, g == c.first) }
	c.mu.Lock()
	c.mu.ends = append(c.mu.ends, end)
	c.mu.Unlock()
	g.site.begin(addresses, clusterID, secure, ask, told)
}

// find has connections passed on to a cell as soon as its volume says where that is, unless a server of another cell does before: it may be lost, or hang.
// Whether clients have to speak TLS is what the volume says in the end.
func (c *cells) find(x sitemap.Cell) {
	for {
		g, err := c.gateway(x.Cell)
		if g != nil && len(x.Endpoints) == 0 {
			return // others may tell
		}
		if g != nil {
			if err = c.read(g, x.Endpoints); err == nil {
				return
			}
		}
		if err != nil {
			c.fail(x.Cell, err)
		}
		if !retry.Rest(c.ctx, findEvery) {
			return
		}
	}
}

// read is reach by what the volume of a cell says.
func (c *cells) read(g *Gateway, endpoints []string) error {
	addresses, trust, err := join.Resolve(endpoints)
	if err != nil {
		return err
	}
	id, err := join.ClusterID(endpoints[0])
	if err != nil {
		return err
	}
	secure := !trust.Plain()
	c.reach(g, addresses, trust, secure, id)
	if secure {
		g.site.requireTLS()
	}
	return nil
}

// learn has connections passed on to the cells of which a server has told that is trusted so. One of the first cell says which one that is.
func (c *cells) learn(r *pb.StatusResponse, trust *join.Trust, first bool) {
	for _, x := range r.GetCells() {
		id := cluster.CellID(x.GetCell())
		if x.GetClusterId() == "" || len(x.GetClients()) == 0 || x.GetCell() >= cluster.MaxCells {
			continue // of one without an ID, whoever is there may be anybody
		}
		if x.GetClusterId() == r.GetClusterId() { // whose own site knows its servers
			if first {
				c.mu.Lock()
				c.mu.id = &id
				c.mu.Unlock()
			}
			continue
		}
		if err := c.hear(x, trust); err != nil {
			c.fail(id, err)
		}
	}
}

// hear has connections passed on to a cell of which a server has told that is trusted so, also to servers that it has by now.
func (c *cells) hear(x *pb.CellServers, trust *join.Trust) error {
	g, err := c.gateway(cluster.CellID(x.GetCell()))
	if g == nil || err != nil {
		return err
	}
	endpoints, err := trust.Endpoints(x.GetClients(), x.GetPin())
	if err != nil {
		return err
	}
	if !g.site.begun() {
		addresses, known, err := join.Resolve(endpoints)
		if err != nil {
			return err
		}
		c.reach(g, addresses, known, !trust.Plain(), x.GetClusterId())
		return nil
	}
	switch g.site.known.ID() {
	case x.GetClusterId():
		g.site.learn(x.GetClients())
	case "": // its own servers say it, not another cell
	default:
		return errOtherCluster
	}
	return nil
}

// gateway returns that of a cell, which it begins if there is none. It returns nil if none can begin now, and an error if its port cannot be had, which is
// tried again after findEvery.
func (c *cells) gateway(id cluster.CellID) (*Gateway, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.id == nil || c.mu.over:
		return nil, nil
	case *c.mu.id == id:
		return c.first, nil
	case c.mu.of[id] != nil:
		return c.mu.of[id], nil
	}
	f := c.mu.failed[id]
	if time.Since(f.at) < findEvery {
		return nil, nil
	}
	f.at = time.Now()
	c.mu.failed[id] = f
	at := sitemap.Through([]string{c.at}, *c.mu.id, id)
	if len(at) == 0 {
		return nil, fmt.Errorf("there is no port as far from %s as its number from that of %v: listen at another one", c.at, *c.mu.id)
	}
	l, err := net.Listen("tcp", at[0])
	if err != nil {
		return nil, err
	}
	c.opt.Log.Info().Stringer("clients", l.Addr()).Stringer("cell", id).Msg("connections to another cell of the site are taken, too")
	delete(c.mu.failed, id)
	c.mu.of[id] = c.begin(l)
	return c.mu.of[id], nil
}

// fail notes why connections are not passed on to a cell, or not to all of its servers, and says it, not again and again.
func (c *cells) fail(id cluster.CellID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.mu.failed[id]
	if f.why = err.Error(); f.why != f.said && time.Since(f.saidAt) >= sayEvery {
		f.said, f.saidAt = f.why, time.Now()
		c.opt.Log.Error().Err(err).Stringer("cell", id).Msg("trouble with a cell of the site")
	}
	c.mu.failed[id] = f
}

// wait returns when all gateways have ended.
func (c *cells) wait() {
	<-c.ctx.Done()
	c.mu.Lock()
	c.mu.over = true
	c.mu.Unlock()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.mu.ends {
		end()
	}
}

// all returns the gateways, with the cell of each, which is nil for a volume that is none; the gateway is nil of a cell without a port.
func (c *cells) all(yield func(*cluster.CellID, *Gateway) bool) {
	c.mu.Lock()
	first, of := c.mu.id, maps.Clone(c.mu.of)
	for id := range c.mu.failed {
		if of[id] == nil && (first == nil || id != *first) {
			of[id] = nil
		}
	}
	c.mu.Unlock()
	if !yield(first, c.first) {
		return
	}
	for id, g := range of {
		if !yield(&id, g) {
			return
		}
	}
}

// primaryKnown reports whether one of the gateways knows the primary: where none of a cell does, its clients are the only ones that wait.
func (c *cells) primaryKnown() bool {
	for _, g := range c.all {
		if g != nil && g.site.target().primary {
			return true
		}
	}
	return false
}
