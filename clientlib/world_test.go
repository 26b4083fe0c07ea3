// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// fakeClock is the bubble's time plus the time that the machine slept.
type fakeClock struct {
	start time.Time
	mu    sync.Mutex
	slept time.Duration
}

func (c *fakeClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.start) + c.slept
}

func (c *fakeClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

// world is a cluster of three fakes and a client, in virtual time.
type world struct {
	t *testing.T
	*fakeCluster
	servers []*fakeServer
	clock   *fakeClock
	c       *Client
}

// inBubble runs a test in virtual time, with calls alone and with sessions. The
// client is closed at its end, and the bubble fails if a goroutine is left.
func inBubble(t *testing.T, o Options, f func(*testing.T, *world)) {
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprintf("sessions=%v", sessions), func(t *testing.T) { bubble(t, o, sessions, f) })
	}
}

func bubble(t *testing.T, o Options, sessions bool, f func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fakeCluster: newFakeCluster(), clock: &fakeClock{start: time.Now()}}
		for i := range 3 {
			w.servers = append(w.servers, w.server(fmt.Sprintf("s%d:1", i+1)))
			w.servers[i].mu.sessions = sessions
		}
		w.c = w.client(o)
		f(t, w)
		w.c.Close()
	})
}

func (w *world) client(o Options) *Client {
	o.Clock = w.clock
	for _, s := range w.servers {
		o.Endpoints = append(o.Endpoints, s.addr)
	}
	c, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, v := range c.servers.mu.all {
		v.stub, v.dial = direct{s: w.servers[i]}, w.servers[i].dial
	}
	return c
}

func (w *world) acquire(lock cluster.LockName, o AcquireOptions) *Lock {
	w.t.Helper()
	l, err := w.c.Acquire(w.t.Context(), lock, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// others holds a lock under another client.
func (w *world) others(lock string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grant(fakeKey{"other", w.mu.lsn}, lock, 10_000)
}
