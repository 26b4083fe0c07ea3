// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// watchInquiry is after how long without a word from its server a watch has it
	// asked whether it is there, and watchProbe how long that may take.
	watchInquiry = 2 * time.Second
	watchProbe   = time.Second
	// anewPause is how long a watch rests that its listener wants to begin anew.
	anewPause = time.Second
)

// WatchOptions say what to watch. The zero value is everything, from now on.
type WatchOptions struct {
	// Lock is one lock; without it, Prefix is that of the names of all locks to
	// watch, "" for all there are.
	Lock   cluster.LockName
	Prefix string
	// After resumes a watch: the LSN of the last event that was seen. 0 = begin with a reset.
	After cluster.LSN
	// Kinds are those wanted; none means all but appends. What concerns all locks,
	// EventForceClear, EventResigned and EventReign, and EventReset come in any case.
	Kinds []EventKind
	// Bookmark asks for an EventBookmark at least this often, for who keeps the LSN
	// to resume there. 0 = none.
	Bookmark time.Duration
}

// Watch yields what happens to locks, in order and without gaps. It begins with the
// state as it is, or with the events after WatchOptions.After. Over broken
// connections and failovers it goes on where it was; where a server cannot do
// that, the state comes again. Either way an EventReset says so, and everything after it is
// complete.
//
// Any server that is up serves it, a replica rather than the primary, and a few
// milliseconds later than the primary would. The sequence ends with an error: that
// of ctx, a refusal, or that no server answered for Options.Budget. To go on, watch
// after the last LSN. A loop that takes long over its events loses nothing, but may meet a reset.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := c.watcher(o, func(e Event) bool { return yield(e, nil) })
		if err := w.follow(ctx); err != nil {
			yield(Event{}, err)
		}
	}
}

// watcher is one watch on its way from server to server.
type watcher struct {
	c     *Client
	o     WatchOptions
	k     *call
	after cluster.LSN // up to here everything was yielded; 0 = begin with a reset
	seen  cluster.LSN // the highest that was yielded: no reset goes behind it
	yield func(Event) bool
	told  func(epoch cluster.Epoch) // unless it is nil: everything up to after was yielded
	over  bool                      // the loop was left
	anew  bool                      // whoever listens wants a reset
}

func (c *Client) watcher(o WatchOptions, yield func(Event) bool) *watcher {
	return &watcher{c: c, o: o, k: &call{op: "watch", lock: o.Lock}, after: o.After, seen: o.After, yield: yield}
}

// follow watches until the loop is left or it has to give up.
func (w *watcher) follow(ctx context.Context) error {
	// It ends with Close, but Close does not wait for it: it may be called in the loop.
	both := &joined{Context: ctx, life: w.c.life}
	defer both.end()
	if err := w.run(both); err != nil {
		return w.k.fail(err)
	}
	return nil
}

// run watches at one server after the other. It returns nil when the loop was left.
func (w *watcher) run(ctx context.Context) error {
	kinds, err := w.kinds()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	left, pause := budget{left: w.c.opt.Budget}, pauses{random: w.c.opt.Rand}
	failed := map[*server]bool{} // since one served us
	for {
		to, began := w.choose(failed), time.Now()
		served, err := w.attempt(ctx, to, w.request(kinds))
		if w.over {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if served {
			left, pause, began = budget{left: w.c.opt.Budget}, pauses{random: w.c.opt.Rand}, time.Now()
			clear(failed)
		}
		if _, other := estranged(err); other {
			if f := w.c.servers.locate(ctx); f.lost {
				return f.err
			}
		}
		v := judge((*pb.WatchResponse)(nil), err)
		if cut := wire.FromStatus(statusOf(err)) == cluster.StatusCancelled; v.final && !cut {
			return v.err
		}
		if v.primary != nil && v.primary.GRPC != "" {
			w.c.servers.add(v.primary.GRPC) //nolint:errcheck // then there are others
		}
		failed[to] = true
		d := pause.next(0, false)
		if errors.Is(err, errAnew) {
			d += anewPause
		}
		if !left.spend(time.Since(began) + d) {
			return fmt.Errorf("no server let us watch for %v at %v: check that the servers run: %w", w.c.opt.Budget, w.c.servers.addresses(), err)
		}
		if !rest(ctx, d) {
			return context.Cause(ctx)
		}
	}
}

// statusOf is the status in an error, NONE if there is none.
func statusOf(err error) pb.Status {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return pb.Status(e.Status)
	}
	return pb.Status_STATUS_NONE
}

// kinds are the wanted ones as numbers.
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
	errAnew   = errors.New("the watch begins anew")
)

// attempt watches at one server until that ends. It says whether the server served us.
func (w *watcher) attempt(ctx context.Context, to *server, q *pb.WatchRequest) (served bool, err error) {
	w.k.tries++
	if w.c.servers.meant.told.Load() == nil {
		w.c.servers.locate(ctx) // so that no other cluster ever goes on where this one has ended
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := w.c.guard(ctx, to, func() { cancel(errSilent) })
	defer stop()
	stream, err := to.stub.Watch(ctx, q)
	for err == nil && !w.over {
		var r *pb.WatchResponse
		if r, err = stream.Recv(); err != nil {
			break
		}
		to.heard.Store(int64(w.c.opt.Clock.Now()))
		if s := wire.FromStatus(r.GetStatus()); s != cluster.StatusOK {
			return served, valueError(s, r)
		}
		if at := cluster.LSN(r.GetLsn()); r.GetReset_() != nil && at < w.seen {
			return served, fmt.Errorf("%s stands at LSN %d, and LSN %d was seen", to.addr, at, w.seen)
		}
		served = true
		if w.tell(r); w.anew {
			w.anew, w.after = false, 0
			return served, errAnew
		}
	}
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		err = fmt.Errorf("%s: %w", to.addr, errSilent)
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%s ended the watch without a word", to.addr)
	}
	return served, err
}

// tell yields what one message tells.
func (w *watcher) tell(r *pb.WatchResponse) {
	at := cluster.LSN(r.GetLsn())
	give := func(e Event) {
		w.over = w.over || !w.yield(e)
	}
	if x := r.GetReset_(); x != nil {
		e := Event{Kind: EventReset, Epoch: cluster.Epoch(r.GetEpoch()), Reset: resetOf(r), message: r}
		if w.after = 0; x.GetLast() {
			w.after, w.seen, e.LSN = at, at, at
		}
		give(e)
		w.complete(r)
		return
	}
	for _, e := range r.GetEvents() {
		if w.over {
			return
		}
		w.after = cluster.LSN(e.GetLsn())
		give(eventOf(e))
	}
	w.after = max(w.after, at)
	w.seen = max(w.seen, w.after)
	w.complete(r)
	if w.o.Bookmark > 0 && len(r.GetEvents()) == 0 {
		give(Event{Kind: EventBookmark, LSN: w.after, Epoch: cluster.Epoch(r.GetEpoch()), message: r})
	}
}

// complete says that a message was yielded.
func (w *watcher) complete(r *pb.WatchResponse) {
	if w.told != nil && w.after > 0 && !w.over && !w.anew {
		w.told(cluster.Epoch(r.GetEpoch()))
	}
}

// pulse is what all watches at one server know of its silence.
type pulse struct {
	asking chan struct{} // has room for the one who asks
	// failed is when it was asked for nothing, on the client's clock; 0 = never.
	failed atomic.Int64
}

// guard calls lost, once, when a server is silent for long and does not answer a question
// either. Until stop it looks after itself: one question serves all watches.
func (c *Client) guard(ctx context.Context, v *server, lost func()) (stop func()) {
	began := c.opt.Clock.Now()
	var t *time.Timer
	var mu sync.Mutex // t is set before it is used
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(watchInquiry, func() {
		if !c.answers(ctx, v, began) {
			lost()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			t.Reset(watchInquiry)
		}
	})
	return func() { t.Stop() }
}

// answers says whether a server was heard lately or answers now.
func (c *Client) answers(ctx context.Context, v *server, began time.Duration) bool {
	lately := func(at *atomic.Int64) bool {
		t := time.Duration(at.Load())
		return t >= began && t > c.opt.Clock.Now()-watchInquiry
	}
	if lately(&v.heard) {
		return true
	}
	select {
	case v.pulse.asking <- struct{}{}:
		defer func() { <-v.pulse.asking }()
	case <-ctx.Done():
		return true
	}
	if lately(&v.heard) || lately(&v.pulse.failed) {
		return lately(&v.heard)
	}
	asked, cancel := context.WithTimeout(ctx, watchProbe)
	defer cancel()
	if c.servers.ask(asked, v).err == nil || ctx.Err() != nil {
		return true // or nobody needs to know any more
	}
	v.pulse.failed.Store(int64(c.opt.Clock.Now()))
	return false
}
