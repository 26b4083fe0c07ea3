// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/retry"
)

const (
	// openingWait is how long a client may take to show what it speaks. Until then it costs no server anything.
	openingWait = 15 * time.Second
	// serverWait is how long a connection waits for a server that takes it: for a failover, and then for a replica where there is no primary.
	serverWait = 2 * without
	// dialWait bounds one attempt, and dialAgain is the pause after one that failed.
	dialWait  = 500 * time.Millisecond
	dialAgain = 50 * time.Millisecond
	// stallWait is how long the other side may take none of what it is sent, and unackedWait how long its host may acknowledge none.
	stallWait   = time.Minute
	unackedWait = 30 * time.Second
	// lingerWait is how long a client has to end a connection that its server has ended.
	lingerWait = 2 * time.Second
	// chunk is how much is passed on at once, in bytes.
	chunk = 32 << 10
)

var (
	errNoServer = errors.New("this gateway reaches no server of its site now, and nothing was done: try again")
	errPlain    = errors.New("this gateway's servers are known by a certificate, so clients have to speak TLS with them: use the join string with the address of the gateway, https:// with ca.crt of the volume, or TLS in gRPC")
)

// stream is a connection over TCP.
type stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

// link is a connection that is passed on. Its fields are guarded by the gateway's mutex until both sides are there.
type link struct {
	client, server stream // server is nil until one takes it
	to             string // where the server is
}

func (k *link) close() {
	k.client.Close() //nolint:errcheck // whoever reads or writes is told
	if k.server != nil {
		k.server.Close() //nolint:errcheck // likewise
	}
}

// elsewhere reports whether it goes to another server than the one at this address.
func (k *link) elsewhere(addr string) bool { return k.server != nil && k.to != addr }

// pass passes a connection on until it ends, and closes it.
func (g *Gateway) pass(ctx context.Context, c stream) {
	g.counts.open.Add(1)
	defer g.counts.open.Add(-1)
	k := &link{client: c}
	defer g.end(k)
	if !g.begin(k) {
		return
	}
	watchOver(c)
	_ = c.SetReadDeadline(time.Now().Add(openingWait)) // what is closed needs none
	opening, err := clientport.ReadOpening(c)
	if err != nil {
		return
	}
	if g.refusesPlain(c, opening) {
		return
	}
	if !g.connect(ctx, k) {
		g.counts.refuse(noServer)
		opening.NoServer(c, errNoServer)
		return
	}
	if g.refusesPlain(c, opening) { // by now it knows its servers, and by what
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	// From here on the server may have heard something: the connection goes there, or ends.
	if _, err := k.server.Write(append([]byte(clientport.GatewayPreface), opening.First...)); err != nil {
		return
	}
	g.counts.toServer.Add(uint64(len(opening.First)))
	g.passOn(k)
}

// refusesPlain refuses a connection that is in plain text, if its server is not to be asked so, and reports whether it did.
func (g *Gateway) refusesPlain(c net.Conn, opening clientport.Opening) bool {
	if !g.site.requiresTLS() || !opening.Plain() {
		return false
	}
	g.counts.refuse(plainText)
	opening.RefusePlain(c, errPlain)
	return true
}

// passOn passes on what both sides send, until both have ended.
func (g *Gateway) passOn(k *link) {
	var clientEnded atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		g.half(k, k.server, k.client, &g.counts.toServer)
		clientEnded.Store(true)
	})
	if g.half(k, k.client, k.server, &g.counts.toClient) {
		_ = k.client.SetReadDeadline(time.Now().Add(lingerWait))
	}
	if !clientEnded.Load() {
		g.site.hasten() // the server may have gone
	}
	both.Wait()
}

// half passes on what one side sends, up to its end. It reports whether that is where it ended; else both sides are closed.
func (g *Gateway) half(k *link, to, from stream, n *atomic.Uint64) bool {
	if err := g.forward(to, from, n); err == nil && to.CloseWrite() == nil {
		return true
	}
	k.close()
	return false
}

// connect connects to the server where connections go. It returns false if none takes the connection in time.
func (g *Gateway) connect(ctx context.Context, k *link) bool {
	over := time.Now().Add(g.patience)
	for {
		to, ok := g.site.await(ctx, time.Until(over))
		if !ok {
			return false
		}
		limited, cancel := context.WithTimeout(ctx, dialWait)
		c, err := (&net.Dialer{}).DialContext(limited, "tcp", to.addr)
		cancel()
		if err == nil {
			if g.attach(k, c.(stream), to.addr) {
				watchOver(k.server)
				return true
			}
			c.Close() //nolint:errcheck // nothing was said on it
			continue
		}
		g.opt.Log.Debug().Err(err).Str("server", to.addr).Msg("a server takes no connection")
		g.site.hasten()
		if !retry.Rest(ctx, dialAgain) || time.Now().After(over) {
			return false
		}
	}
}

// begin notes a connection. It returns false if the gateway takes none any more.
func (g *Gateway) begin(k *link) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.over {
		return false
	}
	g.mu.links[k] = struct{}{}
	return true
}

// attach notes the server of a connection. It returns false if connections go elsewhere meanwhile, or have had their time. A change after that
// finds the connection: see follow.
func (g *Gateway) attach(k *link, server stream, addr string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.over || g.site.latest().addr != addr {
		return false
	}
	k.server, k.to = server, addr
	return true
}

// end closes a connection and forgets it.
func (g *Gateway) end(k *link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k.close()
	delete(g.mu.links, k)
}

// watchOver has the system notice when the host on the other side is gone.
func watchOver(c stream) {
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}) // what is closed is noticed anyway
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedWait.Milliseconds()))
		})
	}
}

// forward writes to one connection what comes on another one, and counts it. It returns nil when that is over.
func (g *Gateway) forward(to net.Conn, from syscall.Conn, count *atomic.Uint64) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		b, n, err := g.receive(raw)
		if err == nil {
			_ = to.SetWriteDeadline(time.Now().Add(stallWait))
			_, err = to.Write(b[:n])
			g.chunks.Put(b)
			count.Add(uint64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// receive waits for something on a connection, and returns it in a buffer of chunks: a connection on which nothing comes has none. Its error is
// io.EOF at the end.
func (g *Gateway) receive(raw syscall.RawConn) (b *[chunk]byte, n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		b = g.chunks.Get().(*[chunk]byte)
		for {
			if n, err = unix.Read(int(fd), b[:]); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if n > 0 {
			return true
		}
		g.chunks.Put(b)
		b = nil
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waitErr != nil:
		return nil, 0, waitErr
	case err == nil && n == 0:
		return nil, 0, io.EOF
	}
	return b, n, err
}
