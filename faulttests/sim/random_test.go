// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

var (
	seeds = flag.Int("sim.seeds", 60, "how many random schedules to run")
	seed  = flag.Uint64("sim.seed", 0, "run only the random schedule of this seed")
	first = flag.Uint64("sim.first", 1, "the first seed of every test that runs several: another one each time explores anew")
)

const (
	wanderers = 4
	// permitters are the wanderers that take permits of a lock with a limit.
	permitters = 3
	steps      = 35
)

// TestRandomSchedules lets wandering clients work while terms come and go under
// faults drawn by seed: pauses into later terms, crashes, errors with and without effect,
// failing files, power losses, full disks, lost quorums, resignations, stale caches and both policies.
func TestRandomSchedules(t *testing.T) {
	if *seed != 0 {
		synctest.Test(t, func(t *testing.T) { newRandomScenario(t, *seed).play() })
		return
	}
	var done, acked, terms, simulated, counted atomic.Int64
	var mu sync.Mutex
	var failed atomic.Bool // one failure is enough
	byOp, byFault := map[string]int{}, map[string]int{}
	parts := runtime.GOMAXPROCS(0)
	t.Run("parts", func(t *testing.T) {
		for part := range parts {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for n := part; n < *seeds && !failed.Load(); n += parts {
					synctest.Test(t, func(t *testing.T) {
						began := time.Now()
						c := newRandomScenario(t, *first+uint64(n))
						c.play()
						simulated.Add(int64(time.Since(began)))
						mu.Lock()
						defer mu.Unlock()
						for _, a := range c.scenario.Ledger.Acks() {
							byOp[a.Request.Op.String()]++
							if a.Outcome.Permit.Limit > 0 {
								byOp[permitWord]++
							}
							acked.Add(1)
						}
						for _, name := range c.faults {
							byFault[name]++
						}
						terms.Add(int64(len(c.scenario.terms)))
						counted.Add(int64(c.scenario.counted))
					})
					done.Add(1)
					if t.Failed() {
						failed.Store(true)
					}
				}
			})
		}
	})
	t.Logf("%d schedules from seed %d on, %.1f simulated hours, %d terms, %d operations acknowledged: %v; faults: %v",
		done.Load(), *first, time.Duration(simulated.Load()).Hours(), terms.Load(), acked.Load(), byOp, byFault)
	if counted.Load() == 0 {
		t.Error("no primary compared what it counts for quotas with its table")
	}
	if t.Failed() || done.Load() < 100 {
		return
	}
	if byOp[permitWord] == 0 {
		t.Error("no permit was granted: the schedules mean little")
	}
	for _, op := range []locktable.Op{
		locktable.OpAcquire, locktable.OpRelease, locktable.OpAppend, locktable.OpBind, locktable.OpUnbind, locktable.OpRotate, locktable.OpBreak,
		locktable.OpSeal,
	} {
		if byOp[op.String()] == 0 {
			t.Errorf("not one %v was acknowledged: the schedules mean little", op)
		}
	}
}

// permitWord counts the grants of permits, among the operations.
const permitWord = "permit"

// randomScenario is one random scenario.
type randomScenario struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	scenario *Scenario
	faults   []string
	paused   []pausedTerm
	wakes    sync.WaitGroup
	world    world
	done     <-chan struct{}
	// levels draws when the feature level is raised, apart from rng: the schedules of seeds stay what they were.
	levels *rand.Rand
	raises sync.WaitGroup
	// lists draws when and how the list of servers is changed, apart likewise; changes counts that.
	lists   *rand.Rand
	changes int
}

// pausedTerm is a process that stands still and may go on later.
type pausedTerm struct {
	id   cluster.ServerID
	r    *Term
	gate *volumetest.Gate
	left int // terms until it goes on
}

func newRandomScenario(t *testing.T, seed uint64) *randomScenario {
	c := &randomScenario{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), levels: rand.New(rand.NewPCG(seed, 29)), lists: rand.New(rand.NewPCG(seed, 31))}
	profile := volumetest.ProfileLocal()
	if c.rng.IntN(4) == 0 {
		profile = volumetest.ProfileNetwork()
	}
	disk := volumetest.New(seed)
	cell := cellOf(seed)
	if _, err := volume.InitCell(disk.Host(9, profile), volume.FeatureLevel, Members(), cell, chacha(seed), func(volume.Cluster) error { return nil }); err != nil {
		t.Fatal(err)
	}
	older := c.levels.IntN(2) == 0 && cell == nil
	if older {
		if err := disk.BeginAt(locktable.BaseLevel); err != nil {
			t.Fatal(err)
		}
	}
	c.scenario = newScenario(t, disk, profile)
	c.scenario.Older, c.scenario.Cell = older, cell
	c.scenario.Random = &lockedReader{r: chacha(seed + 1)}
	c.scenario.Clocks, c.scenario.Timing = seed, Timing()
	ttl := ttl
	locks := []cluster.LockName{"a", "deep/b", steadyLock}
	switch c.rng.IntN(5) {
	case 0: // the clear policy
		c.scenario.Lossy, ttl = true, 4*time.Second
		c.scenario.Timing.Policy = cluster.PolicyClear
		locks = locks[:2]
	case 1: // short leases
		c.scenario.Lossy, ttl = true, 3*time.Second
	case 2: // locks are broken
		c.scenario.Lossy, c.scenario.Breaks = true, true
	}
	ctx, stop := context.WithCancel(context.Background())
	c.scenario.stop = stop
	for n := range wanderers {
		w := &wanderer{
			scenario: c.scenario, rng: rand.New(rand.NewPCG(seed, uint64(100+n))), id: cluster.ClientID(fmt.Sprintf("w%d", n)),
			locks: locks, ttl: ttl, world: &c.world, last: map[cluster.LockName]cluster.Token{},
		}
		c.scenario.workers.Go(func() { w.run(ctx, steps) })
	}
	for n := range permitters {
		w := &wanderer{
			scenario: c.scenario, rng: rand.New(rand.NewPCG(seed, uint64(300+n))), id: cluster.ClientID(fmt.Sprintf("p%d", n)),
			locks: []cluster.LockName{"permits"}, limit: 4, ttl: ttl, world: &c.world, last: map[cluster.LockName]cluster.Token{},
		}
		c.scenario.workers.Go(func() { w.run(ctx, steps/2) })
	}
	if cell != nil {
		c.scenario.workers.Go(func() { c.scenario.askForForeign(ctx, seed) })
	}
	c.done = c.scenario.finished()
	return c
}

// lockedReader is a source of nonces for several servers.
type lockedReader struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (l *lockedReader) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(b)
}

func (c *randomScenario) play() {
	began := time.Now()
	for n := 5 + c.rng.IntN(4); n > 0; n-- {
		c.oneTerm()
	}
	c.wakes.Wait()
	for _, p := range c.paused {
		p.gate.Resume()
	}
	last := c.begin(nil)
	poll(func() bool { return closed(c.done) || closed(last.done) })
	for range 3 { // a late call of a paused one may have ended it
		if closed(c.done) {
			break
		}
		last = c.begin(nil)
		poll(func() bool { return closed(c.done) || closed(last.done) })
	}
	if !closed(c.done) {
		c.t.Errorf("seed %d: I15: the clients are not done after a quarter of an hour; last term: %v", c.seed, last.err)
	}
	time.Sleep(200 * time.Millisecond)
	disk := c.scenario.Disk
	if c.rng.IntN(3) == 0 {
		disk = disk.DurableClone(rand.New(rand.NewPCG(c.seed, 17)))
	}
	c.scenario.End()
	c.raises.Wait()
	bad := c.scenario.Verify(disk)
	if got, least := len(c.scenario.Ledger.Acks()), wanderers*steps/4; got < least {
		bad = append(bad, fmt.Sprintf("only %d operations were acknowledged, want %d: the schedule means nothing", got, least))
	}
	if len(bad) > 0 {
		c.t.Errorf("seed %d (%s, %s, lossy %v, %d terms, %v; faults %s):\n  %s", c.seed, c.scenario.Profile.Kind.Name, c.scenario.Timing.Policy,
			c.scenario.Lossy, len(c.scenario.terms), time.Since(began), strings.Join(c.faults, ", "), strings.Join(bad, "\n  "))
	}
}

// oneTerm begins a term under a fault, waits until something came of it, and
// leaves it behind: dead, paused, or alive for the next one to depose.
func (c *randomScenario) oneTerm() {
	c.wakePaused()
	if c.rng.IntN(2) == 0 {
		c.scenario.SetWarm(c.warm())
	}
	f := c.drawFault()
	c.faults = append(c.faults, f.name)
	id := c.freeID()
	r := c.scenario.Begin(id, f.hook)
	if c.levels.IntN(3) == 0 {
		c.raise(r)
	}
	if c.lists.IntN(2) == 0 {
		c.change(r)
	}
	goal := c.scenario.progress.Load() + int32(3+c.rng.IntN(20))
	limit := time.Now().Add(20 * time.Second)
	poll(func() bool {
		return closed(r.done) || f.gate != nil && closed(f.gate.Arrived()) || c.scenario.progress.Load() >= goal || time.Now().After(limit)
	})
	p := r.primary.Load()
	if p != nil && p.State() == primary.StateServing && c.rng.IntN(6) == 0 {
		c.faults = append(c.faults, "no quorum")
		p.SetQuorum(false)
		time.Sleep(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
		p.SetQuorum(true)
	}
	f.lift()
	switch {
	case closed(r.done):
	case f.gate != nil && closed(f.gate.Arrived()):
		c.paused = append(c.paused, pausedTerm{id: id, r: r, gate: f.gate, left: 1 + c.rng.IntN(3)})
	default:
		c.leave(r, p)
	}
	if f.gate != nil && !closed(f.gate.Arrived()) {
		f.gate.Resume()
	}
	if closed(r.done) && c.rng.IntN(8) == 0 {
		c.faults = append(c.faults, "power loss between terms")
		c.world.outages.Add(1)
		c.scenario.Disk.Crash(rand.New(rand.NewPCG(c.seed, uint64(len(c.faults)))))
	}
}

// raise has a term raise the feature level as soon as it serves, whatever else strikes it.
func (c *randomScenario) raise(r *Term) {
	c.faults = append(c.faults, "raised level")
	c.onceItServes(r, time.Duration(c.levels.IntN(1500))*time.Millisecond, func(ctx context.Context, p *primary.Primary) {
		if out, err := p.Raise(ctx, locktable.MaxLevel); err == nil && out.Status == cluster.StatusOK {
			c.scenario.Raised.Store(true)
		}
	})
}

// onceItServes does something with a term after a delay, as soon as that serves; nothing if it ends before.
func (c *randomScenario) onceItServes(r *Term, delay time.Duration, do func(context.Context, *primary.Primary)) {
	c.raises.Go(func() {
		time.Sleep(delay)
		select {
		case <-r.ready:
		case <-r.done:
		}
		p := r.primary.Load()
		if p == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		do(ctx, p)
	})
}

// change has a term change the list of servers, whatever else strikes it: it adds a server that nobody runs, gives one other
// addresses, or removes one that was added, if it is still there.
func (c *randomScenario) change(r *Term) {
	c.faults = append(c.faults, "changed list")
	delay := time.Duration(c.lists.IntN(1500)) * time.Millisecond
	c.changes++
	extra := cluster.ServerID(10 + c.changes)
	kinds := []cluster.MemberChange{
		{Kind: cluster.AddServer, Server: cluster.Member{ID: extra, Client: fmt.Sprintf("x%d:1", extra), Peer: fmt.Sprintf("x%d:2", extra)}},
		{Kind: cluster.SetServer, Server: cluster.Member{ID: 2, Client: fmt.Sprintf("y%d:1", extra), Peer: fmt.Sprintf("y%d:2", extra)}},
		{Kind: cluster.RemoveServer, Server: cluster.Member{ID: 10 + cluster.ServerID(1+c.lists.IntN(c.changes))}},
	}
	q := locktable.Request{Op: locktable.OpMembers, Client: "lists", ID: cluster.RequestID(extra), Members: &locktable.MembersRequest{Change: kinds[c.lists.IntN(len(kinds))]}}
	c.onceItServes(r, delay, func(ctx context.Context, p *primary.Primary) {
		if out, err := p.Do(ctx, new(q)); err == nil && out.Status == cluster.StatusOK {
			c.scenario.mu.Lock()
			c.scenario.lists = append(c.scenario.lists, toldList{q, out})
			c.scenario.mu.Unlock()
		}
	})
}

// leave ends a term that nothing happened to, or leaves it alive.
func (c *randomScenario) leave(r *Term, p *primary.Primary) {
	switch c.rng.IntN(4) {
	case 0:
		r.Kill()
	case 1:
		if p == nil {
			return
		}
		c.faults = append(c.faults, "resigned")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Resign(ctx, "handover") // whether it could is not the point
	case 2:
		if p != nil {
			p.End(errors.New("deposed by the schedule"))
		}
	}
}

// freeID is a server that runs no process; where all do, one of them is killed.
func (c *randomScenario) freeID() cluster.ServerID {
	all := c.scenario.terms
	for _, id := range c.rng.Perm(3) {
		busy := false
		for _, r := range all {
			busy = busy || r.Host.ID() == id+1 && !closed(r.done)
		}
		if !busy {
			return cluster.ServerID(id + 1)
		}
	}
	for _, r := range all {
		if !closed(r.done) {
			r.Kill()
			return cluster.ServerID(r.Host.ID())
		}
	}
	return 1
}

// wakePaused lets those go on whose time has come, soon after the next term begins.
func (c *randomScenario) wakePaused() {
	kept := c.paused[:0]
	for _, p := range c.paused {
		if p.left--; p.left > 0 {
			kept = append(kept, p)
			continue
		}
		delay := time.Duration(c.rng.IntN(800)) * time.Millisecond
		c.wakes.Go(func() {
			time.Sleep(delay)
			p.gate.Resume()
		})
	}
	c.paused = kept
}

// warm is a replica's table as of now; sometimes one that strayed from the log.
func (c *randomScenario) warm() *volume.WarmState {
	r := c.scenario.pickMostly(0)
	if r == nil {
		return nil
	}
	w := r.table()
	if w == nil {
		return nil
	}
	c.faults = append(c.faults, "warm table")
	if c.rng.IntN(4) == 0 {
		c.stray(w)
	}
	return w
}

// stray makes a table go on as the log never did: as one would that was fed by
// a primary whose last batch nobody adopted.
func (c *randomScenario) stray(w *volume.WarmState) {
	recs, _ := w.Table.Decide(&locktable.Request{Op: locktable.OpOpenClient, Nonce: c.rng.Uint64() | 1}, 1, locktable.FileFacts{}, nil)
	for i := range recs {
		if err := w.Table.Apply(&recs[i]); err != nil {
			c.t.Errorf("seed %d: %v", c.seed, err)
		}
		w.At = wal.Position{LSN: w.Table.LSN(), Chain: w.At.Chain.Next(recs[i].AppendHeader(nil))}
	}
}

// begin starts a server until its term serves; stale listings and full disks
// may make it try again.
func (c *randomScenario) begin(hook volumetest.Hook) *Term {
	for waited := time.Duration(0); ; waited += time.Second {
		r := c.scenario.Begin(c.freeID(), hook)
		if r.Serving() {
			return r
		}
		<-r.done
		if waited > 3*time.Minute {
			c.t.Errorf("seed %d: no term can begin: %v", c.seed, r.err)
			return r
		}
		time.Sleep(time.Second)
	}
}

// fault is what happens to a term.
type fault struct {
	name string
	hook volumetest.Hook
	gate *volumetest.Gate // where it stands still
	lift func()           // ends what does not end by itself
}

// drawFault draws what shall happen at a random call of the next term.
func (c *randomScenario) drawFault() fault {
	at := 1 + c.rng.IntN(150)
	if c.rng.IntN(3) > 0 {
		at += c.rng.IntN(500) // while it serves
	}
	f := fault{lift: func() {}}
	stop := func(name string, action func(*volumetest.Gate) volumetest.Action, hook func(int, volumetest.Action) volumetest.Hook) {
		f.gate = volumetest.NewGate()
		f.name, f.hook = name, hook(at, action(f.gate))
	}
	switch n := c.rng.IntN(16); n {
	case 0, 1, 2:
		stop("stop", volumetest.Pause, volumetest.From)
	case 3, 4:
		stop("late call", volumetest.Pause, volumetest.At)
	case 5:
		stop("late return", volumetest.PauseAfter, volumetest.At)
	case 6:
		f.name, f.hook = "crash before", volumetest.At(at, volumetest.Crash())
	case 7:
		f.name, f.hook = "crash after", volumetest.At(at, volumetest.CrashAfter())
	case 8:
		// A sector is whole or not there: START rests on that.
		f.name, f.hook = "torn write", volumetest.At(at, volumetest.CrashTorn(512*c.rng.IntN(18)))
	case 9:
		f.name, f.hook = "EIO, not done", volumetest.At(at, volumetest.FailBefore(syscall.EIO))
	case 10:
		f.name, f.hook = "EIO, but done", volumetest.At(at, volumetest.FailAfter(syscall.EIO))
	case 11:
		f.name, f.hook = "failing files", c.failingFiles()
	case 12:
		f.name = "hanging file"
		f.hook, f.lift = c.hangingFile()
	case 13:
		f.name, f.hook = "power loss", c.powerLoss(at)
	case 14:
		f.name = "full disk"
		f.hook, f.lift = c.fullDisk(at)
	default:
		f.name = "nothing"
	}
	return f
}

// failingFiles fails calls on protected files now and then, done and not done.
func (c *randomScenario) failingFiles() volumetest.Hook {
	var seen atomic.Int64
	every := int64(3 + c.rng.IntN(6))
	return func(call volumetest.Call) volumetest.Action {
		if !strings.HasPrefix(call.Name, "files") {
			return volumetest.Proceed()
		}
		switch call.Op {
		case volumetest.OpDatasync, volumetest.OpWriteAt, volumetest.OpStat, volumetest.OpSync, volumetest.OpSyncDir, volumetest.OpLstat, volumetest.OpOpen:
		default:
			return volumetest.Proceed()
		}
		switch n := seen.Add(1); {
		case n%every == 0:
			return volumetest.FailBefore(syscall.EIO)
		case n%(2*every) == 1:
			return volumetest.FailAfter(syscall.EIO)
		}
		return volumetest.Proceed()
	}
}

// hangingFile has one call on a protected file hang, until it is lifted, while everything
// else is well.
func (c *randomScenario) hangingFile() (hook volumetest.Hook, lift func()) {
	var seen atomic.Int64
	at, gate := int64(1+c.rng.IntN(6)), volumetest.NewGate()
	return func(call volumetest.Call) volumetest.Action {
		if strings.HasPrefix(call.Name, "files/") && seen.Add(1) == at {
			return volumetest.Pause(gate)
		}
		return volumetest.Proceed()
	}, gate.Resume
}

// powerLoss ends everything at one call.
func (c *randomScenario) powerLoss(at int) volumetest.Hook {
	luck := rand.New(rand.NewPCG(c.seed, uint64(at)))
	return func(call volumetest.Call) volumetest.Action {
		if call.Index == at {
			c.world.outages.Add(1)
			c.scenario.Disk.Crash(luck)
		}
		return volumetest.Proceed()
	}
}

// fullDisk leaves little space from one call on, until it is lifted.
func (c *randomScenario) fullDisk(at int) (hook volumetest.Hook, lift func()) {
	room := int64(c.rng.IntN(200 << 10))
	var mu sync.Mutex
	over := false
	hook = func(call volumetest.Call) volumetest.Action {
		mu.Lock()
		defer mu.Unlock()
		if call.Index == at && !over {
			c.scenario.Disk.SetCapacity(c.scenario.Disk.Used() + room)
		}
		return volumetest.Proceed()
	}
	return hook, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		c.scenario.Disk.SetCapacity(0)
	}
}
