// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// firstTwo are the servers with which the volumes of these tests were made.
func firstTwo() cluster.Members {
	return cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}}
}

// runAlone runs server 1, which hears nobody.
func runAlone(t *testing.T, disk *volumetest.Disk, profile volumetest.Profile) (_ *Node, stop func()) {
	t.Helper()
	return run(t, Options{
		Server: 1, FS: disk.Host(1, profile), Timing: cluster.DefaultTiming(), Peers: nobody{},
		Random: crand.Reader, Rand: rand.New(rand.NewPCG(1, 1)),
	})
}

func run(t *testing.T, opt Options) (_ *Node, stop func()) {
	t.Helper()
	n, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	return n, func() { cancel(); <-ended }
}

// One of two servers, alone, takes over where the volume shows that no other server was ever primary. A name that is
// not there shows that at once on a filesystem of one host only: the cache of another one may hide it for a minute.
func TestNameThatMayBeHiddenIsNoVote(t *testing.T) {
	for name, x := range map[string]struct {
		profile volumetest.Profile
		removed bool
		serves  bool
	}{
		"one host":                         {volumetest.ProfileLocal(), false, true},
		"one host, a volume of before":     {volumetest.ProfileLocal(), true, true},
		"network, a volume of before":      {volumetest.ProfileNetwork(), true, false},
		"network, a server that never ran": {volumetest.ProfileNetwork(), false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			disk := volumetest.New(1)
			if _, err := volume.Init(t.Context(), disk.Host(9, x.profile), firstTwo(), crand.Reader); err != nil {
				t.Fatal(err)
			}
			if x.removed {
				if err := disk.Host(9, x.profile).Remove("servers/2.canary"); err != nil {
					t.Fatal(err)
				}
			}
			n, stop := runAlone(t, disk, x.profile)
			time.Sleep(10 * time.Second)
			if serves := n.Role() == election.RolePrimary; serves != x.serves {
				t.Errorf("%s: it serves %v, want %v", name, serves, x.serves)
			}
			if says := n.Status().Servers[0].Warnings; x.serves == strings.Contains(strings.Join(says, "; "), "cannot see on the volume") {
				t.Errorf("%s: its status says %q", name, says)
			}
			time.Sleep(hiddenName)
			if n.Role() != election.RolePrimary {
				t.Errorf("%s: it does not serve later", name)
			}
			stop()
		})
	}
}

// TestHiddenNamesAreWaitedForTogether: a server that hears nobody is kept for as long by two that never ran as by one.
func TestHiddenNamesAreWaitedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, profile := volumetest.New(1), volumetest.ProfileNetwork()
		three := append(firstTwo(), cluster.Member{ID: 3, Client: "h3:1", Peer: "h3:3"})
		if _, err := volume.Init(t.Context(), disk.Host(9, profile), three, crand.Reader); err != nil {
			t.Fatal(err)
		}
		n, stop := runAlone(t, disk, profile)
		time.Sleep(hiddenName + 10*time.Second)
		if says := n.loneReason(); !strings.Contains(says, "no majority") {
			t.Errorf("its status says %q", says)
		}
		stop()
	})
}

// TestLooksComeInTime on a machine that is never late, also where they are far from each other.
func TestLooksComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, profile := volumetest.New(1), volumetest.ProfileLocal()
		if _, err := volume.Init(t.Context(), disk.Host(9, profile), firstTwo(), crand.Reader); err != nil {
			t.Fatal(err)
		}
		slow := cluster.DefaultTiming()
		slow.Heartbeat, slow.Suspicion, slow.MajorityWindow, slow.QuorumTimeout, slow.StorageTimeout = time.Second, 3*time.Second, 4*time.Second, 4*time.Second, 10*time.Second
		var log bytes.Buffer
		host := disk.Host(1, profile)
		host.SetHook(func(volumetest.Call) volumetest.Action { // so that the term begins beside the moments at which looks meet
			time.Sleep(55 * time.Millisecond)
			return volumetest.Proceed()
		})
		n, stop := run(t, Options{
			Server: 1, FS: host, Timing: slow, Peers: nobody{}, Log: zerolog.New(zerolog.SyncWriter(&log)),
			Random: crand.Reader, Rand: rand.New(rand.NewPCG(1, 1)),
		})
		time.Sleep(30 * time.Second)
		if n.Role() != election.RolePrimary {
			t.Error("it does not serve")
		}
		stop()
		if said := log.String(); strings.Contains(said, "did not run") {
			t.Error(said)
		}
	})
}

// Each member of the present list that goes on keeps another one from taking over. No other server does: one that was removed may
// have left anything, and one that joins nothing.
func TestVolumeVoteIsAboutMembers(t *testing.T) {
	one, two := firstTwo()[0], firstTwo()[1]
	three := cluster.Member{ID: 3, Client: "h3:1", Peer: "h3:3"}
	joins := three
	joins.Joining = true
	for name, x := range map[string]struct {
		members cluster.Members
		beats   cluster.ServerID
		claims  bool
	}{
		"an added member goes on":      {cluster.Members{one, three}, 3, false},
		"an added member has gone":     {cluster.Members{one, three}, 0, true},
		"a removed server goes on":     {cluster.Members{one, three}, 2, true},
		"a server joins and never ran": {cluster.Members{one, two, joins}, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			disk, host := volumetest.New(1), volumetest.ProfileNetwork()
			made, err := volume.Init(t.Context(), disk.Host(9, host), firstTwo(), crand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			ran := map[cluster.ServerID]*volume.Volume{2: hasRun(t, disk, 2)}
			list := cluster.Membership{Version: 2, HighestID: 3, Servers: x.members}
			if err := disk.Host(9, host).Replace("MEMBERS", func(w io.Writer) error {
				_, err := io.WriteString(w, cluster.MembersText(made.ID, 1, list)+"\n")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if list.Admits(3) == nil {
				ran[3] = hasRun(t, disk, 3)
			}
			before, err := disk.Host(9, host).ReadDir("epochs")
			if err != nil {
				t.Fatal(err)
			}
			n, stop := runAlone(t, disk, host)
			for value := uint64(2); value < 12; value++ {
				if v := ran[x.beats]; v != nil {
					if err := v.WriteCanary(volume.Canary{Value: value}); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Second)
			}
			claims, err := disk.Host(9, host).ReadDir("epochs") // it does not serve: MEMBERS shows more than the log has, and that is a loss
			if claimed := len(claims) > len(before); err != nil || claimed != x.claims {
				t.Errorf("%s: it claims %v, want %v: %v, %q", name, claimed, x.claims, err, n.Status().Servers[0].Warnings)
			}
			stop()
		})
	}
}

// hasRun opens the volume as a server that was primary once.
func hasRun(t *testing.T, disk *volumetest.Disk, id cluster.ServerID) *volume.Volume {
	t.Helper()
	v, err := volume.Open(disk.Host(int(id), volumetest.ProfileNetwork()), volume.Options{Server: id, Random: crand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(v.WriteProcess(volume.Process{Nonce: uint64(id), Count: 1}), v.WriteCanary(volume.Canary{Value: 1})); err != nil {
		t.Fatal(err)
	}
	return v
}
