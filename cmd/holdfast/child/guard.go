// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
// It is told, in lines: "tree MARK WRAPPER ALONE" and "group N" once, what to find the
// command's tree by; "until T" with the time at which that must be dead, in nanoseconds
// of CLOCK_BOOTTIME (which two processes of one host share, and which does not stand
// still while the machine sleeps); and "done". The end of the pipe without "done"
// means that this process died.
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

func (g *guard) tell(words ...any) error {
	if g == nil {
		return nil
	}
	if _, err := fmt.Fprintln(g.pipe, words...); err != nil {
		return fmt.Errorf("the guard process is gone: %w", err)
	}
	return nil
}

func (g *guard) find(t *tree) error { return g.tell("tree", t.mark, t.wrapper, t.alone) }

func (g *guard) watch(pgid int) {
	g.tell("group", pgid) //nolint:errcheck // the next extend notices
}

func (g *guard) extend(left time.Duration) error {
	return g.tell("until", int64(boottime()+left))
}

func (g *guard) dismiss() {
	if g == nil {
		return
	}
	g.tell("done") //nolint:errcheck // it is dead already
	g.pipe.Close() //nolint:errcheck // a pipe
	g.cmd.Wait()   //nolint:errcheck // it has nothing to say
}

func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // not on Linux since 2.6.39
	}
	return time.Duration(ts.Nano())
}

const (
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
	tree  tree
	group int           // 0: not known yet
	until time.Duration // when the tree must be dead; 0: no time is set
	// killing says that the tree is to die now, and quiet how often in a row nothing of it
	// was found.
	killing bool
	quiet   int
	// gone is when the wrapper had died; 0: it lives.
	gone time.Duration
}

// Guard is what the guard process does: it reads orders and kills the tree
// when the orders end or the time is up.
func Guard(orders io.Reader) {
	// Whoever ends the command's wrapper by a signal to all must not end its guard first.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(orders)
		for s.Scan() {
			lines <- s.Text()
		}
	}()
	g := &guardian{}
	for !g.over() {
		select {
		case line, ok := <-lines:
			switch {
			case ok && line == "done":
				return
			case !ok || !g.order(strings.Fields(line)):
				lines = nil
				g.gone = boottime()
				g.kill()
			}
		case <-time.After(g.pause()):
			if g.until != 0 && boottime() >= g.until {
				g.until = 0 // until the next order
				g.kill()
			}
			if g.killing {
				g.sweep()
			}
		}
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
	case len(words) == 2 && words[0] == "group":
		g.group = int(number(1))
		return g.group > 1
	case len(words) == 2 && words[0] == "until":
		g.until = time.Duration(number(1))
		return g.until > 0
	}
	return false
}

func (g *guardian) pause() time.Duration {
	switch {
	case g.killing:
		return killPoll
	case g.until != 0:
		return max(min(guardPoll, g.until-boottime()), time.Millisecond)
	}
	return guardPoll
}

// over says that nobody is left, neither to serve nor to kill.
func (g *guardian) over() bool {
	return g.gone != 0 && (!g.killing || boottime() > g.gone+killLimit)
}

// kill begins to kill. The group's number is good only now: the wrapper has taken no
// note of its leader's end, for it is stopped or has just died.
func (g *guardian) kill() {
	if g.group != 0 {
		syscall.Kill(-g.group, syscall.SIGKILL) //nolint:errcheck // ESRCH: nothing is left
	}
	g.killing, g.quiet = true, 0
	g.sweep()
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
