// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

var (
	verbose = flag.Bool("sim.log", false, "log what servers say")
	only    = flag.Int("sim.point", 0, "run only this call of the enumeration")
	kind    = flag.String("sim.variant", "", "run only variants whose name contains this")
	stride  = flag.Int("sim.stride", 10, "run every n-th call of the enumeration")
	from    = flag.Int("sim.from", 1, "the first call of the enumeration to run: another one with the same stride explores others")
)

const rounds = 4

// chacha is a reproducible source of nonces.
func chacha(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	return rand.NewChaCha8(key)
}

func newScenario(t *testing.T, disk *volumetest.Disk, profile volumetest.Profile) *Scenario {
	s := &Scenario{Disk: disk, Profile: profile, Random: chacha(1)}
	s.Log = zerolog.Nop()
	if *verbose {
		s.Log = zerolog.New(t.Output()).Level(zerolog.InfoLevel)
	}
	return s
}

// twoTerms makes a volume on which two terms have worked and died, so that the
// term under test has a base, linked segments and contents to remove.
func twoTerms(t *testing.T, profile volumetest.Profile) (*volumetest.Disk, *logbook) {
	var disk *volumetest.Disk
	book := &logbook{}
	synctest.Test(t, func(t *testing.T) {
		disk = volumetest.New(1)
		if _, err := volume.Init(t.Context(), disk.Host(9, profile), Members(), chacha(2)); err != nil {
			t.Fatal(err)
		}
		for n, id := range []cluster.ServerID{3, 2} {
			s := newScenario(t, disk, profile)
			s.book.inherit(book)
			r := s.Begin(id, nil)
			if !r.Serving() {
				t.Fatalf("two terms: %v", r.err)
			}
			for _, w := range []*worker{
				{scenario: s, id: "h", lock: "a", file: "a.txt", next: cluster.RequestID(100 * n)},
				{scenario: s, id: "i", lock: "deep/b", file: "dir/b.txt", next: cluster.RequestID(100 * n)},
			} {
				w.run(t.Context(), 4)
			}
			if bad := s.Ledger.Bad(); len(bad) > 0 {
				t.Fatal(bad)
			}
			r.Kill()
			book.inherit(&s.book)
		}
	})
	return disk, book
}

// variant is what happens at the enumerated call.
type variant struct {
	name string
	hook func(n int, gate *volumetest.Gate) volumetest.Hook
	// resume says when a paused process goes on: after the second or the third term serves.
	resume int
	// during holds the second term at this call of its takeover, until the paused
	// process has gone on and has ended or worked for a while.
	during *volumetest.Call
	// expired says that the server of the filesystem drops the paused process's locks.
	expired bool
	// power says that at the end everything loses its power at once.
	power bool
	// rival says that another server is between its scan and its START when the
	// term under test claims, and goes on while that is paused.
	rival bool
	// snapshot says that what a power loss at the call would have left is judged
	// too, with what had been acknowledged by then. The term goes on.
	snapshot bool
}

func variants() []variant {
	stopped := func(n int, g *volumetest.Gate) volumetest.Hook { return volumetest.From(n, volumetest.Pause(g)) }
	late := func(n int, g *volumetest.Gate) volumetest.Hook { return volumetest.At(n, volumetest.Pause(g)) }
	lateReturn := func(n int, g *volumetest.Gate) volumetest.Hook { return volumetest.At(n, volumetest.PauseAfter(g)) }
	at := func(a volumetest.Action) func(int, *volumetest.Gate) volumetest.Hook {
		return func(n int, _ *volumetest.Gate) volumetest.Hook { return volumetest.At(n, a) }
	}
	return []variant{
		{name: "stop, resume in the 2nd term", hook: stopped, resume: 2},
		{name: "stop, resume in the 3rd term", hook: stopped, resume: 3},
		{name: "late call, done in the 2nd term", hook: late, resume: 2},
		{name: "late call, done in the 3rd term", hook: late, resume: 3, power: true},
		{name: "late return, in the 3rd term", hook: lateReturn, resume: 3},
		{name: "stop beside a rival", hook: stopped, resume: 2, rival: true},
		{name: "late call beside a rival", hook: late, resume: 2, rival: true, power: true},
		{name: "stop, resume when the 2nd has claimed", hook: stopped, resume: 2, during: &volumetest.Call{Op: volumetest.OpWriteAt, Name: "epochs/"}},
		{name: "stop, resume when the 2nd has fenced", hook: stopped, resume: 2, during: &volumetest.Call{Op: volumetest.OpReadDir, Name: "epochs/"}},
		{name: "stop, resume when the 2nd has scanned", hook: stopped, resume: 2, during: &volumetest.Call{Op: volumetest.OpMkdir, Name: "epochs/"}},
		{name: "stop, resume when the 2nd has adopted", hook: stopped, resume: 2, during: &volumetest.Call{Op: volumetest.OpWriteAt, Name: "epochs/", Offset: startOffset}},
		{name: "stop, its locks expire", hook: stopped, resume: 2, expired: true},
		{name: "power loss of everything", snapshot: true},
		{name: "crash before", hook: at(volumetest.Crash()), power: true},
		{name: "crash after", hook: at(volumetest.CrashAfter())},
		{name: "torn write", hook: at(volumetest.CrashTorn(512)), power: true},
		{name: "EIO, not done", hook: at(volumetest.FailBefore(syscall.EIO)), power: true},
		{name: "EIO, but done", hook: at(volumetest.FailAfter(syscall.EIO))},
		{name: "ENOSPC, not done", hook: at(volumetest.FailBefore(syscall.ENOSPC))},
		{name: "ESTALE, not done", hook: at(volumetest.FailBefore(syscall.ESTALE))},
		{name: "ESTALE for ever", hook: func(n int, _ *volumetest.Gate) volumetest.Hook {
			return volumetest.From(n, volumetest.FailBefore(syscall.ESTALE))
		}},
		{name: "done, but reports EEXIST", hook: retransmitted(syscall.EEXIST), power: true},
		{name: "done, but reports ENOENT", hook: retransmitted(syscall.ENOENT)},
		{name: "slow call", hook: slow(7 * time.Second)},
		{name: "slow from here on", hook: slowFrom(20 * time.Millisecond)},
	}
}

// retransmitted is a change of names whose answer was lost: sent again, it finds
// what it has done itself.
func retransmitted(err error) func(int, *volumetest.Gate) volumetest.Hook {
	return func(n int, _ *volumetest.Gate) volumetest.Hook {
		return func(c volumetest.Call) volumetest.Action {
			switch c.Op {
			case volumetest.OpRename, volumetest.OpLink, volumetest.OpMkdir, volumetest.OpRemove:
				if c.Index == n {
					return volumetest.FailAfter(err)
				}
			}
			return volumetest.Proceed()
		}
	}
}

// slow makes one call take long.
func slow(d time.Duration) func(int, *volumetest.Gate) volumetest.Hook {
	return func(n int, _ *volumetest.Gate) volumetest.Hook {
		return func(c volumetest.Call) volumetest.Action {
			if c.Index == n {
				time.Sleep(d)
			}
			return volumetest.Proceed()
		}
	}
}

// slowFrom makes every call from one on take its time.
func slowFrom(d time.Duration) func(int, *volumetest.Gate) volumetest.Hook {
	return func(n int, _ *volumetest.Gate) volumetest.Hook {
		return func(c volumetest.Call) volumetest.Action {
			if c.Index >= n {
				time.Sleep(d)
			}
			return volumetest.Proceed()
		}
	}
}

// TestEveryCall pauses, crashes and fails the term under test at every single
// call of its claim, takeover, commits, checkpoints, file writes and removals, while a second
// and a third term come and go.
func TestEveryCall(t *testing.T) {
	enumerate(t, volumetest.ProfileLocal(), *stride)
}

// TestEveryCallOnStaleCaches does the same where every server believes cached
// names, attributes and data for 30 seconds.
func TestEveryCallOnStaleCaches(t *testing.T) {
	enumerate(t, volumetest.ProfileNetwork(), 4**stride)
}

func enumerate(t *testing.T, profile volumetest.Profile, stride int) {
	base, book := twoTerms(t, profile)
	var points, calls, simulated atomic.Int64
	var failed atomic.Bool // one failure is enough
	if !slices.ContainsFunc(variants(), func(v variant) bool { return strings.Contains(v.name, *kind) }) {
		t.Fatalf("no variant has %q in its name", *kind)
	}
	for _, v := range variants() {
		if !strings.Contains(v.name, *kind) {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for n := *from; ; n += stride {
				if *only != 0 {
					n = *only
				}
				reached := false
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					reached = play(t, base.Clone(), book, profile, v, n)
					simulated.Add(int64(time.Since(began)))
				})
				if t.Failed() {
					failed.Store(true)
				}
				if !reached || failed.Load() || *only != 0 {
					for last := calls.Load(); int64(n) > last && !calls.CompareAndSwap(last, int64(n)); last = calls.Load() {
					}
					break
				}
				points.Add(1)
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d points passed: up to %d calls, %d variants, %.1f simulated hours",
			points.Load(), calls.Load()-1, len(variants()), time.Duration(simulated.Load()).Hours())
	})
}

// play runs one scenario and says whether the term under test got as far as call n.
func play(t *testing.T, disk *volumetest.Disk, book *logbook, profile volumetest.Profile, v variant, n int) bool {
	s := newScenario(t, disk, profile)
	s.book.inherit(book)
	gate := volumetest.NewGate()
	s.Work(rounds)
	done := s.finished()
	rival := s.beginRival(v)
	var lost *Scenario
	hook := v.hook
	if v.snapshot {
		hook = func(n int, _ *volumetest.Gate) volumetest.Hook {
			return func(c volumetest.Call) volumetest.Action {
				if c.Index == n {
					lost = s.afterPowerLoss(n)
				}
				return volumetest.Proceed()
			}
		}
	}
	first := s.Begin(1, hook(n, gate))

	// Until something happened to the first term, or nothing did.
	poll(func() bool {
		return closed(gate.Arrived()) || closed(first.done) || closed(done) || v.resume == 0 && first.Host.Calls() >= n
	})
	if first.Host.Calls() < n {
		s.End()
		return false
	}
	if rival != nil {
		rival.finish(s)
		gate.Resume()
		s.await(1)
	}
	if v.expired {
		first.Host.LoseLocks()
	}
	if v.during != nil {
		s.meet(v.during, first, gate)
	}
	second := s.mustBegin(t, n, 2)
	if v.resume == 2 {
		gate.Resume()
	}
	s.await(2)
	second.Kill()
	third := s.mustBegin(t, n, 3)
	gate.Resume()
	poll(func() bool { return closed(done) })
	if !closed(done) {
		t.Errorf("call %d: I15: the clients are not done after a quarter of an hour", n)
	}
	time.Sleep(200 * time.Millisecond) // let late calls and background work happen
	s.judge(t, v, n, first, second, third)
	if lost != nil {
		if bad := lost.Verify(lost.Disk); len(bad) > 0 {
			t.Errorf("power loss at call %d: %s", n, strings.Join(bad, "\n  "))
		}
	}
	return true
}

// afterPowerLoss is the scenario that a power loss right now would leave: what is
// durable, and what had been acknowledged.
func (s *Scenario) afterPowerLoss(n int) *Scenario {
	// Acknowledged before the power goes: so the order of these two lines.
	acks := s.Ledger.Acks()
	disk := s.Disk.DurableClone(rand.New(rand.NewPCG(uint64(n), 11)))
	lost := &Scenario{Disk: disk, Profile: s.Profile, Log: s.Log, Random: chacha(uint64(n))}
	lost.book.inherit(&s.book)
	lost.Ledger.acks = acks
	return lost
}

// meet holds a claimant in its takeover while the paused term goes on, lets it
// finish, and ends it.
func (s *Scenario) meet(at *volumetest.Call, paused *Term, gate *volumetest.Gate) {
	held := volumetest.NewGate()
	var once atomic.Bool
	r := s.Begin(2, func(c volumetest.Call) volumetest.Action {
		if c.Op == at.Op && c.Offset == at.Offset && strings.HasPrefix(c.Name, at.Name) && !once.Swap(true) {
			return volumetest.Pause(held)
		}
		return volumetest.Proceed()
	})
	poll(func() bool { return closed(held.Arrived()) || closed(r.done) })
	gate.Resume()
	goal := s.progress.Load() + 2
	for range 100 {
		if s.progress.Load() >= goal || closed(paused.done) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	held.Resume()
	r.Serving()
	r.Kill()
}

// mustBegin starts a server until its term serves. Where nothing is stale that
// is at once; a stale listing may make it refuse, and then, as in an election, it tries again later.
func (s *Scenario) mustBegin(t *testing.T, n int, id cluster.ServerID) *Term {
	for waited := time.Duration(0); ; waited += s.Profile.Stale / 10 {
		r := s.Begin(id, nil)
		if r.Serving() {
			return r
		}
		<-r.done
		if waited >= 2*s.Profile.Stale {
			t.Errorf("call %d: the term of server %d did not begin: %v", n, id, r.err)
			return r
		}
		time.Sleep(s.Profile.Stale / 10)
	}
}

// rival is a claimant held just before it writes START.
type rival struct {
	*Term
	gate *volumetest.Gate
}

func (s *Scenario) beginRival(v variant) *rival {
	if !v.rival {
		return nil
	}
	gate := volumetest.NewGate()
	r := &rival{gate: gate}
	r.Term = s.Begin(2, volumetest.AtOp(volumetest.OpWriteAt, "epochs/0000000003/fence", 1, volumetest.Pause(gate)))
	<-gate.Arrived()
	return r
}

// finish lets the rival write START and serve, if it may, and kills it.
func (r *rival) finish(s *Scenario) {
	r.gate.Resume()
	if r.Serving() {
		goal := s.progress.Load() + 2
		for range 100 {
			if s.progress.Load() >= goal || closed(r.done) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	r.Kill()
}

// await waits until clients have finished n more rounds, or all.
func (s *Scenario) await(n int32) {
	goal := min(s.progress.Load()+n, 3*rounds)
	poll(func() bool { return s.progress.Load() >= goal })
}

// poll waits, in virtual time, until ok says so, at the most for a quarter of an hour.
func poll(ok func() bool) {
	for range 90_000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *Scenario) judge(t *testing.T, v variant, n int, terms ...*Term) {
	disk := s.Disk
	if v.power {
		disk = s.Disk.DurableClone(rand.New(rand.NewPCG(uint64(n), 7)))
	}
	s.End()
	bad := s.Verify(disk)
	if got, want := len(s.Ledger.Acks()), 3*rounds*4; got != want {
		bad = append(bad, fmt.Sprintf("%d operations acknowledged, want %d", got, want))
	}
	if len(bad) == 0 {
		return
	}
	trace := terms[0].Host.Trace()
	at := "?"
	if n <= len(trace) {
		at = trace[n-1].String()
	}
	t.Errorf("%s at call %s:\n  %s\n  first term ended: %v", v.name, at, strings.Join(bad, "\n  "), terms[0].err)
}
