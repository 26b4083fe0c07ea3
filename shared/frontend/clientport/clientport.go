// SPDX-License-Identifier: Apache-2.0

// Package clientport is the one port of a server for its clients. It tells by the first bytes of a connection what is
// spoken on it, and gives it to the front end for that, each of which has a listener of its own here.
//
//	frames.Preface                        a session
//	"PRI "                                HTTP/2, which is gRPC
//	a method of HTTP and a space          HTTP/1, and WebSocket, which begins with it
//	0x16 0x03                             TLS, if the server has a certificate: see below
//	GatewayPreface                        a gateway, and behind it what its client says, which is any of these
//	anything else                         the line protocol
//
// A method is any word that RFC 9110 permits, whatever follows the space, and a word that is longer than every method
// in use counts as one: a web page chooses what its browser sends, and no part of that may become a line. A line
// of the protocol has a comma or its end behind its first word.
//
// # TLS
//
// Behind the handshake, the protocol that both sides have agreed on (ALPN) says what is spoken: holdfast/1 is a session,
// http/1.1 HTTP, whenever a client offers it, and h2 gRPC. Without one, the first bytes inside say it, as above. A
// server that has no certificate closes the connection, and logs that now and then.
//
// A handshake has 5 seconds, and its connection counts among those that say nothing until it is over. Only some
// handshakes compute at a time, so that many of them leave the locks room; one that waits for its client is
// not among them. So slow clients keep nobody out.
//
// Where TLS is required, a client in plain text from another host is told so in its own protocol, and closed. It has a
// second to read that, and counts among those that say nothing until then.
//
// # Connections that say nothing
//
// Until the class of a connection is known it costs a goroutine, and some hundred bytes for what it said and a list.
// It has a minute from when it was accepted, however slowly it speaks, or 15 seconds where the access rules demand an identity. There are at most 1024 of them: then the
// oldest is closed for the next, if it had a second, else accepting waits until it had. So whoever opens connections
// and says nothing keeps clients waiting, as long as he goes on, and out never: a client speaks at once, and is gone
// from the list before it is the oldest. (If the newest were closed, it would be the clients'.) And many clients that
// come at once are not taken for silent ones because this server has not come to read them yet.
//
// Afterwards a connection costs nothing here: what was read is read again, and then each call goes to the connection
// beneath. The known library, soheilhy/cmux, has had no commit since February 2021, bounds neither how many silent
// connections there are nor, unless it is told, for how long, and has each matcher read anew what it keeps in a buffer.
//
// # Many that come at once
//
// After a failover thousands of clients come within a moment, and none of them may keep the server from its
// heartbeats, commits and elections. So a connection whose class is known waits for its turn to be set up, in order of
// arrival: there are a few dozen turns, and a few while the server gets too little CPU. A turn ends when the front end has
// made what it needs for the connection, has dealt with the first bytes, and reads on; or when the connection is
// closed; or after a second. So a turn is the server's work and no client's: nobody keeps others waiting by saying
// nothing more, and clients that answer late do not make the queue longer. What a client asks next comes no faster than
// turns do. A handshake of TLS comes before the turn.
//
// Who waits costs a goroutine and some hundred bytes. At most 4096 do, for two seconds each: then, if it is a client
// library, it is told when to come again, which it does at a random time. Others are closed: a browser's EventSource connects again then, and would give up at an answer. The client library is more
// patient than two seconds, so it does not come again while it is waited for here. Otherwise a server that is slow for a
// moment would go on to serve clients that have given up, and be slow for ever.
//
// Both the goroutine that accepts and one that gets its turn let others run first: else the scheduler prefers
// the connections that are here already to what the network brings, such as a heartbeat, for as long as there are any.
//
// # No room
//
// A listener of Serve hands on connections for which there is no room as Excess. A few of them at a time have a second to show
// what they speak, and a client library is told when to come again; all others are closed.
//
// # Strangers
//
// Where the access rules demand an identity, a connection is closed on which nobody has proved within 15 seconds who he is: by
// its front end, if that has a word for it. Who has proved it keeps his connection, whatever becomes of the credential.
//
// # Goroutines
//
// Each listener has that of its Serve, and each connection one until a front end has taken it.
package clientport

import (
	"container/list"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// firstWait is how long a client may take to show what it speaks.
	firstWait = time.Minute
	// maxSilent bounds the connections of which that is not known yet.
	maxSilent = 1024
	// leastWait is how long each of them has, however many there are.
	leastWait = time.Second
	// saidEvery is how often it is logged that connections are refused.
	saidEvery = time.Minute
	// comeAgain is after how long a client library comes again that waited for its turn in vain, and refusalWait how
	// long it may take to read that.
	comeAgain   = time.Second
	refusalWait = time.Second
)

// Port takes the connections of clients, from any number of listeners. Its methods are safe for use by several
// goroutines.
type Port struct {
	log     zerolog.Logger
	classes [served]*conns.Listener
	open    [served]atomic.Int64 // the connections of each class that front ends have
	// places has an element for each silent connection.
	places    chan struct{}
	closed    chan struct{}
	admission admission
	// secure is nil while TLS is not served, and computing has an element for each handshake that computes.
	secure    atomic.Pointer[tls.Config]
	computing chan struct{}
	required  atomic.Bool // plain text is refused
	oldTLS    atomic.Bool // TLS 1.2 is taken, too
	// telling counts the goroutines of connections that no front end has.
	telling sync.WaitGroup
	demand  func() bool // nil = no rules demand an identity

	mu struct {
		sync.Mutex
		closed    bool
		listeners []net.Listener
		silent    list.List // of *silent, in the order in which they came
		excess    map[net.Conn]struct{}
	}

	overTLS, crowded, unknown conns.Refusals
}

// silent is a connection of unknown class.
type silent struct {
	conn  net.Conn
	since time.Time
	cut   bool // another one has its place
}

// New returns a port that has no listener yet. Late reports whether this server is short of CPU; nil = never. It is
// called by several goroutines.
func New(log zerolog.Logger, late func() bool) *Port {
	p := &Port{log: log, places: make(chan struct{}, maxSilent), closed: make(chan struct{}), admission: admission{late: late}, computing: conns.Places()}
	p.mu.excess = map[net.Conn]struct{}{}
	for i := range p.classes {
		p.classes[i] = conns.NewListener()
	}
	return p
}

// Listener returns the listener of a class, always the same. When it is closed, connections of its class are closed
// and the others go on. Its Accept returns net.ErrClosed then, and when the port is closed, and no other error.
func (p *Port) Listener(c Class) net.Listener { return p.classes[c] }

// Open returns how many connections of each class front ends have.
func (p *Port) Open() map[Class]int {
	n := map[Class]int{}
	for i := range p.open {
		n[Class(i)] = int(p.open[i].Load())
	}
	return n
}

// Serve takes connections from l until the port or l is closed, and closes l. It always returns an error that wraps
// net.ErrClosed; other errors of l may go by themselves, such as too many open files, so it tries again.
func (p *Port) Serve(l net.Listener) error {
	defer l.Close() //nolint:errcheck // it is not used any more
	if !p.add(l) {
		return net.ErrClosed
	}
	failed := func(err error, pause time.Duration) {
		p.log.Warn().Err(err).Stringer("address", l.Addr()).Dur("pause", pause).Msg("a connection was not taken")
	}
	return conns.AcceptAll(l, p.closed, failed, func(c net.Conn) {
		if x, ok := c.(*Excess); ok {
			p.turnBack(x.Conn)
		} else {
			p.take(c)
		}
		runtime.Gosched() // see the package's doc
	})
}

// add notes a listener, unless the port is closed.
func (p *Port) add(l net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.listeners = append(p.mu.listeners, l)
	return !p.mu.closed
}

// Close closes the port: its listeners, those of the classes, and connections of unknown class. Those that a front
// end has taken are the front end's.
func (p *Port) Close() error {
	p.mu.Lock()
	if !p.mu.closed {
		p.mu.closed = true
		close(p.closed)
	}
	for _, l := range p.mu.listeners {
		l.Close() //nolint:errcheck // its Serve may have done so
	}
	for e := p.mu.silent.Front(); e != nil; e = e.Next() {
		e.Value.(*silent).conn.Close() //nolint:errcheck // nothing was said on it
	}
	for c := range p.mu.excess {
		c.Close() //nolint:errcheck // it is not served
	}
	p.mu.Unlock()
	for _, c := range p.classes {
		c.Close() //nolint:errcheck // never fails
	}
	p.telling.Wait()
	return nil
}

// take begins to listen to a connection, as soon as there is a place for it.
func (p *Port) take(c net.Conn) {
	if !p.await() {
		c.Close() //nolint:errcheck // nothing was said on it
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		c.Close() //nolint:errcheck // nothing was said on it
		return
	}
	e := p.mu.silent.PushBack(&silent{conn: c, since: time.Now()})
	p.telling.Go(func() { p.tell(c, e) })
}

// await waits for a place among the silent connections, and takes the oldest one's if that had its time. It returns
// false when the port is closed.
func (p *Port) await() bool {
	for {
		select {
		case p.places <- struct{}{}:
			return true
		default:
		}
		had := time.NewTimer(p.untilOldest())
		select {
		case p.places <- struct{}{}:
			had.Stop()
			return true
		case <-p.closed:
			had.Stop()
			return false
		case <-had.C:
			if p.cutOldest() {
				return true // in its place
			}
		}
	}
}

// untilOldest returns how long the oldest silent connection must be left alone.
func (p *Port) untilOldest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.mu.silent.Front()
	if e == nil { // all have just spoken, or have not begun
		return leastWait
	}
	return time.Until(e.Value.(*silent).since.Add(leastWait))
}

// cutOldest closes the oldest silent connection, if it had its time, and keeps its place for the caller.
func (p *Port) cutOldest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.mu.silent.Front()
	if e == nil || time.Since(e.Value.(*silent).since) < leastWait {
		return false
	}
	s := p.mu.silent.Remove(e).(*silent)
	s.cut = true
	s.conn.Close() //nolint:errcheck // nothing was said on it
	return true
}

// leave takes a connection out of the silent ones and frees its place. It returns false if cutOldest did so.
func (p *Port) leave(e *list.Element) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Value.(*silent).cut {
		return false
	}
	p.mu.silent.Remove(e)
	<-p.places
	return true
}

// tell finds out the class of a connection, and gives it to the front end when its turn comes.
func (p *Port) tell(c net.Conn, e *list.Element) {
	over := time.Now().Add(firstWait)
	if p.demands() {
		over = time.Now().Add(proofWait)
	}
	_ = c.SetReadDeadline(over) // what is closed needs none
	c, first, class, err := listen(c)
	spoken := c
	switch {
	case err != nil:
	case class == overTLS:
		spoken, first, class, err = p.inside(withFirst(c, first, nil, nil, nil), over)
	case p.refusesPlain(c):
		err = turnAway(c, withFirst(c, first, nil, nil, nil), class, inPlain(errPlain))
	}
	if !p.leave(e) {
		return
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		c.Close() //nolint:errcheck // there is nobody to talk to
		return
	}
	t := p.admission.wait(p.closed)
	if t == nil {
		p.refuse(spoken, class)
		return
	}
	runtime.Gosched() // see the package's doc
	p.open[class].Add(1)
	p.classes[class].Put(withFirst(spoken, first, t, p.unproven(spoken), sync.OnceFunc(func() { p.open[class].Add(-1) })))
}

// refuse closes a connection that waited for its turn in vain, and logs that now and then. A client library is told
// when to come again.
func (p *Port) refuse(c net.Conn, class Class) {
	defer c.Close() //nolint:errcheck // it is not served
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.Unlock()
	if closed {
		return
	}
	if n := p.crowded.Count(saidEvery); n > 0 {
		p.log.Warn().Int("refused", n).Stringer("from", c.RemoteAddr()).Msg("connections come faster than this server can take them: those that waited longest are told to come again")
	}
	sayComeAgain(c, class)
}

// sayComeAgain tells a client library when to come again. Other clients hear nothing: a browser's EventSource connects again then, and
// would give up at an answer; and gRPC waits longer each time, which it would not after an answer. The connection is to be closed.
func sayComeAgain(c net.Conn, class Class) {
	b, err := proto.Marshal(&pb.Settings{Version: frames.Version, RetryAfterMs: comeAgain.Milliseconds()})
	if class != Sessions || err != nil || c.SetDeadline(time.Now().Add(refusalWait)) != nil {
		return
	}
	if _, err := c.Write(frames.Append(nil, frames.Settings, b)); err == nil { // whoever does not read it comes again as well
		hangUp(c, io.LimitReader(c, byeBytes))
	}
}
