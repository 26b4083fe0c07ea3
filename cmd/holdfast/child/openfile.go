// SPDX-License-Identifier: Apache-2.0

package child

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// OpenFile is an open file description, as open(2) calls it: what `exec 9>lock` makes in a shell,
// and what every process shares that has inherited the descriptor. A lock of flock(2) belongs to
// it, and ends when no process has it open any more.
//
// The kernel tells whether two descriptors are one open file (kcmp); it locks nothing, so it
// works on every filesystem.
type OpenFile struct {
	file *os.File
	// name is where this process writes its role.
	name *os.File
	// spared are processes that do not count: helpers that have it open to recognize it.
	// Neither do processes with a Role.
	spared []process
	// users are the processes that had it open at the last search, the oldest first: that is the
	// shell, which stays longest. Those that this one may not look into any more stay until their
	// end: they are another user's by now, and may have it still.
	users []user
	// onUser is called for each new one; nil = nobody asks.
	onUser func(process)
	// due is when the next search is due though the oldest user has it.
	due time.Time
	// quiet counts the searches in a row that found no process.
	quiet int
}

// user is a process that has the open file, and its descriptor; -1 = not known.
type user struct {
	process
	fd int
}

// errNotComparable reports that the kernel does not tell whether two processes share an open file:
// a container's profile may forbid it.
var errNotComparable = errors.New("this system does not tell which processes share an open file (kcmp)")

// NewOpenFile returns the open file behind f, which stays open for as long as it is used. It fails
// where the kernel does not compare open files.
func NewOpenFile(f *os.File) (*OpenFile, error) {
	name, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	o := &OpenFile{file: f, name: name}
	if _, err := o.is(os.Getpid(), int(f.Fd())); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotComparable, err)
	}
	o.Spare(os.Getpid())
	return o, nil
}

// Spare excludes a process that runs.
func (o *OpenFile) Spare(pid int) {
	if p, found := readProcess(pid); found {
		o.spared = append(o.spared, p)
	}
}

func (o *OpenFile) spares(p process) bool {
	return Role(p.name).known() || slices.ContainsFunc(o.spared, p.same)
}

// kcmpFile is KCMP_FILE of kcmp(2).
const kcmpFile = 0

// is reports whether a descriptor of a process is this open file.
func (o *OpenFile) is(pid, fd int) (bool, error) {
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), kcmpFile, o.file.Fd(), uintptr(fd), 0)
	switch errno {
	case 0:
		return order == 0, nil
	case unix.EBADF, unix.ESRCH: // it has closed it, or has ended
		return false, nil
	}
	return false, errno
}

// closed reports whether no process has the open file any more. One search may miss a process that
// is forked meanwhile, so it takes two. It is false while it cannot be told, as when the system has
// no descriptor left.
func (o *OpenFile) closed() bool {
	if o.keeps() && time.Now().Before(o.due) {
		o.quiet = 0
		return false
	}
	if live, sure := o.find(); len(live) > 0 || !sure {
		o.quiet = 0
		return false
	}
	o.quiet++
	return o.quiet > 1
}

// keeps reports whether the oldest user still has it open.
func (o *OpenFile) keeps() bool {
	if len(o.users) == 0 {
		return false
	}
	oldest := o.users[0]
	if now, found := readProcess(oldest.pid); !found || now.ended || !now.same(oldest.process) || o.spares(now) {
		return false
	}
	same, err := o.is(oldest.pid, oldest.fd)
	return same || err != nil // it is another user's by now
}

const (
	// searchEvery is how often users are searched for while there are some: one that changes its
	// user sooner after it has got the file is never seen.
	searchEvery = time.Second
	// searchShare bounds the part of the time that searches take: they look at every descriptor
	// of every process.
	searchShare = 100
)

// find lists the processes that have the open file, but for the spared ones. sure is false if it
// could not look at all that it may look at.
func (o *OpenFile) find() (live []process, sure bool) {
	began := time.Now()
	all := processes()
	sure = complete(all)
	var users []user
	for _, p := range all {
		if p.ended || o.spares(p) {
			continue
		}
		fd, has, err := o.descriptor(p.pid)
		if err != nil {
			has = o.knows(p)
			sure = sure && errors.Is(err, os.ErrPermission)
		}
		if has {
			users = append(users, user{p, fd})
		}
	}
	for _, u := range o.users {
		shown := slices.ContainsFunc(all, func(p process) bool { return p.pid == u.pid })
		if !shown && u.lives() {
			users = append(users, u)
		}
	}
	for _, u := range users {
		live = append(live, u.process)
		if o.onUser != nil && !o.knows(u.process) {
			o.onUser(u.process)
		}
	}
	slices.SortStableFunc(users, func(a, b user) int { return cmp.Compare(a.start, b.start) })
	o.users = users
	took := time.Since(began)
	o.due = began.Add(max(searchEvery, searchShare*took))
	return live, sure
}

// knows reports whether a process is one of the users.
func (o *OpenFile) knows(p process) bool {
	return slices.ContainsFunc(o.users, func(u user) bool { return p.same(u.process) })
}

// forgetEvery is after how many users that it has learned of a process looks which have ended.
const forgetEvery = 64

// learn adds a user that another process has found, and at times forgets those that have ended.
func (o *OpenFile) learn(p process) {
	if len(o.users)%forgetEvery == 0 {
		o.users = slices.DeleteFunc(o.users, func(u user) bool { return !u.lives() })
	}
	if !o.knows(p) {
		o.users = append(o.users, user{p, -1})
	}
}

// complete reports whether a list of all processes has this one: else /proc could not be read.
func complete(all []process) bool {
	return slices.ContainsFunc(all, func(p process) bool { return p.pid == os.Getpid() })
}

// descriptor returns the number of a descriptor under which a process has it open; a process that
// has ended has none. err says that it could not be looked into: with os.ErrPermission because it is
// another user's.
func (o *OpenFile) descriptor(pid int) (fd int, has bool, err error) {
	names, err := readNames(fmt.Sprintf("/proc/%d/fd", pid))
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return -1, false, nil
	case err != nil:
		return -1, false, err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		switch same, err := o.is(pid, fd); {
		case err != nil:
			return -1, false, err
		case same:
			return fd, true, nil
		}
	}
	return -1, false, nil
}

// Shared reports whether a process beside the spared ones has the open file now.
func (o *OpenFile) Shared() bool {
	live, _ := o.find()
	return len(live) > 0
}
