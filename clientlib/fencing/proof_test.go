// SPDX-License-Identifier: Apache-2.0

package fencing_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

const (
	thisCluster = "01000000000000000000000000000000"
	jobs        = "jobs/nightly"
)

// private returns a signing key that is told from others by its number.
func private(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32))
}

func keyID(n byte) string { return fmt.Sprintf("%d-0123456789abcdef", n) }

// keySet returns the public halves of keys.
func keySet(numbers ...byte) []byte {
	var all []map[string]string
	for _, n := range numbers {
		x := base64.RawURLEncoding.EncodeToString(private(n).Public().(ed25519.PublicKey))
		all = append(all, map[string]string{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": keyID(n), "x": x})
	}
	b, _ := json.Marshal(map[string]any{"keys": all}) // cannot fail
	return b
}

func openKeys(t testing.TB, set []byte) *fencing.Keys {
	t.Helper()
	k, err := fencing.ReadKeys(func() ([]byte, error) { return set, nil }, thisCluster)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// prove returns a proof with another header or other claims than a good one; nil takes one out.
func prove(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, other jwt.MapClaims) string {
	t.Helper()
	now := time.Now()
	all := jwt.MapClaims{
		"iss": thisCluster, "sub": "user:alice", "iat": now.Unix(), "exp": now.Add(30 * time.Second).Unix(),
		"lock": jobs, "tok": "17", "mode": "exclusive", "epoch": 3, "cid": "@9",
	}
	maps.Copy(all, other)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	x := jwt.NewWithClaims(method, all)
	x.Header["typ"], x.Header["kid"] = "holdfast-proof", keyID(1)
	maps.Copy(x.Header, header)
	maps.DeleteFunc(x.Header, func(_ string, v any) bool { return v == nil })
	s, err := x.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// good returns a proof with other claims.
func good(t testing.TB, other jwt.MapClaims) string {
	return prove(t, jwt.SigningMethodEdDSA, private(1), nil, other)
}

func TestProofSaysWhatWasSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Truncate(time.Second)
		want := fencing.Proof{
			Cluster: thisCluster, Identity: "user:alice", Lock: jobs, Token: 1<<64 - 1, Epoch: 3, Client: "@9", Issued: now, Expires: now.Add(30 * time.Second),
		}
		for _, cluster := range []string{thisCluster, ""} {
			k, err := fencing.ReadKeys(func() ([]byte, error) { return keySet(2, 1), nil }, cluster)
			if err != nil {
				t.Fatal(err)
			}
			p, err := k.Verify(jobs, good(t, jwt.MapClaims{"tok": "18446744073709551615"}))
			if p.Issued, p.Expires = p.Issued.Local(), p.Expires.Local(); err != nil || !p.Issued.Equal(want.Issued) || !p.Expires.Equal(want.Expires) {
				t.Errorf("%+v, %v", p, err)
			}
			if p.Issued, p.Expires = want.Issued, want.Expires; p != want {
				t.Errorf("got %+v, want %+v", p, want)
			}
			if p, err := k.Verify(jobs, good(t, jwt.MapClaims{"sub": nil})); err != nil || p.Identity != "" {
				t.Errorf("of nobody in particular: %+v, %v", p, err)
			}
		}
	})
}

func TestForgedProofs(t *testing.T) {
	type header = map[string]any
	type says = jwt.MapClaims
	ed, own := jwt.SigningMethodEdDSA, private(1)
	public := []byte(own.Public().(ed25519.PublicKey))
	right := good(t, nil)
	k := openKeys(t, keySet(1, 2))
	for name, proof := range map[string]string{
		"alg none":                 prove(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil),
		"no signature":             right[:strings.LastIndexByte(right, '.')+1],
		"a MAC by the public key":  prove(t, jwt.SigningMethodHS256, public, nil, nil),
		"a MAC by the text of it":  prove(t, jwt.SigningMethodHS256, []byte(base64.RawURLEncoding.EncodeToString(public)), nil, nil),
		"a MAC that says EdDSA":    prove(t, jwt.SigningMethodHS256, public, header{"alg": "EdDSA"}, nil),
		"a ticket":                 prove(t, ed, own, header{"typ": "holdfast-ticket"}, nil),
		"a ticket with its prefix": "hft_" + prove(t, ed, own, header{"typ": "holdfast-ticket"}, nil),
		"a plain JWT":              prove(t, ed, own, header{"typ": "JWT"}, nil),
		"no typ":                   prove(t, ed, own, header{"typ": nil}, nil),
		"typ a list":               prove(t, ed, own, header{"typ": []string{"holdfast-proof"}}, nil),
		"another kid":              prove(t, ed, own, header{"kid": keyID(2)}, nil),
		"an unknown kid":           prove(t, ed, own, header{"kid": keyID(3)}, nil),
		"no kid":                   prove(t, ed, own, header{"kid": nil}, nil),
		"a path as kid":            prove(t, ed, own, header{"kid": "../../dev/null"}, nil),
		"a key of its own":         prove(t, ed, private(9), header{"jwk": json.RawMessage(keySet(9))}, nil),
		"another cluster's key":    prove(t, ed, private(3), nil, nil),
		"another cluster":          good(t, says{"iss": "02" + thisCluster[2:]}),
		"no cluster":               good(t, says{"iss": nil}),
		"no expiry":                good(t, says{"exp": nil}),
		"no time of issue":         good(t, says{"iat": nil}),
		"no lock":                  good(t, says{"lock": nil}),
		"no token":                 good(t, says{"tok": nil}),
		"token 0":                  good(t, says{"tok": "0"}),
		"a token that is a number": good(t, says{"tok": 17}),
		"a token with a sign":      good(t, says{"tok": "-1"}),
		"a token above 64 bits":    good(t, says{"tok": "18446744073709551616"}),
		"no mode":                  good(t, says{"mode": nil}),
		"another mode":             good(t, says{"mode": "mode(7)"}),
		"overlong":                 good(t, says{"x": strings.Repeat("x", 17<<10)}),
		"a fourth part":            right + ".x",
		"a line end":               right + "\n",
		"a line end in it":         right[:9] + "\n" + right[9:],
		"padding":                  right + "=",
		"nothing":                  "",
		"two points":               "..",
	} {
		if p, err := k.Verify(jobs, proof); !errors.Is(err, fencing.ErrForged) || p != (fencing.Proof{}) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for i := range right {
		for bit := range 8 {
			b := []byte(right)
			b[i] ^= 1 << bit
			if p, err := k.Verify(jobs, string(b)); !errors.Is(err, fencing.ErrForged) {
				t.Errorf("bit %d of byte %d flipped: is %+v, %v", bit, i, p, err)
			}
		}
	}
}

// A proof counts until its lease ends, by clocks that differ by a few seconds; shown again later it counts for nothing.
func TestProofExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, proof := openKeys(t, keySet(1)), good(t, nil)
		time.Sleep(34 * time.Second)
		if _, err := k.Verify(jobs, proof); err != nil {
			t.Errorf("4 s after its end: %v", err)
		}
		for range 2 {
			time.Sleep(time.Second)
			if p, err := k.Verify(jobs, proof); !errors.Is(err, fencing.ErrExpired) || p != (fencing.Proof{}) {
				t.Errorf("5 s after its end: %+v, %v", p, err)
			}
		}
		if _, err := k.Verify(jobs, good(t, jwt.MapClaims{"exp": 0})); !errors.Is(err, fencing.ErrExpired) {
			t.Errorf("expiry 0: %v", err)
		}
	})
}

func TestOtherLockAndSharedGrant(t *testing.T) {
	k := openKeys(t, keySet(1))
	for _, lock := range []string{"", "jobs", "jobs/nightly/", "JOBS/nightly", "jobs/nightly\x00"} {
		if p, err := k.Verify(lock, good(t, nil)); !errors.Is(err, fencing.ErrOtherLock) || p != (fencing.Proof{}) {
			t.Errorf("%q: %+v, %v", lock, p, err)
		}
	}
	shared := good(t, jwt.MapClaims{"mode": "shared"})
	if p, err := k.Verify(jobs, shared); !errors.Is(err, fencing.ErrShared) || !p.Shared || p.Token != 17 {
		t.Errorf("a shared grant: %+v, %v", p, err)
	}
	if _, err := k.Verify("other", shared); !errors.Is(err, fencing.ErrOtherLock) || errors.Is(err, fencing.ErrShared) {
		t.Errorf("a shared grant of another lock: %v", err)
	}
}

// TestProofIsVerifiedFirst: whoever cannot show a proof changes nothing of what the guard remembers, and keeps nobody out.
func TestProofIsVerifiedFirst(t *testing.T) {
	dir := t.TempDir()
	g, err := fencing.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() //nolint:errcheck // the test is over
	k := openKeys(t, keySet(1))
	file := func() []byte {
		b, err := os.ReadFile(filepath.Join(dir, "tokens"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const huge = "9000000000000000000"
	before, called := file(), 0
	f := func(p fencing.Proof) error { called++; return nil }
	for want, proof := range map[error]string{
		fencing.ErrForged:    prove(t, jwt.SigningMethodEdDSA, private(2), nil, jwt.MapClaims{"tok": huge}),
		fencing.ErrExpired:   good(t, jwt.MapClaims{"tok": huge, "exp": time.Now().Add(-time.Minute).Unix()}),
		fencing.ErrOtherLock: good(t, jwt.MapClaims{"tok": huge, "lock": "other"}),
		fencing.ErrShared:    good(t, jwt.MapClaims{"tok": huge, "mode": "shared"}),
	} {
		if err := g.DoProof(k, jobs, proof, f); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if g.Seen(jobs) != 0 || g.Seen("other") != 0 || called != 0 || !bytes.Equal(file(), before) {
			t.Fatalf("%v: the guard has seen %d, f was called %d times, the file has %q", want, g.Seen(jobs), called, file())
		}
	}
	if err := g.DoProof(k, jobs, good(t, nil), func(p fencing.Proof) error {
		if called++; p.Token != 17 || g.Seen(jobs) != 17 {
			t.Errorf("done under %+v, with %d seen", p, g.Seen(jobs))
		}
		return nil
	}); err != nil || called != 1 {
		t.Errorf("a holder after a forged token: %v", err)
	}
	if err := g.DoProof(k, jobs, good(t, jwt.MapClaims{"tok": "16"}), f); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a proof of an older grant: %v", err)
	}
	broken := errors.New("broken")
	if err := g.DoProof(k, jobs, good(t, nil), func(fencing.Proof) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error of f: %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	k := openKeys(f, keySet(1))
	right := good(f, jwt.MapClaims{"exp": time.Now().Add(24 * time.Hour).Unix()})
	head, rest, _ := strings.Cut(right, ".")
	for _, s := range []string{right, head + "." + rest[1:], head + ".e30." + rest, "e30.e30.e30", "..", "", good(f, jwt.MapClaims{"lock": "x"}), "hft_" + right} {
		f.Add(jobs, s)
	}
	f.Fuzz(func(t *testing.T, lock, s string) {
		p, err := k.Verify(lock, s)
		if err == nil && (lock != jobs || s != right || p.Token != 17) {
			t.Errorf("%q for %q is %+v", s, lock, p)
		}
		if err != nil && len(s) > 40 && strings.Contains(err.Error(), s) {
			t.Errorf("%v shows the proof", err)
		}
	})
}
