// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// address is one address, at which now this volume is served and now that one.
type address struct {
	t    *testing.T
	opts []grpc.ServerOption
	here atomic.Pointer[world]
}

// atAddress runs a test in virtual time, with a volume at an address.
func atAddress(t *testing.T, opts []grpc.ServerOption, f func(t *testing.T, at *address)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		at := &address{t: t, opts: opts}
		at.here.Store(newWorld(opts...))
		t.Cleanup(func() { at.here.Load().end() })
		f(t, at)
	})
}

// anew ends the volume's server, and has one serve another volume.
func (at *address) anew() {
	at.here.Load().end()
	at.here.Store(newWorldOf(2, at.opts...))
}

func (at *address) dial(ctx context.Context, _ string) (net.Conn, error) {
	w := at.here.Load()
	here, there := net.Pipe()
	select {
	case w.in <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (at *address) client(o clientlib.Options) *clientlib.Client {
	o.Endpoints, o.Clock = []string{"h1:1"}, &clock{start: time.Now()}
	o.Dialer = at.dial
	c, err := clientlib.New(o)
	if err != nil {
		at.t.Fatal(err)
	}
	at.t.Cleanup(func() { c.Close() }) //nolint:errcheck // it cannot fail
	return c
}

func (at *address) acquire(c *clientlib.Client, name cluster.LockName) *clientlib.Lock {
	at.t.Helper()
	l, err := c.Acquire(at.t.Context(), name, clientlib.AcquireOptions{TTL: ttl})
	if err != nil {
		at.t.Fatalf("%s: %v", name, err)
	}
	return l
}

// A volume is made anew behind the addresses that a client knows, as holdfast dev does each
// time. The first clients of both have the same number, and so have their tokens.
func TestAnotherClusterAnswers(t *testing.T) {
	// A server that does not look for whom a call is meant: then it is the client that looks who answers.
	blind := grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		return metadata.NewIncomingContext(ctx, metadata.MD{}), nil
	})
	for name, x := range map[string]struct {
		o       clientlib.Options
		servers []grpc.ServerOption
	}{
		"opened": {}, "self-chosen": {o: clientlib.Options{ClientID: "worker"}},
		"opened, blind servers":      {servers: []grpc.ServerOption{blind}},
		"self-chosen, blind servers": {o: clientlib.Options{ClientID: "worker"}, servers: []grpc.ServerOption{blind}},
	} {
		o := x.o
		t.Run(name, func(t *testing.T) {
			atAddress(t, x.servers, func(t *testing.T, at *address) {
				a := at.client(o)
				old := at.acquire(a, "job")
				at.anew()
				b, c := at.client(o), at.client(clientlib.Options{})
				mine, job := at.acquire(b, "mine"), at.acquire(c, "job")
				time.Sleep(ttl)
				if old.Context().Err() == nil {
					t.Fatalf("TWO HOLDERS of job: token %d, which another volume granted, and token %d", old.Token(), job.Token())
				}
				lost, ok := errors.AsType[*clientlib.LostError](context.Cause(old.Context()))
				if !ok || lost.Reason != clientlib.LossOtherCluster || !errors.Is(lost, clientlib.ErrOtherCluster) {
					t.Errorf("it was lost by %v", context.Cause(old.Context()))
				}
				began := time.Now()
				if _, err := a.Acquire(t.Context(), "more", clientlib.AcquireOptions{TTL: ttl}); !errors.Is(err, clientlib.ErrOtherCluster) || time.Since(began) > time.Second {
					t.Errorf("it goes on in the other cluster, or says after %v: %v", time.Since(began), err)
				}
				if x.servers == nil {
					watchesNothing(t, a)
				}
				second := at.acquire(b, "second")
				time.Sleep(2 * ttl)
				for _, l := range []*clientlib.Lock{mine, second, job} {
					if _, err := c.Verify(t.Context(), l.Name(), l.Token()); err != nil || l.Context().Err() != nil {
						t.Errorf("%s was taken away: %v, %v", l.Name(), err, context.Cause(l.Context()))
					}
				}
			})
		})
	}
}

// watchesNothing watches behind an LSN of a cluster that is not there any more.
func watchesNothing(t *testing.T, c *clientlib.Client) {
	t.Helper()
	for _, err := range c.Watch(t.Context(), clientlib.WatchOptions{After: 5}) {
		if !errors.Is(err, clientlib.ErrOtherCluster) {
			t.Errorf("a watch goes on in the other cluster, or ends with %v", err)
		}
		break
	}
}

// What an older library sends names no cluster. The ID of its client does.
func TestAnotherClusterKnowsNoOpenedClient(t *testing.T) {
	atAddress(t, nil, func(t *testing.T, at *address) {
		connect := func() pb.LockServiceClient {
			conn, err := grpc.NewClient("passthrough:///h1:1", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(at.dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it cannot fail
			return pb.NewLockServiceClient(conn)
		}
		open := func() string {
			time.Sleep(time.Minute) // until it is primary
			a, err := connect().OpenClient(t.Context(), &pb.OpenClientRequest{Nonce: 7})
			if err != nil || a.ClusterId == "" {
				t.Fatalf("%v %v", a, err)
			}
			return a.ClientId
		}
		old := open()
		at.anew()
		if id := open(); id == old {
			t.Errorf("clients of two volumes are both %s", id)
		}
		k, err := connect().KeepAlive(t.Context(), &pb.KeepAliveRequest{ClientId: old})
		if err != nil || wire.FromStatus(k.GetStatus()) != cluster.StatusStaleRequest || !strings.Contains(k.GetMessage(), "belongs to another cluster") {
			t.Errorf("its keep-alive: %v %v", k, err)
		}
		a, err := connect().Acquire(t.Context(), &pb.AcquireRequest{ClientId: old, RequestId: 1, Lock: "job", TtlMs: 8000})
		if err != nil || wire.FromStatus(a.GetStatus()) != cluster.StatusStaleRequest || !strings.Contains(a.GetMessage(), "belongs to another cluster") {
			t.Errorf("its acquire: %v %v", a, err)
		}
	})
}
