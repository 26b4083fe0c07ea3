// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"net"

	"github.com/holdfast-lock/holdfast/shared/access"
)

type (
	callerKey struct{}
	remoteKey struct{}
)

// WithCaller returns a context of a call by c. Only a server's own code that knows the caller of a connection calls it;
// nil is a caller without a credential.
func WithCaller(ctx context.Context, c *access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// WithCallers is WithCaller for what lasts: its caller may show other credentials meanwhile, and current returns it with the
// one that it showed last. It is called by any goroutine.
func WithCallers(ctx context.Context, current func() *access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, current)
}

// CallerOf returns the caller that a call is from, nil if it has no credential.
func CallerOf(ctx context.Context) *access.Caller {
	switch c := ctx.Value(callerKey{}).(type) {
	case *access.Caller:
		return c
	case func() *access.Caller:
		return c()
	}
	return nil
}

// WithRemote returns a context of a call over a connection from this address. Front ends call it for each connection.
func WithRemote(ctx context.Context, a net.Addr) context.Context {
	return context.WithValue(ctx, remoteKey{}, a)
}

// RemoteOf returns where a call is from, nil if that is not known.
func RemoteOf(ctx context.Context) net.Addr {
	a, _ := ctx.Value(remoteKey{}).(net.Addr)
	return a
}

// KnownAddr is the address of the other side of a connection of which more is known. Listeners and ports give such addresses to
// connections.
type KnownAddr struct {
	net.Addr
	// Caller is whose connection it is, by the kernel's word of a socket, or a certificate; nil if it does not say.
	Caller *access.Caller
	// TLS is set for a connection over TLS.
	TLS bool
	// Gateway is set for a connection that a gateway passes on: Addr is the gateway's, and TLS, if it is set, reaches from the client to here.
	Gateway bool
	// Proof is whether somebody has proved on it who he is; nil where that is of no interest.
	Proof *Proof
}

// ThroughGateway reports whether a gateway passes a connection from this address on.
func ThroughGateway(a net.Addr) bool {
	known, ok := a.(*KnownAddr)
	return ok && known.Gateway
}

// Overheard reports whether others could read what is said on a connection from this address: it is plain text from another
// host. What comes through a gateway is from another host, wherever the gateway runs.
func Overheard(a net.Addr) bool {
	if known, ok := a.(*KnownAddr); ok && known.Gateway {
		return !known.TLS
	}
	tcp, ok := PlainAddr(a).(*net.TCPAddr)
	return ok && PlainTCP(a) && !tcp.IP.IsLoopback()
}

// PlainTCP reports whether a connection from this address is TCP in plain text, from any host.
func PlainTCP(a net.Addr) bool {
	if known, ok := a.(*KnownAddr); ok && known.TLS {
		return false
	}
	_, ok := PlainAddr(a).(*net.TCPAddr)
	return ok
}

// CallerAt returns whose connection it is, nil if it does not say.
func CallerAt(a net.Addr) *access.Caller {
	if known, ok := a.(*KnownAddr); ok {
		return known.Caller
	}
	return nil
}

// PlainAddr returns an address as package net has it.
func PlainAddr(a net.Addr) net.Addr {
	if known, ok := a.(*KnownAddr); ok {
		return known.Addr
	}
	return a
}
