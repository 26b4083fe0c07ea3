// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// place is where calls are struck: the volume, and the epoch of the term that
// serves when the trace begins.
type place struct {
	c     *cluster.Cluster
	epoch hf.Epoch
}

func (p place) epochs() string { return filepath.Join(p.c.Dir(), "epochs") }

func (p place) dir(e hf.Epoch) string { return filepath.Join(p.epochs(), fmt.Sprintf("%010d", e)) }

func (p place) beginning() string { return p.dir(0) }
func (p place) term() string      { return p.dir(p.epoch) }
func (p place) fence() string     { return filepath.Join(p.term(), "fence") }
func (p place) nextLog() string   { return filepath.Join(p.term(), "wal-next.log") }
func (p place) file() string      { return p.c.File("own/0.txt") }

// next is the directory of the term behind the one that serves.
func (p place) next() string      { return p.dir(p.epoch + 1) }
func (p place) nextFence() string { return filepath.Join(p.next(), "fence") }

// segments are the segments in use, in order.
func (p place) segments() []string {
	all, err := filepath.Glob(filepath.Join(p.term(), "wal-[0-9]*.log"))
	if err != nil {
		panic(err) // the pattern is a constant
	}
	slices.Sort(all)
	return all
}

func (p place) log() string {
	all := p.segments()
	return all[len(all)-1]
}

// tell logs a call, without where the volume lies.
func (p place) tell(t *testing.T, s *cluster.Server, call cluster.Call) {
	t.Helper()
	t.Logf("server %d: %s", s.Member.ID, strings.ReplaceAll(call.Text, p.c.Dir()+"/", ""))
}

// The ways in which a struck call may end a term, or not.
type ending int

const (
	goesOn  ending = iota // nobody is deposed
	deposed               // the primary loses its term, and its process lives
	killed                // the process dies with the call
	late                  // the process stops before the call, which is made after the next term served
	behind                // the process stops right behind the call
	refused               // a claimant fails, and another one is primary
	hung                  // the call hangs: another one is primary, and the process gives itself up
)

// callFault is one injection and what must come of it.
type callFault struct {
	name   string
	ends   ending
	path   func(place) string
	inject cluster.Injection
}

// onPrimary are faults of a primary that serves.
func onPrimary() []callFault {
	call := func(name string, nth int) cluster.Injection { return cluster.Injection{Call: name, Nth: nth} }
	fails := func(name string, nth int, err string) cluster.Injection {
		return cluster.Injection{Call: name, Nth: nth, Error: err}
	}
	all := []callFault{
		{"EIO at the 1st fdatasync of the log", deposed, place.log, fails("fdatasync", 1, "EIO")},
		{"EIO at the 3rd fdatasync of the log", deposed, place.log, fails("fdatasync", 3, "EIO")},
		{"EIO at the 10th fdatasync of the log", deposed, place.log, fails("fdatasync", 10, "EIO")},
		{"EIO at the 1st pwrite64 of the log", deposed, place.log, fails("pwrite64", 1, "EIO")},
		{"EIO at the 10th pwrite64 of the log", deposed, place.log, fails("pwrite64", 10, "EIO")},
		{"ENOSPC at the 3rd pwrite64 of the log", deposed, place.log, fails("pwrite64", 3, "ENOSPC")},
		{"EIO at the 3rd pread64 of the fence", deposed, place.fence, fails("pread64", 3, "EIO")},
		{"ESTALE at the 3rd pread64 of the fence", deposed, place.fence, fails("pread64", 3, "ESTALE")},
		{"ENOSPC at every pwrite64 of the next segment", goesOn, place.nextLog, cluster.Injection{Call: "pwrite64", Nth: 1, Always: true, Error: "ENOSPC"}},
		{"EIO at fsync of the directory of the log", deposed, place.term, fails("fsync", 1, "EIO")},
		{"EIO at a pwrite64 of a protected file", goesOn, place.file, fails("pwrite64", 3, "EIO")},
		{"ENOSPC at pwrite64s of a protected file", goesOn, place.file, cluster.Injection{Call: "pwrite64", Nth: 1, Always: true, Error: "ENOSPC"}},
		{"fdatasync of the log hangs", hung, place.log, cluster.Injection{Call: "fdatasync", Nth: 5, Enter: cluster.Held}},
		// Shorter than what the others take for a stall, which is 1.3 s.
		{"fdatasync of the log begins 0.5 s late", goesOn, place.log, cluster.Injection{Call: "fdatasync", Nth: 5, Enter: 500 * time.Millisecond}},
		{"fdatasync of the log returns 0.5 s late", goesOn, place.log, cluster.Injection{Call: "fdatasync", Nth: 5, Exit: 500 * time.Millisecond}},
	}
	for _, name := range []string{"pwrite64", "fdatasync"} {
		all = append(all, everyStop(name+" of the log", place.log, call(name, 5))...)
	}
	return append(all, everyStop("pread64 of the fence", place.fence, call("pread64", 5))...)
}

// onClaimant are faults of the server that takes over.
func onClaimant() []callFault {
	fails := func(name string, err string) cluster.Injection {
		return cluster.Injection{Call: name, Nth: 1, Error: err}
	}
	all := []callFault{
		{"EIO at renameat of the claim", refused, place.epochs, fails("renameat", "EIO")},
		{"EIO at fsync of epochs", refused, place.epochs, fails("fsync", "EIO")},
		{"EIO at fsync of the old fence", refused, place.fence, fails("fsync", "EIO")},
		{"ESTALE at pread64 of the old fence", refused, place.fence, fails("pread64", "ESTALE")},
		{"EIO at fsync of the own directory", refused, place.next, fails("fsync", "EIO")},
		{"EIO at linkat of a segment", refused, place.term, fails("linkat", "EIO")},
		{"EPERM at linkat of a segment, which is copied", goesOn, place.term, cluster.Injection{Call: "linkat", Nth: 1, Always: true, Error: "EPERM"}},
		{"EIO at pwrite64 of START", refused, place.nextFence, fails("pwrite64", "EIO")},
		{"EIO at fsync of START", refused, place.nextFence, fails("fsync", "EIO")},
		{"EIO at unlinkat of an old segment", goesOn, place.beginning, fails("unlinkat", "EIO")},
	}
	for _, at := range []struct {
		name, call string
		path       func(place) string
	}{
		{"renameat of the claim", "renameat", place.epochs},
		{"fsync of epochs", "fsync", place.epochs},
		{"pwrite64 of the old fence", "pwrite64", place.fence},
		{"linkat of a segment", "linkat", place.term},
		{"pwrite64 of START", "pwrite64", place.nextFence},
		{"fsync of START", "fsync", place.nextFence},
		{"unlinkat of an old segment", "unlinkat", place.beginning},
	} {
		all = append(all, everyStop(at.name, at.path, cluster.Injection{Call: at.call, Nth: 1})...)
	}
	return all
}

// everyStop ends a process at a call in the three ways there are.
func everyStop(name string, path func(place) string, call cluster.Injection) []callFault {
	kill, held, stop := call, call, call
	kill.Signal, held.Enter, stop.Signal = syscall.SIGKILL, cluster.Held, syscall.SIGSTOP
	return []callFault{
		{"killed at " + name, killed, path, kill},
		{"paused before " + name, late, path, held},
		{"paused behind " + name, behind, path, stop},
	}
}

// TestPrimarySystemCalls strikes single system calls of a primary that serves.
func TestPrimarySystemCalls(t *testing.T) {
	testCalls(t, onPrimary(), callFault.strikePrimary)
}

// TestClaimantSystemCalls strikes single system calls of the server that takes
// over after the primary was killed.
func TestClaimantSystemCalls(t *testing.T) {
	testCalls(t, onClaimant(), callFault.strikeClaimant)
}

func testCalls(t *testing.T, rows []callFault, strike func(callFault, *testing.T, *battle)) {
	needFaults(t)
	cluster.NeedStrace(t)
	lines := sourceText(t, 2<<20)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			strike(row, t, newBattle(t, lines, 3, *faultSeed))
		})
	}
}

// begin starts the clients and returns the primary and where it writes. Faults of
// adoption and rotation need a log that has been closed once: then clients hurry.
func (row callFault) begin(t *testing.T, b *battle) (p *cluster.Server, at place, stop func()) {
	t.Helper()
	rotates := row.inject.Call == "linkat"
	for _, w := range b.workers {
		w.Pace = 20 * time.Millisecond
		if rotates || row.ends == goesOn || row.inject.Call == "fsync" { // of the directory, when a segment is full
			w.Pace = time.Millisecond
		}
	}
	_, stop = b.work(t.Context())
	b.c.AwaitReplicas(cluster.Patience)
	p, epoch := b.awaitTerm(t, 0)
	at = place{b.c, epoch}
	if rotates {
		cluster.Await(t, cluster.Patience, "a second segment", func() bool { return len(at.segments()) > 1 })
	}
	return p, at, stop
}

func (row callFault) strikePrimary(t *testing.T, b *battle) {
	p, at, stop := row.begin(t, b)
	row.inject.Path = row.path(at)
	x := p.Trace(row.inject)
	call := x.Await(2 * cluster.Patience) // that is 16 MiB of log on a busy machine, for one that needs a full segment
	b.strike(row.name, at.epoch)
	at.tell(t, p, call)
	switch row.ends {
	case goesOn:
		traffic.Rest(t.Context(), 3*time.Second)
		x.Detach()
		traffic.Rest(t.Context(), time.Second)
		if now, epoch := b.awaitTerm(t, 0); now != p || epoch != at.epoch {
			t.Errorf("server %d is primary in epoch %d, want server %d in epoch %d still", now.Member.ID, epoch, p.Member.ID, at.epoch)
		}
	case deposed:
		_, now := b.awaitTerm(t, at.epoch)
		traffic.Rest(t.Context(), time.Second)
		row.neverAgain(t, x)
		t.Logf("epoch %d follows epoch %d", now, at.epoch)
	case hung:
		b.awaitTerm(t, at.epoch)
		cluster.Await(t, cluster.Patience, "the process to give itself up", func() bool { return strings.Contains(p.Log(), "ending the process") })
		t.Logf("the process gave itself up %v after the call", time.Since(call.At).Round(time.Millisecond))
		x.Detach() // strace keeps a thread that it holds
		awaitEnd(t, x)
		p.Start()
		traffic.Rest(t.Context(), 500*time.Millisecond)
	case killed:
		awaitEnd(t, x)
		b.awaitTerm(t, at.epoch)
		p.Start()
		traffic.Rest(t.Context(), 500*time.Millisecond)
	default:
		p.Stop()
		_, now := b.awaitTerm(t, at.epoch)
		traffic.Rest(t.Context(), 500*time.Millisecond)
		stop()
		row.wake(t, b, x, now, at.epoch)
		b.end(t)
		return
	}
	stop()
	b.end(t)
}

// strikeClaimant watches both replicas, kills the primary, and strikes the first
// of them that gets to the call.
func (row callFault) strikeClaimant(t *testing.T, b *battle) {
	p, at, stop := row.begin(t, b)
	row.inject.Path = row.path(at)
	var traces []*cluster.Trace
	for _, s := range b.c.Servers() {
		if s != p {
			traces = append(traces, s.Trace(row.inject))
		}
	}
	b.strike(row.name, at.epoch)
	p.Kill()
	var x *cluster.Trace
	cluster.Await(t, cluster.Patience, "a claimant to call "+row.inject.String(), func() bool {
		i := slices.IndexFunc(traces, func(x *cluster.Trace) bool { _, _, ok := x.Struck(); return ok })
		if i >= 0 {
			x = traces[i]
			traces[1-i].Detach()
		}
		return i >= 0
	})
	call, _, _ := x.Struck()
	at.tell(t, x.Server(), call)
	switch row.ends {
	case goesOn:
		p.Start()
		now, epoch := b.awaitTerm(t, at.epoch)
		x.Detach()
		traffic.Rest(t.Context(), time.Second)
		if now != x.Server() || epoch != at.epoch+1 {
			// On a machine that is busy enough a traced takeover looks stalled: nobody is harmed by another.
			t.Logf("server %d is primary in epoch %d, and not server %d in epoch %d", now.Member.ID, epoch, x.Server().Member.ID, at.epoch+1)
		}
	case killed:
		awaitEnd(t, x)
		p.Start()
		x.Server().Start()
		b.awaitTerm(t, at.epoch)
		traffic.Rest(t.Context(), 500*time.Millisecond)
	case refused:
		p.Start()
		_, epoch := b.awaitTerm(t, at.epoch)
		x.Detach()
		t.Logf("epoch %d follows epoch %d", epoch, at.epoch)
		traffic.Rest(t.Context(), 500*time.Millisecond)
	default:
		x.Server().Stop()
		p.Start()
		_, now := b.awaitTerm(t, at.epoch)
		traffic.Rest(t.Context(), 500*time.Millisecond)
		stop()
		own := at.epoch + 1
		if now == at.epoch+1 {
			own = now + 1 // that number was taken: it burns the next one, and fences nobody
		}
		row.wake(t, b, x, now, own)
		b.end(t)
		return
	}
	stop()
	b.end(t)
}

// awaitEnd waits for the end of a process that a call killed, or made to give up.
func awaitEnd(t *testing.T, x *cluster.Trace) {
	t.Helper()
	if _, ended := x.Server().Ended(cluster.Patience); !ended {
		t.Fatal("the process lives on")
	}
}

// wake lets a stopped server go on while a later term serves and nobody asks for
// anything. It may change nothing but what belongs to its own epoch, and fence
// again what it was about to fence.
func (row callFault) wake(t *testing.T, b *battle, x *cluster.Trace, now, own hf.Epoch) {
	t.Helper()
	before := settled(t, b.c)
	x.Detach() // a call that is held is made now
	x.Server().Cont()
	role := ""
	cluster.Await(t, cluster.Patience, "the server that woke up to be a replica", func() bool {
		body, err := x.Server().Status(t.Context())
		role = body.Role
		return err == nil && (role == "replica" || role == "primary" && hf.Epoch(body.Epoch) > now)
	})
	if role == "primary" {
		// It asks the others before it sets a fence. Where the machine is so busy that
		// nobody answers in time, it becomes primary, as anybody may; files and log are judged all the same.
		t.Logf("the server that woke up becomes primary in its turn")
		return
	}
	traffic.Rest(t.Context(), time.Second) // time to do harm
	after, err := b.c.TakeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	struck, err := filepath.Rel(b.c.Dir(), row.inject.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range before.Changes(after, check.AnyonesPath) {
		switch {
		case check.TermsPath(change, own), change == struck+": its flag was set":
			t.Logf("the late server did: %s", change)
		default:
			t.Errorf("I10: after server %d woke up in epoch %d: %s", x.Server().Member.ID, now, change)
		}
	}
	if s, epoch := b.awaitTerm(t, 0); s == x.Server() || epoch != now {
		t.Errorf("server %d is primary in epoch %d after the waking, before it was epoch %d", s.Member.ID, epoch, now)
	}
}

// neverAgain wants a file, of which a write failed, to be left alone.
func (row callFault) neverAgain(t *testing.T, x *cluster.Trace) {
	t.Helper()
	x.Detach()
	if _, ended := x.Server().Ended(0); ended {
		t.Error("the process ended")
	}
	if row.inject.Call == "pread64" {
		return
	}
	_, i, _ := x.Struck()
	for _, c := range x.Calls()[i+1:] {
		t.Errorf("the file was touched again after its failure: %s", c.Text)
	}
}

// TestNoRoomForDirectories has the volume refuse directories to the primary while
// it serves: the files in them wait for room, and nothing else does.
func TestNoRoomForDirectories(t *testing.T) {
	needFaults(t)
	cluster.NeedStrace(t)
	during(t, func(b *battle) {
		p, epoch := b.awaitTerm(t, 0)
		for _, dir := range []string{"own", "deep/er"} {
			cluster.Await(t, cluster.Patience, "the directories of the clients", func() bool {
				_, err := os.Stat(b.c.File(dir))
				return err == nil
			})
		}
		before, _, _, _ := b.ledger.Count()
		x := p.Trace(cluster.Injection{Call: "mkdirat", Path: filepath.Join(b.c.Dir(), "files"), Nth: 1, Always: true, Error: "ENOSPC"})
		h := hold(t, newClient(t, b.c), "new/directory")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := h.append(t.Context(), "late\n")
			for errors.Is(err, wire.ErrStorageUnavailable) { // the client library gives up after a second
				_, err = h.append(t.Context(), "late\n")
			}
			if err != nil {
				t.Errorf("append after there was room again: %v", err)
			}
		}()
		x.Await(cluster.Patience)
		traffic.Rest(t.Context(), time.Second)
		select {
		case <-done:
			t.Error("an append to a file whose directory cannot be made was answered")
		default:
		}
		if after, _, _, _ := b.ledger.Count(); after < before+5 {
			t.Errorf("only %d appends to other files meanwhile", after-before)
		}
		x.Detach()
		<-done
		if now, still := b.awaitTerm(t, 0); now != p || still != epoch {
			t.Errorf("server %d is primary in epoch %d, want server %d in epoch %d still", now.Member.ID, still, p.Member.ID, epoch)
		}
	})
}

// TestNoRoomForClaims has the volume refuse a server the directory of its next
// claim, after it handed over: it says that it is not able until there is room.
func TestNoRoomForClaims(t *testing.T) {
	needFaults(t)
	cluster.NeedStrace(t)
	during(t, func(b *battle) {
		b.c.AwaitReplicas(cluster.Patience)
		p, epoch := b.awaitTerm(t, 0)
		x := p.Trace(cluster.Injection{Call: "mkdirat", Path: filepath.Join(b.c.Dir(), "servers"), Nth: 1, Always: true, Error: "ENOSPC"})
		b.strike("handover", epoch)
		if said, err := b.c.Run("handover"); err != nil {
			t.Fatalf("handover: %v: %s", err, said)
		}
		_, now := b.awaitTerm(t, epoch)
		x.Await(cluster.Patience)
		traffic.Rest(t.Context(), 2*time.Second)
		if able(t, p) {
			t.Errorf("server %d says that it could claim, but has no room for a claim", p.Member.ID)
		}
		x.Detach()
		cluster.Await(t, cluster.Patience, "the server to be able again", func() bool { return able(t, p) })
		if _, still := b.awaitTerm(t, 0); still != now {
			t.Errorf("epoch %d is served, want epoch %d still", still, now)
		}
	})
}

// able reports whether a server says of itself that it could claim.
func able(t *testing.T, s *cluster.Server) bool {
	t.Helper()
	body, err := s.Status(t.Context())
	return err == nil && slices.ContainsFunc(body.Servers, func(x wire.ServerBody) bool { return hf.ServerID(x.ID) == s.Member.ID && x.Able })
}
