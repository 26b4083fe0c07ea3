// SPDX-License-Identifier: Apache-2.0

package peertls

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	caller "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/conns"
)

// Info is what is known of the other side of a connection.
type Info struct {
	credentials.CommonAuthInfo
	// Server is the member whose key it has; 0 in plain text and for a stranger.
	Server cluster.ServerID
	// Plain is true in plain text.
	Plain bool
}

// AuthType describes how it is known.
func (i Info) AuthType() string {
	if i.Plain {
		return "plain text"
	}
	return "a key on the volume"
}

func protected(id cluster.ServerID) Info {
	return Info{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, Server: id}
}

var errPlain = errors.New("plain text: this volume requires TLS between servers. A server of an older version is to be upgraded; see holdfast secure status")

// Admit refuses a message unless the connection on which it came belongs to its sender, or is in plain text while that is
// allowed.
func (k *Keys) Admit(ctx context.Context, from cluster.ServerID) error {
	p, _ := caller.FromContext(ctx)
	var info Info
	if p != nil {
		info, _ = p.AuthInfo.(Info)
	}
	switch {
	case info.Plain && !k.required.Load():
		return nil
	case info.Plain:
		return status.Error(codes.Unauthenticated, errPlain.Error())
	case info.Server == 0 || info.Server != from:
		return status.Errorf(codes.PermissionDenied, "a message in the name of server %d, with a key that is not of that server", from)
	}
	return nil
}

// Dialer connects to an address.
type Dialer func(ctx context.Context, addr string) (net.Conn, error)

// Client returns how to connect to a member. dial is for plain text after an attempt with TLS.
func (k *Keys) Client(to cluster.ServerID, dial Dialer) credentials.TransportCredentials {
	return client{k, to, dial}
}

type client struct {
	keys *Keys
	to   cluster.ServerID
	dial Dialer
}

// ClientHandshake has the other side prove that it is the member.
func (c client) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	k := c.keys
	if !k.published.Load() {
		if k.required.Load() {
			return nil, nil, errNotPublished
		}
		return k.plain(raw)
	}
	config := k.config()
	config.VerifyConnection = func(cs tls.ConnectionState) error {
		_, key, err := keyOf(cs)
		if err != nil {
			return err
		}
		return k.check(c.to, key, k.dials)
	}
	conn := tls.Client(raw, config)
	err := conn.HandshakeContext(ctx)
	if err == nil {
		return conn, protected(c.to), nil
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); !plain || k.required.Load() {
		return nil, nil, err
	}
	raw.Close() //nolint:errcheck // nobody uses it any more
	if raw, err = c.dial(ctx, raw.RemoteAddr().String()); err != nil {
		return nil, nil, err
	}
	// gRPC closes the connection that it has dialed when its time is over, and knows nothing of this one.
	if end, ok := ctx.Deadline(); ok {
		if err := raw.SetReadDeadline(end); err != nil {
			return nil, nil, errors.Join(err, raw.Close())
		}
	}
	return k.plain(&unheard{Conn: raw})
}

// unheard is a connection whose deadline for reading is over with the first bytes.
type unheard struct {
	net.Conn
	heard bool
}

// Read reads. One goroutine at a time calls it.
func (c *unheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard {
		c.heard = true
		return n, errors.Join(err, c.SetReadDeadline(time.Time{}))
	}
	return n, err
}

// plain returns a connection in plain text, or closes it.
func (k *Keys) plain(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, err := k.inPlain(raw)
	if err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	return conn, Info{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, Plain: true}, nil
}

// config returns what holds for both sides. VerifyConnection is to be set.
func (k *Keys) config() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{k.cert}, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // names and dates: VerifyConnection knows the very key
		ClientAuth:         tls.RequireAnyClientCert, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// Server returns how to accept connections.
func (k *Keys) Server() credentials.TransportCredentials { return server{keys: k} }

type server struct {
	client // for the methods that it does not need
	keys   *Keys
}

// tlsHandshake is the first byte of TLS; plain text begins with another one.
const tlsHandshake = 0x16

// ServerHandshake finds out who the other side is. It hands a stranger's connection to Strangers.
func (s server) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	k := s.keys
	defer k.unproven.enter(raw)()
	var first [1]byte
	if _, err := io.ReadFull(raw, first[:]); err != nil {
		return nil, nil, err
	}
	conn := &begun{Conn: raw, first: first[:]}
	if first[0] != tlsHandshake || !k.published.Load() && !k.required.Load() {
		// Until its key is on the volume, a server answers TLS like one of an older version.
		c, info, err := k.plain(conn)
		if err != nil {
			err = k.refuse(raw, err)
		}
		return c, info, err
	}
	if !k.published.Load() {
		return nil, nil, k.refuse(raw, errNotPublished)
	}
	var from cluster.ServerID
	stranger := false
	config, computing := k.config(), conns.Compute(conn, k.computing)
	config.VerifyConnection = func(cs tls.ConnectionState) error {
		id, key, err := keyOf(cs)
		if err == nil {
			computing.Without(func() { from, err = id, k.check(id, key, k.accepts) })
		}
		if errors.Is(err, errUnknown) && k.strangers.enter() {
			stranger, err = true, nil
		}
		return err
	}
	secured := tls.Server(computing, config)
	err := secured.Handshake()
	computing.Done()
	switch {
	case stranger && err == nil:
		k.strangers.take(secured)
		return nil, nil, credentials.ErrConnDispatched
	case stranger:
		k.strangers.leave()
	}
	if err != nil {
		return nil, nil, k.refuse(raw, err)
	}
	return secured, protected(from), nil
}

// Info describes the protocol.
func (c client) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns a copy.
func (c client) Clone() credentials.TransportCredentials { return c }

// Clone returns a copy.
func (s server) Clone() credentials.TransportCredentials { return s }

// OverrideServerName does nothing: names mean nothing.
func (c client) OverrideServerName(string) error { return nil }

// ServerHandshake is for servers only.
func (c client) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for dialing")
}

// begun is a connection whose first bytes were read already.
type begun struct {
	net.Conn
	first []byte
}

// Read reads the first bytes again, and then the others.
func (c *begun) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

const (
	// maxStrangers bounds how many strangers are connected at a time.
	maxStrangers = 8
	// strangerLife bounds how long each of them is.
	strangerLife = 5 * time.Second
)

// strangers is a listener whose connections are those of strangers.
type strangers struct {
	*conns.Listener
	places chan struct{}
}

func newStrangers() *strangers {
	return &strangers{conns.NewListener(), make(chan struct{}, maxStrangers)}
}

// Strangers returns a listener for the connections of processes whose key is not on the volume.
func (k *Keys) Strangers() net.Listener { return k.strangers }

// enter takes a place, and reports whether there is one.
func (s *strangers) enter() bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *strangers) leave() { <-s.places }

// take hands over a connection, which has a place.
func (s *strangers) take(c net.Conn) {
	x := &strange{Conn: c, leave: sync.OnceFunc(s.leave)}
	// No deadline does: gRPC removes it when the handshake is over, also where that was of another server.
	time.AfterFunc(strangerLife, func() { x.Close() }) //nolint:errcheck // it had its time
	s.Put(x)
}

// strange is the connection of a stranger.
type strange struct {
	net.Conn
	leave func()
}

// Close leaves the place.
func (c *strange) Close() error { defer c.leave(); return c.Conn.Close() }
