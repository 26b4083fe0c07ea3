// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
)

// TestOwnTicket: where the endpoint is the volume's path, a command that may read its secrets is an operator, to
// a server that has proved to be of that volume's cluster and to no other one.
func TestOwnTicket(t *testing.T) {
	dir := t.TempDir()
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // a test's
	c, err := volume.Init(t.Context(), fsys, cluster.Members{{ID: 1, Client: "h:1", Peer: "h:2"}}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOLDFAST_ENDPOINTS": dir}
	a := &app{Env: Env{Getenv: func(name string) string { return env[name] }, Stderr: &bytes.Buffer{}}}
	if text, err := a.credential()(t.Context(), c.ID.String()); text != "" || err != nil {
		t.Errorf("a volume without a signing key: %q, %v", text, err)
	}
	if err := offerTLS(fsys, c.ID); err != nil {
		t.Fatal(err)
	}
	s := a.credential()
	for _, other := range []string{"", "00112233445566778899aabbccddeeff"} {
		if text, err := s(t.Context(), other); text != "" || err != nil {
			t.Errorf("cluster %q: %q, %v", other, text, err)
		}
	}
	text, err := s(t.Context(), c.ID.String())
	if again, _ := s(t.Context(), c.ID.String()); err != nil || again != text {
		t.Errorf("it is signed twice: %v", err)
	}
	keys, err := volume.ReadSigningKeys(fsys)
	if err != nil {
		t.Fatal(err)
	}
	g := auth.New(c.ID, func() *access.Rules { return nil })
	g.SetKeys(keys)
	if who, err := g.Authenticate(text); err != nil || !who.Operator || !strings.HasPrefix(who.Identity, "user:") || who.Via != "volume" {
		t.Errorf("%+v, %v", who, err)
	}
	env["HOLDFAST_KEY"] = "hfk_first"
	if text, err := a.credential()(t.Context(), c.ID.String()); text != "hfk_first" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
