// SPDX-License-Identifier: Apache-2.0

package peergrpc_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	failure "google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// messages sends one message of each kind in the name of a server, past what Peers does, and returns the errors.
func messages(ctx context.Context, c volume.Cluster, client pb.PeerServiceClient, as cluster.ServerID) map[string]error {
	id, from := c.ID[:], uint32(as)
	all := map[string]error{}
	_, all["ping"] = client.Ping(ctx, &pb.Ping{ClusterId: id, From: from})
	_, all["ask"] = client.PreVote(ctx, &pb.Ask{ClusterId: id, From: from})
	_, all["handover"] = client.Handover(ctx, &pb.PeerHandoverRequest{ClusterId: id, From: from})
	s, err := client.UpdateSecondaryState(ctx)
	if err == nil {
		_ = s.Send(&pb.Push{ClusterId: id, From: from})
		_, err = s.Recv()
	}
	all["push"] = err
	return all
}

func heard(f *fake) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.asks) + len(f.pushes) + len(f.epochs)
	for _, p := range f.pings {
		if !p.Stranger {
			n++
		}
	}
	return n
}

// TestMessagesComeFromTheirSender: a server with a key of its own speaks in no other server's name.
func TestMessagesComeFromTheirSender(t *testing.T) {
	d := newShare(t)
	c, fakes := fakesOn(t, d)
	k := keysOf(t, d, 1)
	conn, err := grpc.NewClient("passthrough:///"+c.Servers[1].Peer, grpc.WithTransportCredentials(k.Client(2, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := within(t, 10*time.Second)
	for what, err := range messages(ctx, c, pb.NewPeerServiceClient(conn), 3) {
		if failure.Code(err) != codes.PermissionDenied {
			t.Errorf("%s in the name of server 3: %v", what, err)
		}
	}
	if n := heard(fakes[2]); n != 0 {
		t.Errorf("%d of them were heard", n)
	}
	for what, err := range messages(ctx, c, pb.NewPeerServiceClient(conn), 1) {
		if err != nil {
			t.Errorf("%s in its own name: %v", what, err)
		}
	}
}

// TestPlainTextIsRefused where TLS is required, and heard where it is not.
func TestPlainTextIsRefused(t *testing.T) {
	for _, required := range []bool{true, false} {
		d := newShare(t)
		if !required {
			if err := d.Remove("servers/tls-required"); err != nil {
				t.Fatal(err)
			}
		}
		c, fakes := fakesOn(t, d)
		conn, err := grpc.NewClient("passthrough:///"+c.Servers[1].Peer, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for what, err := range messages(within(t, 10*time.Second), c, pb.NewPeerServiceClient(conn), 1) {
			if (err != nil) != required {
				t.Errorf("%s in plain text, TLS required %v: %v", what, required, err)
			}
		}
		if n := heard(fakes[2]); n > 0 == required {
			t.Errorf("TLS required %v: %d were heard", required, n)
		}
	}
}

// TestStrangerIsToldAndNotHeard: a process on a copy of the volume learns what the servers are, and that they
// do not know it. What it says counts for nothing.
func TestStrangerIsToldAndNotHeard(t *testing.T) {
	d := newShare(t)
	c, fakes := fakesOn(t, d)
	k := keysOf(t, d.Clone(), 1)
	p := open(t, c, k)
	ctx := within(t, 10*time.Second)
	pong, err := p.Ping(ctx, 2, election.Ping{From: 1, Seq: 7, Nonce: 5, Status: election.Status{Role: election.RolePrimary, Epoch: 1 << 40}, About: "a copy"})
	if err != nil || pong.From != 2 || pong.Seq != 7 || pong.Primary != 2 {
		t.Fatalf("got %+v, %v", pong, err)
	}
	if by, _ := k.Disowned(); by != 2 {
		t.Error("it does not learn that it is a stranger")
	}
	_, verr := p.PreVote(ctx, 2, election.Ask{From: 1})
	_, uerr := p.Push(ctx, 2, push.Push{Epoch: 9})
	herr := p.Handover(ctx, 2, 1)
	for what, err := range map[string]error{"ask": verr, "push": uerr, "handover": herr} {
		if err == nil || isContext(err) {
			t.Errorf("the %s of a stranger was answered: %v", what, err)
		}
	}
	f := fakes[2]
	if n := heard(f); n != 0 {
		t.Errorf("%d messages of a stranger were heard", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.others) == 0 || f.others[0].ID != 1 || f.others[0].About != "a copy" || f.others[0].Nonce != 5 || !strings.HasPrefix(f.others[0].From, "127.0.0.1:") {
		t.Errorf("reported: %+v", f.others)
	}
	if f.pings[0] != (election.Ping{From: 1, Stranger: true, Seq: 7}) {
		t.Errorf("the elector hears %+v", f.pings[0])
	}
}

// TestStrangerIsKnownSoon: when a stranger's key shows on the volume, it is a server with its next connection, which comes
// by itself.
func TestStrangerIsKnownSoon(t *testing.T) {
	d := newShare(t)
	c, fakes := fakesOn(t, d)
	k := keysOf(t, d.Clone(), 1)
	p := open(t, c, k)
	ctx := within(t, time.Minute)
	if _, err := p.Ping(ctx, 2, election.Ping{From: 1}); err != nil || heard(fakes[2]) != 0 {
		t.Fatalf("%v, heard %d", err, heard(fakes[2]))
	}
	if err := d.Write("servers/1.tls-"+k.ID().String(), 0, nil); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for heard(fakes[2]) == 0 {
		if _, err := p.Ping(ctx, 2, election.Ping{From: 1}); err != nil {
			t.Fatalf("its pings fail: %v", err)
		}
		<-tick.C
	}
	if by, _ := k.Disowned(); by != 0 {
		t.Error("it still takes itself for a stranger")
	}
}

// before is a server of an older version, or of an attacker.
type before struct {
	pb.UnimplementedPeerServiceServer
}

func (before) Ping(_ context.Context, q *pb.Ping) (*pb.Pong, error) {
	return &pb.Pong{From: 2, Seq: q.GetSeq(), Stranger: true}, nil
}

// TestServerOfAnOlderVersion is reached in plain text, and nothing it says makes a server take itself for a stranger.
// Where TLS is required, it is not reached.
func TestServerOfAnOlderVersion(t *testing.T) {
	for _, required := range []bool{false, true} {
		d := newShare(t)
		if !required {
			if err := d.Remove("servers/tls-required"); err != nil {
				t.Fatal(err)
			}
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		pb.RegisterPeerServiceServer(s, before{})
		go s.Serve(l)
		defer s.Stop()
		k := keysOf(t, d, 1)
		p := open(t, volume.Cluster{Servers: cluster.Members{{ID: 2, Peer: l.Addr().String()}}}, k)
		pong, err := p.Ping(within(t, 10*time.Second), 2, election.Ping{From: 1, Seq: 5})
		if (err != nil) != required || !required && pong.Seq != 5 {
			t.Errorf("TLS required %v: %+v, %v", required, pong, err)
		}
		if by, _ := k.Disowned(); by != 0 {
			t.Error("what is said in plain text was believed")
		}
	}
}
