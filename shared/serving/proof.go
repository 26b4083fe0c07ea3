// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net"
	"sync/atomic"
)

// Unproven is what a client is told whose connection ends because nobody has proved on it who he is.
const Unproven = "nobody has shown a credential on this connection, and this server's access rules want one: connect with one"

// Proof is whether somebody has proved on a connection who he is, by any credential that counts. It is once and for all:
// that a credential expires, or is revoked, is another matter. Its methods are safe for use by several goroutines.
type Proof struct {
	given, login atomic.Bool
	end          atomic.Pointer[func()]
}

// Given reports whether somebody has.
func (p *Proof) Given() bool { return p.given.Load() }

// LoginBegun reports whether a login has begun on the connection.
func (p *Proof) LoginBegun() bool { return p.login.Load() }

// End returns how to end the connection with a word to its client, nil if nobody knows.
func (p *Proof) End() func() {
	if f := p.end.Load(); f != nil {
		return *f
	}
	return nil
}

func proofAt(a net.Addr) *Proof {
	if known, ok := a.(*KnownAddr); ok && known.Proof != nil {
		return known.Proof
	}
	return nil
}

// Prove notes that somebody has proved on the connection from this address who he is.
func Prove(a net.Addr) {
	if p := proofAt(a); p != nil && !p.given.Load() {
		p.given.Store(true)
	}
}

// Proved reports whether Prove was called.
func Proved(a net.Addr) bool {
	p := proofAt(a)
	return p != nil && p.Given()
}

// BeginLogin notes that a login has begun on the connection from this address: it needs a moment more.
func BeginLogin(a net.Addr) {
	if p := proofAt(a); p != nil {
		p.login.Store(true)
	}
}

// WhenUnproven has a connection end so where nobody proves in time on it who he is. Otherwise it is closed without a word. It is
// called by a goroutine of its own.
func WhenUnproven(a net.Addr, end func()) {
	if p := proofAt(a); p != nil {
		p.end.Store(&end)
	}
}
