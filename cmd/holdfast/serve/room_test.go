// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// saying has the lines of a log.
type saying chan string

func (s saying) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}

func TestConnectionsLeaveDescriptors(t *testing.T) {
	for descriptors, want := range map[int64]int64{1: 1, 64: 16, 256: 192, 1024: 768, 1 << 20: 1<<20 - 4096} {
		if got := connections(descriptors); got != want {
			t.Errorf("of %d descriptors %d for clients, want %d", descriptors, got, want)
		}
	}
}

// Whoever comes when there is no room is refused at once, on every listener; a connection that
// ends makes room for the next.
func TestConnectionsAreBounded(t *testing.T) {
	said := make(saying, 16)
	r := newRoom(zerolog.New(said))
	r.free.Store(2)
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
