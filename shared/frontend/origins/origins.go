// SPDX-License-Identifier: Apache-2.0

// Package origins decides which web pages may use a server, by the origin that their browser sends with each request:
// scheme, host and port of the page. Pages of the server's own origin may, and those that a pattern permits. No cookie
// means anything here, so a page cannot act as somebody else: it needs a credential of its own where there are rules. What
// this keeps out is pages that use the place in the network of whoever looks at them.
//
// It speaks CORS (the Fetch standard) with HTTP, for fetch and EventSource. A handshake of WebSocket knows no CORS: there the server
// alone decides.
package origins

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
)

// Policy says which pages are permitted. It is safe for use by several goroutines.
type Policy struct {
	patterns atomic.Pointer[[]string]
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

// Check returns an error unless pattern is a pattern of origins: a scheme and a host, with the port where it is not the
// scheme's, in which * matches any text without a slash, such as https://app.example.com, https://*.example.com or
// http://localhost:3000.
func Check(pattern string) error {
	scheme, host, ok := strings.Cut(pattern, "://")
	if _, err := path.Match(pattern, ""); err != nil || !ok || scheme == "" || host == "" || strings.Contains(host, "/") {
		return fmt.Errorf("%q is no origin: use SCHEME://HOST[:PORT], such as https://app.example.com or https://*.example.com", pattern)
	}
	return nil
}

// permits reports whether a pattern permits the origin of a request.
func (p *Policy) permits(r *http.Request) bool {
	origin := strings.ToLower(r.Header.Get("Origin"))
	for _, pattern := range *p.patterns.Load() {
		if ok, _ := path.Match(pattern, origin); ok {
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
