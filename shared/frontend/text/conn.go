// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// maxAhead is how many lines may have been read and not answered.
	maxAhead = 128
	// aheadWait is how long a client may stay that far ahead.
	aheadWait = 10 * time.Second
	// lineWait is how long a line may take from its first byte to its end.
	lineWait = 10 * time.Second
	// answerWait is how long a client may take to read an answer.
	answerWait = 10 * time.Second
	// idleWait is how long a client may ask nothing: longer than any lease lasts unless the
	// servers are told otherwise.
	idleWait = 15 * time.Minute
	// unlockWait is how long an UNLOCK without TOKEN may wait before it is begun. What the client
	// holds later may be another grant, which it took by another connection.
	unlockWait = 5 * time.Second
	// tlsRecord begins what a browser sends where it expects TLS.
	tlsRecord = 0x16
)

var (
	// errLeft means that the client sends nothing more. It may still read.
	errLeft = errors.New("the client sends nothing more")
	// errCut means that the client is gone.
	errCut = errors.New("the connection is cut")
	// errStop means that this server reads nothing more.
	errStop = errors.New("the server ends")
)

// conn is one connection.
type conn struct {
	nc net.Conn
	// lines are those that were read and not begun. The reader closes it.
	lines chan queuedLine
	// caller is used by the goroutine that answers.
	caller caller

	mu struct {
		sync.Mutex
		pending int       // lines read and not answered
		since   time.Time // the last answer, or the beginning
		stopped bool
		// enough is closed when the line that is executed is not to be held any longer, see holdUntil; nil = it was, or none is.
		enough chan struct{}
	}
}

// queuedLine is a line that was read.
type queuedLine struct {
	line
	refusal string    // the answer, where the line is invalid
	end     string    // how it ended, and how its answer does
	last    bool      // nothing after it is read
	read    time.Time // when
}

// anyGrant reports whether a line ends whatever grant its client has when it is executed.
func (x *queuedLine) anyGrant() bool { return x.command == "UNLOCK" && x.token == 0 }

func newConn(nc net.Conn, s Service) *conn {
	c := &conn{nc: nc, lines: make(chan queuedLine, maxAhead), caller: caller{s: s}}
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		c.caller.from = host
	}
	c.caller.is, _ = s.Authenticate("", nc.RemoteAddr()) // who is refused may still say AUTH
	c.caller.remote = nc.RemoteAddr()
	c.mu.since = time.Now()
	if x, ok := nc.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		// A host that vanished is noticed in half a minute. Without it, by the idle time.
		_ = x.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
	// Last: after a pause of the process it may be called at once.
	serving.WhenUnproven(nc.RemoteAddr(), func() {
		_ = c.write(denied + "\n")
		c.nc.Close() //nolint:errcheck // it had its time
	})
	return c
}

// read reads lines and queues them, until the client or the server ends that.
func (c *conn) read(left context.Context, leave context.CancelCauseFunc) {
	switch err := c.readLines(left); {
	case errors.Is(err, errStop): // a LOCK that waits goes on waiting, while there is time
	case errors.Is(err, io.EOF):
		leave(errLeft)
	default:
		leave(errCut)
		c.hurry()
	}
}

func (c *conn) readLines(left context.Context) error {
	r := bufio.NewReaderSize(c.nc, maxLine+len("\r\n"))
	x, err := queuedLine{}, error(nil)
	for err == nil && !x.last {
		if x, err = c.next(r); err == nil {
			err = c.enqueue(left, x)
		}
	}
	close(c.lines)
	if err != nil {
		return err
	}
	// What follows the last line is ignored, but its end ends a LOCK that still waits.
	if err = c.readUntil(time.Time{}); err == nil {
		_, err = io.Copy(io.Discard, c.nc)
	}
	if late(err) {
		return errStop
	}
	return cmp.Or(err, io.EOF)
}

// next reads a line.
func (c *conn) next(r *bufio.Reader) (x queuedLine, err error) {
	for {
		if err := c.awaitBytes(); err != nil {
			return x, err
		}
		_, err := r.Peek(1)
		if err == nil {
			break
		}
		if !late(err) {
			return x, err
		}
	}
	if err := c.readUntil(time.Now().Add(lineWait)); err != nil {
		return x, err
	}
	b, err := r.ReadSlice('\n')
	before, long := byte(0), false
	for errors.Is(err, bufio.ErrBufferFull) {
		before, long = b[len(b)-1], true
		b, err = r.ReadSlice('\n')
	}
	if err != nil {
		if late(err) && c.stopping() {
			err = errStop
		}
		return x, err
	}
	b, x.end = b[:len(b)-1], "\n"
	if n := len(b); n > 0 {
		before = b[n-1]
	}
	if before == '\r' {
		b, x.end = b[:max(0, len(b)-1)], "\r\n"
	}
	x.read = time.Now()
	if long || notALine(b) {
		x.refusal, x.last = invalidFormat, true
		return x, nil
	}
	x.line, x.refusal = parse(b)
	x.last = x.command == quit || fromBrowser(b)
	return x, nil
}

// notALine reports whether a client of lines would never send this, so that what follows is no line either: a line that
// is too long may begin a request over HTTP with a long path, and a record of TLS holds what a page chose.
func notALine(b []byte) bool {
	return len(b) > maxLine || len(b) > 0 && b[0] == tlsRecord
}

// fromBrowser reports whether a line begins a request over HTTP. A web page can make a browser send one to any port,
// with lines of the page's choice in its body.
func fromBrowser(b []byte) bool {
	return bytes.HasSuffix(b, []byte(" HTTP/1.1")) || bytes.HasSuffix(b, []byte(" HTTP/1.0"))
}

// late reports whether a deadline of ours is over. A time-out of the system is another one: it is
// the end of a connection to a host that vanished.
func late(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	_, system := errors.AsType[syscall.Errno](err)
	return ok && e.Timeout() && !system
}

// awaitBytes sets the time by which the client must have sent something. It returns errCut if that
// is over.
func (c *conn) awaitBytes() error {
	c.mu.Lock()
	at := c.mu.since.Add(idleWait)
	if c.mu.pending > 0 { // this server is silent, not the client
		at = time.Now().Add(idleWait)
	}
	c.mu.Unlock()
	if !time.Now().Before(at) {
		return errCut
	}
	return c.readUntil(at)
}

// readUntil sets the deadline of reading, unless the server ends.
func (c *conn) readUntil(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return errStop
	}
	return c.nc.SetReadDeadline(at)
}

// stop ends the reading.
func (c *conn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.stopped = true
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // long ago; a connection that is gone needs none
}

func (c *conn) stopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.stopped
}

// enqueue queues a line. It returns errCut if the queue stays full, or the client is gone.
func (c *conn) enqueue(left context.Context, x queuedLine) error {
	c.mu.Lock()
	c.mu.pending++
	c.mu.Unlock()
	c.hurry()
	select {
	case c.lines <- x:
		return nil
	default:
	}
	over := time.NewTimer(aheadWait)
	defer over.Stop()
	select {
	case c.lines <- x:
		return nil
	case <-over.C:
	case <-left.Done():
	}
	return errCut
}

// answer executes the lines and writes the answers, until there are no more.
func (c *conn) answer(ctx, left context.Context, leave context.CancelCauseFunc) {
	defer c.nc.Close() //nolint:errcheck // all was answered
	deaf := false      // an answer was not read; left has only the first cause
	for x := range c.lines {
		reply := x.refusal
		switch {
		case reply != "":
		case (x.command == "LOCK" || x.anyGrant()) && (deaf || errors.Is(context.Cause(left), errCut)):
			continue // the client would not know of it, and may use the same lock elsewhere
		case ctx.Err() != nil, x.anyGrant() && time.Since(x.read) > unlockWait:
			reply = failed
		default:
			reply = c.caller.execute(service.HoldUntil(ctx, c.holdUntil(left)), left, &x.line)
		}
		if deaf || errors.Is(context.Cause(left), errCut) {
			continue
		}
		if err := c.write(reply + x.end); err != nil {
			deaf = true
			leave(errCut)
			c.nc.Close() //nolint:errcheck // the reader is to notice
		}
		c.answered()
	}
}

func (c *conn) write(s string) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(answerWait)); err != nil {
		return err
	}
	_, err := c.nc.Write([]byte(s))
	return err
}

// holdUntil returns a channel that is closed when the line that is begun now may not be held for a rate any longer: another line has
// been read, which may be a renewal or a release, or the client is gone.
func (c *conn) holdUntil(left context.Context) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	enough := make(chan struct{})
	if c.mu.pending > 1 || errors.Is(context.Cause(left), errCut) {
		close(enough)
	} else {
		c.mu.enough = enough
	}
	return enough
}

// hurry has the line that is executed not be held any longer.
func (c *conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.enough != nil {
		close(c.mu.enough)
		c.mu.enough = nil
	}
}

func (c *conn) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.pending--
	c.mu.enough = nil
	c.mu.since = time.Now()
}
