// SPDX-License-Identifier: Apache-2.0

package sidelog_test

import (
	"context"
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

	"github.com/holdfast-lock/holdfast/primary/sidelog"
	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/volume/auditdir"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// auditing is a server's audit that runs in a bubble.
type auditing struct {
	*sidelog.Audit
	t    *testing.T
	disk *volumetest.Disk
	host *volumetest.Host
	cfg  sidelog.AuditConfig
	full atomic.Bool
	end  func()
}

func newAuditing(t *testing.T, change func(*sidelog.AuditConfig)) *auditing {
	disk := volumetest.New(1)
	x := &auditing{t: t, disk: disk, host: disk.Host(1, volumetest.ProfileLocal())}
	x.cfg = sidelog.AuditConfig{Server: 1, FS: x.host, Log: zerolog.Nop(), Full: func() bool { return x.full.Load() }}
	if change != nil {
		change(&x.cfg)
	}
	x.begin()
	return x
}

// begin runs a process.
func (x *auditing) begin() {
	x.Audit = sidelog.NewAudit(x.cfg)
	ctx, stop := context.WithCancel(x.t.Context())
	a := x.Audit
	go a.Run(ctx)
	x.end = func() { stop(); a.Wait(time.Second) }
}

// pass has so much time pass.
func (x *auditing) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// told returns what another host reads.
func (x *auditing) told(q audit.Query) []audit.Event {
	x.t.Helper()
	r, err := auditdir.Search(x.t.Context(), x.disk.Host(9, volumetest.ProfileLocal()), q)
	if err != nil || r.Damaged > 0 {
		x.t.Fatalf("%d damaged lines, %v", r.Damaged, err)
	}
	return r.Events
}

func (x *auditing) files() (all []string) {
	x.t.Helper()
	names, err := auditdir.List(x.disk.Host(9, volumetest.ProfileLocal()))
	if err != nil {
		x.t.Fatal(err)
	}
	for _, n := range names {
		all = append(all, n.Path())
	}
	return all
}

func denied(who string) audit.Event {
	return audit.Event{Kind: audit.KindDenied, Identity: who, Message: "no rule"}
}

func stranger(from string) audit.Event { return audit.Event{Kind: audit.KindCredential, From: from} }

// count returns how many lines of refusals tell of one, and how many more are counted.
func count(events []audit.Event, of func(*audit.Event) bool) (lines int, more uint64) {
	for i := range events {
		switch e := &events[i]; {
		case !e.Kind.Denied() || !of(e):
		case e.Count > 0:
			more += e.Count
		default:
			lines++
		}
	}
	return lines, more
}

func TestManyRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAuditing(t, nil)
		for range 3 { // seconds
			for range 25 {
				x.Record(denied("user:mallory"))
			}
			x.Record(denied("user:alice"))
			for i := range 200 {
				x.Record(stranger(fmt.Sprintf("10.0.0.%d:%d", i%2, 1000+i)))
				x.Record(stranger(fmt.Sprintf("[2001:db8::%x]:99", i)))
			}
			x.Record(audit.Event{Kind: audit.KindBreak, Identity: "user:mallory"}) // is no refusal
			x.pass(2 * time.Second)
		}
		x.end()
		all := x.told(audit.Query{})
		for name, test := range map[string]struct {
			of    func(*audit.Event) bool
			lines int
			more  uint64
		}{
			"an identity":                           {func(e *audit.Event) bool { return e.Identity == "user:mallory" }, 10, 15},
			"another one":                           {func(e *audit.Event) bool { return e.Identity == "user:alice" }, 1, 0},
			"all strangers, who have three sources": {func(e *audit.Event) bool { return e.Identity == "" }, 30, 370},
		} {
			if lines, more := count(all, test.of); lines != 3*test.lines || more != 3*test.more {
				t.Errorf("%s: %d lines, %d more; want %d and %d", name, lines, more, 3*test.lines, 3*test.more)
			}
		}
		if n := len(slices.DeleteFunc(all, func(e audit.Event) bool { return e.Kind != audit.KindBreak })); n != 3 {
			t.Errorf("%d breaks", n)
		}
	})
}

// Strangers choose their addresses: all together have a bound. So has what is counted apart.
func TestStrangersHaveABoundTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAuditing(t, nil)
		for i := range 5000 {
			x.Record(stranger(fmt.Sprintf("10.1.%d.%d:9", i/250, i%250)))
			x.Record(denied(fmt.Sprintf("cert:%d", i)))
		}
		x.pass(2 * time.Second)
		x.end()
		all := x.told(audit.Query{})
		lines, more := count(all, func(e *audit.Event) bool { return e.Kind == audit.KindCredential })
		if lines != 50 || more != 4950 {
			t.Errorf("of strangers: %d lines, %d more", lines, more)
		}
		lines, more = count(all, func(e *audit.Event) bool { return e.Kind == audit.KindDenied })
		if lines > 1024 || lines+int(more) != 5000 {
			t.Errorf("of identities: %d lines, %d more", lines, more)
		}
	})
}

// A volume that hangs holds up nobody. What finds no room is counted, told by status, and written when that works again.
func TestTheAuditWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAuditing(t, nil)
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "audit/", 1, volumetest.Pause(gate)))
		x.Record(audit.Event{Kind: audit.KindStart})
		<-gate.Arrived()
		began := time.Now()
		const many = 20000
		for i := range many {
			x.Record(audit.Event{Kind: audit.KindBreak, Token: 1, Lock: fmt.Sprint(i)})
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("somebody waited %v", waited)
		}
		x.pass(10 * time.Second)
		if why := x.Trouble(); !strings.Contains(why, "ARE LOST TO THE AUDIT") || !strings.Contains(why, "does not come back") {
			t.Errorf("status says %q", why)
		}
		gate.Resume()
		x.pass(5 * time.Second)
		if why := x.Trouble(); !strings.Contains(why, "ARE LOST TO THE AUDIT") || strings.Contains(why, "does not come back") {
			t.Errorf("afterwards, status says %q", why)
		}
		x.pass(2 * time.Hour)
		if why := x.Trouble(); why != "" {
			t.Errorf("hours later, status says %q", why)
		}
		x.end()
		told, lost := 0, uint64(0)
		for _, e := range x.told(audit.Query{}) {
			switch e.Kind {
			case audit.KindBreak:
				told++
			case audit.KindLost:
				lost += e.Count
			}
		}
		if told == 0 || lost == 0 || told+int(lost) != many {
			t.Errorf("of %d events, %d are told, and %d lost", many, told, lost)
		}
	})
}

// The end of a server waits a moment for the last lines, and no longer.
func TestTheEndWaitsAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAuditing(t, nil)
		x.Record(denied("user:alice"))
		x.end()
		if n := len(x.told(audit.Query{})); n != 1 {
			t.Errorf("%d lines after the end", n)
		}
		x.begin()
		gate := volumetest.NewGate()
		x.host.SetHook(volumetest.AtOp(volumetest.OpOpen, "audit/", 1, volumetest.Pause(gate)))
		x.Record(denied("user:alice"))
		began := time.Now()
		x.end()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it waited %v", waited)
		}
		gate.Resume()
		synctest.Wait()
	})
}

func TestTroublesOfTheVolume(t *testing.T) {
	for name, test := range map[string]struct {
		begin, mend func(*auditing)
		says        string
	}{
		"the log is full": {func(x *auditing) { x.full.Store(true) }, func(x *auditing) { x.full.Store(false) }, "no space"},
		"no space":        {func(x *auditing) { x.disk.SetCapacity(x.disk.Used() + 1) }, func(x *auditing) { x.disk.SetCapacity(0) }, "no space"},
		"read-only":       {func(x *auditing) { x.disk.SetReadOnly(true) }, func(x *auditing) { x.disk.SetReadOnly(false) }, syscall.EROFS.Error()},
		"a sync fails": {func(x *auditing) {
			x.host.SetHook(volumetest.AtOp(volumetest.OpDatasync, "audit/", 1, volumetest.FailBefore(syscall.EIO)))
		}, func(x *auditing) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newAuditing(t, nil)
				x.Record(audit.Event{Kind: audit.KindStart})
				x.pass(2 * time.Second)
				test.begin(x)
				for i := range 8 { // more than a page
					x.Record(audit.Event{Kind: audit.KindBreak, Lock: strings.Repeat("l", 1000+i)})
				}
				for range 3 {
					x.pass(time.Minute)
					if why := x.Trouble(); !strings.Contains(why, test.says) || (why == "") != (test.says == "") {
						t.Errorf("status says %q", why)
					}
				}
				test.mend(x)
				x.pass(2 * time.Minute)
				if why := x.Trouble(); why != "" {
					t.Errorf("status says %q when all is well", why)
				}
				all := x.told(audit.Query{})
				if all = slices.CompactFunc(all, func(a, b audit.Event) bool { return a.Kind == b.Kind && a.Lock == b.Lock }); len(all) != 9 && name != "a sync fails" {
					t.Errorf("told: %+v", all)
				}
				x.end()
			})
		})
	}
}

// Lines are durable within seconds, and what a crash tears spoils neither lines before it nor those of the next process.
func TestCrashesOfTheWriter(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			x := newAuditing(t, nil)
			x.Record(audit.Event{Kind: audit.KindStart, Program: "first"})
			x.pass(2 * time.Second)
			x.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "audit/", 1, volumetest.CrashTorn(int(10+seed*9))))
			for range 3 {
				x.Record(audit.Event{Kind: audit.KindBreak, Lock: "torn"})
			}
			x.pass(2 * time.Second)
			x.end()
			x.disk.Crash(rand.New(rand.NewPCG(seed, 1)))
			x.host = x.disk.Host(1, volumetest.ProfileLocal())
			x.cfg.FS = x.host
			x.begin()
			x.Record(audit.Event{Kind: audit.KindStart, Program: "second"})
			x.pass(2 * time.Second)
			x.end()
			r, err := auditdir.Search(t.Context(), x.disk.Host(9, volumetest.ProfileLocal()), audit.Query{})
			if err != nil {
				t.Fatal(err)
			}
			all := slices.DeleteFunc(r.Events, func(e audit.Event) bool { return e.Kind != audit.KindStart })
			if len(all) != 2 || all[0].Program != "first" || all[1].Program != "second" || len(x.files()) != 2 {
				t.Errorf("seed %d: it tells %+v, in %q", seed, all, x.files())
			}
		})
	}
}

func TestFilesEndAndAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAuditing(t, func(c *sidelog.AuditConfig) { c.FileBytes, c.TotalBytes = 4<<10, 20<<10 })
		others := x.disk.Host(3, volumetest.ProfileLocal())
		write := func(n int) {
			for i := range n {
				x.Record(audit.Event{Kind: audit.KindBreak, Lock: fmt.Sprint(i), Reason: strings.Repeat("r", 1000)})
				x.pass(time.Second)
			}
		}
		write(3)
		if got := x.files(); !slices.Equal(got, []string{"audit/1-2000-01-01-000001.jsonl"}) {
			t.Fatalf("files %q", got)
		}
		write(3)
		if got := x.files(); len(got) != 2 || got[1] != "audit/1-2000-01-01-000002.jsonl" {
			t.Fatalf("files %q: the first one is full", got)
		}
		x.pass(24 * time.Hour)
		write(1)
		if got := x.files(); len(got) != 3 || got[2] != "audit/1-2000-01-02-000001.jsonl" {
			t.Fatalf("files %q: a day is over", got)
		}
		// Another server's, and one that is no file of the audit.
		for _, name := range []string{"audit/3-2000-01-01-000001.jsonl", "audit/0-2000-01-01-000001.jsonl", "audit/notes.txt"} {
			if err := vfs.WriteFile(others, name, vfs.FlagCreate|vfs.FlagPrivate, make([]byte, 30<<10)); err != nil {
				t.Fatal(err)
			}
		}
		write(40)
		size := int64(0)
		for _, name := range x.files() {
			if info, err := others.Lstat(name); err == nil && strings.HasPrefix(name, "audit/1-") {
				size += info.Size
			}
		}
		if size > 24<<10 || size < 12<<10 {
			t.Errorf("%d bytes are kept, in %q", size, x.files())
		}
		if got := x.files(); !slices.Contains(got, "audit/3-2000-01-01-000001.jsonl") {
			t.Errorf("the files of another server count, too: %q", got)
		}
		x.pass(92 * 24 * time.Hour)
		write(1)
		x.pass(2 * time.Hour)
		if got := x.files(); len(got) != 1 {
			t.Errorf("after 90 days, there are %q", got)
		}
		if _, err := others.Lstat("audit/notes.txt"); err != nil {
			t.Errorf("what is not of the audit is gone: %v", err)
		}
		x.end()
	})
}

// A clock that is ahead for a moment, as at a start, removes nothing.
func TestAClockThatIsAheadRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		x := newAuditing(t, func(c *sidelog.AuditConfig) {
			c.TimeOfDay = func(now time.Time) time.Time { return now.Round(0).Add(ahead) }
		})
		x.Record(audit.Event{Kind: audit.KindStart})
		x.pass(2 * time.Hour)
		ahead = 200 * 24 * time.Hour
		x.Record(audit.Event{Kind: audit.KindBreak})
		x.pass(10 * time.Minute)
		if got := x.files(); len(got) != 2 {
			t.Errorf("files %q", got)
		}
		x.end()
	})
}

// The audit is for its owner's eyes.
func TestTheAuditIsPrivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAuditing(t, nil)
		x.Record(audit.Event{Kind: audit.KindStart})
		x.pass(2 * time.Second)
		x.end()
		for _, name := range append(x.files(), "audit") {
			if info, err := x.host.Lstat(name); err != nil || info.Mode&0o077 != 0 {
				t.Errorf("%s: mode %o, %v", name, info.Mode, err)
			}
		}
	})
}
