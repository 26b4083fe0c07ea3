// SPDX-License-Identifier: Apache-2.0

package conns

import (
	"net"
	"runtime"
)

// Computing is a connection on which a handshake is made: it has one of few places while this side computes, and none while it
// waits for the other side. So handshakes, which cost much, leave the processors to everything else. One goroutine has it until Done.
type Computing struct {
	net.Conn
	places chan struct{}
	done   bool
}

// Places returns places for handshakes: half of the processors.
func Places() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)) }

// Compute returns the connection, with a place: it waits for one.
func Compute(c net.Conn, places chan struct{}) *Computing {
	places <- struct{}{}
	return &Computing{Conn: c, places: places}
}

// Done ends the handshake. From then on the connection is the one beneath, and for any goroutine.
func (c *Computing) Done() {
	c.done = true
	<-c.places
}

// Without calls f without a place, since it waits for something.
func (c *Computing) Without(f func()) {
	<-c.places
	defer func() { c.places <- struct{}{} }()
	f()
}

// Read implements net.Conn.
func (c *Computing) Read(b []byte) (n int, err error) {
	if c.done {
		return c.Conn.Read(b)
	}
	c.Without(func() { n, err = c.Conn.Read(b) })
	return n, err
}

// Write implements net.Conn.
func (c *Computing) Write(b []byte) (n int, err error) {
	if c.done {
		return c.Conn.Write(b)
	}
	c.Without(func() { n, err = c.Conn.Write(b) })
	return n, err
}
