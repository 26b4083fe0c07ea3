// SPDX-License-Identifier: Apache-2.0

// Package origins decides which web pages may use a server, by the origin that their browser sends with each request:
// scheme, host and port of the page. Pages of the server's own origin may, and those that a pattern permits. No cookie
// means anything here, so a page cannot act as somebody else: it needs a credential of its own where there are rules. What
// this keeps out is pages that use the place in the network of whoever looks at them.
//
// A page could get around that by a name of its own site that leads to the server's address (DNS rebinding): for its browser,
// the server is of the page's origin then. So Host says by which names a server may be asked.
//
// It speaks CORS (the Fetch standard) with HTTP, for fetch and EventSource. A handshake of WebSocket knows no CORS: there the server
// alone decides.
package origins

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync/atomic"
)

// Policy says which pages are permitted. It is safe for use by several goroutines.
type Policy struct {
	patterns atomic.Pointer[[]string]
	names    atomic.Pointer[[]string] // by which the server is known, in lower case; nil = none yet
	guard    *http.CrossOriginProtection
}

// New returns the policy of patterns that Check has found good.
func New(patterns []string) *Policy {
	p := &Policy{guard: http.NewCrossOriginProtection()}
	p.Set(patterns)
	return p
}

// Set permits the pages of other patterns, which Check has found good, from the next request on. WebSockets that are
// open stay open.
func (p *Policy) Set(patterns []string) {
	var lower []string
	for _, x := range patterns {
		lower = append(lower, strings.ToLower(x))
	}
	p.patterns.Store(&lower)
}

// matches reports whether a pattern stands for an origin; both are in lower case. Only * means something in a pattern, so the brackets of an
// IPv6 address do not.
func matches(pattern, origin string) bool {
	ok, _ := path.Match(strings.ReplaceAll(pattern, "[", `\[`), origin)
	return ok
}

// Know has the server be known by these names from the next request on. "*.example.com" stands for each name with one part
// more than example.com, as in certificates. Addresses and localhost need no name.
func (p *Policy) Know(names []string) {
	lower := make([]string, len(names))
	for i, n := range names {
		lower[i] = canonical(n)
	}
	p.names.Store(&lower)
}

// Host returns an error for a request to a host that is neither an address, nor localhost, nor a name by which the server is
// known, nor the host of a pattern without a wildcard. Browsers send it with every request, and pages cannot change it. A wildcard opens nothing
// here, and neither does the origin of a page that is permitted: a name of a stranger may fit either, and that is what this keeps out.
func (p *Policy) Host(r *http.Request) error {
	host := hostname(r.Host)
	address, err := netip.ParseAddr(host)
	isAddress := err == nil && address.Zone() == "" // after which anything may stand, and nobody sends it
	if host == "" || host == "localhost" || isAddress || p.knows(host) {
		return nil // no browser leaves the host out
	}
	return fmt.Errorf("this server is not known by the name %q, so a web page that has it lead here could use the server by it (DNS rebinding); nothing was done. "+
		"If the name is this server's, start it with --names %s; else ask by an address, by a name in CLUSTER, over TLS, or with a credential", host, host)
}

// knows reports whether the server is known by a name, or a pattern names it as it is.
func (p *Policy) knows(host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	if names := p.names.Load(); names != nil && (slices.Contains(*names, host) || parent != "" && slices.Contains(*names, "*."+parent)) {
		return true
	}
	return slices.ContainsFunc(*p.patterns.Load(), func(pattern string) bool {
		name := hostOf(pattern)
		return name == host && !strings.Contains(name, "*")
	})
}

// hostname returns the host of a host with or without a port, as names are compared.
func hostname(hostport string) string {
	if host, port, err := net.SplitHostPort(hostport); err == nil && strings.Trim(port, "0123456789") == "" {
		hostport = host
	}
	return canonical(strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]"))
}

// hostOf returns the host of a pattern, whatever its port.
func hostOf(pattern string) string {
	_, host, _ := strings.Cut(pattern, "://")
	return hostname(strings.ReplaceAll(host, ":*", ":0"))
}

// canonical returns a name as names are compared: case and the dot of the root mean nothing.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// Check returns an error unless pattern is a pattern of origins: a scheme and a host, with the port where it is not the
// scheme's, such as https://app.example.com or http://localhost:3000. * matches any text without a slash. In the host it stands before a
// dot and a name only, as in https://*.example.com: anywhere else it would permit the pages of hosts of strangers.
func Check(pattern string) error {
	scheme, host, ok := strings.Cut(pattern, "://")
	if !ok || scheme == "" || host == "" || strings.ContainsAny(pattern, "?\\@#") || strings.Contains(host, "/") || !bracketed(host) {
		return fmt.Errorf("%q is no origin: use SCHEME://HOST[:PORT], such as https://app.example.com or https://*.example.com", pattern)
	}
	name := hostOf(pattern)
	if i := strings.LastIndexByte(name, '*'); i >= 0 && (len(name) < i+3 || name[i+1] != '.') {
		return fmt.Errorf("%q would permit the pages of every host that anybody gives such a name: in the host, * stands before a dot and a name only, as in https://*.example.com", pattern)
	}
	return nil
}

// bracketed reports whether the brackets of a host with or without a port are those of an IPv6 address, if there are any.
func bracketed(host string) bool {
	address, _, ok := strings.Cut(strings.TrimPrefix(host, "["), "]")
	if !ok {
		return !strings.ContainsAny(host, "[]")
	}
	_, err := netip.ParseAddr(address)
	return err == nil && strings.HasPrefix(host, "[") && strings.Count(host, "]") == 1
}

// permits reports whether a pattern permits the origin of a request.
func (p *Policy) permits(r *http.Request) bool {
	origin := strings.ToLower(r.Header.Get("Origin"))
	for _, pattern := range *p.patterns.Load() {
		if matches(pattern, origin) {
			return true
		}
	}
	return false
}

// What pages of other origins may send and read, beyond what every page may.
const (
	methods  = "GET, POST"
	sent     = "Authorization, Content-Type, Holdfast-Cluster, Last-Event-ID, Range"
	readable = "*" // all headers, as they read the body
	// asked is how long a browser remembers that, in seconds.
	asked = "600"
)

// HTTP returns an error for a request by which a page of another origin changes something, unless that is permitted. It gives
// the answer the headers by which the browser lets a page that is permitted read it, and answers whole where the browser only asks
// what the page may send.
func (p *Policy) HTTP(w http.ResponseWriter, r *http.Request) (answered bool, err error) {
	h := w.Header()
	if len(*p.patterns.Load()) > 0 {
		h.Add("Vary", "Origin")
	}
	if !p.permits(r) {
		return false, p.explained(p.guard.Check(r), r)
	}
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	h.Set("Access-Control-Expose-Headers", readable)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false, nil
	}
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", sent)
	h.Set("Access-Control-Max-Age", asked)
	w.WriteHeader(http.StatusNoContent)
	return true, nil
}

// Handshake returns an error for a handshake of WebSocket of a page of another origin, unless that is permitted. It is a GET that
// changes things, so the rules for a POST apply.
func (p *Policy) Handshake(r *http.Request) error {
	if p.permits(r) {
		return nil
	}
	post := *r
	post.Method = http.MethodPost
	return p.explained(p.guard.Check(&post), r)
}

// explained says with a refusal what would permit it.
func (p *Policy) explained(err error, r *http.Request) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: pages of %q are permitted with --web-origins", err, r.Header.Get("Origin"))
}
