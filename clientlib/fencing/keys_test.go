// SPDX-License-Identifier: Apache-2.0

package fencing_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

// byKey returns a proof that is signed with a key of this number.
func byKey(t testing.TB, n byte) string {
	return prove(t, jwt.SigningMethodEdDSA, private(n), map[string]any{"kid": keyID(n)}, jwt.MapClaims{"exp": time.Now().Add(24 * time.Hour).Unix()})
}

// Keys are read again when a proof of an unknown one comes, at most once a minute, however many come.
func TestUnknownKeyReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, reads := keySet(1), 0
		var broken error
		k, err := fencing.ReadKeys(func() ([]byte, error) { reads++; return set, broken }, thisCluster)
		if err != nil || reads != 1 {
			t.Fatal(reads, err)
		}
		verify := func(n byte, want error, wantReads int) {
			t.Helper()
			if _, err := k.Verify(jobs, byKey(t, n)); !errors.Is(err, want) || reads != wantReads {
				t.Errorf("key %d: %v after %d reads; want %v after %d", n, err, reads, want, wantReads)
			}
		}
		set = keySet(2, 1)
		verify(1, nil, 1)
		verify(2, nil, 2)
		verify(3, fencing.ErrForged, 2)
		set = keySet(3, 2, 1)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { k.Verify(jobs, byKey(t, 3)) }) //nolint:errcheck // counted below
		}
		all.Wait()
		verify(3, fencing.ErrForged, 2)
		time.Sleep(59 * time.Second)
		verify(3, fencing.ErrForged, 2)
		time.Sleep(time.Second)
		broken = errors.New("the share is gone")
		verify(3, fencing.ErrForged, 3)
		verify(2, nil, 3) // what is known goes on without the source
		if _, err := k.Verify(jobs, byKey(t, 4)); errors.Is(err, broken) {
			t.Errorf("read again at once: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := k.Verify(jobs, byKey(t, 3)); !errors.Is(err, broken) || !errors.Is(err, fencing.ErrForged) {
			t.Errorf("keys that cannot be read: %v", err)
		}
		broken = nil
		time.Sleep(time.Minute)
		verify(3, nil, 5)
	})
}

// Proofs of known keys are verified while the keys are read again, which may take long.
func TestReloadKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		first := true
		k, err := fencing.ReadKeys(func() ([]byte, error) {
			if !first {
				<-hangs
			}
			first = false
			return keySet(1), nil
		}, thisCluster)
		if err != nil {
			t.Fatal(err)
		}
		go k.Verify(jobs, byKey(t, 2)) //nolint:errcheck // it is refused
		synctest.Wait()
		if _, err := k.Verify(jobs, byKey(t, 1)); err != nil {
			t.Error(err)
		}
		close(hangs)
	})
}

func TestOpenKeys(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "keys.json")
	if err := os.WriteFile(name, keySet(1), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/keys", func(w http.ResponseWriter, _ *http.Request) { w.Write(keySet(1)) }) //nolint:errcheck // a test's
	mux.Handle("/away", http.RedirectHandler("http://h1.example.org/v1/keys", http.StatusFound))
	s := httptest.NewServer(mux)
	defer s.Close()
	for _, source := range []string{name, dir, s.URL + "/v1/keys"} {
		k, err := fencing.OpenKeys(source, thisCluster)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if _, err := k.Verify(jobs, byKey(t, 1)); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
	for source, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file", s.URL + "/none": "404", s.URL + "/away": "use https", "http://h1.example.org:7601/v1/keys": "use https",
		"http://127.0.0.1.example.org/": "use https", "http://[::1": "missing",
	} {
		if _, err := fencing.OpenKeys(source, thisCluster); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}

func TestKeySets(t *testing.T) {
	one := string(keySet(1))
	for want, set := range map[string]string{
		"":                       one[:len(one)-2] + `,{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"rsa"},{"kty":"OKP","crv":"X25519","x":"AA","kid":"x"}]}`,
		"no JSON Web Key Set":    `[`,
		"no Ed25519 key in it":   `{"keys":[]}`,
		"there is no Ed25519":    strings.ReplaceAll(one, "sig", "enc"),
		"is no Ed25519 key with": strings.ReplaceAll(one, `"x":"`, `"x":"AAAA`),
		`key "" is no Ed25519`:   strings.ReplaceAll(one, keyID(1), ""),
		"two keys":               one[:len(one)-2] + "," + one[len(`{"keys":[`):],
		"are no set of keys":     one + strings.Repeat(" ", 256<<10),
	} {
		_, err := fencing.ReadKeys(func() ([]byte, error) { return []byte(set), nil }, "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
