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
// It is told, in lines: "group N" once, "until N" with the time at which the
// group must be dead, in nanoseconds of CLOCK_BOOTTIME (which two processes of
// one host share, and which does not stand still while the machine sleeps), and
// "done". The end of the pipe without "done" means that this process died.
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

func (g *guard) tell(word string, n int64) error {
	if g == nil {
		return nil
	}
	if _, err := fmt.Fprintf(g.pipe, "%s %d\n", word, n); err != nil {
		return fmt.Errorf("the guard process is gone: %w", err)
	}
	return nil
}

func (g *guard) watch(pgid int) {
	g.tell("group", int64(pgid)) //nolint:errcheck // the next extend notices
}

func (g *guard) extend(left time.Duration) error {
	return g.tell("until", int64(boottime()+left))
}

func (g *guard) dismiss() {
	if g == nil {
		return
	}
	g.tell("done", 0) //nolint:errcheck // it is dead already
	g.pipe.Close()    //nolint:errcheck // a pipe
	g.cmd.Wait()      //nolint:errcheck // it has nothing to say
}

func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // not on Linux since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// Guard is what the guard process does: it reads orders and kills the group
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
	var pgid int
	var until time.Duration
	for {
		// Short timers, because they stand still while the machine sleeps.
		next := 100 * time.Millisecond
		if until != 0 {
			next = max(min(next, until-boottime()), time.Millisecond)
		}
		select {
		case line, ok := <-lines:
			word, number, _ := strings.Cut(line, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			switch {
			case word == "done":
				return
			case !ok || err != nil:
				kill(pgid)
				return
			case word == "group":
				pgid = int(n)
			case word == "until":
				until = time.Duration(n)
			}
		case <-time.After(next):
			if until != 0 && boottime() >= until {
				kill(pgid)
				until = 0 // until the next order
			}
		}
	}
}

func kill(pgid int) {
	if pgid > 1 {
		syscall.Kill(-pgid, syscall.SIGKILL) //nolint:errcheck // ESRCH: nothing is left
	}
}
