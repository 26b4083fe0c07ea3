// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// Keys that are gone from the volume are forgotten, but not while others are made in their place.
func TestKeysThatAreGoneAreForgotten(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	if err := f.Mkdir("servers"); err != nil {
		t.Fatal(err)
	}
	c := &callers{Authenticator: auth.New(cluster.ID{1}, func() *access.Rules { return nil }), fs: f}
	who := &access.Caller{Identity: "user:alice"}
	look := func() string {
		t.Helper()
		if err := c.readKeys(); err != nil {
			t.Fatal(err)
		}
		return c.PassOn(who)
	}
	offer := func() {
		t.Helper()
		if err := volume.OfferSigning(f, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "secrets")), os.Remove(filepath.Join(dir, "keys.json"))); err != nil {
			t.Fatal(err)
		}
	}
	offer()
	first := look()
	remove()
	if first == "" || look() != first {
		t.Error("a key is forgotten at once")
	}
	offer()
	second := look()
	if _, err := c.Authenticate(first); second == "" || err == nil {
		t.Errorf("a ticket of the key before: %v", err)
	}
	remove()
	if look(); look() != "" {
		t.Error("a key that is gone still signs")
	}
	if offer(); look() == "" {
		t.Error("a new key is not taken")
	}
}

// An error that stays is told once, and again when it comes back.
func TestRepeatTellsAnErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second+time.Second/2)
		defer cancel()
		hangs, gone := errors.New("hangs"), errors.New("gone")
		results, told := []error{hangs, hangs, gone, nil, gone, gone}, ""
		repeat(ctx, time.Second, func() error {
			err := results[0]
			results = results[1:]
			return err
		}, func(err error) { told += fmt.Sprint(err, " ") })
		if want := "hangs gone gone "; told != want || len(results) != 0 {
			t.Errorf("told %q with %d left, want %q", told, len(results), want)
		}
	})
}
