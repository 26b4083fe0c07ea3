// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// signing returns a key that is told from others by its number.
func signing(n byte) volume.SigningKey {
	return volume.SigningKey{ID: fmt.Sprintf("1-%016x", n), Private: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32))}
}

func cell(n byte) (id cluster.ID) {
	id[0] = n
	return id
}

// guarded returns the Authenticator of cluster 1 with signing key 1, under these rules.
func guarded(t testing.TB, f *access.File) *Authenticator {
	t.Helper()
	r, err := access.Compile(f, 1)
	if err != nil {
		t.Fatal(err)
	}
	g := New(cell(1), func() *access.Rules { return r })
	g.SetKeys([]volume.SigningKey{signing(1)})
	return g
}

func alice(now time.Time) *access.Caller {
	return &access.Caller{Identity: "user:alice", Groups: []string{"group:astro"}, Via: "socket", Key: "", Issued: now, Expires: now.Add(time.Hour)}
}

func sign(t testing.TB, k volume.SigningKey, id cluster.ID, c *access.Caller) string {
	t.Helper()
	s, err := Sign(k, id, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A ticket proves what was signed, at every server of the cluster.
func TestTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := alice(time.Now())
		want.Key, want.Operator = "", true
		g := guarded(t, &access.File{})
		ticket := sign(t, signing(1), cell(1), want)
		for i := range 2 { // verified, and remembered
			if g.Known(ticket) != (i > 0) {
				t.Errorf("known at try %d: %v", i, i == 0)
			}
			got, err := g.Authenticate(ticket)
			if err != nil || got.Identity != want.Identity || !reflect.DeepEqual(got.Groups, want.Groups) || got.Via != want.Via || !got.Operator ||
				!got.Issued.Equal(want.Issued) || !got.Expires.Equal(want.Expires) {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		g.SetKeys([]volume.SigningKey{signing(2), signing(1)}) // a newer one signs, the older one verifies
		if _, err := g.Authenticate(ticket); err != nil {
			t.Error(err)
		}
		g.SetKeys([]volume.SigningKey{signing(2)})
		if _, err := g.Authenticate(ticket); !errors.Is(err, errForged) {
			t.Errorf("a key that is gone: %v", err)
		}
		g.SetKeys(nil)
		if _, err := g.Authenticate(ticket); !errors.Is(err, errNoTickets) {
			t.Errorf("no keys: %v", err)
		}
	})
}

// An expired ticket proves its caller for a day more: its locks are kept alive and released with it.
func TestExpiredTicketStillTellsWho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guarded(t, &access.File{})
		ticket := sign(t, signing(1), cell(1), alice(time.Now()))
		for _, over := range []bool{false, true} {
			for _, server := range []*Authenticator{g, guarded(t, &access.File{})} { // one remembers it, and one sees it first
				c, err := server.Authenticate(ticket)
				if err != nil || c.Expired(time.Now()) != over {
					t.Errorf("%v, %v", c, err)
				}
			}
			time.Sleep(time.Hour)
		}
		time.Sleep(22*time.Hour + 59*time.Minute)
		if _, err := g.Authenticate(ticket); err != nil {
			t.Errorf("just before a day: %v", err)
		}
		time.Sleep(2 * time.Minute)
		for range 2 { // what was remembered ends, too
			if c, err := g.Authenticate(ticket); !errors.Is(err, errExpired) {
				t.Errorf("after a day: %v, %v", c, err)
			}
		}
	})
}

// forge returns a ticket with another header or other claims.
func forge(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, claims jwt.MapClaims) string {
	t.Helper()
	now := time.Now()
	all := jwt.MapClaims{"iss": cell(1).String(), "sub": "user:alice", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
		if v == nil {
			delete(all, k)
		}
	}
	x := jwt.NewWithClaims(method, all)
	x.Header["typ"], x.Header["kid"] = ticketType, signing(1).ID
	for k, v := range header {
		x.Header[k] = v
		if v == nil {
			delete(x.Header, k)
		}
	}
	s, err := x.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return access.TicketPrefix + s
}

func TestAttacks(t *testing.T) {
	g := guarded(t, &access.File{})
	type header = map[string]any
	type says = jwt.MapClaims
	own, ed := signing(1).Private, jwt.SigningMethodEdDSA
	public := []byte(signing(1).Public())
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	good := forge(t, ed, own, nil, nil)
	if _, err := g.Authenticate(good); err != nil {
		t.Fatal(err)
	}
	for name, ticket := range map[string]string{
		"alg none":                forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil),
		"no signature":            good[:strings.LastIndexByte(good, '.')+1],
		"a MAC by the public key": forge(t, jwt.SigningMethodHS256, public, nil, nil),
		"a MAC that says EdDSA":   forge(t, jwt.SigningMethodHS256, public, header{"alg": "EdDSA"}, nil),
		"a proof":                 forge(t, ed, own, header{"typ": "holdfast-proof"}, nil),
		"a plain JWT":             forge(t, ed, own, header{"typ": "JWT"}, nil),
		"no typ":                  forge(t, ed, own, header{"typ": nil}, nil),
		"typ in capitals":         forge(t, ed, own, header{"typ": "Holdfast-Ticket"}, nil),
		"typ a list":              forge(t, ed, own, header{"typ": []string{ticketType}}, nil),
		"another kid":             forge(t, ed, own, header{"kid": signing(2).ID}, nil),
		"no kid":                  forge(t, ed, own, header{"kid": nil}, nil),
		"another cluster's key":   forge(t, ed, signing(2).Private, nil, nil),
		"another cluster":         forge(t, ed, own, nil, says{"iss": cell(2).String()}),
		"no cluster":              forge(t, ed, own, nil, says{"iss": nil}),
		"two clusters":            forge(t, ed, own, nil, says{"iss": []string{cell(1).String(), "x"}}),
		"no expiry":               forge(t, ed, own, nil, says{"exp": nil}),
		"expiry 0":                forge(t, ed, own, nil, says{"exp": 0}),
		"expired":                 forge(t, ed, own, nil, says{"exp": in(-afterExpiry - time.Minute)}),
		"issued in the future":    forge(t, ed, own, nil, says{"iat": in(maxSkew + time.Minute)}),
		"no time of issue":        forge(t, ed, own, nil, says{"iat": nil}),
		"not yet":                 forge(t, ed, own, nil, says{"nbf": in(afterExpiry + time.Hour)}),
		"nobody":                  forge(t, ed, own, nil, says{"sub": nil}),
		"overlong":                forge(t, ed, own, nil, says{"x": strings.Repeat("x", access.MaxCredential)}),
		"a fourth part":           good + ".x",
		"a line end":              good + "\n",
		"padding":                 good + "=",
		"without its prefix":      strings.TrimPrefix(good, access.TicketPrefix),
		"as a key":                access.KeyPrefix + strings.TrimPrefix(good, access.TicketPrefix),
		"its prefix":              access.TicketPrefix,
		"nothing":                 "",
	} {
		c, err := g.Authenticate(ticket)
		if c != nil || err == nil {
			t.Errorf("%s: is %+v", name, c)
		} else if len(ticket) > 20 && strings.Contains(err.Error(), ticket[4:20]) {
			t.Errorf("%s: its error shows it: %v", name, err)
		}
	}
	if _, err := g.Authenticate(forge(t, ed, own, nil, says{"iat": in(maxSkew / 2)})); err != nil {
		t.Errorf("a clock that is half a minute ahead: %v", err)
	}
	for i := range good {
		for bit := range 8 {
			b := []byte(good)
			b[i] ^= 1 << bit
			if c, err := g.Authenticate(string(b)); err == nil {
				t.Errorf("bit %d of byte %d flipped: is %+v", bit, i, c)
			}
		}
	}
}

func keyRules(expires time.Time) *access.File {
	sum := sha256.Sum256([]byte("hfk_secret"))
	return &access.File{Keys: []access.Key{{Name: "ci", Groups: []string{"group:build"}, SHA256: hex.EncodeToString(sum[:]), Expires: expires}}}
}

func TestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guarded(t, keyRules(time.Now().Add(time.Hour)))
		c, err := g.Authenticate("hfk_secret")
		want := access.Caller{Identity: "service:ci", Groups: []string{"group:build"}, Via: "key", Key: "ci", Expires: time.Now().Add(time.Hour)}
		if err != nil || !reflect.DeepEqual(*c, want) {
			t.Errorf("%+v, %v", c, err)
		}
		if !g.Known("hfk_secret") {
			t.Error("a key is not known")
		}
		for _, text := range []string{"hfk_other", "hfk_", "secret", "hfk_secret ", "HFK_secret"} {
			if c, err := g.Authenticate(text); err == nil || g.Known(text) || strings.Contains(err.Error(), text) && text != "hfk_" {
				t.Errorf("%q: %v, %v", text, c, err)
			}
		}
		time.Sleep(2 * time.Hour)
		if c, err := g.Authenticate("hfk_secret"); err != nil || !c.Expired(time.Now()) {
			t.Errorf("expired: %v, %v", c, err)
		}
		time.Sleep(24 * time.Hour)
		if _, err := g.Authenticate("hfk_secret"); !errors.Is(err, errExpiredKey) {
			t.Errorf("expired a day ago: %v", err)
		}
		if _, err := New(cell(1), func() *access.Rules { return nil }).Authenticate("hfk_secret"); !errors.Is(err, errUnknownKey) {
			t.Errorf("no rules: %v", err)
		}
	})
}

// What was revoked proves nothing, also where it was remembered.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := access.Compile(&access.File{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		g := New(cell(1), func() *access.Rules { return r })
		g.SetKeys([]volume.SigningKey{signing(1)})
		ticket := sign(t, signing(1), cell(1), alice(time.Now()))
		if _, err := g.Authenticate(ticket); err != nil {
			t.Fatal(err)
		}
		if r, err = access.Compile(&access.File{Ended: []access.Revocation{{Who: []string{"user:alice"}, Before: time.Now().Add(time.Second)}}}, 2); err != nil {
			t.Fatal(err)
		}
		if c, err := g.Authenticate(ticket); !errors.Is(err, errRevoked) {
			t.Errorf("%v, %v", c, err)
		}
	})
}

// A key that was created a moment ago, and what another server passes on for it, counts at a server whose rules are older:
// it reads them before it refuses anything.
func TestKeyThatIsNewerThanTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		with := keyRules(time.Time{})
		with.Keys[0].Created = now
		newer, err := access.Compile(with, 3)
		if err != nil {
			t.Fatal(err)
		}
		passedOn := ""
		{
			there := New(cell(1), func() *access.Rules { return newer })
			there.SetKeys([]volume.SigningKey{signing(1)})
			c, err := there.Authenticate("hfk_secret")
			if err != nil {
				t.Fatal(err)
			}
			passedOn = there.PassOn(c)
		}
		for name, older := range map[string]*access.File{
			"before it":          {},
			"of the same name":   {Keys: []access.Key{{Name: "ci", SHA256: strings.Repeat("0", 64), Created: now.Add(-time.Hour)}}},
			"and it stays so":    {Keys: []access.Key{{Name: "cd", SHA256: strings.Repeat("0", 64)}}},
			"that has it at all": with,
		} {
			for _, credential := range []string{"hfk_secret", passedOn} {
				r, err := access.Compile(older, 2)
				if err != nil {
					t.Fatal(err)
				}
				looks := 0
				g := New(cell(1), func() *access.Rules { return r })
				g.SetKeys([]volume.SigningKey{signing(1)})
				g.RefreshBy(func() {
					if looks++; name != "and it stays so" {
						r = newer
					}
				})
				c, err := g.Authenticate(credential)
				wantLooks := 1
				if name == "that has it at all" {
					wantLooks = 0
				}
				if refused := name == "and it stays so"; (err != nil) != refused || !refused && c.Name() != "service:ci" || looks != wantLooks {
					t.Errorf("rules %s, %.4s...: %v, %v after %d looks", name, credential, c, err, looks)
				}
			}
		}
		g := guarded(t, &access.File{})
		g.RefreshBy(func() { t.Error("the rules are read for what they cannot change") })
		for _, credential := range []string{"nonsense", "hft_x", "hfk_" + strings.Repeat("x", access.MaxCredential)} {
			if _, err := g.Authenticate(credential); err == nil {
				t.Errorf("%.10s is taken", credential)
			}
		}
	})
}

// What is passed on says what the caller's credential says, and has to be shown soon.
func TestPassOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := guarded(t, keyRules(time.Time{})), guarded(t, keyRules(time.Time{}))
		if here.PassOn(nil) != "" || New(cell(1), func() *access.Rules { return nil }).PassOn(alice(time.Now())) != "" {
			t.Error("something is passed on")
		}
		key, err := here.Authenticate("hfk_secret")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		ending := alice(now)
		ending.Expires = now.Add(10 * time.Second)
		over := alice(now.Add(-2 * time.Hour))
		operator := &access.Caller{Identity: "user:root", Operator: true}
		for name, c := range map[string]*access.Caller{
			"a ticket": alice(now), "a key": key, "an operator": operator, "one that ends soon": ending, "an expired one": over,
		} {
			got, err := there.Authenticate(here.PassOn(c))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			want := *c
			if want.Issued.IsZero() {
				want.Issued = now
			}
			if !got.Issued.Equal(want.Issued) || !got.Expires.Equal(want.Expires) {
				t.Errorf("%s: from %v to %v, want %v to %v", name, got.Issued, got.Expires, want.Issued, want.Expires)
			}
			want.Issued, want.Expires, want.PassedOn = got.Issued, got.Expires, true // a rate counts it where it came from
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("%s: %+v, want %+v", name, *got, want)
			}
		}
		first := here.PassOn(key)
		if here.PassOn(operator) == first {
			t.Error("one caller's ticket is another one's")
		}
		time.Sleep(passOnTime/2 - time.Second)
		if here.PassOn(key) != first {
			t.Error("it is signed again within half a minute")
		}
		time.Sleep(time.Second)
		if here.PassOn(key) == first {
			t.Error("it is used to its end")
		}
		time.Sleep(passOnTime/2 + maxSkew - time.Second)
		for _, server := range []*Authenticator{there, guarded(t, keyRules(time.Time{}))} { // one may remember it
			if _, err := server.Authenticate(first); err != nil {
				t.Errorf("by a clock that is almost a minute ahead: %v", err)
			}
		}
		time.Sleep(time.Second)
		for _, server := range []*Authenticator{there, guarded(t, keyRules(time.Time{}))} {
			if c, err := server.Authenticate(first); !errors.Is(err, errPassedOn) {
				t.Errorf("shown later: %+v, %v", c, err)
			}
		}
	})
}

// What is remembered is bounded.
func TestKeptIsBounded(t *testing.T) {
	now := time.Now()
	var m kept[int, int]
	for i := range 3 * maxKept {
		until := now.Add(time.Hour)
		if i < 10 {
			until = now
		}
		m.put(i, i, now, until)
		if v, ok := m.get(i, now); i >= 10 && (!ok || v != i) || i < 10 && ok {
			t.Fatalf("%d: %d, %v", i, v, ok)
		}
	}
	if len(m.all) > maxKept {
		t.Errorf("%d entries, at most %d", len(m.all), maxKept)
	}
}

func TestSignRefuses(t *testing.T) {
	now := time.Now()
	many := alice(now)
	for i := range 1000 {
		many.Groups = append(many.Groups, fmt.Sprintf("group:%d", i))
	}
	for _, c := range []*access.Caller{{}, {Identity: "user:x", Issued: now}, {Identity: "user:x", Expires: now}, many} {
		if s, err := Sign(signing(1), cell(1), c); err == nil {
			t.Errorf("%v is signed: %s", c, s)
		}
	}
}

func FuzzAuthenticate(f *testing.F) {
	g := guarded(f, keyRules(time.Time{}))
	good := sign(f, signing(1), cell(1), alice(time.Now()))
	head, rest, _ := strings.Cut(good, ".")
	for _, s := range []string{good, "hfk_secret", "hfk_", "hft_", "hft_..", head + "." + rest[1:], head + ".e30." + rest, "hft_e30.e30.e30", "Bearer x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := g.Authenticate(s)
		switch {
		case err == nil && s != good && s != "hfk_secret":
			t.Errorf("%q is %v", s, c)
		case err != nil && len(s) > 40 && strings.Contains(err.Error(), s):
			t.Errorf("%v shows the credential", err)
		case (err == nil) != (c != nil):
			t.Errorf("%v, %v", c, err)
		}
	})
}

// A server that reads the same keys again goes on with what it has verified.
func TestSameKeysChangeNothing(t *testing.T) {
	g := guarded(t, &access.File{})
	before := g.signer.Load()
	g.SetKeys([]volume.SigningKey{signing(1)})
	if g.signer.Load() != before {
		t.Error("the tickets that were verified are forgotten")
	}
	if g.SetKeys([]volume.SigningKey{signing(2), signing(1)}); g.signer.Load() == before {
		t.Error("a new key is not taken")
	}
	if g.SetKeys(nil); g.signer.Load().newest != nil {
		t.Error("a key that is gone is kept")
	}
}

// Only what this cluster signed as a challenge is one.
func FuzzOpenChallenge(f *testing.F) {
	g := guarded(f, &access.File{})
	now := time.Unix(1_800_000_000, 0) // the same in all processes of the fuzzer
	good := g.Challenge("n", now)
	head, rest, _ := strings.Cut(good, ".")
	for _, s := range []string{good, "", "..", head + "." + rest[1:], head + ".e30." + rest, "e30.e30.e30", strings.TrimPrefix(sign(f, signing(1), cell(1), alice(now)), access.TicketPrefix)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		nonce, _, err := g.OpenChallenge(s, now)
		if (err == nil) != (s == good) || (err == nil) != (nonce == "n") {
			t.Errorf("%q: %q, %v", s, nonce, err)
		}
	})
}
