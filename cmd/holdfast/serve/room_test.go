// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
)

// saying has the lines of a log.
type saying chan string

func (s saying) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}

func TestConnectionsLeaveDescriptors(t *testing.T) {
	for descriptors, want := range map[int64]int64{1: 1, 64: 16, 256: 192, 1024: 768, 4096: 3072, 20_000: 15_904, 1 << 20: 1<<20 - 4096} {
		if got := spare(descriptors); got != want {
			t.Errorf("of %d descriptors %d for clients, want %d", descriptors, got, want)
		}
	}
}

// Whoever comes when there is no room is refused at once, on every listener; a connection that
// ends makes room for the next.
func TestConnectionsAreBounded(t *testing.T) {
	said := make(saying, 16)
	r := newRoom(zerolog.New(said), 2, func() int { return ConnectionsPerAddress }, nil)
	var listeners [2]net.Listener
	accepted := make(chan net.Conn, 16)
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		b := r.listener(l)
		go func() {
			for {
				c, err := b.Accept()
				if err != nil {
					return
				}
				if x, ok := c.(*clientport.Excess); ok {
					x.Close() //nolint:errcheck // the client sees it
					continue
				}
				accepted <- c
			}
		}()
		defer l.Close() //nolint:errcheck // a listener
	}
	dial := func(i int) net.Conn {
		c, err := net.Dial("tcp", listeners[i].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused := func(i int) {
		t.Helper()
		c := dial(i)
		defer c.Close()                                     //nolint:errcheck // it is closed
		c.SetReadDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // Read would say so
		if _, err := c.Read(make([]byte, 1)); err == nil || err != io.EOF && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("a connection too many: %v", err)
		}
	}
	for i := range 2 {
		defer dial(i).Close() //nolint:errcheck // it is closed
	}
	first, second := <-accepted, <-accepted
	if _, ok := first.(interface{ CloseWrite() error }); !ok {
		t.Error("a connection that cannot be closed by half")
	}
	refused(0)
	refused(1)
	if n := len(said); n != 1 || !strings.Contains(<-said, "too many connections") {
		t.Errorf("said %d times", n)
	}
	first.Close() //nolint:errcheck // twice is once
	first.Close() //nolint:errcheck // twice is once
	third := dial(1)
	defer third.Close() //nolint:errcheck // it is closed
	defer (<-accepted).Close()
	refused(0)
	second.Close() //nolint:errcheck // it is closed
}

// come is a listener whose connections come from these addresses, one after the other.
type come struct {
	net.Listener
	from []net.Addr
}

func (l *come) Accept() (net.Conn, error) {
	if len(l.from) == 0 {
		return nil, net.ErrClosed
	}
	c, _ := net.Pipe()
	x := &cameFrom{Conn: c, from: l.from[0]}
	l.from = l.from[1:]
	return x, nil
}

type cameFrom struct {
	net.Conn
	from net.Addr
}

func (c *cameFrom) RemoteAddr() net.Addr { return c.from }

// One address has so many connections and no more, by whichever form of it, and others are not kept out by that. Connections of this host
// are bounded by the room only. What has ended, or was refused for want of room, does not count.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	r := newRoom(zerolog.Nop(), Connections, func() int { return 2 }, nil)
	a, b := &net.TCPAddr{IP: net.IP{192, 0, 2, 1}}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1")}
	mapped := &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 9}
	local, unix := &net.TCPAddr{IP: net.IPv6loopback}, &net.UnixAddr{Name: "@"}
	accept := func(from ...net.Addr) (all []net.Conn) {
		l := r.listener(&come{from: from})
		for {
			c, err := l.Accept()
			if err != nil {
				return all
			}
			if _, refused := c.(*clientport.Excess); !refused {
				all = append(all, c)
			}
		}
	}
	first := accept(a, mapped, a, mapped)
	if len(first) != 2 {
		t.Fatalf("%d connections of one address", len(first))
	}
	if n := len(accept(b, b, b, local, local, local, unix, unix, unix)); n != 8 {
		t.Errorf("%d connections of others, want 8", n)
	}
	first[0].Close() //nolint:errcheck // twice is once
	first[0].Close() //nolint:errcheck // twice is once
	more := accept(a, a)
	if len(more) != 1 {
		t.Errorf("%d connections in the place of one", len(more))
	}
	for _, c := range append(more, first[1]) {
		c.Close() //nolint:errcheck // a pipe
	}
	r.free.Store(0)
	if n := len(accept(a, a, a)); n != 0 {
		t.Errorf("%d connections where there is no room", n)
	}
	if n, ok := r.mu.of[netip.MustParseAddr("192.0.2.1")]; ok {
		t.Errorf("an address without connections has %d", n)
	}
}
