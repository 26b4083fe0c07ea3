// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// maxFailures is how many credentials and logins of one address may fail in a second, and maxFailing of how many
	// addresses that is counted one by one.
	maxFailures = 10
	maxFailing  = 4096
)

// errMany refuses what is not looked at because too many of that address failed.
func errMany() error {
	return &wire.Error{Status: cluster.StatusStorageUnavailable, Message: "too many credentials or logins of this address failed in this second: wait a second", RetryAfter: time.Second}
}

// Failures counts the credentials and logins that fail in a second, by address. Those of IPv6 count by their /64, which is as
// much as one host has. Callers of this host are not counted: a proxy on it speaks for many. The zero value is ready for use by
// several goroutines; nil counts nothing.
type Failures struct {
	any atomic.Bool // some are counted: who shows a good credential takes no lock
	mu  sync.Mutex
	of  map[netip.Addr]int // since then
	at  time.Time
}

// source returns under what an address is counted, the zero value if it is not.
func source(from net.Addr) netip.Addr {
	a := conns.Host(serving.PlainAddr(from))
	if a.Is6() {
		p, _ := a.Prefix(64) // fails for longer ones only
		return p.Addr()
	}
	return a
}

// many reports whether too many of an address failed in this second.
func (f *Failures) many(from net.Addr) bool {
	if f == nil || !f.any.Load() {
		return false
	}
	a := source(from)
	if !a.IsValid() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) >= time.Second {
		clear(f.of)
		f.any.Store(false)
		return false
	}
	return f.of[f.counted(a)] >= maxFailures
}

// count counts one more.
func (f *Failures) count(from net.Addr) {
	if f == nil {
		return
	}
	a := source(from)
	if !a.IsValid() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[netip.Addr]int{}
	}
	if now := time.Now(); now.Sub(f.at) >= time.Second {
		clear(f.of)
		f.at = now
	}
	f.of[f.counted(a)]++
	f.any.Store(true)
}

// counted returns under what an address is counted: too many are counted as one.
func (f *Failures) counted(a netip.Addr) netip.Addr {
	if _, ok := f.of[a]; !ok && len(f.of) >= maxFailing {
		return netip.Addr{}
	}
	return a
}
