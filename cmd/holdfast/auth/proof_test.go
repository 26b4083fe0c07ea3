// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func grant(lock string) wire.ProofClaims {
	return wire.ProofClaims{Lock: lock, Token: 1<<63 + 1, Mode: "exclusive", Epoch: 3, Client: "@9"}
}

// published returns the keys that a server shows to everybody.
func published(t testing.TB, g *Authenticator) *fencing.Keys {
	t.Helper()
	k, err := fencing.ReadKeys(func() ([]byte, error) { return g.PublicKeys(), nil }, g.id.String())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What a server signs is what a resource verifies, with the keys that the server shows.
func TestProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guarded(t, &access.File{})
		keys, now := published(t, g), time.Now().Add(700*time.Millisecond)
		const lock = `a<b>&"é/` + "\u2028"
		text, err := g.Prove("user:alice", grant(lock), now, now.Add(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		p, err := keys.Verify(lock, text)
		if err != nil || p.Cluster != cell(1).String() || p.Identity != "user:alice" || p.Lock != lock || p.Token != 1<<63+1 || p.Shared || p.Epoch != 3 || p.Client != "@9" {
			t.Errorf("%+v, %v", p, err)
		}
		if late := p.Expires.Sub(now); late > 30*time.Second || late <= 29*time.Second || p.Issued.After(now) {
			t.Errorf("issued %v, expires %v, of a lease of 30 s at %v", p.Issued, p.Expires, now)
		}
		if nobody, err := g.Prove("", grant("l"), now, now.Add(time.Minute)); err != nil {
			t.Error(err)
		} else if p, err := keys.Verify("l", nobody); err != nil || p.Identity != "" {
			t.Errorf("%+v, %v", p, err)
		}
		longest := grant(strings.Repeat("<", 512))
		if text, err := g.Prove(strings.Repeat("<", 256), longest, now, now.Add(time.Minute)); err != nil || len(text) > wire.MaxProof {
			t.Errorf("the longest proof has %d bytes, %v", len(text), err)
		}
		g.SetKeys([]volume.SigningKey{signing(2), signing(1)})
		newer, err := g.Prove("", grant(lock), now, now.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{text, newer} { // the keys are read again
			if _, err := keys.Verify(lock, text); err != nil {
				t.Errorf("after the key was changed: %v", err)
			}
		}
	})
}

// A proof is no ticket, and a ticket is no proof, whatever stands before it.
func TestProofIsNoTicket(t *testing.T) {
	g := guarded(t, &access.File{})
	now := time.Now()
	proof, err := g.Prove("user:alice", grant("l"), now, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{proof, access.TicketPrefix + proof, access.KeyPrefix + proof} {
		if c, err := g.Authenticate(text); err == nil || c != nil {
			t.Errorf("a proof is a credential of %+v", c)
		}
	}
	keys, ticket := published(t, g), sign(t, signing(1), cell(1), alice(now))
	for _, text := range []string{ticket, strings.TrimPrefix(ticket, access.TicketPrefix), g.PassOn(alice(now)), strings.TrimPrefix(g.PassOn(alice(now)), access.TicketPrefix)} {
		if p, err := keys.Verify("l", text); !errors.Is(err, fencing.ErrForged) {
			t.Errorf("a ticket proves %+v, %v", p, err)
		}
	}
}

func TestNoKeyNoProof(t *testing.T) {
	g := guarded(t, &access.File{})
	g.SetKeys(nil)
	if text, err := g.Prove("", grant("l"), time.Now(), time.Now().Add(time.Minute)); text != "" || !errors.Is(err, errNoProofs) || !strings.Contains(err.Error(), "holdfast secure offer") {
		t.Errorf("%q, %v", text, err)
	}
	if set := string(g.PublicKeys()); strings.Contains(set, "null") || !strings.Contains(set, `"keys": []`) {
		t.Errorf("no keys are %s", set)
	}
}
