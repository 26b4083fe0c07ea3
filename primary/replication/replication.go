// SPDX-License-Identifier: Apache-2.0

// Package replication sends the committed log of one term to the replicas, holds answers back
// until replicas have acknowledged what they depend on, and exports the table in chunks.
//
// Nothing here is needed for safety: what is sent or held back is durable and checked. A replica
// that lacks frames gets them from the feed, or a snapshot where the feed has dropped them.
//
// # Goroutines and locks
//
// There is one pusher for each replica, which owns what it knows about it, and one goroutine that
// drops silent replicas. The committer calls Add, Hold and Acknowledged. barrier.mu and feed.mu are held during no call
// out of this package; feed.mu may be taken while barrier.mu is held.
package replication

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wake"
)

// Host is the primary whose log is replicated.
type Host interface {
	// CheckNow checks the fence at once. It returns an error if the term has ended or ends by it.
	CheckNow() error
	// ReadTable calls f in the goroutine that owns the table: f must be quick and must not change
	// it. With frame it does so where a frame ends, and returns nil when what f saw is committed
	// and checked; without, f must look only at what was before. If ctx ends first it returns the
	// cause, and f may still be called.
	ReadTable(ctx context.Context, frame bool, f func(serving.View)) error
}

// Link sends to one replica.
type Link interface {
	// Push sends one message and returns the replica's answer, or an error if there is none.
	Push(ctx context.Context, p push.Push) (push.Ack, error)
}

// Replica is a server that is fed.
type Replica struct {
	Link Link
	// Counts has answers wait for it, where they wait for replicas. A server that only joins has everything to catch up with.
	Counts bool
}

// Options describe the term and its replicas.
type Options struct {
	Cluster  cluster.ID
	Epoch    cluster.Epoch
	Replicas map[cluster.ServerID]Link // at first, each of which counts; Follow replaces them
	Timing   cluster.Timing            // PushAck and PushAckTimeout say what answers wait for
	Log      zerolog.Logger
}

// Replication sends what one term commits. Begin is called before Run, and both once; the other
// methods, with those of feed and barrier, may be called from any goroutine at any time. What is not under mu is
// not changed after New.
type Replication struct {
	feed
	*barrier
	opt      Options
	host     Host
	followed wake.Signal // mu.links was replaced
	mu       struct {
		sync.Mutex
		links map[cluster.ServerID]Link
	}
}

// New returns the replication of a term. Run sends.
func New(host Host, opt Options) *Replication {
	r := &Replication{opt: opt, host: host, followed: wake.NewSignal()}
	r.barrier = newBarrier(opt, &r.feed)
	r.mu.links = opt.Replicas
	return r
}

// Follow has these replicas fed from now on, and no others. One that is new is waited for when it has caught up; nobody waits any
// more for one that is gone.
func (r *Replication) Follow(all map[cluster.ServerID]Replica) {
	links, counted := map[cluster.ServerID]Link{}, map[cluster.ServerID]bool{}
	for id, x := range all {
		links[id] = x.Link
		if x.Counts {
			counted[id] = true
		}
	}
	r.barrier.follow(counted)
	r.mu.Lock()
	r.mu.links = links
	r.mu.Unlock()
	r.followed.Notify()
}

// replicas returns who is to be fed.
func (r *Replication) replicas() map[cluster.ServerID]Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.links
}

// Begin sets where the term begins: at the end of the adopted log, whose last frames most
// replicas have, or lack one.
func (r *Replication) Begin(a *volume.Adoption) { r.feed.begin(a.End, a.Tail(feedBytes)) }

// Run sends to the replicas until ctx ends. What is held back then is answered that the term has
// ended.
func (r *Replication) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if r.Waits() {
		wg.Go(func() { r.barrier.run(ctx) })
	}
	stops := map[cluster.ServerID]context.CancelFunc{}
	for {
		links := r.replicas()
		for id, stop := range stops {
			if links[id] == nil {
				stop()
				delete(stops, id)
			}
		}
		for id, link := range links {
			if stops[id] != nil {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			stops[id] = stop
			wg.Go(func() { r.push(ctx, id, link) })
		}
		select {
		case <-ctx.Done():
			return
		case <-r.followed:
		}
	}
}

// push feeds one replica until ctx ends.
func (r *Replication) push(ctx context.Context, to cluster.ServerID, link Link) {
	x := &pusher{r: r, to: to, link: link, wake: wake.NewSignal()}
	r.feed.rouse(x.wake, true)
	defer r.feed.rouse(x.wake, false)
	x.run(ctx)
}
