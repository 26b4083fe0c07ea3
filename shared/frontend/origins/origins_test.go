// SPDX-License-Identifier: Apache-2.0

package origins_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
)

// TestPages: who may change something, who may read the answer, and who may make a handshake.
func TestPages(t *testing.T) {
	p := origins.New([]string{"https://*.Example.com", "http://localhost:3000"})
	for _, x := range []struct {
		origin, site        string
		change, read, shake bool
	}{
		{"", "", true, false, true}, // no browser
		{"http://h:7601", "same-origin", true, false, true},
		{"http://h:7601", "", true, false, true},
		{"https://app.example.com", "cross-site", true, true, true},
		{"https://APP.example.com", "", true, true, true},
		{"http://localhost:3000", "same-site", true, true, true},
		{"http://localhost:3001", "same-site", false, false, false},
		{"http://app.example.com", "cross-site", false, false, false},
		{"https://app.example.com.evil.org", "cross-site", false, false, false},
		{"https://evil.org/.example.com", "cross-site", false, false, false},
		{"null", "cross-site", false, false, false},
		{"", "cross-site", false, false, false},
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			r := httptest.NewRequest(method, "http://h:7601/v1/acquire", nil)
			if x.origin != "" {
				r.Header.Set("Origin", x.origin)
			}
			if x.site != "" {
				r.Header.Set("Sec-Fetch-Site", x.site)
			}
			if method == "OPTIONS" {
				r.Header.Set("Access-Control-Request-Method", "POST")
			}
			w := httptest.NewRecorder()
			answered, err := p.HTTP(w, r)
			if wantErr := method == "POST" && !x.change; (err != nil) != wantErr || wantErr && !strings.Contains(err.Error(), "--web-origins") {
				t.Errorf("%s, %+v: %v", method, x, err)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); (got != "") != x.read || x.read && got != x.origin {
				t.Errorf("%s, %+v: %q may read", method, x, got)
			}
			if got := w.Header().Get("Access-Control-Expose-Headers"); (got == "*") != x.read {
				t.Errorf("%s, %+v: headers %q may be read", method, x, got)
			}
			if asked := method == "OPTIONS" && x.read; answered != asked || asked && !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Authorization") {
				t.Errorf("%s, %+v: answered is %v, %v", method, x, answered, w.Header())
			}
			if w.Header().Get("Vary") != "Origin" || w.Header().Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s, %+v: %v", method, x, w.Header())
			}
			if err := p.Handshake(r); (err == nil) != x.shake {
				t.Errorf("handshake of %+v: %v", x, err)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"https://a.example.com": true, "https://*.example.com:8443": true, "http://[::1]:80": true,
		"": false, "*": false, "a.example.com": false, "https://": false, "://a": false, "https://a/": false, "https://a[": false,
	} {
		if err := origins.Check(pattern); (err == nil) != ok {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
