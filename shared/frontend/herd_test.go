// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/session"
)

// dialed is a listener in memory for any number of clients.
type dialed struct {
	net.Listener
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
	dials  atomic.Int64
}

func (l *dialed) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *dialed) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *dialed) dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	l.dials.Add(1)
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// busily is a listener on which each connection costs time, one after the other.
type busily struct {
	net.Listener
	each   time.Duration
	served int
}

func (l *busily) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		time.Sleep(l.each)
		l.served++
	}
	return c, err
}

// Where more clients come at once than a server can take within their patience, it takes those that wait, one after the
// other, and the others come again later: it serves no client that has given up, so it does not stay slow for ever.
func TestServerGetsOverAHerd(t *testing.T) {
	const clients, each = 800, 5 * time.Millisecond
	// The race detector breaks where two threads run timers of one bubble at a time: the runtime (unlockAndRun in its
	// time.go) has one context of the detector for all of a bubble's timers.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		v := session.New(service.New(startPrimary(t), service.Options{}), zerolog.Nop())
		l := &dialed{conns: make(chan net.Conn), closed: make(chan struct{})}
		p := clientport.New(zerolog.Nop(), nil)
		slow := &busily{Listener: p.Listener(clientport.Sessions), each: each}
		var serving, all sync.WaitGroup
		serving.Go(func() { p.Serve(l) })    //nolint:errcheck // it is closed
		serving.Go(func() { v.Serve(slow) }) //nolint:errcheck // it is closed
		began := time.Now()
		for i := range clients {
			all.Go(func() {
				c, err := clientlib.New(clientlib.Options{Endpoints: []string{"s:1"}, Dialer: l.dial, Budget: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close() //nolint:errcheck // nothing is in flight
				if _, err := c.Acquire(t.Context(), clientlib.LockName(fmt.Sprint("lock ", i)), clientlib.AcquireOptions{}); err != nil {
					t.Errorf("client %d after %v: %v", i, time.Since(began), err)
				}
			})
		}
		all.Wait()
		t.Logf("%d clients were served within %v, over %d connections of %d", clients, time.Since(began), slow.served, l.dials.Load())
		if n := l.dials.Load(); slow.served != clients || n > 3*clients {
			t.Errorf("%d connections were set up for %d clients, of %d that were made", slow.served, clients, n)
		}
		p.Close() //nolint:errcheck // never fails
		v.Close()
		serving.Wait()
	})
}
