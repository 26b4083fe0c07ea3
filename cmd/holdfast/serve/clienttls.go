// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	// lookEvery is how often a server looks for what an operator has said about TLS with clients.
	lookEvery = 2 * time.Second
	// issueEvery is how often it makes its certificate anew.
	issueEvery = 24 * time.Hour
	// forwardDial bounds how long a connection to another server's port for clients may take.
	forwardDial = 500 * time.Millisecond
)

// clientTLS is this server's TLS with clients: it finds the volume's certificate authority, and keeps a certificate of
// it on the port. Its key is in memory only.
type clientTLS struct {
	fs    vfs.FS
	id    cluster.ID
	hosts []string
	peers []string // hosts of servers' addresses for each other
	log   zerolog.Logger

	trust    atomic.Pointer[join.Trust]           // in other servers; nil while the volume has no authority
	required atomic.Bool                          // TLS is, of clients; never false again
	ends     atomic.Pointer[map[string]time.Time] // of the certificates that clients are shown, by use; nil while there are none
	fullName atomic.Pointer[string]               // of this host, beside hosts; nil while it is not known

	// Of the goroutine that calls keep.
	port    *clientport.Port // nil before use
	outside outside
	issuer  *certs.Issuer // of the authority with this number
	number  uint64
	leaf    tls.Certificate // of the authority with this number, 0 = none yet
	leafOf  uint64
	issued  time.Time
	named   int // how many names it has
}

// names returns the names and addresses by which clients may reach this server, as far as they are known.
func (c *clientTLS) names() []string {
	if full := c.fullName.Load(); full != nil && !slices.Contains(c.hosts, *full) {
		return append(slices.Clip(c.hosts), *full)
	}
	return c.hosts
}

// known returns the names by which this server may be asked in plain text.
func (c *clientTLS) known() []string { return slices.Concat(c.names(), c.peers) }

// certificateEnds returns when the certificates end that clients are shown, by use.
func (c *clientTLS) certificateEnds() map[string]time.Time {
	if ends := c.ends.Load(); ends != nil {
		return *ends
	}
	return nil
}

// use has the port do what is known. It is called before run.
func (c *clientTLS) use(p *clientport.Port) {
	c.port = p
	c.tellPort()
}

func (c *clientTLS) tellPort() {
	if c.port == nil {
		return
	}
	t := clientport.TLS{Outside: c.outside.leaf, Clients: c.outside.clients}
	if c.leafOf != 0 {
		leaf := c.leaf // which is replaced
		t.Own = &leaf
	}
	c.port.ServeTLS(t)
	ends := map[string]time.Time{}
	for use, cert := range map[string]*tls.Certificate{"own": t.Own, "outside": t.Outside} {
		if cert != nil && cert.Leaf != nil {
			ends[use] = cert.Leaf.NotAfter
		}
	}
	c.ends.Store(&ends)
	if c.required.Load() {
		c.port.RequireTLS()
	}
}

// keep does once what run does every lookEvery. Each part goes on where another one fails.
func (c *clientTLS) keep(now time.Time) error {
	changed, outsideErr := c.outside.look(now)
	if changed {
		c.tellPort()
	}
	return errors.Join(outsideErr, c.lookForRequired(), c.certify(now))
}

// lookForRequired finds out whether TLS is required of clients.
func (c *clientTLS) lookForRequired() error {
	if c.required.Load() {
		return nil
	}
	required, err := volume.ClientTLSRequired(c.fs)
	if required && err == nil {
		c.required.Store(true)
		c.tellPort()
		c.log.Info().Msg("TLS is required of clients on other hosts from now on")
	}
	return err
}

// certify has the port show a certificate of the volume's authority that is not too old, if the volume has one. Where a look for a new
// authority fails, the one that is known goes on.
func (c *clientTLS) certify(now time.Time) error {
	err := c.lookForAuthority()
	names := c.names()
	if c.leafOf == c.number && (c.number == 0 || now.Sub(c.issued) < issueEvery && c.named == len(names)) {
		return err
	}
	leaf, issueErr := c.issuer.Issue(names, now)
	if issueErr != nil {
		return errors.Join(err, issueErr)
	}
	if c.leafOf != c.number {
		c.trust.Store(join.WithCertificate(c.issuer.Certificate(), c.id.String()))
		c.log.Info().Str("pin", join.Pin(c.issuer.Certificate())).Msg("clients are served over TLS, too")
	}
	c.leaf, c.leafOf, c.issued, c.named = leaf, c.number, now, len(names)
	c.tellPort()
	return err
}

// lookForAuthority finds the volume's authority, or a later one. It never goes back to an earlier one.
func (c *clientTLS) lookForAuthority() error {
	switch n, err := volume.AuthorityNumber(c.fs); {
	case err != nil:
		return err
	case n <= c.number:
		return nil
	}
	a, err := volume.ReadAuthority(c.fs)
	if err != nil {
		return err
	}
	issuer, err := certs.NewIssuer(c.id, a)
	if err != nil {
		return err
	}
	c.issuer, c.number = issuer, a.Number
	return nil
}

// run keeps the certificate until ctx ends. It may hang in the filesystem.
func (c *clientTLS) run(ctx context.Context) {
	repeat(ctx, lookEvery, func() error { return c.keep(time.Now()) }, func(err error) {
		c.log.Error().Msg("clients cannot be served over TLS: " + err.Error())
	})
}

// dial connects to another server's port for clients, to forward what it has to execute: over TLS if that serves it,
// else in plain text, since it may be of an older version, or not know the authority yet.
func (c *clientTLS) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardDial)
	defer cancel()
	var d net.Dialer
	plain := func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, network, addr) }
	trust := c.trust.Load()
	conn, err := trust.Dialer(join.HTTP, plain)(ctx, addr)
	if _, refused := errors.AsType[*net.OpError](err); err == nil || refused {
		return conn, err
	}
	if errors.Is(err, join.ErrNoTLS) && !c.required.Load() {
		return plain(ctx, addr)
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: err} // so nothing was sent
}
