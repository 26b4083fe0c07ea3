// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// TestCanaryOnANetworkFilesystem: where caches are old for half a minute, the status
// says so of plain reads, and reads past the caches raise no alarm.
func TestCanaryOnANetworkFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, profile := volumetest.New(1), volumetest.ProfileNetwork()
		members := cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}}
		if _, err := volume.Init(t.Context(), disk.Host(9, profile), members, rand.Reader); err != nil {
			t.Fatal(err)
		}
		var hosts [2]*volume.Volume
		for i := range hosts {
			v, err := volume.Open(disk.Host(i+1, profile), volume.Options{Server: cluster.ServerID(i + 1), Random: rand.Reader})
			if err != nil {
				t.Fatal(err)
			}
			hosts[i] = v
		}
		var c canary
		for value := range uint64(120) {
			if err := hosts[0].WriteCanary(volume.Canary{Epoch: 1, Value: value + 1}); err != nil {
				t.Fatal(err)
			}
			if !c.hear(1, 1, value+1, time.Now()) {
				t.Errorf("value %d is no reason to look", value+1)
			}
			direct, err := hosts[1].ReadCanary(1, vfs.FlagDirect)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := hosts[1].ReadCanary(1, vfs.FlagRead)
			if err != nil {
				t.Fatal(err)
			}
			if c.look(direct.Value, plain.Value, time.Now()) {
				t.Errorf("alarm at value %d", value+1)
			}
			time.Sleep(time.Second)
		}
		s := c.read(time.Now())
		if s.Looks != 120 || s.StaleDirectReads != 0 || s.StaleReads < 100 || s.MaxLag < profile.Stale-5*time.Second || s.MaxLag > profile.Stale {
			t.Errorf("got %+v", s)
		}
	})
}

// TestCanaryLag follows plain reads that are three seconds old.
func TestCanaryLag(t *testing.T) {
	var c canary
	now := time.Unix(1000, 0)
	if c.hear(0, 0, 0, now) {
		t.Error("nobody told anything")
	}
	for second := range uint64(10) {
		value := 100 + second
		if !c.hear(1, 1, value, now) {
			t.Errorf("value %d is no reason to look", value)
		}
		if c.look(value, value-3, now) {
			t.Errorf("value %d: alarm", value)
		}
		now = now.Add(time.Second)
	}
	s := c.read(now)
	if s.Looks != 10 || s.StaleReads != 10 || s.StaleDirectReads != 0 || s.MaxLag != 2*time.Second || s.Age != time.Second {
		t.Errorf("got %+v", s)
	}
	// Once it has been seen there is nothing to read until a new value is told.
	c.look(109, 109, now)
	if c.hear(1, 1, 109, now) {
		t.Error("a value that was seen is a reason to look")
	}
}

// TestCanaryAlarm: a read past the caches that is old raises the alarm once for each primary.
func TestCanaryAlarm(t *testing.T) {
	var c canary
	now := time.Unix(1000, 0)
	for i, x := range []struct {
		from         uint32
		told, direct uint64
		alarm        bool
		staleDirect  uint64
	}{
		{1, 10, 10, false, 0},
		{1, 11, 12, false, 0}, // written, and not told yet
		{1, 13, 12, true, 1},
		{1, 14, 12, false, 2},
		{1, 15, 15, false, 2},
		{2, 5, 5, false, 2}, // another primary counts for itself
		{2, 6, 5, true, 3},
	} {
		c.hear(cluster.ServerID(x.from), cluster.Epoch(x.from), x.told, now)
		if got := c.look(x.direct, x.direct, now); got != x.alarm {
			t.Errorf("row %d: alarm %v", i, got)
		}
		if s := c.read(now); s.StaleDirectReads != x.staleDirect {
			t.Errorf("row %d: got %+v", i, s)
		}
	}
}

// TestCanaryIsBounded: a view that never changes costs no memory, and its age is right.
func TestCanaryIsBounded(t *testing.T) {
	var c canary
	now := time.Unix(1000, 0)
	for second := range uint64(1000) {
		c.hear(1, 1, 1+second, now)
		c.look(1+second, 0, now)
		now = now.Add(time.Second)
	}
	if n := max(len(c.mu.plain), len(c.mu.direct)); n > maxTold {
		t.Errorf("%d values are kept", n)
	}
	if s := c.read(now); s.MaxLag != 999*time.Second {
		t.Errorf("got %+v", s)
	}
}

// TestCanaryTellsHowOldTheVolumeIs: what a read past the caches has not shown makes the volume
// as old as it is, over terms and after the last of them, until such a read shows it.
func TestCanaryTellsHowOldTheVolumeIs(t *testing.T) {
	var c canary
	began := time.Unix(1000, 0)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	for i, x := range []struct {
		second int
		id     cluster.ServerID
		from   cluster.Epoch
		told   uint64
		direct uint64
		looks  bool
		lag    time.Duration
	}{
		{0, 1, 1, 10, 10, true, 0},
		{1, 1, 1, 10, 10, false, 0},
		{2, 1, 1, 12, 10, true, 0},
		{3, 1, 1, 13, 10, true, time.Second},
		{4, 1, 1, 14, 12, true, time.Second}, // it lags, and goes on
		{5, 1, 1, 15, 12, true, 2 * time.Second},
		{9, 2, 2, 7, 3, true, 6 * time.Second},  // another term
		{10, 0, 0, 0, 3, true, 7 * time.Second}, // nobody tells anything
		{11, 0, 0, 0, 7, true, 0},
		{12, 0, 0, 0, 7, false, 0},
	} {
		looks := c.hear(x.id, x.from, x.told, at(x.second))
		if looks {
			c.look(x.direct, 100, at(x.second))
		}
		if lag := c.lag(at(x.second)); looks != x.looks || lag != x.lag {
			t.Errorf("row %d: a reason to look %v, lag %v", i, looks, lag)
		}
	}
	if id, told := c.last(); id != 2 || told != 7 {
		t.Errorf("server %d told %d", id, told)
	}
}

// primaryStub answers pings as server 1, which is primary and tells a beat.
type primaryStub struct {
	nobody
	beat   atomic.Uint64
	timing atomic.Uint64
}

func (r *primaryStub) Follow(cluster.Members) {}

func (r *primaryStub) Ping(_ context.Context, _ cluster.ServerID, p election.Ping) (election.Pong, error) {
	return election.Pong{From: 1, Nonce: 7, Seq: p.Seq, Primary: 1, Status: election.Status{Role: election.RolePrimary, Epoch: 5, LSN: 9, Beat: r.beat.Load(), FeatureLevel: volume.FeatureLevel, Timing: r.timing.Load()}}, nil
}

// follows makes a volume, has change alter it, and runs server 2 on its network filesystem. Server 1
// is the primary, and the test writes its canary and what it tells.
func follows(t *testing.T, change func(*volumetest.Disk)) (*Node, *volume.Volume, *primaryStub) {
	t.Helper()
	return followsLogged(t, change, zerolog.Nop())
}

// followsLogged is follows with a log.
func followsLogged(t *testing.T, change func(*volumetest.Disk), log zerolog.Logger) (*Node, *volume.Volume, *primaryStub) {
	t.Helper()
	disk, profile := volumetest.New(1), volumetest.ProfileNetwork()
	members := cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}}
	if _, err := volume.Init(t.Context(), disk.Host(9, profile), members, rand.Reader); err != nil {
		t.Fatal(err)
	}
	change(disk)
	first, err := volume.Open(disk.Host(1, profile), volume.Options{Server: 1, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	peer := &primaryStub{}
	n, err := New(Options{
		Server: 2, FS: disk.Host(2, profile), Timing: cluster.DefaultTiming(), Peers: peer, Log: log,
		Random: rand.Reader, Rand: mathrand.New(mathrand.NewPCG(1, 1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.vol.ReadCanary(1, vfs.FlagDirect); !errors.Is(err, volume.ErrNoCanary) { // as each claim does
		t.Fatal("there is a canary")
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return n, first, peer
}

// warnsOfOldData reports whether status says that this server reads an old volume.
func warnsOfOldData(n *Node) bool {
	return slices.ContainsFunc(n.Status().Servers[1].Warnings, func(w string) bool {
		return strings.Contains(w, "PAST THE CACHES") || strings.Contains(w, "HAS NOT SHOWN")
	})
}

// TestNameThatACacheHidesIsNoOldVolume: before a server was primary for the first time a claim on
// another host has looked for its canary, as each claim looks for all. On a volume that was made
// without canaries it found none, and that host's cache says so for a while longer. A name says
// nothing: nothing that was read is old. On a volume that was made with them nothing is hidden.
func TestNameThatACacheHidesIsNoOldVolume(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *volumetest.Disk){
		"made with canaries": func(*testing.T, *volumetest.Disk) {},
		"made without": func(t *testing.T, d *volumetest.Disk) {
			if err := d.Remove("servers/1.canary"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, first, peer := follows(t, func(d *volumetest.Disk) { change(t, d) })
				for value := range uint64(10) {
					if err := first.WriteCanary(volume.Canary{Epoch: 5, Value: value + 1}); err != nil {
						t.Fatal(err)
					}
					peer.beat.Store(value + 1)
					time.Sleep(time.Second)
				}
				if warnsOfOldData(n) {
					t.Errorf("status warns: %q", n.Status().Servers[1].Warnings)
				}
				if s := n.self(); s.Storage > n.opt.Timing.StorageTimeout {
					t.Errorf("it tells the others that its volume is %v old: it neither votes nor takes over", s.Storage)
				}
			})
		})
	}
}

// TestCanaryAsItWasMadeIsAnOldVolume: where the primary has told a value, a canary that nothing
// was written to is of a volume from before its term, and no cache excuses it.
func TestCanaryAsItWasMadeIsAnOldVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, peer := follows(t, func(*volumetest.Disk) {})
		peer.beat.Store(1)
		time.Sleep(10 * time.Second)
		if s := n.self(); s.Storage <= n.opt.Timing.StorageTimeout || !warnsOfOldData(n) {
			t.Errorf("it tells the others that its volume is %v old, its status says %q", s.Storage, n.Status().Servers[1].Warnings)
		}
	})
}

// TestCanaryContradictsAForeignTable: a table may be ahead of a canary, but not of the next but
// one, and of the same LSN both are one log's.
func TestCanaryContradictsAForeignTable(t *testing.T) {
	type row struct {
		value  uint64
		at     cluster.LSN // of the canary
		stood  cluster.LSN
		chain  wal.Chain // of the table; the canary's is 1
		epoch  cluster.Epoch
		expect bool
	}
	for name, rows := range map[string][]row{
		"a table that is always ahead":         {{1, 10, 15, 1, 7, false}, {2, 20, 25, 1, 7, false}, {3, 30, 35, 1, 7, false}, {4, 40, 45, 1, 7, false}},
		"a canary that was read late":          {{1, 10, 15, 1, 7, false}, {2, 14, 25, 1, 7, false}, {3, 15, 35, 1, 7, false}},
		"one that is looked at again":          {{1, 10, 15, 1, 7, false}, {1, 10, 20, 1, 7, false}, {1, 10, 30, 1, 7, false}, {2, 14, 30, 1, 7, false}},
		"beyond all that was committed":        {{1, 10, 99, 1, 7, false}, {2, 20, 99, 1, 7, false}, {3, 30, 99, 1, 7, true}},
		"it is told once":                      {{1, 10, 99, 1, 7, false}, {2, 20, 99, 1, 7, false}, {3, 30, 99, 1, 7, true}, {4, 40, 99, 1, 7, false}},
		"as far, and another one":              {{1, 10, 10, 2, 7, true}},
		"as far, and the same":                 {{1, 10, 10, 1, 7, false}, {2, 10, 10, 1, 7, false}, {3, 10, 10, 1, 7, false}},
		"behind":                               {{1, 10, 9, 2, 7, false}, {2, 20, 9, 2, 7, false}, {3, 30, 9, 2, 7, false}},
		"it was beyond, and is another by now": {{1, 10, 99, 1, 7, false}, {2, 20, 99, 1, 7, false}, {3, 30, 30, 1, 7, false}, {4, 40, 45, 1, 7, false}},
		"of another term":                      {{1, 10, 99, 2, 6, false}, {2, 20, 99, 2, 6, false}, {3, 99, 99, 2, 6, false}},
		"of an older binary":                   {{1, 0, 99, 2, 7, false}, {2, 0, 99, 2, 7, false}, {3, 0, 99, 2, 7, false}, {4, 0, 0, 2, 7, false}},
	} {
		var c canary
		for i, r := range rows {
			x := volume.Canary{Epoch: 7, Value: r.value, At: wal.Position{LSN: r.at, Chain: 1}}
			if got := c.contradicts(x, r.epoch, wal.Position{LSN: r.stood, Chain: r.chain}); got != r.expect {
				t.Errorf("%s, row %d: contradicted %v", name, i, got)
			}
		}
	}
}
