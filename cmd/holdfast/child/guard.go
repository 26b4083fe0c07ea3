// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is this process's end of the guard. A nil guard does nothing.
//
// It is told, in lines: "tree MARK WRAPPER ALONE" and "group N START" once, what to find
// the command's tree by; and "until T" with the time at which that must be dead, in
// nanoseconds of CLOCK_BOOTTIME (which two processes of one host share, and which does not
// stand still while the machine sleeps). The end of the pipe means that this process died.
type guard struct {
	pipe *os.File
	cmd  *exec.Cmd
}

func startGuard(command []string) (*guard, error) {
	if command == nil {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = r
	// Away from the terminal: its Ctrl-C is for the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	r.Close() //nolint:errcheck // the guard's end
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard: %w", err), w.Close())
	}
	return &guard{pipe: w, cmd: cmd}, nil
}

// errGuardStuck says that the pipe to the guard is full: it has read nothing for minutes.
var errGuardStuck = errors.New("it reads no orders: it was stopped, or hangs")

// tell writes one line to the guard, and never waits for it. A guard that does not get
// the line is killed: it must not go by what it was told before.
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

// writeNow writes a line to a pipe at once, or nothing of it: a pipe does not divide what
// is this short.
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

// dismissLimit bounds the wait for the end of a guard that was killed: one that hangs in
// the kernel does nothing any more when that lets go.
const dismissLimit = time.Second

// dismiss kills the guard. The pipe ends after that: its end means something else.
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
	// pipeSize is what a pipe holds.
	pipeSize = 64 << 10
	// guardPoll is how often the guard looks at the time: timers stand still while the
	// machine sleeps.
	guardPoll = 100 * time.Millisecond
	// killPoll is how often it looks whether something of a tree is left that it killed.
	killPoll = 5 * time.Millisecond
	// killLimit is how long it goes on with that when nobody is left whom it serves: what
	// lives then hangs in the kernel, and dies when that lets go.
	killLimit = time.Minute
)

// guardian is what the guard process knows.
type guardian struct {
	tree   tree
	leader process       // of the command's group; zero: not known yet
	until  time.Duration // when the tree must be dead; 0: no time is set
	// killing says that the tree is to die now, and quiet how often in a row nothing of it
	// was found.
	killing bool
	quiet   int
	// gone is when the wrapper had died; 0: it lives.
	gone time.Duration
}

// Guard is what the guard process does: it reads orders from a pipe and kills the tree
// when the orders end or the time is up.
func Guard(orders *os.File) {
	// Whoever ends the command's wrapper by a signal to all must not end its guard first.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	g, in := &guardian{}, inbox{fd: int(orders.Fd())}
	for !g.over() {
		// What was written by now is read before the time is judged: a guard that was
		// stopped for a while would else kill a command whose lease was extended meanwhile.
		now := boottime()
		lines, open := in.read(g.pause(now))
		for _, line := range lines {
			open = g.order(strings.Fields(line)) && open // all of them, also before the end
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
}

// inbox is the guard's end of the pipe.
type inbox struct {
	fd    int
	rest  []byte // of a line that has not come whole
	ended bool
}

// read returns the lines that have come, waiting for the first one until limit. Open is
// false when the pipe has ended.
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

// ready waits until there is something to read, or the end, but not beyond limit.
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

// order takes one line; false if it is none.
func (g *guardian) order(words []string) bool {
	number := func(i int) (n int64) {
		n, _ = strconv.ParseInt(words[i], 10, 64) // 0 is no order
		return n
	}
	switch {
	case len(words) == 4 && words[0] == "tree":
		g.tree = tree{mark: words[1], wrapper: int(number(2)), alone: words[3] == "true", since: startOfThis()}
		return g.tree.wrapper > 0
	case len(words) == 3 && words[0] == "group":
		g.leader = process{pid: int(number(1)), start: uint64(number(2))}
		return g.leader.pid > 1
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

// over says that nobody is left, neither to serve nor to kill.
func (g *guardian) over() bool {
	return g.gone != 0 && (!g.killing || boottime() > g.gone+killLimit)
}

// kill begins to kill: sweeps go on with it.
func (g *guardian) kill() {
	if g.leads() {
		syscall.Kill(-g.leader.pid, syscall.SIGKILL) //nolint:errcheck // ESRCH: nothing is left
	}
	g.killing, g.quiet = true, 0
}

// leads reports whether the number of the group is still the command's. When its leader
// was reaped, by the wrapper or by the wrapper's heir, it may be given to a stranger.
func (g *guardian) leads() bool {
	if g.leader.pid == 0 || g.leader.start == 0 { // not known yet; there was no /proc
		return g.leader.pid != 0
	}
	now, ok := readProcess(g.leader.pid)
	return ok && now.start == g.leader.start
}

// sweep kills what is left, until nothing was found twice: what loses its parent at
// that moment may be missed once.
func (g *guardian) sweep() {
	heir := os.Getppid() // the wrapper, or who has inherited the command's orphans like us
	live, _ := g.tree.find(heir)
	signalAll(live, syscall.SIGKILL)
	if g.quiet++; len(live) > 0 || g.gone != 0 && heir == g.tree.wrapper {
		g.quiet = 0
	}
	g.killing = g.quiet < 2
}
