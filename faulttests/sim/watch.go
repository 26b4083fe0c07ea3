// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// witness watches everything at every server of a cluster, for as long as their
// processes live.
type witness struct {
	mu    sync.Mutex
	told  map[cluster.LSN]string // by any server
	spans []*span
	bad   []string
}

// span describes what one server sent without a gap: how many events after one LSN, up to another.
type span struct {
	server   cluster.ServerID
	from, to cluster.LSN
	events   int
}

// watchAgain is when a watcher that was sent away comes back.
const watchAgain = 200 * time.Millisecond

// watch watches at a server until its process ends. It begins again after a gap
// and resumes wherever it is let.
func (w *witness) watch(ctx context.Context, id cluster.ServerID, h *watch.Hub, a *audit) {
	var s *span
	for ctx.Err() == nil {
		o := watch.Options{Kinds: watch.KindsOf(allKinds()...), Resume: s != nil}
		if s != nil {
			o.After = s.to
		}
		x, end := h.Watch(o)
		if end == nil {
			s, end = w.follow(ctx, id, x, s, a)
			x.Close()
		}
		if end != nil && end.Gap {
			s = nil
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
}

func allKinds() (all []locktable.Kind) {
	for k := locktable.KindGrant; k <= locktable.MaxKind; k++ {
		if k.Known() {
			all = append(all, k)
		}
	}
	return all
}

// follow reads a watch to its end. It continues span s, or begins a new one.
func (w *witness) follow(ctx context.Context, id cluster.ServerID, x *watch.Watcher, s *span, a *audit) (*span, *watch.End) {
	for {
		b := x.Take()
		if s == nil {
			s = &span{server: id, from: b.LSN, to: b.LSN}
			if len(b.Events) > 0 {
				s.from = cluster.LSN(b.Events[0].Lsn) - 1
				s.to = s.from
			}
			w.begin(s)
		}
		w.note(s, b, a)
		if b.End != nil {
			return s, b.End
		}
		select {
		case <-x.Wake():
		case <-ctx.Done():
			return s, nil
		}
	}
}

func (w *witness) begin(s *span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spans = append(w.spans, s)
}

// note compares a batch with what was sent before, by this server and others.
func (w *witness) note(s *span, b watch.Batch, a *audit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range b.Events {
		lsn := cluster.LSN(e.Lsn)
		if lsn <= s.to {
			w.bad = append(w.bad, fmt.Sprintf("watch: server %d told of LSN %d after %d", s.server, lsn, s.to))
		}
		a.tellsEvent(e)
		what := fmt.Sprintf("%v of %s under token %d by %s/%d in epoch %d", e.Kind, e.Lock, e.Token, e.ClientId, e.RequestId, e.Epoch)
		if before, known := w.told[lsn]; known && before != what {
			w.bad = append(w.bad, fmt.Sprintf("watch: server %d told of LSN %d as %s, another as %s", s.server, lsn, what, before))
		}
		w.told[lsn] = what
		s.to = lsn
		s.events++
	}
	s.to = max(s.to, b.LSN)
}

// Bad returns the violations, including events that one server sent and another one left out.
func (w *witness) Bad() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := w.bad
	for _, s := range w.spans {
		n := 0
		for lsn := range w.told {
			if s.from < lsn && lsn <= s.to {
				n++
			}
		}
		if n != s.events {
			bad = append(bad, fmt.Sprintf("watch: server %d told %d of %d events from LSN %d to %d", s.server, s.events, n, s.from, s.to))
		}
	}
	return bad
}

// tellsEvent judges an event of the process's own term that it sent to a watcher.
func (a *audit) tellsEvent(e *pb.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own, err := strconv.ParseUint(path.Base(a.own), 10, 64); err == nil && own == e.Epoch {
		a.need(a.since(cluster.LSN(e.Lsn)), "the event of LSN %d", e.Lsn)
	}
}
