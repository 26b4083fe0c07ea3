// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// listedVolume is a volume with servers 1 and 2, whose list of servers changes.
type listedVolume struct {
	t    *testing.T
	dir  string
	fsys *osfs.FS
	c    volume.Cluster
	list cluster.Membership
}

func newVolume(t *testing.T) *listedVolume {
	t.Helper()
	dir := t.TempDir()
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() }) //nolint:errcheck // descriptors of directories
	servers := cluster.Members{{ID: 1, Client: "a:1", Peer: "a:2"}, {ID: 2, Client: "b:1", Peer: "b:2"}}
	c, err := volume.Init(t.Context(), fsys, servers, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &listedVolume{t, dir, fsys, c, cluster.FirstMembership(servers)}
}

// change has MEMBERS show a change, whole or not at all.
func (v *listedVolume) change(x cluster.MemberChange) {
	v.t.Helper()
	list, err := v.list.With(x)
	if err != nil {
		v.t.Error(err)
	}
	v.list = list
	err = v.fsys.Replace("MEMBERS", func(w io.Writer) error {
		_, err := io.WriteString(w, cluster.MembersText(v.c.ID, 1, list))
		return err
	})
	if err != nil {
		v.t.Error(err)
	}
}

// await has a server wait until it is listed, and returns what it logs.
func (v *listedVolume) await(id cluster.ServerID, bound time.Duration) (cluster.Membership, string, error) {
	var log bytes.Buffer
	list, err := awaitListed(v.t.Context(), v.fsys, v.c, &Options{Server: id, Volume: v.dir, Log: zerolog.New(&log), unlisted: bound})
	return list, log.String(), err
}

// TestServerWaitsUntilItIsAdded, and tells so; a removed one, and one that is never added, does not start.
func TestServerWaitsUntilItIsAdded(t *testing.T) {
	v := newVolume(t)
	// Who mistypes an ID is told at once, with what to type.
	for _, told := range []string{"server 3 is not one of the servers [1 2]", "If the ID is wrong, stop this server", "holdfast member add 3=HOST. Waiting"} {
		if _, log, err := v.await(3, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "was not added within 10ms: use one of these IDs, or type: holdfast member add 3=HOST") || !strings.Contains(log, told) {
			t.Errorf("a server that is never added: %v, it logs %q, want %q", err, log, told)
		}
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		time.Sleep(20 * time.Millisecond) // it waits by then, or finds itself at once
		v.change(cluster.MemberChange{Kind: cluster.AddServer, Server: cluster.Member{ID: 3, Client: "c:1", Peer: "c:2"}})
	}()
	got, _, err := v.await(3, time.Minute)
	if m, listed := got.Servers.Find(3); err != nil || !listed || !m.Joining || len(got.Servers) != 3 {
		t.Errorf("added, the servers are %v, %v", got.Servers, err)
	}
	<-changed
	v.change(cluster.MemberChange{Kind: cluster.RemoveServer, Server: cluster.Member{ID: 2}})
	if _, _, err := v.await(2, time.Minute); !errors.Is(err, cluster.ErrRemoved) {
		t.Errorf("a removed server: %v", err)
	}
	if err := os.WriteFile(filepath.Join(v.dir, "MEMBERS"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, log, err := v.await(1, time.Minute); err != nil || got.Version != 1 || !strings.Contains(log, "starting with the servers of CLUSTER") {
		t.Errorf("MEMBERS is damaged: server 1 starts with version %d, %v; it logs %q", got.Version, err, log)
	}
	if _, log, err := v.await(3, 10*time.Millisecond); err == nil || !strings.Contains(log, "whether it was added cannot be read") {
		t.Errorf("MEMBERS is damaged: an added server: %v, it logs %q", err, log)
	}
}
