// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one process, as read from /proc.
type process struct {
	pid, parent int
	// group is the number of its process group.
	group int
	// start is when it started, in clock ticks since boot. Together with the number it identifies
	// the process, because the kernel reuses numbers.
	start uint64
	// name is its command name, for people.
	name string
	// ended is true for a zombie, which waits to be reaped by its parent.
	ended bool
}

// The indices of fields of /proc/PID/stat, counted after the name; see proc(5).
const (
	statState   = 0
	statParent  = 1
	statGroup   = 2
	statThreads = 17
	statStart   = 19
)

// readProcess reads one process from /proc, and reports whether there is one with this number.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name, in parentheses, may contain anything.
	head, behind := b[:max(bytes.LastIndexByte(b, ')'), 0)], b[bytes.LastIndexByte(b, ')')+1:]
	fields := strings.Fields(string(behind))
	if len(fields) <= statStart {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(fields[statParent])
	group, err2 := strconv.Atoi(fields[statGroup])
	threads, err3 := strconv.Atoi(fields[statThreads])
	start, err4 := strconv.ParseUint(fields[statStart], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil {
		return process{}, false
	}
	// If only the first thread has ended, the others still run.
	ended := (fields[statState] == "Z" || fields[statState] == "X") && threads <= 1
	_, name, _ := bytes.Cut(head, []byte("("))
	return process{pid: pid, parent: parent, group: group, start: start, name: string(name), ended: ended}, true
}

// same reports whether two readings are of the same process.
func (p process) same(q process) bool { return p.pid == q.pid && p.start == q.start }

// lives reports whether a process has not ended. Where /proc is mounted with hidepid, it does not
// show those of other users; then a process with the number counts.
func (p process) lives() bool {
	if now, found := readProcess(p.pid); found {
		return now.same(p) && !now.ended
	}
	return !errors.Is(unix.Kill(p.pid, 0), unix.ESRCH)
}

// processes lists all processes. It reads one after the other, and may miss changes meanwhile.
func processes() (all []process) {
	names, err := readNames("/proc")
	if err != nil {
		return nil // without /proc only the group is known
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // read only
	return d.Readdirnames(-1)
}

// ownChildren lists the children of this process, ended or not. exact is true if the
// kernel lists them: orphans are added at the end of the first thread's list, and no thread
// that forked anything but the command ends, so none is missed.
func ownChildren() (pids []int, exact bool) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 { // a kernel without CONFIG_PROC_CHILDREN
		for _, p := range processes() {
			if p.parent == os.Getpid() {
				pids = append(pids, p.pid)
			}
		}
		return pids, false
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil { // a thread that has ended
			continue
		}
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, true
}

// MarkName is the environment variable that carries the marks of the runs that a
// process belongs to, the outermost first.
const MarkName = "HOLDFAST_RUN"

const markSeparator = ":"

// withMark returns an environment with one more mark in MarkName.
func withMark(env []string, mark string) []string {
	marked := make([]string, 0, len(env)+1)
	for _, e := range env {
		if outer, is := strings.CutPrefix(e, MarkName+"="); is {
			mark = outer + markSeparator + mark
			continue
		}
		marked = append(marked, e)
	}
	return append(marked, MarkName+"="+mark)
}

// marked reports whether a process was started with this mark in its environment. It is false
// for "".
func (p process) marked(mark string) bool {
	if mark == "" {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err != nil {
		return false // the process is gone, or belongs to another user
	}
	for e := range bytes.SplitSeq(b, []byte{0}) {
		if marks, is := bytes.CutPrefix(e, []byte(MarkName+"=")); is {
			for m := range bytes.SplitSeq(marks, []byte(markSeparator)) {
				if string(m) == mark {
					return true
				}
			}
		}
	}
	return false
}

// signal sends a signal to this very process, or to none: its number may belong to another one
// by now. That also confirms what was read of it before, like its mark.
func (p process) signal(s syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd) //nolint:errcheck // a descriptor of a process
	}
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return
	}
	if err == nil {
		unix.PidfdSendSignal(fd, s, nil, 0) //nolint:errcheck // it has ended, or belongs to another user
		return
	}
	// A kernel before 5.3, or no descriptor is left: the short time since it was read must suffice.
	syscall.Kill(p.pid, s) //nolint:errcheck // likewise
}
