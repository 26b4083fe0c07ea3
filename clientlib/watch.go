// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// anewPause is how long a watch pauses, beside the usual pause, before it starts over.
const anewPause = time.Second

// WatchOptions say what to watch. The zero value is everything, from now on.
type WatchOptions struct {
	// Lock is one lock. If it is empty, Prefix is that of the names of all locks to watch,
	// "" for all there are.
	Lock   LockName
	Prefix string
	// After resumes a watch: the LSN of the last event that was seen. 0 = begin with a reset.
	After LSN
	// Kinds are the kinds of events to yield; none means all but appends. EventForceClear,
	// EventHandedOver and EventTerm, which concern all locks, and EventReset come in any case.
	Kinds []EventKind
	// Bookmark asks for an EventBookmark at least this often, for a caller that keeps the LSN
	// to resume there. 0 = none.
	Bookmark time.Duration
}

// Watch yields what happens to locks, in order and without gaps. It begins with the state as it
// is, or with the events after WatchOptions.After. Over broken connections and failovers it goes
// on where it was; where a server cannot do that, the state comes again. Either way an EventReset
// says so, and everything after it is complete.
//
// Any server that is up serves it, a replica rather than the primary, and a few
// milliseconds later than the primary would. The sequence ends with a *CallError: that
// of ctx, a refusal, or that no server answered for Options.Budget. To go on, watch
// after the last LSN. A loop that takes long over its events loses nothing, but may meet a reset.
//
// The locks of several cells of a site have no common order, so such a watch is refused: see Cell.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.WatchBatches(ctx, o, func(b WatchBatch) error {
			for _, e := range b.Events {
				if !yield(e, nil) {
					return errLeft
				}
			}
			return nil
		})
		if !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}
}

// WatchBatch is what a server sends a watch in one message.
type WatchBatch struct {
	// LSN is up to where everything was delivered: the events, applied to the state before
	// them, make the state of the service at this LSN. It is 0 within a reset, until its last
	// piece.
	LSN LSN
	// Epoch is that of the term in which the server answers.
	Epoch Epoch
	// Events are in the order of their LSNs, or one EventReset, or one EventBookmark. There
	// are none where events that are not watched moved the LSN.
	Events []Event
}

// ErrStartOver is what the function of WatchBatches returns when a batch does not fit what it
// knows: the watch then begins with a reset.
var ErrStartOver = errors.New("the watch begins anew")

// WatchBatches is Watch for a function that builds a state: it is called with everything that one
// message has. Package watch builds one. When deliver returns ErrStartOver, the watch begins with
// a reset after about a second, at another server if there is one, and never with an older state
// than was delivered. Any other error of deliver ends the watch and is returned. Otherwise the
// error is like that of Watch.
func (c *Client) WatchBatches(ctx context.Context, o WatchOptions, deliver func(WatchBatch) error) error {
	// It ends with Close, but Close does not wait for it: deliver may call it.
	both := &mergedContext{Context: ctx, life: c.life}
	defer both.end()
	k := &call{op: "watch", lock: o.Lock}
	c, err := c.where(both, k, o.Lock, o.Prefix)
	if err != nil {
		return err
	}
	w := &watcher{c: c, o: o, k: k, after: o.After, seen: o.After, deliver: deliver}
	if err := w.run(both); err != nil {
		return w.k.fail(err)
	}
	return w.stopped
}

// watcher is one watch on its way from server to server.
type watcher struct {
	c       *Client
	o       WatchOptions
	k       *call
	after   LSN // up to here everything was delivered; 0 = begin with a reset
	seen    LSN // the highest that was delivered: no reset is older
	deliver func(WatchBatch) error
	stopped error // what deliver returned to end the watch
}

// run watches at one server after the other. It returns nil when deliver has ended the watch.
func (w *watcher) run(ctx context.Context) error {
	kinds, err := w.kinds()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	left, pause := budget{left: w.c.opt.Budget}, retry.Pauses{Random: w.c.opt.Rand}
	failed := map[*server]bool{} // since a server served the watch
	for {
		to, began := w.choose(failed), time.Now()
		served, err := w.attempt(ctx, to, w.request(kinds))
		if w.stopped != nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if served {
			left, pause, began = budget{left: w.c.opt.Budget}, retry.Pauses{Random: w.c.opt.Rand}, time.Now()
			clear(failed)
		}
		if _, other := otherCluster(err); other {
			if f := w.c.servers.locate(ctx); f.lost {
				return f.err
			}
		}
		v := judge((*pb.WatchResponse)(nil), err)
		if v.Verdict == retry.TooFast { // no server has failed
			if !retry.Rest(ctx, pause.Next(v.RetryAfter, false)) {
				return context.Cause(ctx)
			}
			left, pause = budget{left: w.c.opt.Budget}, retry.Pauses{Random: w.c.opt.Rand}
			continue
		}
		if cut := wire.FromStatus(statusOf(err)) == cluster.StatusCancelled; v.Verdict.Final() && !cut {
			return v.Err
		}
		if v.Primary != nil {
			w.c.servers.named(v.Primary.Client) // which choose knows then
		}
		failed[to] = true
		d := pause.Next(0, false)
		if errors.Is(err, ErrStartOver) {
			d += anewPause
		}
		if !left.spend(time.Since(began) + d) {
			return fmt.Errorf("no server let us watch for %v at %v: check that the servers run: %w", w.c.opt.Budget, w.c.servers.addresses(), retry.Plain(err))
		}
		if !retry.Rest(ctx, d) {
			return context.Cause(ctx)
		}
	}
}

// statusOf is the status in an error, NONE if there is none.
func statusOf(err error) pb.Status {
	if e, ok := errors.AsType[*ServiceError](err); ok {
		return pb.Status(e.Status)
	}
	return pb.Status_STATUS_NONE
}

// kinds returns WatchOptions.Kinds as they are on the wire.
func (w *watcher) kinds() (kinds []pb.EventKind, err error) {
	for _, k := range w.o.Kinds {
		n, err := wire.ParseEventWord(string(k))
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, n)
	}
	return kinds, nil
}

func (w *watcher) request(kinds []pb.EventKind) *pb.WatchRequest {
	q := &pb.WatchRequest{Kinds: kinds, BookmarkMs: wire.CeilMillis(w.o.Bookmark)}
	switch {
	case w.o.Lock != "":
		q.Target = &pb.WatchRequest_Lock{Lock: string(w.o.Lock)}
	case w.o.Prefix != "":
		q.Target = &pb.WatchRequest_Prefix{Prefix: w.o.Prefix}
	}
	if w.after > 0 {
		q.AfterLsn = proto.Uint64(uint64(w.after))
	}
	return q
}

// choose picks a server at random: one that has not failed, and rather one that is not
// primary. When all have failed, they are all tried again.
func (w *watcher) choose(failed map[*server]bool) *server {
	all, _ := w.c.servers.list()
	if !slices.ContainsFunc(all, func(v *server) bool { return !failed[v] }) {
		clear(failed)
	}
	primary := w.c.servers.primary()
	best, rank, n := all[0], -1, uint64(0)
	for _, v := range all {
		r := 0
		if !failed[v] {
			r += 2
		}
		if v != primary {
			r++
		}
		if r < rank {
			continue
		}
		if r > rank {
			rank, n = r, 0
		}
		if n++; w.c.opt.Rand()%n == 0 {
			best = v
		}
	}
	return best
}

var (
	errSilent = errors.New("the server does not answer any more")
	// errLeft ends the watch of a loop that was left.
	errLeft = errors.New("the loop was left")
)

// attempt watches at one server until that ends, and reports whether the server served the watch.
func (w *watcher) attempt(ctx context.Context, to *server, q *pb.WatchRequest) (served bool, err error) {
	w.k.tries++
	if !w.c.servers.known.Known() {
		w.c.servers.locate(ctx) // so that no other cluster ever goes on where this one has ended
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := w.c.guard(ctx, to, func() { cancel(errSilent) })
	defer stop()
	stream, err := to.stub.Watch(ctx, q)
	for err == nil {
		var r *pb.WatchResponse
		if r, err = stream.Recv(); err != nil {
			break
		}
		to.heard.Store(int64(w.c.opt.Clock.Now()))
		if s := wire.FromStatus(r.GetStatus()); s != cluster.StatusOK {
			return served, wire.FailureOf(r)
		}
		if at := LSN(r.GetLsn()); r.GetReset_() != nil && at < w.seen {
			return served, fmt.Errorf("%s stands at LSN %d, and LSN %d was seen", to.addr, at, w.seen)
		}
		served = true
		switch err := w.deliver(w.batch(r)); {
		case errors.Is(err, ErrStartOver):
			w.after = 0
			return served, ErrStartOver
		case err != nil:
			w.stopped = err
			return served, err
		}
	}
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		err = fmt.Errorf("%s: %w", to.addr, errSilent)
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%s ended the watch without a reason", to.addr)
	}
	return served, err
}

// batch converts one message, and moves the watch on to where it ends.
func (w *watcher) batch(r *pb.WatchResponse) WatchBatch {
	at, epoch := LSN(r.GetLsn()), Epoch(r.GetEpoch())
	if x := r.GetReset_(); x != nil {
		e := Event{Kind: EventReset, Epoch: epoch, Reset: resetOf(r), message: r}
		if w.after = 0; x.GetLast() {
			w.after, w.seen, e.LSN = at, at, at
		}
		return WatchBatch{LSN: w.after, Epoch: epoch, Events: []Event{e}}
	}
	var events []Event
	for _, e := range r.GetEvents() {
		w.after = LSN(e.GetLsn())
		events = append(events, eventOf(e))
	}
	w.after = max(w.after, at)
	w.seen = max(w.seen, w.after)
	if w.o.Bookmark > 0 && len(events) == 0 {
		events = []Event{{Kind: EventBookmark, LSN: w.after, Epoch: epoch, message: r}}
	}
	return WatchBatch{LSN: w.after, Epoch: epoch, Events: events}
}
