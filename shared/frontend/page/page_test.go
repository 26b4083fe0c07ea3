// SPDX-License-Identifier: Apache-2.0

package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// get asks for a path, with the headers given in pairs.
func get(t *testing.T, p *Page, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// Everything that the page is made of is sent with its type, under a policy that lets nothing else in, and is asked for again each time.
func TestFilesAndTheirHeaders(t *testing.T) {
	p := New()
	types := map[string]string{
		"/": "text/html; charset=utf-8", "/page/main.js": "text/javascript; charset=utf-8", "/page/page.css": "text/css; charset=utf-8", "/page/icon.svg": "image/svg+xml",
		"/page/holdfast.js": "text/javascript; charset=utf-8", "/page/example.js": "text/javascript; charset=utf-8", "/page/example.html": "text/html; charset=utf-8",
	}
	for path, want := range types {
		if !p.Has(path) {
			t.Errorf("there is no %s", path)
			continue
		}
		w := get(t, p, http.MethodGet, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want {
			t.Errorf("%s: %d, %q", path, w.Code, w.Header().Get("Content-Type"))
		}
		if got := w.Header().Get("Content-Security-Policy"); got != Policy {
			t.Errorf("%s: policy %q", path, got)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Cache-Control": "no-cache",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	for _, path := range []string{"", "/page", "/page/", "/page/index.html", "/index.html", "/v1/status", "/page/../"} {
		if p.Has(path) {
			t.Errorf("there is a page at %q", path)
		}
	}
}

// The policy lets nothing in but this server's own files, and no text become code.
func TestPolicy(t *testing.T) {
	for _, part := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'",
	} {
		if !strings.Contains(Policy+";", part+";") {
			t.Errorf("the policy lacks %q", part)
		}
	}
	if strings.Contains(Policy, "unsafe") || strings.Contains(Policy, "http") || strings.Contains(Policy, "*") {
		t.Error("the policy lets in what is not this server's")
	}
}

// A browser that has the page of this build is told so, and one that has another gets this one.
func TestOnlyTheOwnBuildIsKept(t *testing.T) {
	p := New()
	first := get(t, p, http.MethodGet, "/page/main.js")
	tag := first.Header().Get("Etag")
	if !regexp.MustCompile(`^"[0-9a-f]{32}"$`).MatchString(tag) {
		t.Fatalf("the tag is %q", tag)
	}
	for asked, code := range map[string]int{tag: http.StatusNotModified, `"another"`: http.StatusOK} {
		if w := get(t, p, http.MethodGet, "/page/main.js", "If-None-Match", asked); w.Code != code || (w.Body.Len() > 0) != (code == http.StatusOK) {
			t.Errorf("with %s: %d, %d bytes", asked, w.Code, w.Body.Len())
		}
	}
	if w := get(t, p, http.MethodHead, "/"); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
}

// The files need nothing from elsewhere, have no code in the markup, and make no markup of text: what the policy forbids is not
// tried either.
func TestFilesAreWhatThePolicyAllows(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|EventSource|localStorage|document\.cookie|https?://[^$]|@import|\son[a-z]+="|style="|<script>|<style`)
	allowed := regexp.MustCompile(`http://www\.w3\.org/2000/svg|Use https://`)
	link := regexp.MustCompile(`(?:from "\./|src="/page/|href="/page/)([a-z.]+)"`)
	has := map[string]bool{}
	var linked []string
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		has[d.Name()] = true
		if len(b) > 24<<10 {
			t.Errorf("%s has %d bytes: is all of it needed?", name, len(b))
		}
		for i, line := range strings.Split(string(b), "\n") {
			if bad := forbidden.FindString(allowed.ReplaceAllString(line, "")); bad != "" && !strings.HasPrefix(line, "//") {
				t.Errorf("%s:%d has %q", name, i+1, bad)
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			linked = append(linked, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range linked {
		if !has[name] {
			t.Errorf("there is no %s", name)
		}
	}
	if len(linked) < 8 {
		t.Errorf("only %q are linked", linked)
	}
}
