// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// TestRemovedServerHasItsExitCode, by which a supervisor knows not to start it again.
func TestRemovedServerHasItsExitCode(t *testing.T) {
	dir := t.TempDir()
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // descriptors of directories
	servers := cluster.Members{{ID: 1, Client: "127.0.0.1:1", Peer: "127.0.0.1:2"}, {ID: 2, Client: "127.0.0.1:3", Peer: "127.0.0.1:4"}}
	c, err := volume.Init(t.Context(), fsys, servers, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	list, err := cluster.FirstMembership(servers).With(cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "MEMBERS"), []byte(cluster.MembersText(c.ID, 1, list)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run("", "", "server", "--id", "2", "--volume", dir, "--data-dir", "none", "--unsafe-filesystem")
	if says := "server 2: this server was removed from the cluster, for good"; r.code != 78 || !strings.Contains(r.errs, says) {
		t.Errorf("server 2 ends with code %d: %s; want 78, %q", r.code, r.errs, says)
	}
}
