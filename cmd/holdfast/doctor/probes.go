// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// inodes compares the inode numbers of one file on both mounts: protected files are distinguished
// by them.
func (t *trial) inodes(ctx context.Context, n *counters) error {
	return t.each(ctx, n, 10, func(ctx context.Context, i int, one, other mountAgent) error {
		name := fmt.Sprintf("inodes/%d", i)
		made, err := t.ask(ctx, one, call{Op: opPut, Name: name})
		if err != nil {
			return err
		}
		seen, err := t.ask(ctx, other, call{Op: opStat, Name: name})
		if err != nil {
			return err
		}
		if made.Inode != seen.Inode {
			n.fail("one file has the inode number %d on %s and %d on %s", made.Inode, one, seen.Inode, other)
		}
		return nil
	})
}

// newNames looks up a name that was missing a moment ago.
func (t *trial) newNames(ctx context.Context, n *counters) error {
	return t.each(ctx, n, t.rounds, func(ctx context.Context, i int, one, other mountAgent) error {
		name, want := fmt.Sprintf("names/%d", i), fmt.Appendf(nil, "content %d", i)
		if _, err := t.ask(ctx, other, call{Op: opPrime, Name: name}); err != nil {
			return err
		}
		if i%10 < 2 {
			if _, err := t.ask(ctx, other, call{Op: opList, Name: "names"}); err != nil {
				return err
			}
		}
		if _, err := t.ask(ctx, one, call{Op: opPut, Name: name, Data: want}); err != nil {
			return err
		}
		right := func() (bool, error) {
			r, err := t.ask(ctx, other, call{Op: opGet, Name: name}, missing)
			return bytes.Equal(r.Data, want), err
		}
		if ok, err := right(); ok || err != nil {
			return err
		}
		n.fail("a file that %s had made was missing or empty on %s, which had looked it up before", one, other)
		return t.settles(ctx, n, right)
	})
}

// raceRounds is how often two mounts race for one name: a little more often than other probes.
func (t *trial) raceRounds() int { return t.rounds * 5 / 3 }

// raceRename lets both mounts rename a directory that is not empty onto one name,
// as two claimants do. One must win, and the loser's directory must stay whole.
func (t *trial) raceRename(ctx context.Context, n *counters) error {
	return t.each(ctx, n, t.raceRounds(), func(ctx context.Context, i int, one, other mountAgent) error {
		target := fmt.Sprintf("race/%d", i)
		names := [2]string{target + "-1", target + "-2"}
		agents := [2]mountAgent{one, other}
		for k, h := range agents {
			for _, c := range []call{
				{Op: opMkdir, Name: names[k]}, {Op: opPut, Name: names[k] + "/nonce", Data: []byte(names[k])}, {Op: opPrime, Name: target},
			} {
				if _, err := t.ask(ctx, h, c); err != nil {
					return err
				}
			}
		}
		r, s, err := t.together(ctx, one, other, call{Op: opRename, Name: names[0], To: target}, call{Op: opRename, Name: names[1], To: target})
		if err != nil {
			return err
		}
		winner := oneDone(r, s)
		if winner < 0 {
			n.fail("renames of two directories onto one name came to %s %s and %s %s", r.Outcome, r.Error, s.Outcome, s.Error)
			return nil
		}
		loser := 1 - winner
		for _, x := range []struct {
			h          mountAgent
			name, want string
		}{{agents[winner], target, names[winner]}, {agents[loser], names[loser], names[loser]}} {
			r, err := t.ask(ctx, x.h, call{Op: opGet, Name: x.name + "/nonce"}, missing)
			if err != nil {
				return err
			}
			if string(r.Data) != x.want {
				n.fail("after the race %s/nonce on %s is %s %q instead of %q", x.name, x.h, r.Outcome, r.Data, x.want)
				return nil
			}
		}
		return nil
	})
}

// oneDone returns the index of the reply that is done, -1 unless exactly one is.
func oneDone(r, s reply) int {
	switch {
	case r.Outcome == done && s.Outcome != done:
		return 0
	case s.Outcome == done && r.Outcome != done:
		return 1
	default:
		return -1
	}
}

// raceCreate lets both mounts create one file exclusively.
func (t *trial) raceCreate(ctx context.Context, n *counters) error {
	return t.each(ctx, n, t.rounds, func(ctx context.Context, i int, one, other mountAgent) error {
		name := fmt.Sprintf("create/%d", i)
		agents, data := [2]mountAgent{one, other}, [2][]byte{[]byte("one"), []byte("other")}
		if err := t.primeBoth(ctx, name); err != nil {
			return err
		}
		r, s, err := t.together(ctx, one, other, call{Op: opPut, Name: name, Data: data[0]}, call{Op: opPut, Name: name, Data: data[1]})
		if err != nil {
			return err
		}
		winner := oneDone(r, s)
		if winner < 0 {
			n.fail("two exclusive creations of one file came to %s %s and %s %s", r.Outcome, r.Error, s.Outcome, s.Error)
			return nil
		}
		got, err := t.ask(ctx, agents[winner], call{Op: opGet, Name: name}, missing)
		if err == nil && !bytes.Equal(got.Data, data[winner]) {
			n.fail("the file that was created on %s holds %q", agents[winner], got.Data)
		}
		return err
	})
}

// raceLink lets both mounts link a file of their own to one name.
func (t *trial) raceLink(ctx context.Context, n *counters) error {
	return t.each(ctx, n, t.rounds, func(ctx context.Context, i int, one, other mountAgent) error {
		name := fmt.Sprintf("link/%d", i)
		names := [2]string{name + "-1", name + "-2"}
		var made [2]reply
		for k, h := range []mountAgent{one, other} {
			var err error
			if made[k], err = t.ask(ctx, h, call{Op: opPut, Name: names[k]}); err != nil {
				return err
			}
		}
		if err := t.primeBoth(ctx, name); err != nil {
			return err
		}
		r, s, err := t.together(ctx, one, other, call{Op: opLink, Name: names[0], To: name}, call{Op: opLink, Name: names[1], To: name})
		if err != nil {
			return err
		}
		winner := oneDone(r, s)
		if winner < 0 {
			if r.Outcome == failed && s.Outcome == failed && i == 0 {
				n.note = "no hard links here: takeovers copy log segments instead, which takes longer"
				return nil
			}
			if n.note == "" {
				n.fail("two hard links to one name came to %s %s and %s %s", r.Outcome, r.Error, s.Outcome, s.Error)
			}
			return nil
		}
		got, err := t.ask(ctx, []mountAgent{one, other}[winner], call{Op: opStat, Name: name})
		if err == nil && got.Inode != made[winner].Inode {
			n.fail("the name leads to inode %d, and inode %d was linked to it", got.Inode, made[winner].Inode)
		}
		return err
	})
}

func (t *trial) primeBoth(ctx context.Context, name string) error {
	for _, h := range []mountAgent{t.a, t.b} {
		if _, err := t.ask(ctx, h, call{Op: opPrime, Name: name}); err != nil {
			return err
		}
	}
	return nil
}

// The sizes of the test for false sharing: both mounts write every second range of a
// page, the first half of them at the same time, the others in turn.
const (
	rangeBytes = 100
	ranges     = 40
	together   = ranges / 2
)

// sharing lets both mounts write alternating ranges of a page. A client that
// writes whole pages back overwrites new bytes with old ones. Writes in turn show that with any
// scheduling; writes at the same time show a client that does it only then.
func (t *trial) sharing(ctx context.Context, n *counters) error {
	return t.each(ctx, n, t.rounds/10, func(ctx context.Context, i int, one, other mountAgent) error {
		name := fmt.Sprintf("pages/%d", i)
		if _, err := t.ask(ctx, one, call{Op: opPut, Name: name, Data: make([]byte, ranges*rangeBytes)}); err != nil {
			return err
		}
		if err := t.primeBoth(ctx, name); err != nil {
			return err
		}
		poke := func(h mountAgent, j int) error {
			_, err := t.ask(ctx, h, call{Op: opPoke, Name: name, Data: bytes.Repeat([]byte{byte(j + 1)}, rangeBytes), Offset: int64(j * rangeBytes)})
			return err
		}
		agents := []mountAgent{one, other}
		var errs [2]error
		var both sync.WaitGroup
		for k, h := range agents {
			both.Go(func() {
				for j := k; j < together && errs[k] == nil; j += 2 {
					errs[k] = poke(h, j)
				}
			})
		}
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		for j := together; j < ranges; j++ {
			if err := poke(agents[j%2], j); err != nil {
				return err
			}
		}
		for _, h := range agents {
			r, err := t.ask(ctx, h, call{Op: opGet, Name: name})
			if err != nil {
				return err
			}
			if j := lostRange(r.Data); j >= 0 {
				n.fail("of ranges written from two mounts into one page, the one at byte %d is lost on %s", j*rangeBytes, h)
				return nil
			}
		}
		return nil
	})
}

// lostRange returns the first range that differs from what was written, or -1.
func lostRange(page []byte) int {
	for j := range ranges {
		want := bytes.Repeat([]byte{byte(j + 1)}, rangeBytes)
		if len(page) < (j+1)*rangeBytes || !bytes.Equal(page[j*rangeBytes:(j+1)*rangeBytes], want) {
			return j
		}
	}
	return -1
}

// flocks tests whether a lock excludes the other mount and is free after its release.
func (t *trial) flocks(ctx context.Context, n *counters) error {
	var slowest time.Duration
	err := t.each(ctx, n, t.rounds/10, func(ctx context.Context, i int, one, other mountAgent) error {
		c := call{Op: opLock, Name: fmt.Sprintf("locks/%d", i)}
		if _, err := t.ask(ctx, one, call{Op: opPut, Name: c.Name}); err != nil {
			return err
		}
		if _, err := t.ask(ctx, one, c); err != nil {
			return err
		}
		r, err := t.ask(ctx, other, c, locked)
		if err != nil {
			return err
		}
		unlock := call{Op: opUnlock, Name: c.Name}
		if r.Outcome == done {
			n.fail("%s and %s hold one exclusive lock at the same time", one, other)
			_, err = t.ask(ctx, other, unlock)
		}
		if _, err2 := t.ask(ctx, one, unlock); err != nil || err2 != nil {
			return cmp.Or(err, err2)
		}
		took, err := t.freed(ctx, n, other, c)
		slowest = max(slowest, took)
		return err
	})
	n.note = fmt.Sprintf("free after %v at most", slowest.Round(time.Microsecond))
	return err
}

// freed waits until an agent gets a lock that another has released, and releases it. It returns
// how long that took.
func (t *trial) freed(ctx context.Context, n *counters, h mountAgent, c call) (time.Duration, error) {
	ctx2, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	var broken error
	took, err := poll(ctx2, func() error {
		var r reply
		if r, broken = t.ask(ctx, h, c, locked); broken == nil && r.Outcome == locked {
			return errStillThere
		}
		return nil
	})
	switch {
	case broken != nil:
		return took, broken
	case err != nil:
		n.fail("%s cannot take a lock that was given back %v ago", h, t.patience)
		return took, nil
	}
	_, err = t.ask(ctx, h, call{Op: opUnlock, Name: c.Name})
	return took, err
}

// killRounds is how many processes are killed while they hold a lock.
const killRounds = 4

// killed tests whether the lock of a killed process becomes free: else a
// server that crashed could not start again.
func (t *trial) killed(ctx context.Context, n *counters) error {
	var slowest time.Duration
	unableOn := []string{}
	err := t.each(ctx, n, killRounds, func(ctx context.Context, i int, one, other mountAgent) error {
		name := fmt.Sprintf("locks/killed-%d", i)
		if _, err := t.ask(ctx, one, call{Op: opPut, Name: name}); err != nil {
			return err
		}
		r, err := t.ask(ctx, one, call{Op: opVictim, Name: name}, unable)
		if err != nil {
			return err
		}
		if r.Outcome == unable {
			n.rounds--
			unableOn = append(unableOn, one.String())
			return nil
		}
		c := call{Op: opLock, Name: name}
		if r, err = t.ask(ctx, other, c, locked); err != nil {
			return err
		}
		if r.Outcome == done {
			n.fail("%s took a lock that a process on %s held", other, one)
			if _, err := t.ask(ctx, other, call{Op: opUnlock, Name: name}); err != nil {
				return err
			}
		}
		if _, err := t.ask(ctx, one, call{Op: opKill}); err != nil {
			return err
		}
		took, err := t.freed(ctx, n, other, c)
		slowest = max(slowest, took)
		return err
	})
	if len(unableOn) > 0 {
		n.note = fmt.Sprintf("no process could be started on %v", slices.Compact(slices.Sorted(slices.Values(unableOn))))
	} else {
		n.note = fmt.Sprintf("free after %v at most", slowest.Round(time.Microsecond))
	}
	return err
}

// views measures how long a replaced file and a removed name still show their old state.
// Only files for people are replaced like that.
func (t *trial) views(ctx context.Context, n *counters) error {
	return t.each(ctx, n, t.rounds/3, func(ctx context.Context, i int, one, other mountAgent) error {
		name := fmt.Sprintf("views/%d", i)
		if _, err := t.ask(ctx, one, call{Op: opPut, Name: name, Data: []byte("old")}); err != nil {
			return err
		}
		if _, err := t.ask(ctx, other, call{Op: opPrime, Name: name}); err != nil {
			return err
		}
		if _, err := t.ask(ctx, one, call{Op: opReplace, Name: name, Data: []byte("new")}); err != nil {
			return err
		}
		replaced := func() (bool, error) {
			r, err := t.ask(ctx, other, call{Op: opLook, Name: name}, missing, failed)
			return string(r.Data) == "new", err
		}
		if err := t.report(ctx, n, replaced, "%s still read the former content of a file that %s had replaced", other, one); err != nil {
			return err
		}
		n.rounds++ // two checks in one round
		if _, err := t.ask(ctx, one, call{Op: opRemove, Name: name}); err != nil {
			return err
		}
		removed := func() (bool, error) {
			r, err := t.ask(ctx, other, call{Op: opStat, Name: name}, missing, failed)
			return r.Outcome == missing, err
		}
		return t.report(ctx, n, removed, "%s still found a name that %s had removed", other, one)
	})
}

// report counts a bad round if right is not true at once, and waits until it is.
func (t *trial) report(ctx context.Context, n *counters, right func() (bool, error), format string, args ...any) error {
	if ok, err := right(); ok || err != nil {
		return err
	}
	n.fail(format, args...)
	return t.settles(ctx, n, right)
}
