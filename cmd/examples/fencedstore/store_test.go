// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestStaleWritersAreRejected(t *testing.T) {
	dir := t.TempDir()
	s, err := newStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
	defer server.Close()
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r, err := server.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	for _, x := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/a/b", "", 404, ""},
		{"PUT", "/a/b", "none", 400, "token"},
		{"PUT", "/a/b?token=0", "none", 400, "token"},
		{"PUT", "/a/b?token=17", "first", 200, "5 bytes"},
		{"PUT", "/a/b?token=21", "second", 200, "6 bytes"},
		{"PUT", "/a/b?token=17", "woke up", 412, "21 was seen"},
		{"GET", "/a/b", "", 200, "second"},
		{"PUT", "/other?token=3", "x", 200, ""},
		{"PUT", "/big?token=3", strings.Repeat("x", maxValue+1), 413, ""},
		{"DELETE", "/a/b", "", 405, ""},
		{"GET", "/", "", 404, ""},
	} {
		if code, body := ask(x.method, x.path, x.body); code != x.code || !strings.Contains(body, x.want) {
			t.Errorf("%s %s: %d %q, want %d with %q", x.method, x.path, code, body, x.code, x.want)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = newStore(dir); err != nil { // a restart forgets nothing
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // the test is over
	if code, body := ask("PUT", "/a/b?token=20", "late"); code != 412 {
		t.Errorf("after a restart: %d %s", code, body)
	}
	if _, body := ask("GET", "/a/b", ""); body != "second" {
		t.Errorf("after a restart the value is %q", body)
	}
}

// A value is told with the token that it was written under, and is durable when that is told.
func TestValueAndItsToken(t *testing.T) {
	s, err := newStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // the test is over
	synced := 0
	s.sync = func(dir string) error {
		if synced++; dir != s.dir {
			t.Errorf("synced %s", dir)
		}
		return syncDir(dir)
	}
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w
	}
	if w := ask("PUT", "/a?token=17", "a\nvalue"); w.Code != http.StatusOK || synced != 1 {
		t.Errorf("put: %d, synced %d times", w.Code, synced)
	}
	s.sync = func(string) error { return errors.New("the disk is gone") }
	if w := ask("PUT", "/b?token=5", "x"); w.Code != http.StatusInternalServerError {
		t.Errorf("a value that may not be durable: %d", w.Code)
	}
	if err := s.guard.Admit("a", 21); err != nil { // its holder died before it wrote
		t.Fatal(err)
	}
	if w := ask("GET", "/a", ""); w.Body.String() != "a\nvalue" || w.Header().Get("Holdfast-Token") != "17" {
		t.Errorf("got %q under token %s", w.Body, w.Header().Get("Holdfast-Token"))
	}
}
