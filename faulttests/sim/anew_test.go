// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/nettest"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

var anewSeeds = flag.Int("sim.anews", 2, "how many seeds of volumes that are made anew under their clients to run")

const (
	guestTTL  = 6 * time.Second
	guestLock = cluster.LockName("job")
	guestFile = cluster.FileName("job.log")
)

// guest is a client that takes turns at a lock and writes its name into a file.
type guest struct {
	*machine
	name  string
	later bool // of the volume that was made anew
}

// hosts judge what guests of two volumes, one behind the other at the same addresses, believe.
type hosts struct {
	t      *testing.T
	mu     sync.Mutex
	anew   time.Time // when no server of the first volume was there any more; zero = they are
	holds  map[*clientlib.Lock]*guest
	turns  map[bool]int // of guests of the later volume, and of the first one
	strays map[*guest]bool
}

// gone reports whether no server of the first volume is there any more.
func (x *hosts) gone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.anew.IsZero()
}

// begins notes a grant that a guest was told of.
func (x *hosts) begins(g *guest, l *clientlib.Lock) {
	x.mu.Lock()
	defer x.mu.Unlock()
	past := time.Since(x.anew)
	if !g.later && !x.anew.IsZero() && past > time.Second {
		x.t.Errorf("%s was granted token %d %v after its volume was gone", g.name, l.Token(), past)
	}
	for other, who := range x.holds {
		if other.Context().Err() != nil || l.Context().Err() != nil {
			continue
		}
		if who.later == g.later || past > guestTTL { // until then nobody can know better
			x.t.Errorf("TWO HOLDERS: %s has token %d, and %s has token %d", g.name, l.Token(), who.name, other.Token())
		}
	}
	x.holds[l] = g
	x.turns[g.later]++
}

// ends notes that a guest is about to let go, or was told of a loss: not of one by a guest of
// the other volume.
func (x *hosts) ends(g *guest, l *clientlib.Lock) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.holds, l)
	lost, ok := errors.AsType[*clientlib.LostError](context.Cause(l.Context()))
	if !ok {
		return
	}
	gone := !g.later && !x.anew.IsZero()
	switch lost.Reason {
	case clientlib.LossNotRenewed, clientlib.LossExpired:
	case clientlib.LossOtherCluster:
		if !gone {
			x.t.Errorf("%s, whose volume is there, lost token %d by %v", g.name, l.Token(), lost)
		}
	default:
		x.t.Errorf("%s lost token %d by %v", g.name, l.Token(), lost)
	}
}

// estranged notes that a guest was told that its cluster is no more.
func (x *hosts) estranged(g *guest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.strays[g] = true
	if g.later || x.anew.IsZero() {
		x.t.Errorf("%s, whose volume is there, was told that another cluster answers", g.name)
	}
}

func (x *hosts) run(ctx context.Context, g *guest, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		l, err := g.client.Acquire(ctx, guestLock, clientlib.AcquireOptions{TTL: guestTTL, Wait: time.Duration(rng.IntN(5000)) * time.Millisecond})
		if err != nil {
			if errors.Is(err, clientlib.ErrOtherCluster) {
				x.estranged(g)
			}
			time.Sleep(time.Duration(50+rng.IntN(1000)) * time.Millisecond)
			continue
		}
		x.begins(g, l)
		if rng.IntN(2) == 0 {
			_, _ = l.Append(ctx, guestFile, fmt.Appendf(nil, "<%s %d>\n", g.name, n)) // whether it can is not the point
		}
		select {
		case <-l.Context().Done():
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(8000)) * time.Millisecond):
		}
		x.ends(g, l)
		_ = l.Release(ctx) // or its lease ends
	}
}

// bare is a client without the library. It believes whom it asks, and never asks who that is.
type bare struct {
	x     *hosts
	tells bool // for which cluster its calls are meant, as the library does by now
	conns []*grpc.ClientConn

	client  string // opened, unless it tells
	cluster string
	next    uint64
	gone    bool // is its cluster, when it asks
	done    int  // requests
}

func newBare(t *testing.T, f *fronts, x *hosts, tells bool) *bare {
	t.Helper()
	b := &bare{x: x, tells: tells, next: 1000}
	always := nettest.NewGate()
	for id := range cluster.ServerID(3) {
		conn, err := grpc.NewClient(memberAt(id+1).Client, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return f.dial(ctx, addr, always) }))
		if err != nil {
			t.Fatal(err)
		}
		b.conns = append(b.conns, conn)
	}
	return b
}

func (b *bare) close() {
	for _, c := range b.conns {
		c.Close() //nolint:errcheck // it cannot fail
	}
}

func (b *bare) run(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, time.Second)
		b.once(call, pb.NewLockServiceClient(b.conns[rng.IntN(len(b.conns))]))
		cancel()
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
	}
}

func (b *bare) once(ctx context.Context, to pb.LockServiceClient) {
	if b.client == "" {
		a, err := to.OpenClient(ctx, &pb.OpenClientRequest{Nonce: 77})
		if err == nil && wire.FromStatus(a.GetStatus()) == cluster.StatusOK {
			b.client, b.cluster = a.ClientId, a.ClusterId
			if b.tells {
				b.client = "bare"
			}
		}
		return
	}
	if b.tells {
		ctx = metadata.AppendToOutgoingContext(ctx, wire.ClusterKey, b.cluster)
	}
	b.gone = b.x.gone()
	if k, err := to.KeepAlive(ctx, &pb.KeepAliveRequest{ClientId: b.client}); err == nil {
		b.judge("keep-alive", k.GetStatus())
	}
	b.next++
	a, err := to.Acquire(ctx, &pb.AcquireRequest{ClientId: b.client, RequestId: b.next, LowWater: b.next, Lock: "bare", TtlMs: guestTTL.Milliseconds()})
	if err != nil || !b.judge("acquire", a.GetStatus()) {
		return
	}
	b.next++
	if a, err = to.Release(ctx, &pb.ReleaseRequest{ClientId: b.client, RequestId: b.next, LowWater: b.next, Lock: "bare", Token: a.Token}); err == nil {
		b.judge("release", a.GetStatus())
	}
}

// judge wants only its own cluster to do what it asks for, and says whether it did.
func (b *bare) judge(what string, s pb.Status) bool {
	if wire.FromStatus(s) != cluster.StatusOK {
		return false
	}
	if b.gone {
		b.x.t.Errorf("cluster %.8s is no more, and another one did the %s of its client %s", b.cluster, what, b.client)
	}
	b.done++
	return true
}

// blind has servers not look for whom a call is meant, as older ones did: then it is the client
// that looks at who answers.
func blind() grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		return metadata.NewIncomingContext(ctx, metadata.MD{}), nil
	})
}

// TestVolumeMadeAnew has another volume served at the addresses that clients know, over faults
// of servers and cuts. What the clients of the volume that is no more believe ends in time, and
// nothing that they ask for is done in the other one.
func TestVolumeMadeAnew(t *testing.T) {
	scenarios(t, *anewSeeds, anewScenario)
}

// anewScenario has the servers look for whom a call is meant, or not, and the later clients have
// the name of an earlier one, or not.
func anewScenario(t *testing.T, seed uint64) {
	c := electionCluster(t, seed)
	c.one(t, "start")
	f := newFronts(c)
	looks := seed%3 != 2
	if !looks {
		f.opts = []grpc.ServerOption{blind()}
	}
	x := &hosts{t: t, holds: map[*clientlib.Lock]*guest{}, turns: map[bool]int{}, strays: map[*guest]bool{}}
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	var all []*guest
	begin := func(later bool, ids ...cluster.ClientID) {
		for i, id := range ids {
			g := &guest{machine: f.machineOf(t, id), name: fmt.Sprintf("guest %d (%s)", len(all), id), later: later}
			all = append(all, g)
			ended.Go(func() { x.run(ctx, g, rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
	}
	begin(false, "", "worker", "")
	var bares []*bare
	for _, tells := range []bool{looks, false} {
		b := newBare(t, f, x, tells)
		bares = append(bares, b)
		ended.Go(func() { b.run(ctx, rand.New(rand.NewPCG(seed, 99))) })
	}
	scenario := f.troubles(t, 3, all)
	old := all
	f.makeAnew(t, x, all)
	begin(true, "", []cluster.ClientID{"worker", "helper"}[seed%2], "")
	scenario = append(append(scenario, "the volume is made anew"), f.troubles(t, 4, all)...)
	time.Sleep(healing)
	x.judge(old)
	for _, b := range bares {
		if b.done == 0 {
			t.Errorf("client %s has done nothing: that means little", b.client)
		}
	}
	if looks {
		f.judgeStrangers(t, old, seed%2 == 1)
	}
	stop()
	ended.Wait()
	for _, g := range all {
		g.client.Close() //nolint:errcheck // it cannot fail
	}
	for _, b := range bares {
		b.close()
	}
	c.Shutdown()
	t.Logf("servers look: %v; %d turns, then %d, over: %s", looks, x.turns[false], x.turns[true], strings.Join(scenario, ", "))
}

// makeAnew ends all servers and has them serve another volume, while some machines are cut off.
func (f *fronts) makeAnew(t *testing.T, x *hosts, all []*guest) {
	for _, g := range all {
		if f.c.Rand.IntN(3) == 0 {
			g.net.Cut()
			wake := time.AfterFunc(time.Duration(f.c.Rand.IntN(20000))*time.Millisecond, g.net.Mend)
			t.Cleanup(func() { wake.Stop() })
		}
	}
	f.c.Shutdown()
	x.mu.Lock()
	x.anew = time.Now()
	x.mu.Unlock()
	if f.c.Rand.IntN(2) == 0 {
		time.Sleep(time.Duration(f.c.Rand.IntN(10000)) * time.Millisecond)
	}
	f.c.Disk = volumetest.New(f.c.Rand.Uint64())
	members := cluster.Members{memberAt(1), memberAt(2), memberAt(3)}
	if _, err := volume.Init(t.Context(), f.c.Disk.Host(9, f.c.Profile), members, chacha(f.c.Rand.Uint64())); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if err := f.c.Start(m.ID); err != nil {
			t.Fatal(err)
		}
	}
	f.c.one(t, "anew")
}

// troubles injects faults of servers and cuts, one after the other.
func (f *fronts) troubles(t *testing.T, n int, all []*guest) (scenario []string) {
	for range n {
		time.Sleep(time.Duration(f.c.Rand.IntN(5000)) * time.Millisecond)
		g, cut := all[f.c.Rand.IntN(len(all))], f.c.Rand.IntN(4) == 0
		name, heal := "cut a machine off", g.net.Mend
		if cut {
			g.net.Cut()
		} else {
			name, heal = f.c.draw(t)
		}
		scenario = append(scenario, name)
		time.Sleep(time.Duration(f.c.Rand.IntN(10000)) * time.Millisecond)
		heal()
		f.c.one(t, name)
	}
	return scenario
}

// judge wants the guests of the volume that is no more to know it, and the others to have had turns.
func (x *hosts) judge(old []*guest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range old {
		if !x.strays[g] {
			x.t.Errorf("%s was never told that its cluster is no more", g.name)
		}
	}
	if x.turns[false] == 0 || x.turns[true] == 0 {
		x.t.Errorf("%d turns, then %d: that means little", x.turns[false], x.turns[true])
	}
}

// judgeStrangers wants nothing on the volume to be by a guest of the one before.
func (f *fronts) judgeStrangers(t *testing.T, old []*guest, noWorker bool) {
	content := f.c.Disk.Files(volume.ProtectedPath("."))[volume.ProtectedPath(guestFile)]
	for _, g := range old {
		if bytes.Contains(content, []byte(g.name)) {
			t.Errorf("the volume made anew has an append by %s", g.name)
		}
	}
	id, _ := f.c.one(t, "at the end")
	_, err := f.c.server(id).node.Read(t.Context(), func(v serving.View) {
		for _, stranger := range []cluster.ClientID{"bare", "worker"} {
			c, known := v.Table.Client(stranger)
			if known && (stranger == "bare" || noWorker) {
				t.Errorf("the volume made anew knows client %s of the one before: %+v", stranger, c)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}
