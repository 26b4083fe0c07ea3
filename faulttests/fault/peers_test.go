// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peergrpc"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// forger is a process that knows everything of a cluster that can be read, and cannot write to its volume.
type forger struct {
	*peergrpc.Peers
	keys    *peertls.Keys
	cluster volume.Cluster
}

// newForger returns one that says to be a server.
func newForger(t *testing.T, c *cluster.Cluster, as hf.ServerID) *forger {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"CLUSTER", "servers"} {
		if err := copyPath(filepath.Join(dir, name), filepath.Join(c.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() }) //nolint:errcheck // descriptors of directories
	f := &forger{}
	if f.cluster, err = volume.ReadCluster(fsys); err != nil {
		t.Fatal(err)
	}
	if f.keys, err = peertls.New(peertls.Options{Self: as, Members: f.cluster.Servers, FS: fsys, Log: zerolog.New(t.Output())}); err != nil {
		t.Fatal(err)
	}
	f.keys.Keep()
	f.Peers = peergrpc.New(as, f.cluster, f.keys)
	t.Cleanup(func() { f.Close() }) //nolint:errcheck // the servers may be gone
	return f
}

// copyPath copies a file, or what is in a directory: servers write there, and a file may go meanwhile.
func copyPath(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		keys, err := filepath.Glob(filepath.Join(from, "*tls*"))
		for _, name := range keys {
			if err := copyPath(filepath.Join(to, filepath.Base(name)), name); err != nil {
				return err
			}
		}
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// TestForgedPeerMessages: a process without a key on the volume, which says to be a server, changes nothing: not the
// primary, nor what others know of that server, nor a table.
func TestForgedPeerMessages(t *testing.T) {
	needFaults(t)
	during(t, func(b *battle) {
		b.c.AwaitReplicas(cluster.Patience)
		p, epoch := b.awaitTerm(t, 0)
		as := p.Member.ID%3 + 1
		f := newForger(t, b.c, as)
		for began, n := time.Now(), uint64(0); time.Since(began) < 6*time.Second; n++ {
			for _, s := range b.c.Servers() {
				f.attack(t, s.Member.ID, as, n, epoch)
			}
			traffic.Rest(t.Context(), 50*time.Millisecond)
		}
		if by, _ := f.keys.Disowned(); by == 0 {
			t.Error("no server has told the forger that it does not know it")
		}
		if now, at := b.awaitTerm(t, 0); at != epoch {
			t.Errorf("forged messages ended the term of epoch %d: now it is %d, of server %d", epoch, at, now.Member.ID)
		}
		for _, s := range b.c.Servers() {
			body, err := s.Status(t.Context())
			if err != nil {
				t.Error(err)
			}
			for _, x := range body.Servers {
				if x.Role == "unreachable" || x.Conflict || x.Epoch > uint64(epoch) {
					t.Errorf("server %d takes server %d for %+v", s.Member.ID, x.ID, x)
				}
			}
		}
	})
}

// attack sends one of each message.
func (f *forger) attack(t *testing.T, to, as hf.ServerID, n uint64, epoch hf.Epoch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	st := election.Status{Role: election.RolePrimary, Epoch: epoch + 7, LSN: 1 << 40, Able: true, Beat: 1 << 62}
	_, _ = f.Ping(ctx, to, election.Ping{From: as, Nonce: 666, Seq: n, Status: st, About: "a forger"}) // it may be answered
	if v, err := f.PreVote(ctx, to, election.Ask{From: as, Nonce: 666, Epoch: epoch + 7}); err == nil {
		t.Errorf("server %d gave a forger its vote: %+v", to, v)
	}
	if a, err := f.Push(ctx, to, push.Push{Epoch: epoch, Stamp: 1}); err == nil {
		t.Errorf("server %d took a forger's push: %+v", to, a)
	}
	if err := f.Handover(ctx, to, epoch); err == nil {
		t.Errorf("server %d took a forger's handover", to)
	}
	if err := plainPing(ctx, f.cluster, to, as); err == nil {
		t.Errorf("server %d took a ping in plain text", to)
	}
}

// plainPing pings a server as one of an older version does.
func plainPing(ctx context.Context, c volume.Cluster, to, as hf.ServerID) error {
	m, _ := c.Servers.Find(to)
	conn, err := grpc.NewClient("passthrough:///"+m.Peer, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it was used once
	_, err = pb.NewPeerServiceClient(conn).Ping(ctx, &pb.Ping{ClusterId: c.ID[:], From: uint32(as), Nonce: 667})
	return err
}

// speaks returns what holdfast secure status says of each server.
func speaks(t *testing.T, c *cluster.Cluster) (all []string) {
	t.Helper()
	out, err := c.Run("secure", "status", "--volume", c.Dir(), "-o", "json")
	var s struct{ Servers []struct{ State string } }
	if jsonErr := json.Unmarshal([]byte(out), &s); err != nil || jsonErr != nil {
		t.Fatalf("secure status: %v, %v: %s", err, jsonErr, out)
	}
	for _, x := range s.Servers {
		all = append(all, x.State)
	}
	return all
}

// TestUpgradeToTLS upgrades the servers of an older version under load, one after the other, takes one back to its
// version, and then requires TLS. Nothing but the end of the primary's own process changes the primary.
func TestUpgradeToTLS(t *testing.T) {
	needFaults(t)
	if *oldBinary == "" {
		t.Skip("this needs a binary that knows no TLS between servers: give -faults.old")
	}
	c := cluster.New(t, options())
	if err := os.Remove(filepath.Join(c.Dir(), "servers", "tls-required")); err != nil {
		t.Fatal(err)
	}
	beginAt(t, c, locktable.BaseLevel)
	for _, s := range c.Servers() {
		s.Binary = *oldBinary
	}
	c.StartAll()
	c.AwaitReplicas(cluster.Patience)
	b := newBattleOn(t, c, sourceText(t, 4<<20), 4, *faultSeed)
	_, stop := b.work(t.Context())
	step := func(what string, s *cluster.Server, binary string) { b.replace(t, what, s, binary, 2*time.Second) }
	p, _ := b.awaitTerm(t, 0)
	for _, s := range c.Servers() {
		if s != p {
			step("upgrade", s, "")
		}
	}
	other := c.Servers()[p.Member.ID%3]
	step("way back", other, *oldBinary)
	if out, err := c.Run("secure", "require", "--volume", c.Dir()); err == nil {
		t.Errorf("TLS is required of a server of an older version: %s", out)
	}
	step("upgrade", other, "")
	step("upgrade", p, "")
	b.require(t)
	stop()
	b.end(t)
}

// beginAt makes the volume one that began with a lower feature level, as an older binary makes it.
func beginAt(t *testing.T, c *cluster.Cluster, level uint32) {
	t.Helper()
	name := filepath.Join(c.Dir(), "CLUSTER")
	text, err := os.ReadFile(name)
	if err == nil {
		key := fmt.Sprintf(`"feature_level": %d`, locktable.MaxLevel)
		err = os.WriteFile(name, []byte(strings.Replace(string(text), key, fmt.Sprintf(`"feature_level": %d`, level), 1)), 0o644) // in place: it is a link
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replace has a server run another binary, rests, and wants that nothing but the end of the primary's own process has changed
// the primary.
func (b *battle) replace(t *testing.T, what string, s *cluster.Server, binary string, rest time.Duration) {
	t.Helper()
	p, epoch := b.awaitTerm(t, 0)
	s.Term()
	s.Binary = binary
	s.Start()
	want := epoch
	if s == p {
		want++
		b.awaitTerm(t, epoch)
	}
	b.c.AwaitReplicas(cluster.Patience)
	traffic.Rest(t.Context(), rest)
	b.c.AwaitReplicas(cluster.Patience)
	if now, at := b.awaitTerm(t, 0); at != want {
		t.Errorf("%s of server %d: the primary of epoch %d became server %d in epoch %d", what, s.Member.ID, epoch, now.Member.ID, at)
	}
}

// require has TLS required, and wants no change of the primary.
func (b *battle) require(t *testing.T) {
	t.Helper()
	p, epoch := b.awaitTerm(t, 0)
	cfg := b.clusterFile(t)
	if err := plainPing(t.Context(), cfg, p.Member.ID, 9); err != nil {
		t.Errorf("plain text before it is refused: %v", err)
	}
	if got := strings.Join(speaks(t, b.c), " "); got != "tls tls tls" {
		t.Errorf("servers speak %s", got)
	}
	if out, err := b.c.Run("secure", "require", "--volume", b.c.Dir()); err != nil {
		t.Errorf("secure require: %v: %s", err, out)
	}
	cluster.Await(t, cluster.Patience, "plain text to be refused", func() bool {
		for _, s := range b.c.Servers() {
			if plainPing(t.Context(), cfg, s.Member.ID, 9) == nil {
				return false
			}
		}
		return true
	})
	traffic.Rest(t.Context(), 3*time.Second)
	b.c.AwaitReplicas(cluster.Patience)
	if now, at := b.awaitTerm(t, 0); at != epoch {
		t.Errorf("the primary of epoch %d became server %d in epoch %d when TLS was required", epoch, now.Member.ID, at)
	}
}

func (b *battle) clusterFile(t *testing.T) (c volume.Cluster) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.c.Dir(), "CLUSTER"))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRequireTLSUnderLoad requires it of a volume that did not.
func TestRequireTLSUnderLoad(t *testing.T) {
	needFaults(t)
	c := cluster.New(t, options())
	if err := os.Remove(filepath.Join(c.Dir(), "servers", "tls-required")); err != nil {
		t.Fatal(err)
	}
	c.StartAll()
	c.AwaitReplicas(cluster.Patience)
	b := newBattleOn(t, c, sourceText(t, 1<<20), 4, *faultSeed)
	_, stop := b.work(t.Context())
	b.require(t)
	stop()
	b.end(t)
}
