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

// process is one process as /proc showed it.
type process struct {
	pid, parent int
	// start is when it started, in clock ticks since boot: with the number it names the
	// process, for a number that is free is given away again.
	start uint64
	// name is what it calls itself, for people.
	name string
	// ended says that it runs no more and waits for its parent.
	ended bool
}

// The fields of /proc/PID/stat behind the name, see proc(5).
const (
	statState   = 0
	statParent  = 1
	statThreads = 17
	statStart   = 19
)

// readProcess looks at one process; false if there is none.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name is anything, in parentheses.
	head, behind := b[:max(bytes.LastIndexByte(b, ')'), 0)], b[bytes.LastIndexByte(b, ')')+1:]
	fields := strings.Fields(string(behind))
	if len(fields) <= statStart {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(fields[statParent])
	threads, err2 := strconv.Atoi(fields[statThreads])
	start, err3 := strconv.ParseUint(fields[statStart], 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return process{}, false
	}
	// Where only the first thread has ended, the others run on.
	ended := (fields[statState] == "Z" || fields[statState] == "X") && threads <= 1
	_, name, _ := bytes.Cut(head, []byte("("))
	return process{pid: pid, parent: parent, start: start, name: string(name), ended: ended}, true
}

// processes lists all there are, one after the other: what happens meanwhile may be missed.
func processes() (all []process) {
	names, err := readNames("/proc")
	if err != nil {
		return nil // there is no /proc: the group is all we know
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

// ownChildren lists the children of this process, ended or not. It is exact if the
// kernel lists them: orphans come in at the end of the first thread's list, and none of
// our threads that forked anything but the command ends, so none is missed.
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

// withMark is an environment with one more mark.
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

// marked says that a process was started with a mark in its environment. No mark is
// in none.
func (p process) marked(mark string) bool {
	if mark == "" {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err != nil {
		return false // it is gone, or somebody else's
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

// signal goes to this very process, or to none: its number may be another's by now.
// What was read of it before, like its mark, was then read of it too.
func (p process) signal(s syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd) //nolint:errcheck // a descriptor of a process
	}
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return
	}
	if err == nil {
		unix.PidfdSendSignal(fd, s, nil, 0) //nolint:errcheck // it has ended, or is somebody else's
		return
	}
	// A kernel before 5.3, or no descriptor is left: the moment since the look must do.
	syscall.Kill(p.pid, s) //nolint:errcheck // likewise
}
