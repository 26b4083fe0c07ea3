// SPDX-License-Identifier: Apache-2.0

//go:build linux

package auth

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// Who can read the secrets of a volume is an operator, for five minutes; who cannot, or should not, is told.
func TestOperatorTicket(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // a test's
	about, err := volume.Init(t.Context(), fsys, cluster.Members{{ID: 1, Client: "h:1", Peer: "h:2"}}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OperatorTicket(dir, "", now, OperatorTime); !errors.Is(err, ErrNotOperator) || !strings.Contains(err.Error(), "holdfast secure offer") {
		t.Errorf("a volume without a signing key: %v", err)
	}
	if _, err := volume.OfferTLS(fsys, rand.Reader, func() (volume.Authority, error) {
		return volume.Authority{Key: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), Certificate: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")}, nil
	}); err != nil {
		t.Fatal(err)
	}
	ticket, err := OperatorTicket(dir, "", now, OperatorTime)
	if err != nil || ticket.Cluster != about.ID {
		t.Fatal(ticket, err)
	}
	keys, err := volume.ReadSigningKeys(fsys)
	if err != nil {
		t.Fatal(err)
	}
	g := New(about.ID, func() *access.Rules { return nil })
	g.SetKeys(keys)
	got, err := g.Authenticate(ticket.Text)
	if err != nil || !got.Operator || got.Identity != ticket.Caller.Identity || got.Identity != "user:"+UserName() || got.Via != "volume" || got.Expires.Sub(got.Issued) != OperatorTime {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.Chmod(filepath.Join(dir, "secrets", "signing.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OperatorTicket(dir, "", now, OperatorTime); !errors.Is(err, volume.ErrExposed) {
		t.Errorf("a key that others may read: %v", err)
	}
	if _, err := OperatorTicket(t.TempDir(), "", now, OperatorTime); err == nil || errors.Is(err, ErrNotOperator) {
		t.Errorf("no volume: %v", err)
	}
}
