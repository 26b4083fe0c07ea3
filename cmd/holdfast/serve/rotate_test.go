// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	rules "github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// TestServerFollowsARotation: a server shows a new key at once and signs with it after an hour; tickets and proofs of the old one
// go on, for 30 days.
func TestServerFollowsARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := volumetest.New(1).Host(1, volumetest.ProfileLocal())
		if err := errors.Join(fsys.Mkdir("servers"), volume.OfferSigning(fsys, rand.Reader)); err != nil {
			t.Fatal(err)
		}
		id := cluster.ID{1}
		c := &callers{Authenticator: auth.New(id, func() *rules.Rules { return nil }), fs: fsys}
		read := func() {
			t.Helper()
			if err := c.readKeys(); err != nil {
				t.Fatal(err)
			}
		}
		read()
		keys, err := volume.ReadSigningKeys(fsys)
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := auth.Sign(keys[0], id, &rules.Caller{Identity: "user:alice", Issued: time.Now(), Expires: time.Now().Add(60 * 24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		// The resource had the keys from before, and reads them again when it must.
		resource, err := fencing.ReadKeys(func() ([]byte, error) { return c.PublicKeys(), nil }, id.String())
		if err != nil {
			t.Fatal(err)
		}
		second, err := volume.RotateSigning(fsys, rand.Reader, time.Now(), time.Now().Add(volume.SigningDelay))
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for _, x := range []struct {
			after        time.Duration
			signs, shows string
			first        bool // the first key counts
		}{
			{0, keys[0].ID, second.ID, true},
			{volume.SigningDelay, second.ID, keys[0].ID, true},
			{volume.SigningKept - time.Minute, second.ID, keys[0].ID, true},
			{time.Minute, second.ID, second.ID, false},
		} {
			time.Sleep(x.after)
			read()
			proof, err := c.Prove("", wire.ProofClaims{Lock: "l", Token: 5, Mode: "exclusive"}, time.Now(), time.Now().Add(2*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if set := string(c.PublicKeys()); !strings.Contains(set, x.shows) || strings.Contains(set, keys[0].ID) != x.first {
				t.Errorf("after %v the keys are %s", x.after, set)
			}
			if _, err := c.Authenticate(ticket); (err == nil) != x.first {
				t.Errorf("after %v a ticket of the first key: %v", x.after, err)
			}
			if header, err := base64.RawURLEncoding.DecodeString(proof[:strings.IndexByte(proof, '.')]); err != nil || !strings.Contains(string(header), x.signs) {
				t.Errorf("after %v the header is %s, want key %s", x.after, header, x.signs)
			}
			for _, text := range []string{proof, last} {
				if text == "" || x.after > volume.SigningDelay {
					continue
				}
				if _, err := resource.Verify("l", text); err != nil {
					t.Errorf("after %v: %v", x.after, err)
				}
			}
			last = proof
		}
	})
}
