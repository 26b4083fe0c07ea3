// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
)

const (
	// leastReserve and mostReserve bound how many descriptors are kept for the volume, the
	// other servers and forwards: a server that cannot open its own files is deposed.
	leastReserve = 48
	mostReserve  = 4096
	// Connections bounds the connections of clients in all, and ConnectionsPerAddress those of one address, where nothing else is
	// said: a client keeps a few.
	Connections           = 10_000
	ConnectionsPerAddress = 2_000
	// refusedEvery is how often it is logged that connections are refused.
	refusedEvery = time.Minute
)

// room bounds how many connections of clients there are at once, on all listeners together, in all and of each address.
type room struct {
	free    atomic.Int64
	log     zerolog.Logger
	refused conns.Refusals
	each    func() int // how many an address may have
	tallies *service.Tallies

	mu struct {
		sync.Mutex
		of map[netip.Addr]int // the connections of each address that has any
	}
}

// newRoom returns a room for so many connections at most, which leaves a part of the process's descriptors to everything else. each
// returns how many connections an address may have now. Where one has more, since it could have more before, they stay open.
// Tallies counts those for which there is none, unless it is nil.
func newRoom(log zerolog.Logger, connections int, each func() int, tallies *service.Tallies) *room {
	r := &room{log: log, each: each, tallies: tallies}
	r.mu.of = map[netip.Addr]int{}
	descriptors := uint64(1 << 20)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		descriptors = min(descriptors, limit.Cur)
	}
	r.free.Store(min(int64(connections), spare(int64(descriptors))))
	return r
}

// spare returns how many of so many descriptors clients may use.
func spare(descriptors int64) int64 {
	reserve := min(max(leastReserve, descriptors/4), mostReserve)
	return max(1, descriptors-reserve)
}

// listener returns a listener whose connections are clientport.Excess where there is no room for them.
func (r *room) listener(l net.Listener) net.Listener { return &bounded{l, r} }

type bounded struct {
	net.Listener
	room *room
}

func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from := conns.Host(c.RemoteAddr())
	if !b.room.enter(from) {
		b.room.tallies.Count(service.TallyLimited, "connections_per_address", "")
		return b.room.refuse(c, "too many connections of one address: new ones of it are refused (--max-connections-per-address)"), nil
	}
	if b.room.free.Add(-1) < 0 {
		b.room.free.Add(1)
		b.room.leave(from)
		b.room.tallies.Count(service.TallyLimited, "connections", "")
		return b.room.refuse(c, "too many connections: new ones are refused (--max-connections; what is left of the descriptors, ulimit -n, is for the volume)"), nil
	}
	return b.room.count(c, from), nil
}

// Bounded returns what makes listeners that take so many connections at most, all of them together, in all and of one address, and fewer in all
// where each connection takes so many of the process's descriptors. They close others, and call refused for each.
func Bounded(log zerolog.Logger, connections, perAddress, descriptors int, refused func()) func(net.Listener) net.Listener {
	r := newRoom(log, connections*descriptors, func() int { return perAddress }, nil)
	r.free.Store(max(1, r.free.Load()/int64(descriptors)))
	return func(l net.Listener) net.Listener { return onlyRoom{r.listener(l), refused} }
}

// onlyRoom is a listener of a room that closes the connections for which there is none, and calls refused for each before, if that is not nil.
type onlyRoom struct {
	net.Listener
	refused func()
}

func (o onlyRoom) Accept() (net.Conn, error) {
	for {
		c, err := o.Listener.Accept()
		x, excess := c.(*clientport.Excess)
		if !excess {
			return c, err
		}
		if o.refused != nil {
			o.refused()
		}
		x.Close() //nolint:errcheck // nothing was said on it
	}
}

// enter counts a connection of an address, and reports whether it may have one more.
func (r *room) enter(from netip.Addr) bool {
	if !from.IsValid() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.of[from] >= r.each() {
		return false
	}
	r.mu.of[from]++
	return true
}

// leave ends what enter has counted. An address without connections is forgotten.
func (r *room) leave(from netip.Addr) {
	if !from.IsValid() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.of[from]--; r.mu.of[from] == 0 {
		delete(r.mu.of, from)
	}
}

// refuse returns a connection for which there is no room, and logs why now and then.
func (r *room) refuse(c net.Conn, why string) net.Conn {
	if n := r.refused.Count(refusedEvery); n > 0 {
		r.log.Warn().Int("refused", n).Str("from", c.RemoteAddr().String()).Msg(why)
	}
	return &clientport.Excess{Conn: c}
}

// count returns a connection that frees its room when it is closed.
func (r *room) count(c net.Conn, from netip.Addr) net.Conn {
	end := sync.OnceFunc(func() { r.free.Add(1); r.leave(from) })
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
