// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// network is servers in memory, by their addresses.
type network map[string]*bufconn.Listener

// Dial is that of remote.Options.
func (n network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	l := n[addr]
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	return l.DialContext(ctx)
}

func (n network) listen(t *testing.T) (addr string, l *bufconn.Listener) {
	addr, l = fmt.Sprintf("10.0.0.%d:7601", len(n)+1), bufconn.Listen(64<<10)
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // it cannot fail
	n[addr] = l
	return addr, l
}

// frozen is the address of a server that takes connections and says nothing.
func (n network) frozen(t *testing.T) string {
	addr, l := n.listen(t)
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	return addr
}

func (n network) start(t *testing.T, s *server) string {
	addr, l := n.listen(t)
	g := grpc.NewServer()
	pb.RegisterLockServiceServer(g, s)
	go g.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(g.Stop)
	return addr
}

// A frozen server neither holds up a command nor leaves it in doubt of what it did there: only
// the server that says it is primary is asked. The times are those of the bubble, in which nothing else takes any.
func TestAFrozenServerIsNotAsked(t *testing.T) {
	nobody := "10.0.0.99:7601"
	for what, test := range map[string]struct {
		endpoints func(frozen, another, primary, replica, behind string) []string
		within    time.Duration
	}{
		"first":                        {func(f, _, p, _, _ string) []string { return []string{f, p} }, 100 * time.Millisecond},
		"first and second":             {func(f, a, p, _, _ string) []string { return []string{f, a, p} }, 200 * time.Millisecond},
		"named by a replica":           {func(_, _, p, _, b string) []string { return []string{b, p} }, 100 * time.Millisecond},
		"beside a replica that knows":  {func(f, _, _, r, _ string) []string { return []string{f, r} }, 100 * time.Millisecond},
		"nobody listens at the others": {func(_, _, p, _, _ string) []string { return []string{nobody, p} }, 100 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := network{}
				asked := func(int) (*pb.Answer, error) { t.Error("a replica was asked"); return done(), nil }
				primary := n.start(t, &server{role: pb.Role_ROLE_PRIMARY, reply: func(int) (*pb.Answer, error) { return done(), nil }})
				frozen, another := n.frozen(t), n.frozen(t)
				replica := n.start(t, &server{role: pb.Role_ROLE_REPLICA, names: primary, reply: asked})
				behind := n.start(t, &server{role: pb.Role_ROLE_REPLICA, names: frozen, reply: asked})
				c, err := remote.New(remote.Options{Endpoints: test.endpoints(frozen, another, primary, replica, behind), Budget: 2 * time.Second, Dial: n.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close() //nolint:errcheck // nothing is in flight
				began := time.Now()
				r, err := remote.Write(t.Context(), c, release)
				if took := time.Since(began); err != nil || r.GetToken() != 9 || took > test.within {
					t.Errorf("%s: %v, %v after %v, want no more than %v", what, r, err, took, test.within)
				}
			})
		})
	}
}

// What was answered without a doubt is forgotten; what may be executed yet is not.
func TestForget(t *testing.T) {
	for _, fails := range []int{0, 1} {
		s := start(t, func(n int) (*pb.Answer, error) {
			if n <= fails {
				return nil, context.DeadlineExceeded
			}
			return done(), nil
		})
		c := caller(t, s.addr)
		if _, err := remote.Write(t.Context(), c, release); err != nil {
			t.Fatal(err)
		}
		c.Forget(t.Context(), "cli-x")
		if want := 1 - fails; len(s.forgotten) != want {
			t.Errorf("after %d lost answers %q were forgotten", fails, s.forgotten)
		}
	}
}
