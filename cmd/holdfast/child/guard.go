// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is this process's handle of the guard process. The methods of a nil guard do nothing.
//
// The guard reads lines from a pipe: "tree MARK WRAPPER ALONE" and "group N START" once, which
// identify the command's tree, or in their place "file KEEPER", for the processes that have the
// guard's descriptor 3 open, but for that one, and "user PID START" for each that was found to have
// it, and may have become another user's when the guard looks; and "until T" with the time at which
// that must be dead, in nanoseconds of CLOCK_BOOTTIME (which all processes of a host share, and which
// continues while the machine sleeps). The end of the pipe means that this process died.
type guard struct {
	pipe *os.File
	cmd  *exec.Cmd
}

// startGuard starts the guard process; files are its descriptors from 3 on.
func startGuard(command []string, files ...*os.File) (*guard, error) {
	if command == nil {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.ExtraFiles = r, files
	// Away from the terminal: its Ctrl-C is for the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	r.Close() //nolint:errcheck // the guard's end
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), w.Close())
	}
	return &guard{pipe: w, cmd: cmd}, nil
}

// errGuardStuck reports that the pipe to the guard is full: it has read nothing for minutes.
var errGuardStuck = errors.New("it reads no orders: it was stopped, or hangs")

// tell writes one line to the guard without blocking. A guard that cannot take the line is
// killed: it must not act on an older line.
func (g *guard) tell(words ...any) error {
	if g == nil {
		return nil
	}
	if err := writeNow(g.pipe, fmt.Sprintln(words...)); err != nil {
		g.cmd.Process.Kill() //nolint:errcheck // it has ended
		return fmt.Errorf("the guard process is gone: %w", err)
	}
	return nil
}

// writeNow writes a line to a pipe without blocking: all of it or nothing, since a pipe does not
// split so short a write.
func writeNow(pipe *os.File, line string) error {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	var written error
	err = conn.Write(func(fd uintptr) bool {
		for written = unix.EINTR; errors.Is(written, unix.EINTR); {
			_, written = unix.Write(int(fd), []byte(line))
		}
		return true // without waiting for room
	})
	if errors.Is(written, unix.EAGAIN) {
		written = errGuardStuck
	}
	return errors.Join(err, written)
}

func (g *guard) find(t *tree) error { return g.tell("tree", t.mark, t.wrapper, t.alone) }

func (g *guard) watch(leader process) {
	g.tell("group", leader.pid, leader.start) //nolint:errcheck // the next extend notices
}

func (g *guard) extend(until time.Duration) error { return g.tell("until", int64(until)) }

// dismissLimit bounds the wait for the end of a killed guard: one that hangs in
// the kernel does nothing more when the kernel releases it.
const dismissLimit = time.Second

// dismiss kills the guard, and closes the pipe only after that: to a living guard the end of the
// pipe would mean that this process died.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	g.cmd.Process.Kill() //nolint:errcheck // it has ended
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.cmd.Wait() //nolint:errcheck // it was killed
	}()
	select {
	case <-ended:
	case <-time.After(dismissLimit):
	}
	g.pipe.Close() //nolint:errcheck // a pipe
}

func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // not on Linux since 2.6.39
	}
	return time.Duration(ts.Nano())
}

const (
	// pipeSize is the capacity of a pipe, in bytes.
	pipeSize = 64 << 10
	// guardPoll is how often the guard reads the clock: timers stop while the machine sleeps.
	guardPoll = 100 * time.Millisecond
	// killPoll is how often it checks whether processes of a killed tree are left.
	killPoll = 5 * time.Millisecond
	// killLimit is how long it continues with that after the wrapper has died: a process that
	// still lives then hangs in the kernel, and dies when the kernel releases it.
	killLimit = time.Minute
)

// guardian is the state of the guard process.
type guardian struct {
	tree   tree
	file   *OpenFile     // in place of the tree; nil = a tree
	leader process       // of the command's group; zero = not known yet
	until  time.Duration // when the tree must be dead, in CLOCK_BOOTTIME; 0 = not set
	// killing is true once the tree is being killed; quiet counts the searches in a row that
	// found nothing of it.
	killing bool
	quiet   int
	// gone is when the death of the wrapper was noticed; 0 = it lives.
	gone time.Duration
}

// Guard runs the guard process: it reads orders from a pipe and kills the tree when the pipe
// ends or the time of the latest order is reached. It returns when the wrapper is gone and nothing
// is left to do. dead reports that no process of the tree runs, as far as the guard can see; it is
// false if one has survived SIGKILL for a minute.
func Guard(orders *os.File) (dead bool) {
	// A signal to all processes that ends the wrapper must not end its guard first.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	g, in := &guardian{}, inbox{fd: int(orders.Fd())}
	for !g.over() {
		// All lines written so far are read before the time is compared: a guard that was
		// stopped for a while would else kill a command whose lease was extended meanwhile.
		now := boottime()
		lines, open := in.read(g.pause(now))
		for _, line := range lines {
			open = g.order(strings.Fields(line)) && open // also those before the end of the pipe
		}
		if !open && g.gone == 0 {
			g.gone = boottime()
			g.kill()
		}
		if g.until != 0 && now >= g.until {
			g.until = 0 // until the next order
			g.kill()
		}
		if g.killing {
			g.sweep()
		}
	}
	return !g.killing && (g.file != nil || g.tree.wrapper > 0) // else it does not know what to look for
}

// inbox reads lines from the guard's end of the pipe.
type inbox struct {
	fd    int
	rest  []byte // the beginning of an incomplete line
	ended bool
}

// read returns the lines that have arrived; it waits at most limit for the first one. open is
// false after the end of the pipe.
func (in *inbox) read(limit time.Duration) (lines []string, open bool) {
	if in.ended {
		<-time.After(limit)
		return nil, false
	}
	buf := make([]byte, pipeSize)
	for in.ready(limit) {
		limit = 0
		n, err := unix.Read(in.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if in.ended = n <= 0; in.ended {
			break
		}
		in.rest = append(in.rest, buf[:n]...)
	}
	for line := range bytes.Lines(in.rest) {
		if whole, ok := bytes.CutSuffix(line, []byte("\n")); ok {
			lines, in.rest = append(lines, string(whole)), in.rest[len(line):]
		}
	}
	return lines, !in.ended
}

// ready waits at most limit for data or the end of the pipe, and reports whether either came.
func (in *inbox) ready(limit time.Duration) bool {
	for {
		ts := unix.NsecToTimespec(int64(limit))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}}, &ts, nil)
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
		limit = 0
	}
}

// order executes the order in one line, and reports whether the line was a valid one.
func (g *guardian) order(words []string) bool {
	number := func(i int) (n int64) {
		n, _ = strconv.ParseInt(words[i], 10, 64) // 0 is not valid
		return n
	}
	switch {
	case len(words) == 4 && words[0] == "tree":
		g.tree = tree{mark: words[1], wrapper: int(number(2)), alone: words[3] == "true", since: startOfThis()}
		return g.tree.wrapper > 0
	case len(words) == 3 && words[0] == "group":
		g.leader = process{pid: int(number(1)), start: uint64(number(2))}
		return g.leader.pid > 1
	case len(words) == 2 && words[0] == "file":
		g.file = opened(int(number(1)))
		return g.file != nil
	case len(words) == 3 && words[0] == "user" && g.file != nil:
		p := process{pid: int(number(1)), start: uint64(number(2))}
		g.file.learn(p)
		return p.pid > 1
	case len(words) == 2 && words[0] == "until":
		g.until = time.Duration(number(1))
		return g.until > 0
	}
	return false
}

func (g *guardian) pause(now time.Duration) time.Duration {
	switch {
	case g.killing:
		return killPoll
	case g.until != 0:
		return max(min(guardPoll, g.until-now), 0)
	}
	return guardPoll
}

// over reports whether the guard may end: the wrapper is gone, and nothing is left to kill.
func (g *guardian) over() bool {
	return g.gone != 0 && (!g.killing || boottime() > g.gone+killLimit)
}

// kill begins to kill the tree; sweep continues with it.
func (g *guardian) kill() {
	if g.leads() {
		syscall.Kill(-g.leader.pid, syscall.SIGKILL) //nolint:errcheck // ESRCH: nothing is left
	}
	g.killing, g.quiet = true, 0
}

// leads reports whether the group's number still belongs to the command. After its leader
// was reaped, by the wrapper or its heir, the kernel may give the number to another process.
func (g *guardian) leads() bool {
	if g.leader.pid == 0 || g.leader.start == 0 { // not known yet; there was no /proc
		return g.leader.pid != 0
	}
	now, ok := readProcess(g.leader.pid)
	return ok && now.start == g.leader.start
}

// remains reports whether a process of the command's group runs. One that changed its user, like
// sudo, is found in no other way once the wrapper is gone, and does not die of the guard's SIGKILL.
// A process with the leader's number that is not the leader proves that the group has ended. It is
// true, too, while that cannot be told.
func (g *guardian) remains() bool {
	all := processes()
	if !complete(all) {
		return true
	}
	if p, found := readProcess(g.leader.pid); found && p.start != g.leader.start {
		return false
	}
	return g.leader.pid != 0 && slices.ContainsFunc(all, func(p process) bool { return p.group == g.leader.pid && !p.ended })
}

// find lists what the guard has to kill; blind is true if it could not look everywhere.
func (g *guardian) find(heir int) (live []process, blind bool) {
	if g.file != nil {
		live, sure := g.file.find()
		return live, !sure
	}
	live, _ = g.tree.find(heir)
	return live, false
}

// sweep kills the rest of the tree, until two searches in a row found nothing: one search may
// miss a process that loses its parent at that moment.
func (g *guardian) sweep() {
	heir := os.Getppid() // the wrapper, or the process that inherited its orphans and this guard
	live, blind := g.find(heir)
	signalAll(live, syscall.SIGKILL)
	if g.quiet++; len(live) > 0 || blind || g.gone != 0 && heir == g.tree.wrapper || g.remains() {
		g.quiet = 0
	}
	g.killing = g.quiet < 2
}
