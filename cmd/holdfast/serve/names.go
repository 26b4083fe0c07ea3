// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
)

const (
	// nameWait bounds a look for the name of this host, and nameEvery is how long after one that found nothing the next one begins: the
	// network, or its DNS, may come after the server.
	nameWait  = 5 * time.Second
	nameEvery = time.Minute
)

// hostsOf returns the names and addresses by which clients may reach a server of a cluster.
func hostsOf(servers cluster.Members, opt *Options) (all []string) {
	add := func(h string) {
		if h != "" && !strings.ContainsFunc(h, func(r rune) bool { return r > unicode.MaxASCII }) {
			all = append(all, h)
		}
	}
	addresses := append([]string{opt.Listen}, opt.Also...)
	for _, m := range servers {
		addresses = append(addresses, m.Client, m.OldHTTP)
	}
	for _, a := range addresses {
		if host, _, err := net.SplitHostPort(a); err == nil {
			add(host)
		}
	}
	if name, err := os.Hostname(); err == nil {
		add(name)
	}
	for _, h := range append([]string{opt.Bind, "localhost", "127.0.0.1", "::1"}, opt.Names...) {
		add(h)
	}
	return all
}

// fullName returns the name of this host with its domain, as hostname -f has it, by a look-up of its canonical name; "" where that is not
// known, or none beyond the name itself. What does not begin with the host's own name is another's: nobody who answers for the
// DNS gives a server names.
func fullName(ctx context.Context, name string, canonical func(ctx context.Context, name string) (string, error)) string {
	full, err := canonical(ctx, name)
	if full = strings.ToLower(strings.TrimSuffix(full, ".")); err != nil || !strings.HasPrefix(full, strings.ToLower(name)+".") || strings.Contains(full, "*") {
		return ""
	}
	return full
}

// learnFullName looks for the full name of the host of this name until it is known, or ctx ends, and calls known with it. A name that has a
// domain is the full one.
func learnFullName(ctx context.Context, name string, canonical func(ctx context.Context, name string) (string, error), known func(string)) {
	for !strings.Contains(name, ".") {
		limited, cancel := context.WithTimeout(ctx, nameWait)
		full := fullName(limited, name, canonical)
		cancel()
		if full != "" {
			known(full)
			return
		}
		if !retry.Rest(ctx, nameEvery) {
			return
		}
	}
}

// peerHosts returns the hosts of the servers' addresses for each other: a client may reach a server by those, too.
func peerHosts(servers cluster.Members) (all []string) {
	for _, m := range servers {
		if host, _, err := net.SplitHostPort(m.Peer); err == nil {
			all = append(all, host)
		}
	}
	return all
}

// learnName has the server be known by the full name of its host, too, as soon as that is known itself.
func (c *clientTLS) learnName(ctx context.Context, opt *Options) {
	name, err := os.Hostname()
	if err != nil {
		return // hostsOf has none either
	}
	learnFullName(ctx, name, opt.canonical, func(full string) {
		c.fullName.Store(&full)
		opt.Live.pages.Know(c.known())
	})
}
