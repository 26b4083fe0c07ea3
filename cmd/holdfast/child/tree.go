// SPDX-License-Identifier: Apache-2.0

package child

import (
	"crypto/rand"
	"errors"
	"math"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// tree is the command and all that descends from it, whatever sessions and groups
// that has moved to.
//
// As long as the wrapper lives, it is what descends from the wrapper: orphans become
// its children (PR_SET_CHILD_SUBREAPER). When it is gone, orphans become children of
// its heir, who has others too; with the first process for heir and root for user that
// is the whole machine. Those with the mark are ours, and what descends from
// them; not every process with the mark, because a batch system may start one for
// somebody who handed it in from within the command.
type tree struct {
	mark    string
	wrapper int
	// since is when this process started: what is older is not ours, whatever else is said of it.
	since uint64
	// alone says that the wrapper had no children before: then all are ours that it has.
	alone bool
	// spared are children of the wrapper or its heir that are not ours.
	spared []int
}

// newTree is the tree of a command that this process is going to start.
func newTree() *tree {
	t := &tree{mark: rand.Text(), wrapper: os.Getpid(), since: startOfThis()}
	t.spared, _ = ownChildren()
	t.alone = len(t.spared) == 0
	return t
}

// startOfThis is when this process started. Where that is not known nothing is younger.
func startOfThis() uint64 {
	if p, ok := readProcess(os.Getpid()); ok {
		return p.start
	}
	return math.MaxUint64
}

// spare leaves a child of the wrapper alone.
func (t *tree) spare(pid int) { t.spared = append(t.spared, pid) }

// find lists the processes of the tree that run. The topmost ones are children of
// heir: the wrapper, or whoever has inherited its children. Sure says that there is
// none where none is listed; else one may have been missed that lost its parent at
// that moment.
func (t *tree) find(heir int) (live []process, sure bool) {
	if heir == os.Getpid() && t.childless() {
		return nil, true
	}
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	var next []process
	for _, p := range children[heir] {
		if t.spares(p.pid) || p.start < t.since {
			continue
		}
		if t.alone && heir == t.wrapper || p.marked(t.mark) {
			next = append(next, p)
		}
	}
	for len(next) > 0 {
		p := next[len(next)-1]
		next = append(next[:len(next)-1], children[p.pid]...)
		if !p.ended {
			live = append(live, p)
		}
	}
	return live, false
}

func (t *tree) spares(pid int) bool {
	return pid == os.Getpid() || slices.Contains(t.spared, pid)
}

// childless says that this process has no children but the spared ones, ended or not.
func (t *tree) childless() bool {
	pids, exact := ownChildren()
	return exact && !slices.ContainsFunc(pids, func(pid int) bool { return !t.spares(pid) })
}

// reap takes leave of the children of this process that have ended, but for one:
// somebody else waits for it.
func (t *tree) reap(but int) {
	pids, _ := ownChildren()
	for _, pid := range pids {
		for pid != but && !t.spares(pid) {
			if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// signalAll sends signals to processes.
func signalAll(all []process, signals ...syscall.Signal) {
	for _, p := range all {
		for _, s := range signals {
			p.signal(s)
		}
	}
}
