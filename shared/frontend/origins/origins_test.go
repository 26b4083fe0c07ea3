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
		"https://a-*.example.com": true, "http://localhost:*": true, "https://*.example.com:*": true, "http://[::1]:*": true, "*://a.example.com": true,
		"": false, "*": false, "a.example.com": false, "https://": false, "://a": false, "https://a/": false, "https://a[": false,
		"http://[a]": false, "http://[::1": false, "http://a[::1]": false, "http://?.example.com": false, `http://\*.example.com`: false, "http://a@example.com": false,
		// These would permit the pages of strangers.
		"http://*:3000": false, "http://*": false, "https://*.": false, "http://*.:80": false, "https://a.example.com*": false, "http://local*:80": false, "http://*example.com": false,
		"http://*.example.*": false, "http://10.0.0.*": false, "*://*": false,
	} {
		err := origins.Check(pattern)
		if (err == nil) != ok {
			t.Errorf("%q: %v", pattern, err)
		}
		if strings.Contains(pattern, "://*:") && !strings.Contains(err.Error(), "would permit the pages of every host") {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// The brackets of an address are no wildcard.
func TestPageOfAnAddress(t *testing.T) {
	p := origins.New([]string{"http://[::1]:3000"})
	for origin, ok := range map[string]bool{"http://[::1]:3000": true, "http://::3000": false, "http://1:3000": false} {
		r := httptest.NewRequest("POST", "http://h:7601/", nil)
		r.Header.Set("Origin", origin)
		if err := p.Handshake(r); (err == nil) != ok {
			t.Errorf("%q: %v", origin, err)
		}
	}
}

// TestHost: by which hosts a server may be asked that is known by these names, and admits these pages: a
// page that is admitted by a wildcard, and one that says so by its origin, has no host the more.
func TestHost(t *testing.T) {
	p := origins.New([]string{"https://*.Pages.example:8443", "http://Portal.example:3000", "http://every.example:*", "http://*:3000"})
	ask := func(host, origin string) error {
		r := httptest.NewRequest("GET", "/v1/locks", nil)
		if r.Host = host; origin != "" {
			r.Header.Set("Origin", origin)
		}
		return p.Host(r)
	}
	if ask("h1", "") == nil || ask("127.0.0.1", "") != nil {
		t.Error("before it is known by names")
	}
	p.Know([]string{"h1", "LB.example.org.", "*.cell.example.org", "10.0.0.1"})
	for _, x := range []struct {
		host, origin string
		ok           bool
	}{
		{"", "", true}, // no browser
		{"127.0.0.1", "", true},
		{"127.0.0.1:7601", "", true},
		{"192.0.2.9:80", "", true},
		{"[::1]:7601", "", true},
		{"[fe80::1]:7601", "", true},
		{"[fe80::1%x.evil.org]:7601", "", false},
		{"localhost:7601", "", true},
		{"LOCALHOST.", "", true},
		{"h1:7601", "", true},
		{"H1.", "", true},
		{"lb.example.org", "", true},
		{"a.cell.example.org:7601", "", true},
		{"portal.example", "", true},
		{"PORTAL.example:7601", "", true},
		{"every.example:7601", "", true},
		{"app.pages.example", "", false},
		{"app.pages.example:8443", "", false},
		{"app.pages.example:8443", "https://app.pages.example:8443", false},
		{"*.pages.example", "", false},
		{"anything", "https://app.pages.example:8443", false},
		{"anything", "http://portal.example:3000", false},
		{"*:3000", "", false},
		{"evil.org:3000", "http://evil.org:3000", false},
		{"evil.org:7601", "", false},
		{"evil.org:7601", "http://evil.org:7601", false},
		{"h1.evil.org", "", false},
		{"localhost.evil.org", "", false},
		{"evil.localhost", "", false},
		{"127.0.0.1.evil.org", "", false},
		{"1.evil.org:127", "", false},
		{"cell.example.org", "", false},
		{"a.b.cell.example.org", "", false},
		{"evilh1", "", false},
		{"*.cell.example.org.evil.org", "", false},
		{"app.pages.example.evil.org", "", false},
		{"[h1", "", true}, // h1 all the same
		{":7601", "", true},
	} {
		if err := ask(x.host, x.origin); (err == nil) != x.ok || err != nil && !strings.Contains(err.Error(), "--names") {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

// FuzzHost: a name that is known is known in every form, and one below a stranger's never is.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"h1", "", "[::1]:1", "a:b:c", "*", "%zz", "h1:7601"} {
		f.Add(s)
	}
	p := origins.New(nil)
	p.Know([]string{"h1", "*.cell"})
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		_ = p.Host(r) // it does not panic
		r.Host = host + ".evil.org"
		if p.Host(r) == nil {
			t.Errorf("%q may be asked for", r.Host)
		}
	})
}
