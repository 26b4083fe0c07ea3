// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// Cluster is whole servers on one disk and one network, in one synctest bubble.
type Cluster struct {
	*Scenario
	Net  *Net
	Rand *rand.Rand
	// Timing is that of the servers started from now on.
	Timing cluster.Timing

	// Copies are the disks of servers that have a copy of the volume.
	Copies map[cluster.ServerID]*volumetest.Disk

	// DataDirs are the data directories of servers, on disks of their own.
	DataDirs map[cluster.ServerID]string

	servers map[cluster.ServerID]*server
	// Failovers has, for each failover, how long no primary served.
	Failovers []time.Duration

	glass *glass // nil without a Mirror
	// Compared is at how many LSNs the mirror was compared with the state of a server, and equal.
	Compared int
}

// server is one process.
type server struct {
	host  *volumetest.Host
	audit *audit
	node  *node.Node
	front func() // ends its front end, if it has one
	stop  context.CancelCauseFunc
	done  chan struct{}
	stuck chan error // what the node gave its process up for
	err   error
}

// giveUp notes that the process should end. It lives on, as one that is slow to.
func (x *server) giveUp(err error) {
	select {
	case x.stuck <- err:
	default: // noted already
	}
}

// Do asks the server's primary, if it has one, and audits the answer.
func (x *server) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	arrived := x.audit.arrive()
	out, err := x.node.Do(ctx, q)
	if err == nil {
		x.audit.leaves(out, arrived, fmt.Sprintf("%s/%d %v", q.Client, q.ID, q.Op))
	}
	return out, err
}

// auditedPeers audits what a server pushes (I12: a replica is never ahead of
// what is committed).
type auditedPeers struct {
	node.Peers
	audit *audit
}

// Push sends one push.
func (p auditedPeers) Push(ctx context.Context, to cluster.ServerID, m push.Push) (push.Ack, error) {
	for b := m.Frames; len(b) > 0; {
		f, _, n, err := wal.DecodeFrame(b)
		if err != nil {
			return push.Ack{}, err
		}
		p.audit.tells(f.Last())
		b = b[n:]
	}
	if m.Chunk != nil {
		p.audit.tells(m.Chunk.At.LSN)
	}
	return p.Peers.Push(ctx, to, m)
}

// NewCluster returns a cluster of servers that do not run yet.
func NewCluster(s *Scenario, rng *rand.Rand) *Cluster {
	s.witness.told = map[cluster.LSN]string{}
	return &Cluster{
		Scenario: s, Net: NewNet(200 * time.Microsecond), Rand: rng, Timing: cluster.DefaultTiming(),
		servers: map[cluster.ServerID]*server{},
	}
}

// Start starts a server's process.
func (c *Cluster) Start(id cluster.ServerID) error {
	disk := c.Disk
	if d := c.Copies[id]; d != nil {
		disk = d
	}
	x := &server{host: disk.Host(int(id), c.Profile), audit: newAudit(&c.book), front: func() {}, done: make(chan struct{}), stuck: make(chan error, 1)}
	x.host.SetWatch(x.audit.Watch)
	var err error
	x.node, err = node.New(node.Options{
		Server: id, FS: x.host, DataDir: c.DataDirs[id], Timing: c.Timing, Peers: auditedPeers{c.Net.Peers(id), x.audit}, Log: c.Log,
		Random: c.Random, Rand: rand.New(rand.NewPCG(c.Rand.Uint64(), uint64(id))),
		Stuck: x.giveUp, TimeOfDay: c.timeOfDay(id),
		FirstSegment: firstSegment, Segment: segment, MaxBatch: maxBatch, CheckpointBytes: checkpointBytes, History: historyOptions(),
		Rules: quotaRules(),
	})
	if err != nil {
		return fmt.Errorf("server %d: %w", id, err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	x.stop = stop
	c.mu.Lock()
	c.servers[id] = x
	c.backends = append(c.backends, x)
	c.audits = append(c.audits, x.audit)
	c.mu.Unlock()
	c.Net.Listen(id, x.node)
	if c.glass != nil {
		c.glass.serve(id, x)
	}
	go func() {
		defer close(x.done)
		x.err = x.node.Run(ctx)
	}()
	go c.witness.watch(ctx, id, x.node.Hub(), x.audit)
	return nil
}

var errKilled = errors.New("killed")

// Kill ends a server as kill -9 does.
func (c *Cluster) Kill(id cluster.ServerID) { c.lose(id, (*volumetest.Host).Kill) }

// PowerOff ends a server's machine.
func (c *Cluster) PowerOff(id cluster.ServerID) { c.lose(id, (*volumetest.Host).PowerOff) }

func (c *Cluster) lose(id cluster.ServerID, end func(*volumetest.Host)) {
	x := c.server(id)
	if x == nil {
		return
	}
	c.Net.Listen(id, nil)
	x.front()
	end(x.host)
	x.stop(errKilled)
	windUp(x.done)
	c.forget(id, x)
}

// Terminate ends a server as SIGTERM does: it hands the primary role over first.
func (c *Cluster) Terminate(id cluster.ServerID) {
	x := c.server(id)
	if x == nil {
		return
	}
	x.stop(errors.New("told to stop"))
	windUp(x.done)
	c.Net.Listen(id, nil)
	x.front()
	x.host.Kill()
	c.forget(id, x)
}

func (c *Cluster) server(id cluster.ServerID) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[id]
}

func (c *Cluster) forget(id cluster.ServerID, x *server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.servers, id)
	for i, b := range c.backends {
		if b == x {
			c.backends = append(c.backends[:i:i], c.backends[i+1:]...)
			return
		}
	}
}

// Hang makes all calls of a server on its filesystem hang, until the gate opens.
func (c *Cluster) Hang(id cluster.ServerID) *volumetest.Gate {
	gate := volumetest.NewGate()
	if x := c.server(id); x != nil {
		x.host.SetHook(volumetest.From(x.host.Calls()+1, volumetest.Pause(gate)))
	}
	return gate
}

// epoch is the highest that was claimed.
func (c *Cluster) epoch() int {
	n := 0
	for name := range c.Disk.Files("epochs/") {
		if strings.HasSuffix(name, "/fence") {
			n++
		}
	}
	return n
}

// browse lists and reads the epochs as a tool on a server's machine does, so that its
// caches hold names, attributes and data that will be old. What it meets is of no interest.
func (c *Cluster) browse(id cluster.ServerID) {
	x := c.server(id)
	if x == nil {
		return
	}
	epochs, _ := x.host.ReadDir("epochs")
	for _, e := range epochs {
		files, _ := x.host.ReadDir("epochs/" + e.Name)
		for _, f := range files {
			name := "epochs/" + e.Name + "/" + f.Name
			_, _ = x.host.Lstat(name)
			if !strings.HasPrefix(f.Name, "wal-") {
				continue
			}
			if file, err := x.host.Open(name, vfs.FlagRead); err == nil {
				_, _ = file.ReadAt(make([]byte, segment), 0)
				_ = file.Close()
			}
		}
	}
}

// Primaries returns the servers that believe to be the serving primary.
func (c *Cluster) Primaries() (ids []cluster.ServerID) {
	for id := cluster.ServerID(1); id <= mostServers; id++ {
		if x := c.server(id); x != nil && x.node.Role() == election.RolePrimary {
			ids = append(ids, id)
		}
	}
	return ids
}

// AwaitPrimary waits until exactly one server is primary, and returns its ID and how long that
// took. It returns an error at the limit.
func (c *Cluster) AwaitPrimary(limit time.Duration) (cluster.ServerID, time.Duration, error) {
	for began := time.Now(); ; {
		ids := c.Primaries()
		waited := time.Since(began)
		if len(ids) == 1 {
			return ids[0], waited, nil
		}
		if waited > limit {
			return 0, waited, fmt.Errorf("primaries after %v: %v", waited, ids)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Shutdown kills every server.
func (c *Cluster) Shutdown() {
	for id := cluster.ServerID(1); id <= mostServers; id++ {
		c.Kill(id)
	}
}
