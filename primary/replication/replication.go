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

// Options describe the term and its replicas.
type Options struct {
	Cluster  cluster.ID
	Epoch    cluster.Epoch
	Replicas map[cluster.ServerID]Link
	Timing   cluster.Timing // PushAck and PushAckTimeout say what answers wait for
	Log      zerolog.Logger
}

// Replication sends what one term commits. Begin is called before Run, and both once; the other
// methods, with those of feed and barrier, may be called from any goroutine at any time. Its own
// fields are not changed after New.
type Replication struct {
	feed
	*barrier
	opt     Options
	host    Host
	pushers []*pusher
}

// New returns the replication of a term. Run sends.
func New(host Host, opt Options) *Replication {
	r := &Replication{opt: opt, host: host}
	r.barrier = newBarrier(opt, &r.feed)
	for to, link := range opt.Replicas {
		x := &pusher{r: r, to: to, link: link, wake: wake.NewSignal()}
		r.feed.wakes = append(r.feed.wakes, x.wake)
		r.pushers = append(r.pushers, x)
	}
	return r
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
	for _, x := range r.pushers {
		wg.Go(func() { x.run(ctx) })
	}
}
