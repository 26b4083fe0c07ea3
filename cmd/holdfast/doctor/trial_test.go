// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// holderVariable makes this test binary a process that holds a lock.
const holderVariable = "HOLDFAST_DOCTOR_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holderVariable) != "" {
		if err := Hold(os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// checks are all that a trial finds something out about.
func checks() []string {
	return []string{
		"same directory", "inode numbers", "new names", "rename race", "create race", "link race", "false sharing",
		"flock between mounts", "flock of a killed process", "fence", "log", "replaced and removed names", "staleness", "latency",
	}
}

// newAgents are two on one directory, each with a filesystem of its own.
func newAgents(t *testing.T) (a, b *localAgent) {
	t.Helper()
	t.Setenv(holderVariable, "1")
	dir := t.TempDir()
	var both [2]*localAgent
	for i, label := range []string{"here", "there"} {
		fsys, err := osfs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		both[i] = newLocalAgent(fsys, label, Options{Holder: []string{"/proc/self/exe"}}.crewIn(dir))
		both[i].root = fsys
		t.Cleanup(func() {
			if err := both[i].close(); err != nil {
				t.Error(err)
			}
		})
	}
	return both[0], both[1]
}

// try runs a trial and returns its findings by check.
func try(t *testing.T, a, b mountAgent, rounds int) (map[string]Finding, *Report) {
	t.Helper()
	r := &Report{Path: "there", Verdict: OK, mend: []string{"mend it"}}
	if err := r.trial(t.Context(), a, b, Options{Rounds: rounds, Progress: func(Progress) {}}); err != nil {
		t.Fatal(err)
	}
	found := map[string]Finding{}
	for _, f := range r.Findings {
		found[f.Check] = f
	}
	return found, r
}

func TestOneDirectoryTwice(t *testing.T) {
	a, b := newAgents(t)
	found, r := try(t, a, b, 20)
	if r.Verdict != OK || r.Staleness != "0s" || r.Rounds != 20 {
		t.Errorf("got %s, staleness %s, %d rounds", r.Verdict, r.Staleness, r.Rounds)
	}
	for _, check := range checks() {
		f, ok := found[check]
		if !ok || f.Verdict != OK || f.Bad != 0 || f.Rounds == 0 {
			t.Errorf("%s: got %+v", check, f)
		}
		delete(found, check)
	}
	if len(found) > 0 {
		t.Errorf("more was found: %v", slices.Collect(maps.Keys(found)))
	}
}

// TestStaleMounts shows a simulated network filesystem, whose names are old for
// half a minute, but whose direct reads are not.
func TestStaleMounts(t *testing.T) {
	disk := volumetest.New(1)
	profile := volumetest.ProfileNetwork()
	profile.Stale = 200 * time.Millisecond
	a := newLocalAgent(disk.Host(1, profile), "here", nil)
	b := newLocalAgent(disk.Host(2, profile), "there", nil)
	found, r := try(t, a, b, 20)
	for _, check := range []string{"new names"} {
		if f := found[check]; f.Verdict != Refuse || len(f.Fix) == 0 {
			t.Errorf("%s: got %+v", check, f)
		}
	}
	for _, check := range []string{"fence", "rename race", "create race", "flock between mounts", "false sharing"} {
		if f := found[check]; f.Verdict != OK {
			t.Errorf("%s: got %+v", check, f)
		}
	}
	if f := found["flock of a killed process"]; f.Verdict != Info {
		t.Errorf("without a process to kill: %+v", f)
	}
	s, err := time.ParseDuration(r.Staleness)
	if err != nil || s < profile.Stale/2 || s > 2*time.Second {
		t.Errorf("staleness %q (%v), want about %v", r.Staleness, err, profile.Stale)
	}
	if f := found["staleness"]; f.Verdict != Warn || strings.Contains(f.Detail, "--fencing-period") {
		t.Errorf("staleness: got %+v", f)
	}
}

func TestHandsOnTwoDirectories(t *testing.T) {
	a, _ := newAgents(t)
	_, b := newAgents(t)
	found, r := try(t, a, b, 10)
	if r.Verdict != Refuse || len(found) != 1 || found["same directory"].Verdict != Refuse {
		t.Errorf("got %s: %+v", r.Verdict, found)
	}
}

// TestStaleViews shows a filesystem on which nothing but views is old: waiting helps.
func TestStaleViews(t *testing.T) {
	a, b := newAgents(t)
	began := map[string]time.Time{}
	found, r := try(t, a, liar{b, func(ctx context.Context, h mountAgent, c call) (reply, error) {
		r, err := h.do(ctx, c)
		if c.Op == opLook && began[c.Name].IsZero() {
			began[c.Name] = time.Now()
		}
		if c.Op == opLook && time.Since(began[c.Name]) < 100*time.Millisecond {
			r.Data = []byte("old")
		}
		return r, err
	}}, 10)
	if f := found["staleness"]; r.Verdict != Warn || f.Verdict != Warn || !strings.Contains(f.Detail, "--staleness 1") || !strings.Contains(f.Detail, "--fencing-period 2") {
		t.Errorf("%s: %+v", r.Verdict, f)
	}
}

// liar is an agent on a filesystem that has one fault.
type liar struct {
	mountAgent
	lie func(ctx context.Context, h mountAgent, c call) (reply, error)
}

func (l liar) do(ctx context.Context, c call) (reply, error) { return l.lie(ctx, l.mountAgent, c) }

// answers changes what comes back of one operation.
func answers(o op, change func(*reply)) func(context.Context, mountAgent, call) (reply, error) {
	return func(ctx context.Context, h mountAgent, c call) (reply, error) {
		r, err := h.do(ctx, c)
		if c.Op == o && err == nil {
			change(&r)
		}
		return r, err
	}
}

// second comes second in a race, and says that it won.
func second(o op, dir string) func(context.Context, mountAgent, call) (reply, error) {
	return func(ctx context.Context, h mountAgent, c call) (reply, error) {
		target := cmp.Or(c.To, c.Name)
		if c.Op == o && strings.HasPrefix(target, dir) {
			for ctx.Err() == nil {
				if r, err := h.do(ctx, call{Op: opStat, Name: target}); err != nil || r.Outcome != missing {
					break
				}
			}
		}
		r, err := h.do(ctx, c)
		if c.Op == o {
			r.Outcome = done
		}
		return r, err
	}
}

// after the first n calls of an operation the fault begins.
func laterThan(n int, o op, lie func(context.Context, mountAgent, call) (reply, error)) func(context.Context, mountAgent, call) (reply, error) {
	return func(ctx context.Context, h mountAgent, c call) (reply, error) {
		if c.Op == o {
			n--
		}
		if c.Op != o || n >= 0 {
			return h.do(ctx, c)
		}
		return lie(ctx, h, c)
	}
}

// TestLiars: each probe finds the filesystem out that lies in its own way.
func TestLiars(t *testing.T) {
	says := func(o outcome) func(*reply) { return func(r *reply) { r.Outcome = o } }
	nothing := func(context.Context, mountAgent, call) (reply, error) { return reply{Outcome: done}, nil }
	for _, x := range []struct {
		name, check string
		want        Verdict
		lie         func(context.Context, mountAgent, call) (reply, error)
	}{
		{"another volume", "same directory", Refuse, answers(opOpen, func(r *reply) { r.Data = []byte("another") })},
		{"inode numbers of its own", "inode numbers", Refuse, answers(opStat, func(r *reply) { r.Inode++ })},
		{"a name stays missing", "new names", Refuse, answers(opGet, func(r *reply) { r.Outcome, r.Data = missing, nil })},
		{"an empty file", "new names", Refuse, answers(opGet, func(r *reply) { r.Data = nil })},
		{"both renames succeed", "rename race", Refuse, second(opRename, "race/")},
		{"no rename succeeds", "rename race", Refuse, answers(opRename, says(exists))},
		{"the loser's directory is gone", "rename race", Refuse, loses},
		{"both creations succeed", "create race", Refuse, second(opPut, "create/")},
		{"both links succeed", "link race", Refuse, second(opLink, "link/")},
		{"writes bring their whole page", "false sharing", Refuse, wholePages()},
		{"locks of the mount's own", "flock between mounts", Refuse, ownLocks()},
		{"locks that stay", "flock between mounts", Refuse, keepsLocks},
		{"locks that outlive their process", "flock of a killed process", Refuse, laterThan(0, opKill, nothing)},
		{"a check from the cache", "fence", Refuse, cachedCheck()},
		{"a fence that is written later", "fence", Refuse, lateFence()},
		{"an old log", "log", Refuse, answers(opAdopt, func(r *reply) { r.Number-- })},
		{"a scan that fails", "log", Refuse, laterThan(3, opAdopt, func(context.Context, mountAgent, call) (reply, error) {
			return reply{Outcome: failed, Error: "damaged"}, nil
		})},
		{"an old view", "replaced and removed names", Warn, answers(opLook, func(r *reply) { r.Data = []byte("old") })},
		{"a name that stays", "replaced and removed names", Warn, staysThere},
	} {
		t.Run(x.name, func(t *testing.T) {
			a, b := newAgents(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := &Report{Verdict: OK, mend: []string{"mend it"}}
			tr := &trial{a: a, b: liar{b, x.lie}, rounds: 10, mend: r.mend, progress: func(Progress) {}, add: r.record, patience: 20 * time.Millisecond}
			if err := tr.run(ctx); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == x.check })
			if i < 0 || r.Findings[i].Verdict != x.want || r.Findings[i].Bad == 0 || len(r.Findings[i].Fix) == 0 {
				t.Errorf("%s: got %+v", x.check, r.Findings)
			}
			if r.Verdict.rank() < x.want.rank() {
				t.Errorf("all in all: %s", r.Verdict)
			}
		})
	}
}

// loses removes what the loser of a rename had.
func loses(ctx context.Context, h mountAgent, c call) (reply, error) {
	r, err := h.do(ctx, c)
	if c.Op == opRename && r.Outcome != done {
		_, err = h.do(ctx, call{Op: opRemove, Name: c.Name + "/nonce"})
	}
	return r, err
}

// wholePages writes a page back with the bytes that were read into the cache.
func wholePages() func(context.Context, mountAgent, call) (reply, error) {
	cached := map[string][]byte{}
	return func(ctx context.Context, h mountAgent, c call) (reply, error) {
		switch c.Op {
		case opPrime:
			r, err := h.do(ctx, call{Op: opLook, Name: c.Name})
			cached[c.Name] = r.Data
			if r.Outcome == missing {
				r.Outcome = done
			}
			return r, err
		case opPoke:
			page := cached[c.Name]
			copy(page[c.Offset:], c.Data)
			return h.do(ctx, call{Op: opPoke, Name: c.Name, Data: page})
		}
		return h.do(ctx, c)
	}
}

// ownLocks grants locks without asking the other mounts.
func ownLocks() func(context.Context, mountAgent, call) (reply, error) {
	return func(ctx context.Context, h mountAgent, c call) (reply, error) {
		if c.Op == opLock || c.Op == opUnlock {
			return reply{Outcome: done}, nil
		}
		return h.do(ctx, c)
	}
}

// keepsLocks does not tell others that a lock was given back.
func keepsLocks(ctx context.Context, h mountAgent, c call) (reply, error) {
	if c.Op == opUnlock {
		return reply{Outcome: done}, nil
	}
	return h.do(ctx, c)
}

// cachedCheck answers from what it read once.
func cachedCheck() func(context.Context, mountAgent, call) (reply, error) {
	return answers(opCheck, func(r *reply) { r.Outcome = done })
}

// lateFence says that the fences are set when they are not.
func lateFence() func(context.Context, mountAgent, call) (reply, error) {
	first := true
	return func(ctx context.Context, h mountAgent, c call) (reply, error) {
		if c.Op == opFence && !first {
			return reply{Outcome: done}, nil
		}
		first = first && c.Op != opFence
		if c.Op == opFence || c.Op == opAdopt {
			return reply{Outcome: done}, nil
		}
		return h.do(ctx, c)
	}
}

// staysThere goes on showing a name that was removed.
func staysThere(ctx context.Context, h mountAgent, c call) (reply, error) {
	r, err := h.do(ctx, c)
	if c.Op == opStat && r.Outcome == missing {
		r.Outcome = done
	}
	return r, err
}

func TestBrokenHandEndsTheTrial(t *testing.T) {
	a, b := newAgents(t)
	gone := errors.New("the connection is gone")
	r := &Report{Verdict: OK}
	err := r.trial(t.Context(), a, liar{b, laterThan(5, opGet, func(context.Context, mountAgent, call) (reply, error) { return reply{}, gone })},
		Options{Rounds: 20, Progress: func(Progress) {}})
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestHold(t *testing.T) {
	dir := t.TempDir()
	if err := Hold(dir, "none", strings.NewReader(""), io.Discard); err == nil {
		t.Error("a file that is not there was locked")
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := Hold(dir, "file", strings.NewReader("x"), &said); err != nil || said.String() != holding+"\n" {
		t.Errorf("said %q, %v", said.String(), err)
	}
}

func TestCallsAreRefused(t *testing.T) {
	h := newLocalAgent(nil, "", nil) // nothing is reached
	for _, c := range []call{
		{Op: "format"}, {}, {Op: opGet, Name: "../etc/passwd"}, {Op: opGet, Name: "/etc/passwd"}, {Op: opRename, Name: "a", To: "b/../c"},
		{Op: opGet, Name: "."}, {Op: opGet, Name: "a/b/c/d"}, {Op: opGet, Name: "a\x00b"}, {Op: opGet, Name: strings.Repeat("a", maxName+1)},
		{Op: opPoke, Name: "a", Offset: -1}, {Op: opPoke, Name: "a", Offset: maxOffset + 1}, {Op: opPut, Name: "a", Data: make([]byte, maxData+1)},
	} {
		if r, err := h.do(t.Context(), c); err != nil || r.Outcome != failed {
			t.Errorf("%+v: got %+v, %v", c, r, err)
		}
	}
}
