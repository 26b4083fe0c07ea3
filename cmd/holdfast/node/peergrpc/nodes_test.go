// SPDX-License-Identifier: Apache-2.0

package peergrpc_test

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/node"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peergrpc"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/node/peertls"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// trio is three nodes that talk over loopback.
type trio struct {
	nodes   map[cluster.ServerID]*node.Node
	members cluster.Members
}

// startTrio starts three nodes on one simulated volume and ends them with the test.
func startTrio(t *testing.T) *trio {
	t.Helper()
	d := volumetest.New(1)
	peer, web := map[cluster.ServerID]net.Listener{}, map[cluster.ServerID]net.Listener{}
	x := &trio{nodes: map[cluster.ServerID]*node.Node{}}
	for id := cluster.ServerID(1); id <= 3; id++ {
		for _, m := range []map[cluster.ServerID]net.Listener{peer, web} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			m[id] = l
		}
		x.members = append(x.members, cluster.Member{ID: id, Client: web[id].Addr().String(), Peer: peer[id].Addr().String()})
	}
	c, err := volume.Init(t.Context(), d.Host(9, volumetest.ProfileLocal()), x.members, crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	for _, m := range x.members {
		fsys := d.Host(int(m.ID), volumetest.ProfileLocal())
		keys, err := peertls.New(peertls.Options{Self: m.ID, Members: c.Servers, FS: fsys, Log: zerolog.New(t.Output())})
		if err != nil {
			t.Fatal(err)
		}
		peers := peergrpc.New(m.ID, c, keys)
		n, err := node.New(node.Options{
			Server: m.ID, FS: fsys, Timing: cluster.DefaultTiming(), Peers: peers,
			Log: zerolog.New(t.Output()).Level(zerolog.InfoLevel), Random: crand.Reader, Rand: rand.New(rand.NewPCG(1, uint64(m.ID))),
		})
		if err != nil {
			t.Fatal(err)
		}
		keys.Keep()
		peers.OnBroken(n.ConnectionBroke)
		x.nodes[m.ID] = n
		ps := peergrpc.NewServer(c.ID.String(), n, keys)
		hs := httpapi.New(service.New(n, service.Options{}), httpapi.Options{}).Server()
		wg.Go(func() { _ = ps.Serve(peer[m.ID]) })
		wg.Go(func() { _ = hs.Serve(web[m.ID]) })
		wg.Go(func() {
			_ = n.Run(ctx) // the context's end
			_ = hs.Close()
			ps.Stop()
			_ = peers.Close()
		})
	}
	return x
}

// TestThreeNodes sees three nodes elect over loopback, forward over HTTP, feed their replicas and hand over.
func TestThreeNodes(t *testing.T) {
	x := startTrio(t)
	nodes, members, ctx := x.nodes, x.members, t.Context()
	do := func(id cluster.ServerID, q *locktable.Request) locktable.Outcome {
		call, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		out, err := nodes[id].Do(call, q)
		if err != nil {
			return locktable.Outcome{Message: err.Error()}
		}
		return out
	}
	who := func() cluster.ServerID {
		for id, n := range nodes {
			if n.Role().String() == "primary" {
				return id
			}
		}
		return 0
	}
	await(t, "a server is primary", func() bool { return who() != 0 })
	first := who()
	out := do(first, &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: 1, Lock: "l", TTL: time.Minute})
	if out.Status != cluster.StatusOK {
		t.Fatalf("acquire: %+v", out)
	}
	for _, m := range members {
		await(t, "it is ready and forwards", func() bool {
			return get(t, "http://"+m.Client+"/readyz") == 200 && get(t, "http://"+m.Client+"/v1/locks/l?min_lsn="+fmt.Sprint(out.LSN)) == 200
		})
	}
	var to cluster.ServerID
	await(t, "a handover", func() bool {
		var err error
		to, err = nodes[first].Handover(ctx, 0)
		return err == nil
	})
	await(t, "the successor is primary", func() bool { return who() == to })
	await(t, "the grant is still there", func() bool {
		again := do(to, &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: 1, Lock: "l", TTL: time.Minute})
		return again.Repeat && again.Token == out.Token
	})
}

// TestPrimaryTellsItsOwnEpoch has servers hear of a higher epoch that is not on the volume. What
// the primary says of itself stays its own, and nobody tells of the other.
func TestPrimaryTellsItsOwnEpoch(t *testing.T) {
	x := startTrio(t)
	var n *node.Node
	await(t, "a server is primary", func() bool {
		for _, n = range x.nodes {
			if n.Role() == election.RolePrimary {
				return true
			}
		}
		return false
	})
	const stranger = cluster.ServerID(9)
	own := n.HandlePing(election.Ping{From: stranger}).Status.Epoch
	for _, x := range x.nodes {
		x.HandlePreVote(t.Context(), election.Ask{From: stranger, Epoch: own + 7})
	}
	if told := n.Status().Epoch; told != own {
		t.Errorf("status tells of epoch %d, which somebody spoke of, want %d", told, own)
	}
	if told := n.HandlePing(election.Ping{From: stranger}).Status; told.Role != election.RolePrimary || told.Epoch != own {
		t.Errorf("tells its peers that it is %v in epoch %d, want primary in epoch %d", told.Role, told.Epoch, own)
	}
	for _, s := range n.Status().Servers {
		if s.Role == "primary" && s.Epoch != own {
			t.Errorf("status says that server %d is primary in epoch %d, want %d", s.Member.ID, s.Epoch, own)
		}
	}
}

func get(t *testing.T, url string) int {
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(time.Minute)
	for !so() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("never: %s", what)
		}
	}
}
