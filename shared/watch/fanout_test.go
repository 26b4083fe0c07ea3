// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// plan is what happens in a test of many watchers, and what each of them is to hear.
type plan struct {
	recs    []locktable.Record
	byLock  map[string][]cluster.LSN
	forAll  []cluster.LSN
	prefixs map[string][]cluster.LSN
}

// newPlan grants and ends the locks lock/0 … in turn, rounds times; now and then a term
// begins, which concerns everybody.
func newPlan(locks, rounds int) *plan {
	p := &plan{byLock: map[string][]cluster.LSN{}, prefixs: map[string][]cluster.LSN{}}
	tokens := map[string]cluster.Token{}
	for i := range locks * rounds {
		if i%2000 == 1999 {
			p.recs = append(p.recs, term())
			p.forAll = append(p.forAll, cluster.LSN(len(p.recs)))
		}
		name := fmt.Sprintf("lock/%d", i%locks)
		r := grant(name)
		if t := tokens[name]; t != 0 {
			r = expire(name, t)
			tokens[name] = 0
		} else {
			tokens[name] = cluster.Token(len(p.recs) + 1)
		}
		p.recs = append(p.recs, r)
		lsn := cluster.LSN(len(p.recs))
		p.byLock[name] = append(p.byLock[name], lsn)
		if x := name[:min(len(name), len("lock/00"))]; len(x) == len("lock/00") {
			p.prefixs[x] = append(p.prefixs[x], lsn)
		}
	}
	return p
}

// expected is what a watcher is to hear.
func (p *plan) expected(o Options) []cluster.LSN {
	own := p.prefixs[o.Prefix]
	if o.Lock != "" {
		own = p.byLock[string(o.Lock)]
	}
	all := slices.Concat(own, p.forAll)
	slices.Sort(all)
	return all
}

// TestTenThousandWatchers has every watcher get exactly its events, in order, while
// records pass as fast as they can: most watch one name, some a prefix, some what
// concerns all. Some resume in the middle of it.
func TestTenThousandWatchers(t *testing.T) {
	const watchers, perFrame = 10_000, 7
	p := newPlan(watchers, 4)
	h, s := fed(t, false)
	ctx, stop := context.WithCancel(t.Context())
	var running, reading sync.WaitGroup
	running.Go(func() { h.Run(ctx) }) //nolint:errcheck // it is stopped
	defer running.Wait()
	defer stop()
	for i := range watchers {
		o := Options{Lock: cluster.LockName(fmt.Sprintf("lock/%d", i)), Kinds: KindsOf(), Resume: true}
		switch i % 100 {
		case 98:
			o.Lock, o.Prefix = "", fmt.Sprintf("lock/%d", 10+i%89)
		case 99:
			o.Lock, o.Kinds = "", KindsOf(locktable.KindBreak)
		}
		w := watching(t, h, o)
		reading.Go(func() { w.hears(t, o, p.expected(o), i%50 == 0) })
	}
	for recs := range slices.Chunk(p.recs, perFrame) {
		s.commit(recs...)
	}
	reading.Wait()
	if h.Flush(); h.mu.index.count != 0 || len(h.mu.index.names)+len(h.mu.index.prefixes)+len(h.mu.index.lengths) > 0 {
		t.Errorf("the hub remembers %d watchers that left", h.mu.index.count)
	}
}

// hears reads until everything is told that is wanted, and wants nothing else. One that is
// restless comes back after every batch.
func (w *Watcher) hears(t *testing.T, o Options, want []cluster.LSN, restless bool) {
	seen, n := cluster.LSN(0), 0
	for n < len(want) {
		<-w.Wake()
		b := w.Take()
		for _, e := range b.Events {
			if n == len(want) || cluster.LSN(e.Lsn) != want[n] || cluster.LSN(e.Lsn) > b.LSN {
				t.Errorf("%+v: event %d is %v, want LSN %v", o, n, e, want[min(n, len(want)-1)])
				return
			}
			n++
		}
		if b.LSN < seen || b.End != nil {
			t.Errorf("%+v: LSN %d after %d, end %+v", o, b.LSN, seen, b.End)
			return
		}
		seen = b.LSN
		if restless && n < len(want) {
			w.Close()
			again := o
			again.After = b.LSN
			w = watching(t, w.h, again)
		}
	}
	w.Close()
}

// BenchmarkFanOut is what one record costs, from its feed to the buffers of its
// watchers, in frames of 64 records on 5,000 locks.
func BenchmarkFanOut(b *testing.B) {
	for _, x := range []struct {
		name     string
		watchers int
		o        func(i int) Options
	}{
		{"nobody", 0, nil},
		{"1 of everything", 1, func(int) Options { return Options{Resume: true} }},
		{"1 of one name", 1, func(int) Options { return Options{Lock: "lock/1", Resume: true} }},
		{"5000 of own names", 5000, func(i int) Options { return Options{Lock: cluster.LockName(fmt.Sprintf("lock/%d", i)), Resume: true} }},
		{"5000 of own prefixes", 5000, func(i int) Options { return Options{Prefix: fmt.Sprintf("lock/%d", i), Resume: true} }},
		{"5000 of everything", 5000, func(int) Options { return Options{Resume: true} }},
	} {
		b.Run(x.name, func(b *testing.B) {
			h, s := fed(b, false)
			var all []*Watcher
			for i := range x.watchers {
				all = append(all, watching(b, h, x.o(i)))
			}
			const perFrame = 64
			names := make([]string, 5000)
			for i := range names {
				names[i] = fmt.Sprintf("lock/%d", i)
			}
			recs := make([]locktable.Record, perFrame)
			n, taken := 0, 0
			for b.Loop() {
				recs[n%perFrame] = grant(names[n%len(names)])
				if n++; n%perFrame != 0 {
					continue
				}
				b.StopTimer()
				before, frame := s.encode(recs...)
				b.StartTimer()
				s.feed.Frames(before, s.at, 1, frame, nil)
				if x.watchers > 0 {
					h.Flush()
				}
				if taken++; taken%32 == 0 { // before anybody is cut
					b.StopTimer()
					for _, w := range all {
						if w.Take().End != nil {
							b.Fatal("cut")
						}
					}
					b.StartTimer()
				}
			}
		})
	}
}
