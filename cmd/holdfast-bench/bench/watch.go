// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// sightLimit is how long the last events may take to arrive.
	sightLimit = 10 * time.Second
	// sightPoll is how often it is looked whether they have.
	sightPoll = 10 * time.Millisecond
)

// Seen is one event as a watcher saw it.
type Seen struct {
	Key string
	At  time.Time
	// Order is its position in the service's log: each watcher sees events in this order.
	Order uint64
	// Mark distinguishes it from other events of the key, see the function Mark; 0 = not known.
	Mark uint64
}

// Mark returns the mark of the grant with a token, or of its release.
func Mark(token uint64, release bool) uint64 {
	if release {
		return token<<1 | 1
	}
	return token << 1
}

// Marker is a Locker whose grants have tokens.
type Marker interface {
	Locker
	// Token returns the token of the lock that is held, or was held last.
	Token() uint64
}

// View is the subject of one watcher: one key, or all keys with a prefix.
type View struct {
	Watcher     int
	Key, Prefix string
}

// Watchable is a Target whose grants and releases can be watched.
type Watchable interface {
	Target
	// Watch returns when the watch has begun; then it calls seen, from one goroutine, for each
	// grant and each release in their order, until ctx ends or the watch does. wait waits for the
	// end, and returns its reason unless that was ctx.
	Watch(ctx context.Context, v View, seen func(Seen)) (wait func() error, err error)
}

// Watchers are the watchers of a load.
type Watchers struct {
	N int
	// Own is true if each watches a key of its own, so that there are N keys, which the workers
	// share; otherwise each watches the keys of all workers.
	Own bool
	// AtEnd is called when all have seen all events and still watch; may be nil.
	AtEnd func() error
}

// call is an acquire or a release.
type call struct {
	asked, answered time.Time
	mark            uint64
}

// watchedWorker takes its keys in turn and writes down when it did what.
type watchedWorker struct {
	Locker
	keys  []*watchedKey
	steps int
}

// watchedKey is a key with the calls of its worker and its watchers.
type watchedKey struct {
	name  string
	calls []call
}

func (w *watchedWorker) Step(ctx context.Context) (Timing, error) {
	k := w.keys[w.steps%len(w.keys)]
	w.steps++
	began := time.Now()
	if err := w.Acquire(ctx, k.name); err != nil {
		return Timing{}, err
	}
	held := time.Now()
	if err := w.Release(ctx); err != nil {
		return Timing{}, err
	}
	end := time.Now()
	grant, release := call{asked: began, answered: held}, call{asked: held, answered: end}
	if m, ok := w.Locker.(Marker); ok {
		grant.mark, release.mark = Mark(m.Token(), false), Mark(m.Token(), true)
	}
	k.calls = append(k.calls, grant, release)
	return Timing{Op: held.Sub(began), Release: end.Sub(held)}, nil
}

// sightings are what one watcher saw, by key. The map is not changed any more when the
// watch begins.
type sightings struct {
	view View
	keys []*watchedKey
	mu   struct {
		sync.Mutex // used by the watcher, and once at the end
		seen       map[string]*[]Seen
		last       uint64
		err        error // of the first event that must not be
	}
}

func (s *sightings) note(x Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.mu.seen[x.Key]
	switch {
	case s.mu.err != nil:
	case all == nil:
		s.mu.err = fmt.Errorf("it was told of %s, which it does not watch", x.Key)
	case x.Order <= s.mu.last:
		s.mu.err = fmt.Errorf("it was told of %s at %d in the log after something at %d", x.Key, x.Order, s.mu.last)
	default:
		s.mu.last = x.Order
		*all = append(*all, x)
	}
}

// of returns what was seen of a key so far.
func (s *sightings) of(key string) ([]Seen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.mu.seen[key], s.mu.err
}

// Watched is the result of a load with watchers.
type Watched struct {
	// Called has the latencies from the call of the acquire or release until the
	// watcher had the event, including the commit.
	Called Run
	// Answered has the latencies from the caller's answer on; 0 if the watcher was first.
	Answered Run
	// Told is how many events all watchers saw together.
	Told int64
}

// Watch runs a load of pairs on own keys with watchers of the keys. l.Rate counts events, two of
// each pair. It returns an error unless each watcher sees exactly the events of its view, in order.
func Watch(ctx context.Context, t Watchable, prefix string, l Load, x Watchers, say Progress) (w Watched, err error) {
	ctx, cancel := context.WithCancel(ctx)
	keys, all := x.views(prefix, l.Workers)
	l.Workers = min(l.Workers, len(keys))
	waits := make([]func() error, len(all))
	defer func() {
		cancel()
		for _, wait := range waits {
			if wait != nil {
				err = errors.Join(err, wait())
			}
		}
	}()
	if err := Each(len(all), openers, func(i int) (err error) {
		waits[i], err = t.Watch(ctx, all[i].view, all[i].note)
		return err
	}); err != nil {
		return w, err
	}
	l.Unit, l.Rate, l.PIDs = "pairs", l.Rate/2, t.PIDs()
	l.Open = func(ctx context.Context, i int) (Worker, error) {
		locker, err := t.Locker(ctx, i, Alone)
		if err != nil {
			return nil, err
		}
		own := &watchedWorker{Locker: locker}
		for at := i; at < len(keys); at += l.Workers {
			own.keys = append(own.keys, keys[at])
		}
		return own, nil
	}
	from := time.Now().Add(l.Warmup)
	r, err := l.Run(ctx, say)
	if err != nil {
		return w, err
	}
	if w, err = sum(ctx, all, r, from); err == nil && x.AtEnd != nil {
		err = x.AtEnd()
	}
	return w, err
}

// views are the keys, and for each watcher what it watches.
func (x Watchers) views(prefix string, workers int) (keys []*watchedKey, all []*sightings) {
	n := workers
	if x.Own {
		n = x.N
	}
	for i := range n {
		keys = append(keys, &watchedKey{name: fmt.Sprintf("%s/%d", prefix, i)})
	}
	for i := range x.N {
		s := &sightings{view: View{Watcher: i, Prefix: prefix}, keys: keys}
		if x.Own {
			s.view, s.keys = View{Watcher: i, Key: keys[i].name}, keys[i:i+1]
		}
		s.mu.seen = map[string]*[]Seen{}
		for _, k := range s.keys {
			s.mu.seen[k.name] = &[]Seen{}
		}
		all = append(all, s)
	}
	return keys, all
}

// sum verifies what was seen, and counts what was seen of calls from a moment on.
func sum(ctx context.Context, all []*sightings, r Run, from time.Time) (w Watched, err error) {
	called, answered := NewHistogram(), NewHistogram()
	for _, s := range all {
		for _, k := range s.keys {
			if err := s.compare(ctx, k, from, called, answered); err != nil {
				return w, fmt.Errorf("watcher %d: %w", s.view.Watcher, err)
			}
			w.Told += int64(len(k.calls))
		}
	}
	w.Called = Run{
		Seconds: r.Seconds, Operations: 2 * r.Operations, Rate: 2 * r.Rate,
		ClientCPU: half(r.ClientCPU), ServerCPU: half(r.ServerCPU), ServerCores: r.ServerCores,
	}
	w.Answered = w.Called
	w.Called.Latency, w.Answered.Latency = called.Latency(), answered.Latency()
	return w, nil
}

// WatchRow returns an empty row for Watch.
func WatchRow(name string, t Target, workers, rate int, x Watchers) Row {
	switch {
	case x.Own:
		name = fmt.Sprintf("%s, %d watchers of own keys", name, x.N)
	case x.N > 1:
		name = fmt.Sprintf("%s, %d watchers of all keys", name, x.N)
	}
	return Row{Workload: name, Target: t.Name(), Unit: "events", Workers: workers, Offered: float64(rate)}
}

// half is of an event what is known of a pair.
func half(us *float64) *float64 {
	if us == nil {
		return nil
	}
	h := *us / 2
	return &h
}

// compare finds the event of each call: the n-th of a key is of its n-th call.
func (s *sightings) compare(ctx context.Context, k *watchedKey, from time.Time, called, answered *Histogram) error {
	ctx, cancel := context.WithTimeout(ctx, sightLimit)
	defer cancel()
	seen, err := s.of(k.name)
	for err == nil && len(seen) < len(k.calls) && Rest(ctx, sightPoll) == nil {
		seen, err = s.of(k.name)
	}
	if err != nil {
		return err
	}
	if len(seen) != len(k.calls) {
		return fmt.Errorf("of the %d events of %s it saw %d", len(k.calls), k.name, len(seen))
	}
	for i, c := range k.calls {
		if seen[i].Mark != c.mark || seen[i].At.Before(c.asked) {
			return fmt.Errorf("event %d of %s is not that of its call: events were lost or doubled", i+1, k.name)
		}
		if c.asked.Before(from) {
			continue
		}
		called.Record(seen[i].At.Sub(c.asked))
		answered.Record(seen[i].At.Sub(c.answered))
	}
	return nil
}
