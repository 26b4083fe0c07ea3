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

// tree is the command and all its descendants, in any session and process group.
//
// As long as the wrapper lives, the tree is all descendants of the wrapper: orphans become
// its children (PR_SET_CHILD_SUBREAPER). When the wrapper is gone, orphans become children of
// its heir, which has other children too: if the heir is the first process and the user is
// root, all of the machine's. Of the heir's children, those with the mark belong to the tree, and
// their descendants. Other processes with the mark do not: a batch system may have started
// one that was submitted from within the command.
type tree struct {
	mark    string
	wrapper int
	// since is when this process started: no older process belongs to the tree.
	since uint64
	// alone is true if the wrapper had no children before: then all its children belong to the tree.
	alone bool
	// spared are children of the wrapper or its heir that do not belong to the tree.
	spared []int
}

// newTree returns the tree of a command that this process is going to start.
func newTree() *tree {
	t := &tree{mark: rand.Text(), wrapper: os.Getpid(), since: startOfThis()}
	t.spared, _ = ownChildren()
	t.alone = len(t.spared) == 0
	return t
}

// startOfThis returns when this process started, in clock ticks since boot. If that is not known
// it returns the highest number, so that no process is younger.
func startOfThis() uint64 {
	if p, ok := readProcess(os.Getpid()); ok {
		return p.start
	}
	return math.MaxUint64
}

// spare excludes a child of the wrapper from the tree.
func (t *tree) spare(pid int) { t.spared = append(t.spared, pid) }

// find lists the running processes of the tree. The topmost ones are children of
// heir: the wrapper, or the process that inherited its children. If the list is empty and sure is
// true there is none; if sure is false, one that lost its parent at that moment may have
// been missed.
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

// childless reports whether this process has no children but the spared ones, ended or not.
func (t *tree) childless() bool {
	pids, exact := ownChildren()
	return exact && !slices.ContainsFunc(pids, func(pid int) bool { return !t.spares(pid) })
}

// reap reaps the children of this process that have ended, except the process but, for which
// group.wait waits.
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
