// SPDX-License-Identifier: Apache-2.0

// Package peertls is TLS between the servers of one volume. There is no certificate authority, nothing to
// copy and nothing that expires: each process draws a key when it starts, keeps it in memory only, and makes it
// known by the name of a file on the volume (shared/volume/keys.go). Who can make that file is the cluster.
//
// # Rules
//
//   - Both sides of a connection show a certificate, and prove that they have its key (TLS 1.3 only, no
//     resumption). Names, dates and signers in it mean nothing. It counts if its hash is known already, or if the
//     volume has the file of that hash for that member.
//   - Who dials wants a key of exactly the member that it dials. Who accepts learns the member from the
//     certificate, whose file has to exist under that member's ID, and compares it with the sender of each message (Admit).
//   - A server offers its key to nobody before the file is durable. So no other server asks for that name too
//     early, and remembers that it was missing.
//
// # What an attacker can do who reaches the port, but cannot write to the volume
//
// Make a connection with a key of its own, and learn there with Ping, if it knows the cluster's ID, what
// HTTP's status tells anyhow. Such a *stranger* gets a server of its own (Strangers), with small limits, that records
// nothing it says but its existence, for people. It is not refused for the sake of servers on a copy of the
// volume: they know the keys of the volume's servers from before the copy was made, learn from these that they are strangers, and then
// neither vote nor claim (Disowned). In whose name a key may speak, an attacker cannot
// influence. It can make a server do handshakes and look-ups: of these at most maxLooks run at a time for
// those who connect and as many for those who are dialed, so neither delays the other. Half of the processors compute handshakes
// at a time, and at most maxUnproven connections are not proven.
//
// # The volume
//
// A look-up runs in a goroutine of its own and is waited for at most lookWait. A volume that hangs so delays
// connections of processes that are not known yet, and nothing else: neither connections that exist, nor new ones between processes that know
// each other, nor those who accept others. A name that a cache hides is looked for again with each try, several
// times a second.
//
// A process that started again has a new key, which costs each other server one look-up. The key of its
// predecessor is good as long as its file is there, or the server runs that knows it: only a process that could write to the volume
// has had it, and it is gone, or it was paused. That one speaks in its ID as ever, and two processes with one ID are recognized
// as such (PROTOCOL 2.6), which they would not be if one of them was not heard. Each adds its own key; four are
// kept. A crash while the file is written leaves a name that belongs to a key that is gone. A server that cannot
// write its file, because the volume is full or read-only, runs and tries again every second, as it does with
// claims; until then others do not know it. Leaving no room is no way to keep it out: it removes an older key of its own first.
//
// # Upgrade
//
// Servers of older versions speak plain text. Unless the volume requires TLS (volume.RequireTLS), the port takes both,
// which the first byte tells, and who dials tries TLS first, and plain text where the answer is none of TLS. That
// protects from those who listen, not from those who interfere: plain text was open to everybody before. Once TLS is
// required, which a server sees within seconds and never forgets, there is no plain text: connections in plain text
// are closed, and no network can bring them back.
package peertls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	// lookWait bounds the wait for one look-up on the volume.
	lookWait = time.Second
	// maxLooks bounds how many look-ups run at a time, some of them perhaps stuck.
	maxLooks = 4
	// maxKnown bounds how many keys of a member are known without the volume.
	maxKnown = 4
	// round is how often a server looks whether TLS is required and its key is there.
	round = time.Second
	// soonKnown is for how long the word of a member that has ended counts, if it was not said for settled, which is
	// longer than any filesystem that the doctor accepts hides a name.
	soonKnown = 3 * time.Second
	settled   = time.Minute
	// refusedEvery is how often it is logged that connections are refused.
	refusedEvery = 10 * time.Second
)

// Options configure Keys.
type Options struct {
	Self cluster.ServerID
	// Members are the servers whose keys count; Follow replaces them.
	Members cluster.Members
	FS      vfs.FS
	Log     zerolog.Logger
}

// Keys are the key of this process, and what it knows of others' keys. It is safe for use by several goroutines.
type Keys struct {
	opt            Options
	own            volume.KeyID
	text           []byte // the certificate, for people
	cert           tls.Certificate
	published      atomic.Bool // the key's file is durable
	required       atomic.Bool // TLS is; never false again
	accepts, dials chan struct{}
	unproven       unproven
	computing      chan struct{} // places of handshakes that are accepted
	strangers      *strangers
	refused        conns.Refusals
	publishRefused string // owned by Keep: why the key could not be written, as logged last

	mu struct {
		sync.Mutex
		members  cluster.Members
		known    map[cluster.ServerID][]volume.KeyID // the latest last
		plain    map[*plainConn]struct{}
		disowned map[cluster.ServerID]disowned // members that do not know this server
		refused  int                           // since the last line about them
		said     time.Time
	}
}

// New draws a key. It reads from the volume whether TLS is required.
func New(opt Options) (*Keys, error) {
	required, err := volume.TLSRequired(opt.FS)
	if err != nil {
		return nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("draw a key: %w", err)
	}
	// The serial number is the server's ID. Nothing else in it is read.
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(int64(opt.Self)),
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	k := &Keys{
		opt: opt, own: sha256.Sum256(der), text: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		cert:    tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private},
		accepts: make(chan struct{}, maxLooks), dials: make(chan struct{}, maxLooks), strangers: newStrangers(),
		computing: conns.Places(),
	}
	if k.required.Store(required); !required {
		opt.Log.Warn().Msg("servers of this volume take plain text from each other: when all are upgraded, type holdfast secure require")
	}
	k.mu.members = opt.Members
	k.mu.known = map[cluster.ServerID][]volume.KeyID{opt.Self: {k.own}}
	k.mu.plain, k.mu.disowned = map[*plainConn]struct{}{}, map[cluster.ServerID]disowned{}
	return k, nil
}

// ID returns the ID of this process's key.
func (k *Keys) ID() volume.KeyID { return k.own }

// Required reports whether other servers are accepted over TLS only.
func (k *Keys) Required() bool { return k.required.Load() }

// publish writes the key's file to the volume. Until it has succeeded, this process offers no TLS.
func (k *Keys) publish() error {
	if err := volume.WriteKey(k.opt.FS, k.opt.Self, k.own, k.text); err != nil {
		return err
	}
	k.published.Store(true)
	return nil
}

// Run keeps the key's file on the volume, and looks whether TLS is required, until ctx ends. It may hang in the filesystem.
func (k *Keys) Run(ctx context.Context) {
	t := time.NewTicker(round)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			k.Keep()
		}
	}
}

// Keep does once what Run does every second. The caller holds the guard of the server's ID, and calls it before Run: an
// error is logged, and what it is about is tried again.
func (k *Keys) Keep() {
	if !k.required.Load() {
		if required, err := volume.TLSRequired(k.opt.FS); err == nil && required {
			k.required.Store(true)
			k.opt.Log.Info().Int("closed", k.closePlain()).Msg("TLS is required between servers from now on: no more plain text")
		}
	}
	if k.published.Load() {
		if found, err := volume.HasKey(k.opt.FS, k.opt.Self, k.own); found || err != nil {
			return
		}
		k.opt.Log.Warn().Msg("this server's key has gone from the volume: it is written again")
	}
	why := ""
	if err := k.publish(); err != nil {
		why = err.Error()
	}
	if why != "" && why != k.publishRefused {
		k.opt.Log.Error().Msg("this server cannot make its key known to the others, and tries again: " + why)
	}
	k.publishRefused = why
}

var (
	errNotPublished = errors.New("this server's own key is not on the volume yet, so that the others cannot know it")
	errUnknown      = errors.New("the volume has no such key of that server: it runs on another volume, or on a copy of this one")
	errNoAnswer     = errors.New("the volume does not say, or not in time, whether this key belongs to that server")
)

// keyOf returns the hash of the certificate that the other side has shown, and the member that it says to be.
func keyOf(cs tls.ConnectionState) (cluster.ServerID, volume.KeyID, error) {
	if len(cs.PeerCertificates) == 0 {
		return 0, volume.KeyID{}, errors.New("no certificate")
	}
	leaf := cs.PeerCertificates[0]
	if n := leaf.SerialNumber; n.Sign() > 0 && n.BitLen() <= 32 {
		return cluster.ServerID(n.Uint64()), sha256.Sum256(leaf.Raw), nil
	}
	return 0, volume.KeyID{}, errors.New("the certificate is of no server")
}

// check returns nil if this is a key of the member. It takes one of the places for its look-up. It returns
// errUnknown if there is no such key, and errNoAnswer if that is not known after lookWait.
func (k *Keys) check(id cluster.ServerID, key volume.KeyID, places chan struct{}) error {
	if !k.lists(id) {
		return errUnknown
	}
	if k.knows(id, key) {
		return nil
	}
	over := time.NewTimer(lookWait)
	defer over.Stop()
	select {
	case places <- struct{}{}:
	case <-over.C:
		return errNoAnswer
	}
	answer := make(chan error, 1)
	go func() {
		defer func() { <-places }()
		answer <- k.lookUp(id, key)
	}()
	select {
	case err := <-answer:
		return err
	case <-over.C:
		return errNoAnswer
	}
}

// lookUp looks for a key on the volume. A volume on which this server does not find its own key either says nothing: what
// was mounted may have gone.
func (k *Keys) lookUp(id cluster.ServerID, key volume.KeyID) error {
	found, err := volume.HasKey(k.opt.FS, id, key)
	if found {
		k.learn(id, key) // also if nobody waits any more: the next try needs no look-up
		return nil
	}
	own := false
	if err == nil {
		own, err = volume.HasKey(k.opt.FS, k.opt.Self, k.own)
	}
	switch {
	case err != nil:
		return err
	case !own:
		return errNoAnswer
	}
	return errUnknown
}

// Follow replaces the servers whose keys count. What was learned of one that is gone is forgotten.
func (k *Keys) Follow(all cluster.Members) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.members = all
	for id := range k.mu.known {
		if _, listed := all.Find(id); !listed && id != k.opt.Self {
			delete(k.mu.known, id)
		}
	}
	for id := range k.mu.disowned {
		if _, listed := all.Find(id); !listed {
			delete(k.mu.disowned, id)
		}
	}
}

// lists reports whether a server is one whose keys count.
func (k *Keys) lists(id cluster.ServerID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, listed := k.mu.members.Find(id)
	return listed
}

func (k *Keys) knows(id cluster.ServerID, key volume.KeyID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.mu.known[id], key)
}

func (k *Keys) learn(id cluster.ServerID, key volume.KeyID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.mu.known[id]
	if slices.Contains(known, key) {
		return
	}
	if len(known) == maxKnown {
		known = known[1:]
	}
	k.mu.known[id] = append(known, key)
}

// disowned is when a member first and last said that it does not know this server.
type disowned struct{ first, last time.Time }

// Told records what a member has answered: that it does not know this server's key, or that it does.
func (k *Keys) Told(id cluster.ServerID, stranger bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	d, was := k.mu.disowned[id]
	switch {
	case !stranger:
		delete(k.mu.disowned, id)
	case !was || !d.counts(now):
		k.mu.disowned[id] = disowned{now, now}
	default:
		k.mu.disowned[id] = disowned{d.first, now}
	}
}

// counts reports whether it has to be believed still.
func (d disowned) counts(now time.Time) bool {
	return now.Sub(d.last) < soonKnown || d.last.Sub(d.first) >= settled
}

// Disowned returns the member that does not know this server's key for longest, and for how long; 0 if there is none. It
// is a member whose own key is on this server's volume, so one of the two has a copy of the volume, or a cache
// that shows old names. A copy stays: if the member has said so for settled, it counts until that member knows this
// server, also when it has ended, for then this server cannot tell which of the two was on the copy. A cache soon shows
// the name: if the member ended before it could say so, that must not keep this server out for ever.
func (k *Keys) Disowned() (by cluster.ServerID, age time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for id, d := range k.mu.disowned {
		if since := max(1, now.Sub(d.first)); since > age && d.counts(now) {
			by, age = id, since
		}
	}
	return by, age
}

// plainConn is a connection in plain text.
type plainConn struct {
	net.Conn
	keys *Keys
}

// Close closes the connection.
func (c *plainConn) Close() error {
	c.keys.mu.Lock()
	delete(c.keys.mu.plain, c)
	c.keys.mu.Unlock()
	return c.Conn.Close()
}

// inPlain returns the connection as one in plain text, which is closed when TLS is required.
func (k *Keys) inPlain(c net.Conn) (net.Conn, error) {
	p := &plainConn{c, k}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.required.Load() {
		return nil, errPlain
	}
	k.mu.plain[p] = struct{}{}
	return p, nil
}

// closePlain closes all connections in plain text, and returns how many. It is called when TLS is required: inPlain adds
// none any more.
func (k *Keys) closePlain() int {
	k.mu.Lock()
	all := k.mu.plain
	k.mu.plain = map[*plainConn]struct{}{}
	k.mu.Unlock()
	for c := range all {
		c.Conn.Close() //nolint:errcheck // the other side may have closed it
	}
	return len(all)
}

// refuse logs now and then that connections are refused, and returns err.
func (k *Keys) refuse(from net.Conn, err error) error {
	if n := k.refused.Count(refusedEvery); n > 0 {
		k.opt.Log.Warn().Err(err).Str("from", from.RemoteAddr().String()).Int("refused", n).
			Msg("a connection to the port for servers is refused")
	}
	return err
}
