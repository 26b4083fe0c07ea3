// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

const cluster = "01000000000000000000000000000000"

// signer has the key of the cluster.
func signer() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)) }

func knownKeys(t *testing.T) *fencing.Keys {
	t.Helper()
	k, err := fencing.ReadKeys(func() ([]byte, error) {
		return fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(signer().Public().(ed25519.PublicKey))), nil
	}, cluster)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// proofOf returns a proof as a server signs it, of this lock and token, that is signed with a key.
func proofOf(t *testing.T, key ed25519.PrivateKey, lock, token, mode string, life time.Duration) string {
	t.Helper()
	now := time.Now()
	x := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": cluster, "iat": now.Unix(), "exp": now.Add(life).Unix(), "lock": lock, "tok": token, "mode": mode, "epoch": 3, "cid": "@9",
	})
	x.Header["typ"], x.Header["kid"] = "holdfast-proof", "1"
	text, err := x.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// held returns a proof of a lock that is held.
func held(t *testing.T, lock, token string) string {
	return proofOf(t, signer(), lock, token, "exclusive", time.Minute)
}

func TestStaleWritersAreRejected(t *testing.T) {
	dir := t.TempDir()
	s, err := newStore(dir, knownKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
	defer server.Close()
	ask := func(method, path, proof, body string) (int, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if proof != "" {
			q.Header.Set("Holdfast-Proof", proof)
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
		method, path, proof, body string
		code                      int
		want                      string
	}{
		{"GET", "/a/b", "", "", 404, ""},
		{"PUT", "/a/b", "", "none", 401, "proof"},
		{"PUT", "/a/b?token=17", "", "none", 401, "proof"},
		{"PUT", "/a/b", held(t, "a/b", "0"), "none", 403, "no proof"},
		{"PUT", "/a/b", held(t, "a/b", "17"), "first", 200, "5 bytes"},
		{"PUT", "/a/b", held(t, "a/b", "21"), "second", 200, "6 bytes written under token 21"},
		{"PUT", "/a/b", held(t, "a/b", "17"), "woke up", 412, "21 was seen"},
		{"GET", "/a/b", "", "", 200, "second"},
		{"PUT", "/other", held(t, "other", "3"), "x", 200, ""},
		{"PUT", "/big", held(t, "big", "3"), strings.Repeat("x", maxValue+1), 413, ""},
		{"DELETE", "/a/b", "", "", 405, ""},
		{"GET", "/", "", "", 404, ""},
	} {
		if code, body := ask(x.method, x.path, x.proof, x.body); code != x.code || !strings.Contains(body, x.want) {
			t.Errorf("%s %s: %d %q, want %d with %q", x.method, x.path, code, body, x.code, x.want)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = newStore(dir, knownKeys(t)); err != nil { // a restart forgets nothing
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // the test is over
	if code, body := ask("PUT", "/a/b", held(t, "a/b", "20"), "late"); code != 412 {
		t.Errorf("after a restart: %d %s", code, body)
	}
	if _, body := ask("GET", "/a/b", "", ""); body != "second" {
		t.Errorf("after a restart the value is %q", body)
	}
}

// A value is told with the token that it was written under, and is durable when that is told.
func TestValueAndItsToken(t *testing.T) {
	s, err := newStore(t.TempDir(), knownKeys(t))
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
	ask := func(method, path, proof, body string) *httptest.ResponseRecorder {
		w, q := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
		q.Header.Set("Holdfast-Proof", proof)
		s.ServeHTTP(w, q)
		return w
	}
	if w := ask("PUT", "/a", held(t, "a", "17"), "a\nvalue"); w.Code != http.StatusOK || synced != 1 {
		t.Errorf("put: %d, synced %d times", w.Code, synced)
	}
	s.sync = func(string) error { return errors.New("the disk is gone") }
	if w := ask("PUT", "/b", held(t, "b", "5"), "x"); w.Code != http.StatusInternalServerError {
		t.Errorf("a value that may not be durable: %d", w.Code)
	}
	if err := s.guard.Admit("a", 21); err != nil { // its holder died before it wrote
		t.Fatal(err)
	}
	if w := ask("GET", "/a", "", ""); w.Body.String() != "a\nvalue" || w.Header().Get("Holdfast-Token") != "17" {
		t.Errorf("got %q under token %s", w.Body, w.Header().Get("Holdfast-Token"))
	}
}

// TestForgedTokenLocksNobodyOut: whoever makes up a huge token, or shows a proof that is none of this lock, is refused, and the
// holder goes on.
func TestForgedTokenLocksNobodyOut(t *testing.T) {
	s, err := newStore(t.TempDir(), knownKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // the test is over
	put := func(path, proof string) *httptest.ResponseRecorder {
		w, q := httptest.NewRecorder(), httptest.NewRequest("PUT", path, strings.NewReader("x"))
		q.Header.Set("Holdfast-Proof", proof)
		s.ServeHTTP(w, q)
		return w
	}
	const huge = "9000000000000000000"
	for name, proof := range map[string]string{
		"the token itself": huge,
		"a key of his own": proofOf(t, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32)), "a", huge, "exclusive", time.Minute),
		"of another lock":  held(t, "b", huge),
		"expired":          proofOf(t, signer(), "a", huge, "exclusive", -time.Minute),
		"of a reader":      proofOf(t, signer(), "a", huge, "shared", time.Minute),
	} {
		if w := put("/a?token="+huge, proof); w.Code != http.StatusForbidden || s.guard.Seen("a") != 0 {
			t.Errorf("%s: %d %s; the guard has seen %d", name, w.Code, w.Body, s.guard.Seen("a"))
		}
	}
	if w := put("/a", held(t, "a", "17")); w.Code != http.StatusOK {
		t.Errorf("the holder is locked out: %d %s", w.Code, w.Body)
	}
}
