// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// noticeBoard is a service that takes a millisecond for everything and tells
// watchers another three later.
type noticeBoard struct {
	// twist changes what a watcher is told of the n-th event that concerns it.
	twist func(watcher, n int, x Seen) (told []Seen)

	mu       sync.Mutex
	log      uint64
	watchers []chan Seen
	views    []View
}

func (b *noticeBoard) Name() string { return "board" }
func (b *noticeBoard) PIDs() []int  { return nil }

func (b *noticeBoard) Locker(context.Context, int, Mode) (Locker, error) {
	return &noticeLocker{board: b}, nil
}

func (b *noticeBoard) Watch(ctx context.Context, v View, seen func(Seen)) (func() error, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := make(chan Seen, 1000)
	b.watchers, b.views = append(b.watchers, events), append(b.views, v)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case x := <-events:
				time.Sleep(time.Until(x.At.Add(3 * time.Millisecond)))
				for _, y := range b.twist(v.Watcher, n, x) {
					y.At = time.Now()
					seen(y)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() error { <-done; return nil }, nil
}

// commit is an event: the next in the log, which has room between its entries.
func (b *noticeBoard) commit(key string, token uint64, release bool) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log += 10
	if !release {
		token = b.log
	}
	x := Seen{Key: key, At: time.Now(), Order: b.log, Mark: Mark(token, release)}
	for i, v := range b.views {
		if v.Key == key || v.Key == "" && strings.HasPrefix(key, v.Prefix+"/") {
			b.watchers[i] <- x
		}
	}
	return token
}

type noticeLocker struct {
	board *noticeBoard
	key   string
	token uint64
}

func (l *noticeLocker) Acquire(ctx context.Context, key string) error {
	err := Rest(ctx, time.Millisecond)
	l.key, l.token = key, l.board.commit(key, 0, false)
	return err
}

func (l *noticeLocker) Release(ctx context.Context) error {
	err := Rest(ctx, time.Millisecond)
	l.board.commit(l.key, l.token, true)
	return err
}

func (l *noticeLocker) Token() uint64 { return l.token }
func (l *noticeLocker) Close() error  { return nil }

func TestWatch(t *testing.T) {
	// at says what the last watcher is told instead of its second event.
	at := func(told func(x Seen) []Seen) func(int, int, Seen) []Seen {
		return func(watcher, n int, x Seen) []Seen {
			if watcher == 2 && n == 1 {
				return told(x)
			}
			return []Seen{x}
		}
	}
	for _, tt := range []struct {
		name  string
		twist func(watcher, n int, x Seen) []Seen
		want  string
	}{
		{"all are told", at(func(x Seen) []Seen { return []Seen{x} }), ""},
		{"one is lost", at(func(Seen) []Seen { return nil }), "saw"},
		{"one is doubled", at(func(x Seen) []Seen { return []Seen{x, x} }), "in the log after something"},
		{"one too many", at(func(x Seen) []Seen { y := x; y.Order++; return []Seen{x, y} }), "saw"},
		{"out of order", at(func(x Seen) []Seen { x.Order = 0; return []Seen{x} }), "in the log after something"},
		{"another's event", at(func(x Seen) []Seen { x.Key = "other"; return []Seen{x} }), "does not watch"},
		{"another grant", at(func(x Seen) []Seen { x.Mark = Mark(7, true) + 1000; return []Seen{x} }), "not that of its call"},
		{"a release for a grant", at(func(x Seen) []Seen { x.Mark ^= 1; return []Seen{x} }), "not that of its call"},
	} {
		for _, own := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{false: "", true: ", own keys"}[own], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testWatch(t, tt.twist, own, tt.want) })
			})
		}
	}
}

func testWatch(t *testing.T, twist func(int, int, Seen) []Seen, own bool, want string) {
	b := &noticeBoard{twist: twist}
	atEnd := 0
	// Two workers share the keys of three watchers.
	l := Load{Workers: 2, Rate: 40, Warmup: time.Second, Duration: 2 * time.Second}
	w, err := Watch(t.Context(), b, "x", l, Watchers{N: 3, Own: own, AtEnd: func() error { atEnd++; return nil }}, quiet)
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q", err, want)
	}
	if err != nil {
		return
	}
	told := int64(120) // in three seconds
	if !own {
		told *= 3
	}
	if w.Called.Rate != 40 || w.Told != told || atEnd != 1 {
		t.Errorf("%v/s, %d told, %d times at the end", w.Called.Rate, w.Told, atEnd)
	}
	if c, a := w.Called.Latency, w.Answered.Latency; c.P50 < 4000 || c.P50 > 4010 || a.P50 < 3000 || a.P50 > 3010 {
		t.Errorf("%+v %+v", c, a)
	}
}

func TestWatchersThatCannotStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := errors.New("no more watchers")
		b := &noticeBoard{twist: func(_, _ int, x Seen) []Seen { return []Seen{x} }}
		_, err := Watch(t.Context(), &fullBoard{b, refusal}, "x", Load{Workers: 1, Duration: time.Second}, Watchers{N: 3}, quiet)
		if !errors.Is(err, refusal) {
			t.Errorf("got %v", err)
		}
	})
}

// fullBoard has room for two watchers.
type fullBoard struct {
	*noticeBoard
	refusal error
}

func (b *fullBoard) Watch(ctx context.Context, v View, seen func(Seen)) (func() error, error) {
	if v.Watcher == 2 {
		return nil, b.refusal
	}
	return b.noticeBoard.Watch(ctx, v, seen)
}
