// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/conns"
)

const (
	// leastReserve and mostReserve bound how many descriptors are kept for the volume, the
	// other servers and forwards: a server that cannot open its own files is deposed.
	leastReserve = 48
	mostReserve  = 4096
	// refusedEvery is how often it is logged that connections are refused.
	refusedEvery = time.Minute
)

// room bounds how many connections of clients there are at once, on all listeners together.
type room struct {
	free    atomic.Int64
	log     zerolog.Logger
	refused conns.Refusals
}

// newRoom returns a room that leaves a part of the process's descriptors to everything else.
func newRoom(log zerolog.Logger) *room {
	r := &room{log: log}
	most := uint64(1 << 20)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		most = min(most, limit.Cur)
	}
	r.free.Store(connections(int64(most)))
	return r
}

// connections returns how many of so many descriptors clients may use.
func connections(descriptors int64) int64 {
	reserve := min(max(leastReserve, descriptors/4), mostReserve)
	return max(1, descriptors-reserve)
}

// listener returns a listener that accepts connections while there is room, and closes others at
// once.
func (r *room) listener(l net.Listener) net.Listener { return &bounded{l, r} }

type bounded struct {
	net.Listener
	room *room
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.room.free.Add(-1) >= 0 {
			return b.room.count(c), nil
		}
		b.room.free.Add(1)
		b.room.refuse(c)
	}
}

// refuse closes a connection, and logs that now and then.
func (r *room) refuse(c net.Conn) {
	defer c.Close() //nolint:errcheck // nothing was said on it
	if n := r.refused.Count(refusedEvery); n > 0 {
		r.log.Warn().Int("refused", n).Str("from", c.RemoteAddr().String()).
			Msg("too many connections: new ones are refused, what is left of the descriptors is for the volume (ulimit -n)")
	}
}

// count returns a connection that frees its room when it is closed.
func (r *room) count(c net.Conn) net.Conn {
	var once sync.Once
	end := func() { once.Do(func() { r.free.Add(1) }) }
	if tcp, ok := c.(*net.TCPConn); ok {
		return &countedTCP{tcp, end}
	}
	return &counted{c, end}
}

type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error { defer c.end(); return c.Conn.Close() }

// countedTCP keeps the further methods of a TCP connection, such as CloseWrite.
type countedTCP struct {
	*net.TCPConn
	end func()
}

func (c *countedTCP) Close() error { defer c.end(); return c.TCPConn.Close() }
