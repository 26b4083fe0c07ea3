// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

// staleEvery is how often a hub checks whether its feed is silent.
const staleEvery = time.Second

// Hub distributes events to watchers while Run runs. Make it with New.
type Hub struct {
	stale time.Duration
	wake  wake.Signal

	// in is what feeds have given.
	in struct {
		sync.Mutex
		feed  *Feed // the one that began last
		live  bool  // it has not ended
		end   wal.Position
		epoch cluster.Epoch
		fed   time.Time
		ring  []*chunk // the newest ones
		bytes int
		// first is the number of ring[0]. From the one with the number leapt on, each
		// begins where the one before ended.
		first, leapt uint64
		// watched and losing report whether there are watchers, or subscribers of losses.
		watched, losing bool
	}

	mu struct {
		sync.Mutex
		next    uint64 // the number of the chunk that is distributed next
		end     wal.Position
		closed  bool
		index   index
		losses  map[cluster.ClientID][]*lossWatcher
		chunks  []*chunk   // reused
		touched []*Watcher // likewise
		cut     []*Watcher // to be taken out of the index
	}
	// Copies for Take: up to where events were distributed.
	upto, epoch atomic.Uint64
}

// New returns a hub. While a feed from another server is silent for longer than stale, the hub
// serves no watches.
func New(stale time.Duration) *Hub {
	h := &Hub{stale: stale, wake: wake.NewSignal()}
	h.mu.index = newIndex()
	h.mu.losses = map[cluster.ClientID][]*lossWatcher{}
	return h
}

// Run distributes events until ctx ends, and returns its cause; then all watches end, too.
func (h *Hub) Run(ctx context.Context) error {
	t := time.NewTicker(staleEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			h.mu.closed = true
			h.flush()
			h.endAll(secondary("this server stops"))
			return context.Cause(ctx)
		case <-h.wake:
			h.Flush()
		case <-t.C:
			h.cutStale()
		}
	}
}

// Flush distributes all that feeds have given up to now.
func (h *Hub) Flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush()
}

// flush is called with mu held, like all below.
func (h *Hub) flush() {
	missed := h.take()
	if missed {
		h.endAll(&End{Gap: true, Why: "slow_server", Message: "this server could not hand the events out fast enough"})
	}
	for i, c := range h.mu.chunks {
		h.mu.chunks[i] = nil
		if c.stop != nil {
			h.endAll(c.stop)
		} else if err := h.distribute(c); err != nil {
			h.endAll(&End{Gap: true, Why: "unreadable", Message: fmt.Sprintf("the events up to LSN %d cannot be read: %v", c.end.LSN, err)})
		}
		h.mu.end = c.end
		h.epoch.Store(uint64(c.epoch))
		h.upto.Store(uint64(c.end.LSN))
	}
	for i, w := range h.mu.touched {
		h.mu.touched[i] = nil
		w.touched = false
		w.wake.Notify()
	}
	h.mu.touched = h.mu.touched[:0]
	for _, w := range h.mu.cut {
		h.mu.index.remove(w)
	}
	h.mu.cut = nil
}

// take fetches the chunks that were not distributed yet, and reports whether some were dropped
// before that.
func (h *Hub) take() (missed bool) {
	h.in.Lock()
	defer h.in.Unlock()
	if missed = h.in.first > h.mu.next; missed {
		h.mu.next = h.in.first
	}
	h.mu.chunks = append(h.mu.chunks[:0], h.in.ring[h.mu.next-h.in.first:]...)
	h.mu.next += uint64(len(h.mu.chunks))
	return missed
}

// event is one record on its way to watchers.
type event struct {
	kind   locktable.Kind
	lsn    cluster.LSN
	lock   string
	header []byte
	made   *pb.Event // nil until it was needed
}

// decode makes the chunk's events and visits their records.
func (c *chunk) decode(visit func(*event, *locktable.Record)) error {
	events := make([]event, 0, 4)
	for b := c.frames; len(b) > 0; {
		_, entries, n, err := wal.DecodeFrame(b)
		if err != nil {
			return err
		}
		for i := range entries {
			r, err := locktable.DecodeHeader(entries[i].Header)
			if err != nil {
				return err
			}
			events = append(events, event{kind: r.Kind, lsn: r.LSN, lock: string(r.Lock), header: entries[i].Header})
			visit(&events[len(events)-1], &r)
		}
		b = b[n:]
	}
	c.events = events
	return nil
}

// all returns the chunk's events, made if need be.
func (c *chunk) all() ([]event, error) {
	if c.events == nil && len(c.frames) > 0 {
		if err := c.decode(func(*event, *locktable.Record) {}); err != nil {
			return nil, err
		}
	}
	return c.events, nil
}

// message returns the event's message, made if need be.
func (e *event) message(at time.Time) (*pb.Event, error) {
	if e.made == nil {
		r, err := locktable.DecodeHeader(e.header)
		if err != nil {
			return nil, err
		}
		e.made = convert.FromRecord(&r, at)
	}
	return e.made, nil
}

// distribute delivers a chunk's events and losses to those that they concern.
func (h *Hub) distribute(c *chunk) error {
	if len(c.losses) > 0 && len(h.mu.losses) > 0 {
		if err := h.deliverLosses(c); err != nil {
			return err
		}
	}
	if h.mu.index.count == 0 {
		return nil
	}
	return c.decode(func(e *event, r *locktable.Record) {
		h.mu.index.match(e.kind, e.lock, func(w *Watcher) {
			if e.made == nil {
				e.made = convert.FromRecord(r, c.at)
			}
			if !w.touched {
				w.touched = true
				h.mu.touched = append(h.mu.touched, w)
			}
			w.add(e.made)
		})
	})
}

// endAll ends every watch.
func (h *Hub) endAll(why *End) {
	if why.Gap {
		h.deliverGap()
	}
	all := h.mu.index.all()
	for _, w := range all {
		w.finish(why, h.mu.end.LSN)
	}
	h.mu.index = newIndex()
	h.updateDemand()
}

// updateDemand lets feeds know whether there are watchers. What came just before did not wake
// Run, so that is woken now.
func (h *Hub) updateDemand() {
	h.in.Lock()
	defer h.in.Unlock()
	h.in.watched, h.in.losing = h.mu.index.count > 0, len(h.mu.losses) > 0
	if waiting := h.mu.next < h.in.first+uint64(len(h.in.ring)); waiting && (h.in.watched || h.in.losing) {
		h.wake.Notify()
	}
}

// cutStale ends the watches of a hub whose feed is silent.
func (h *Hub) cutStale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.index.count == 0 {
		return
	}
	if end := h.refusal(); end != nil {
		h.flush()
		h.endAll(end)
	}
}

// refusal returns why no watch is served here now, or nil.
func (h *Hub) refusal() *End {
	h.in.Lock()
	defer h.in.Unlock()
	switch {
	case h.mu.closed:
		return secondary("this server stops")
	case !h.in.live:
		return secondary("this server does not hear what is committed")
	case h.in.feed.pushed && time.Since(h.in.fed) > h.stale:
		return secondary(fmt.Sprintf("this replica was not fed for %v", h.stale))
	}
	return nil
}

// fedByPrimary reports whether the feed is that of a primary: no client has seen more than it
// has given. A replica's may be behind what a client saw elsewhere.
func (h *Hub) fedByPrimary() bool {
	h.in.Lock()
	defer h.in.Unlock()
	return !h.in.feed.pushed
}

// reaches reports whether all losses after an LSN are still kept.
func (h *Hub) reaches(after cluster.LSN) bool {
	_, ok := h.since(after)
	return ok
}

// since copies the kept chunks that have events after an LSN. It returns false where some of
// these are no longer kept.
func (h *Hub) since(after cluster.LSN) ([]*chunk, bool) {
	h.in.Lock()
	defer h.in.Unlock()
	from := max(h.in.first, h.in.leapt)
	if from > h.mu.next {
		return nil, false // what is distributed next begins with a gap
	}
	ring := h.in.ring[from-h.in.first : h.mu.next-h.in.first]
	oldest := h.mu.end.LSN
	if len(ring) > 0 {
		oldest = ring[0].before.LSN
	}
	if after < oldest {
		return nil, false
	}
	i := sort.Search(len(ring), func(i int) bool { return ring[i].end.LSN > after })
	return append([]*chunk(nil), ring[i:]...), true
}
