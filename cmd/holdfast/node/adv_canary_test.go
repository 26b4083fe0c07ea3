// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// reigning answers pings as server 1, which is primary and tells a beat.
type reigning struct {
	nobody
	beat atomic.Uint64
}

func (r *reigning) Ping(_ context.Context, _ cluster.ServerID, p election.Ping) (election.Pong, error) {
	return election.Pong{From: 1, Nonce: 7, Seq: p.Seq, Primary: 1, Status: election.Status{Role: election.RolePrimary, Epoch: 5, LSN: 9, Beat: r.beat.Load(), FeatureLevel: volume.FeatureLevel}}, nil
}

// TestNameThatACacheHidesIsNoOldVolume: before a server reigned for the first time a claim on
// another host has looked for its canary and found none, as each claim looks for all. That
// host's cache says so for a while longer. A name says nothing: nothing that was read is old.
func TestNameThatACacheHidesIsNoOldVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, profile := volumetest.New(1), volumetest.ProfileNetwork()
		members := cluster.Members{{ID: 1, GRPC: "h1:1", HTTP: "h1:2", Peer: "h1:3"}, {ID: 2, GRPC: "h2:1", HTTP: "h2:2", Peer: "h2:3"}}
		if _, err := volume.Init(t.Context(), disk.Host(9, profile), members, crand.Reader); err != nil {
			t.Fatal(err)
		}
		first, err := volume.Open(disk.Host(1, profile), volume.Options{Server: 1, Random: crand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		peer := &reigning{}
		n, err := New(Options{
			Server: 2, FS: disk.Host(2, profile), Timing: cluster.DefaultTiming(), Peers: peer, Log: zerolog.Nop(),
			Random: crand.Reader, Rand: rand.New(rand.NewPCG(1, 1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.vol.ReadCanary(1, volume.FlagDirect); err == nil {
			t.Fatal("there is a canary")
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		for value := range uint64(10) {
			if err := first.WriteCanary(5, value+1); err != nil {
				t.Fatal(err)
			}
			peer.beat.Store(value + 1)
			time.Sleep(time.Second)
		}
		me := n.Status().Servers[1]
		for _, w := range me.Warnings {
			if strings.Contains(w, "PAST THE CACHES") || strings.Contains(w, "HAS NOT SHOWN") {
				t.Errorf("status warns: %s", w)
			}
		}
		if s := n.self(); s.Storage > n.opt.Timing.StorageTimeout {
			t.Errorf("it tells the others that its volume is %v old: it neither votes nor takes over", s.Storage)
		}
		stop()
		<-ended
	})
}
