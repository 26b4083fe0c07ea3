// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A lock for a descriptor is held by a process of its own, the keeper, since `holdfast flock 9`
// ends as soon as the lock was acquired. The keeper acquires the lock, reports that on its standard
// output, waits for an answer on its standard input, and reports once more that it keeps the lock.
// If its input ends before the answer, because flock was interrupted or killed, it gives the lock up.
// After the answer flock has it release the lock in place of that, if it is interrupted.
//
// Other processes that have inherited the descriptor find the keeper by its role, and read its report.

// parseDescriptor checks the flags that go with a descriptor.
func (x *flocking) parseDescriptor(fl *pflag.FlagSet) (err error) {
	for _, name := range []string{"warn", "on-ask", "progress-file", "proof-file", "lost-exit-code"} {
		if fl.Changed(name) {
			return usagef("flock: --%s is for a command: use holdfast flock LOCK --%s ... COMMAND", name, name)
		}
	}
	if err := firstError(x.lease.check(), x.lost.check(x.lease.ttl, x.margin()), x.hung.check(x.lease.ttl)); err != nil {
		return err
	}
	name := x.name
	if name == "" {
		if x.unlock { // whatever is held
			return nil
		}
		if name, err = lockOfDescriptor(x.descriptor); err != nil {
			return err
		}
	}
	x.lock = cluster.LockName(name)
	if err := x.lock.Validate(); err != nil {
		return usagef("flock: %v: name the lock with --lock NAME", err)
	}
	return nil
}

// checkOpen refuses a descriptor that this process has not inherited.
func checkOpen(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return usagef("flock: descriptor %d is not open: open it before, as in exec %d>/run/lock/NAME", fd, fd)
	}
	return nil
}

// lockOfDescriptor returns the name of the lock for the file behind a descriptor of this process,
// which it has inherited from the shell.
func lockOfDescriptor(fd int) (string, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	switch {
	case err != nil:
		return "", err
	case !filepath.IsAbs(path) || strings.HasSuffix(path, " (deleted)"):
		return "", usagef("flock: descriptor %d is %s, which has no path for the name of a lock: use --lock NAME", fd, path)
	}
	return strings.TrimPrefix(path, "/"), nil
}

// forDescriptor acquires or releases the lock of a descriptor; args are those of flock.
func (x *flocking) forDescriptor(ctx context.Context, args []string) error {
	file := os.NewFile(uintptr(x.descriptor), "the lock file")
	opened, err := child.NewOpenFile(file)
	if err != nil {
		return fmt.Errorf("flock %d: %w: use holdfast flock %s COMMAND", x.descriptor, err, cmp.Or(string(x.lock), aLock))
	}
	if err := opened.As(child.Waits); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	if !opened.Shared() {
		return usagef("flock: only this command has descriptor %d open, so that the lock would end at once: open it in the shell, as in exec %d>/run/lock/NAME", x.descriptor, x.descriptor)
	}
	settle := func() (*descriptorBody, error) {
		var keepers []keeper
		for _, k := range opened.Keepers() {
			keepers = append(keepers, k)
		}
		return x.settle(keepers)
	}
	kept, err := settle()
	if err == nil && kept == nil && !x.unlock {
		kept, err = x.startKeeper(ctx, file, args, settle)
	}
	if err != nil || kept == nil {
		return err
	}
	return x.app.print(kept, func(io.Writer) {})
}

// keeper is a child.Keeper.
type keeper interface {
	PID() int
	Role() child.Role
	Report() ([]byte, error)
	Release(limit time.Duration) error
}

// settle compares what keepers of the descriptor have with what is asked for. It returns the lock that
// one of them holds as this command wants it, nil for none; those that hold it in the other mode, or all with
// -u, release it. It refuses, before it changes anything, where one holds another lock or has lost it.
func (x *flocking) settle(keepers []keeper) (kept *descriptorBody, err error) {
	var others []keeper
	for _, k := range keepers {
		body, err := x.heldFor(k)
		switch {
		case errors.Is(err, os.ErrNotExist): // it has ended
			continue
		case err != nil:
			return nil, err
		case !x.unlock && k.Role() == x.role():
			kept = body
			continue
		}
		others = append(others, k)
	}
	for _, k := range others {
		if err := k.Release(x.app.budget); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// role is that of a keeper which has the lock as this command wants it.
func (x *flocking) role() child.Role {
	if x.lease.shared {
		return child.Shares
	}
	return child.Holds
}

// heldFor returns what a keeper has, and refuses if that is not what the command is about.
func (x *flocking) heldFor(k keeper) (*descriptorBody, error) {
	if x.lock == "" { // -u: whatever it has
		return nil, nil
	}
	report, err := k.Report()
	if err != nil {
		return nil, err
	}
	body := &descriptorBody{}
	if err := json.Unmarshal(report, body); err != nil || body.PID != k.PID() {
		return nil, usagef("flock: process %d holds a lock for descriptor %[2]d, and does not say which: release it with holdfast flock -u %[2]d", k.PID(), x.descriptor)
	}
	switch {
	case body.Lock != string(x.lock):
		return nil, usagef("flock: descriptor %d has lock %s, and not %s: release it with holdfast flock -u %[1]d, or use another descriptor", x.descriptor, body.Lock, x.lock)
	case k.Role() == child.Lost && !x.unlock:
		return nil, &conflictError{err: fmt.Errorf("lock %s of descriptor %d was lost, and the processes that have that open are being ended: holdfast flock -u %[2]d spares them", x.lock, x.descriptor), code: exitLost}
	}
	return body, nil
}

// descriptorBody is what the keeper reports of the lock, and -o json prints.
type descriptorBody struct {
	Status  string        `json:"status"`
	Message string        `json:"message,omitempty"`
	Lock    string        `json:"lock"`
	Token   cluster.Token `json:"token"`
	Epoch   cluster.Epoch `json:"epoch"`
	PID     int           `json:"pid"` // of the process that renews the lease
}

// startKeeper starts the keeper, and returns when it has the lock or has given up; settle is asked
// while it waits. kept is nil if it has given up: it has printed why, and the exit code is set.
func (x *flocking) startKeeper(ctx context.Context, file *os.File, args []string, settle func() (*descriptorBody, error)) (kept *descriptorBody, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := keepDescriptors(); err != nil {
		return nil, fmt.Errorf("flock: %w", err)
	}
	line := append(x.app.globalFlags(), "--output", x.app.format, keeperName, strconv.Itoa(os.Getppid()), string(x.lock), "--")
	cmd := exec.Command(self, append(line, args...)...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's Ctrl-C is for this process
	return x.follow(ctx, cmd, settle)
}

// follow runs a keeper until it has the lock or has given up, or settle says that it is not needed.
func (x *flocking) follow(ctx context.Context, cmd *exec.Cmd, settle func() (*descriptorBody, error)) (kept *descriptorBody, err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("flock: %w", err)
	}
	defer context.AfterFunc(ctx, func() { in.Close() })() //nolint:errcheck // a pipe
	var other *descriptorBody
	var refused error
	kept, err = x.converse(ctx, in, linesOf(out), func() (settled bool) {
		other, refused = settle()
		return other != nil || refused != nil
	})
	if err == nil {
		return kept, nil
	}
	if errors.Is(err, errSettled) {
		fmt.Fprintln(in, keeperDrop) //nolint:errcheck // it has ended
	}
	in.Close() //nolint:errcheck // a pipe
	if !errors.Is(err, errNotKept) {
		// It may have the lock by now, and then waits for the end of the file, not of its input.
		cmd.Process.Signal(child.ReleaseSignal) //nolint:errcheck // it has ended
	}
	cmd.Wait() //nolint:errcheck // the code says it
	if errors.Is(err, errSettled) {
		return other, refused
	}
	if x.app.code = cmd.ProcessState.ExitCode(); x.app.code <= 0 { // it was killed, or had the lock when Ctrl-C came
		return nil, errInterrupted
	}
	return nil, nil // the keeper has printed why
}

// errNotKept reports that the keeper has no lock; it has printed why.
var errNotKept = errors.New("the lock was not acquired")

// errSettled reports that the keeper is not needed.
var errSettled = errors.New("another keeper of the descriptor settles it")

// settlePoll is how often a flock that waits looks whether another one of the same descriptor has got
// the lock. It would wait for itself: that lock is held for as long as the descriptor is open.
const settlePoll = 500 * time.Millisecond

// converse reads the keeper's report, answers that this process wants the lock, and reads that the
// keeper has it from now on. With -o json it prints the keeper's error.
func (x *flocking) converse(ctx context.Context, in io.Writer, lines <-chan []byte, settled func() bool) (kept *descriptorBody, err error) {
	look := time.NewTicker(settlePoll)
	defer look.Stop()
	for granted := false; ; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
			if !granted && settled() { // later it would find this keeper
				return nil, errSettled
			}
		case line, more := <-lines:
			if !more || ctx.Err() != nil {
				return nil, cmp.Or(ctx.Err(), errNotKept)
			}
			kept = &descriptorBody{}
			if err := json.Unmarshal(line, kept); err != nil {
				return nil, err
			}
			if kept.Status != cluster.StatusOK.String() {
				_, err = x.app.Stdout.Write(line)
				return nil, errors.Join(errNotKept, err)
			}
			if granted {
				return kept, nil
			}
			granted = true
			fmt.Fprintln(in, keeperGo) //nolint:errcheck // the next line does not come then
		}
	}
}

// linesOf returns the two lines of a keeper, as they come.
func linesOf(out io.Reader) <-chan []byte {
	lines := make(chan []byte, 2)
	go func() {
		defer close(lines)
		r := bufio.NewReader(out)
		for range cap(lines) {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	return lines
}

// keepDescriptors keeps the shell's descriptors from the keeper, which would hold a pipe open.
func keepDescriptors() error {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range all {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// The hidden command of the keeper, and what flock answers to its report.
const (
	keeperName = "keeper-of-flock"
	keeperGo   = "go"
	keeperDrop = "drop" // it is not needed, and ends without a word
)

func (a *app) keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeperName + " SHELL LOCK -- ARGUMENTS", Hidden: true, Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			x := &flocking{running: running{app: a}}
			shell, err := strconv.Atoi(args[0])
			if err != nil {
				return usagef("%s: %v", keeperName, err)
			}
			fl := x.flags(c)
			if err := fl.Parse(args[2:]); err != nil {
				return usagef("flock: %v", err)
			}
			x.name = args[1]
			if err := x.parseDescriptor(fl); err != nil {
				return err
			}
			return x.keep(c.Context(), shell)
		},
	}
}

// keep acquires the lock, and holds it for the descriptor.
func (x *flocking) keep(ctx context.Context, shell int) (err error) {
	unix.CloseOnExec(keptDescriptor)
	file, err := child.NewOpenFile(os.NewFile(keptDescriptor, "the lock file"))
	if err != nil {
		return err
	}
	if err := file.As(child.Waits); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // flock may be killed while this reports to it
	release := make(chan os.Signal, 1)
	signal.Notify(release, child.ReleaseSignal)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if errors.Is(context.Cause(ctx), errSettled) {
			err = nil // flock has what it wanted
		}
	}()
	answered := make(chan bool, 1)
	go func() {
		text, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		switch text = strings.TrimSpace(text); text {
		case keeperGo:
		case keeperDrop:
			cancel(errSettled)
		default:
			cancel(errInterrupted) // flock was interrupted, or is dead
		}
		answered <- text == keeperGo
	}()
	client, err := x.app.newClient(clientlib.Options{
		Holder: x.app.holderOfProcess(shell), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // there is nobody to tell
	x.waiter = shell
	lock, err := x.acquire(ctx, client)
	if err != nil {
		return err
	}
	report := descriptorBody{Status: cluster.StatusOK.String(), Lock: string(x.lock), Token: lock.Token(), Epoch: lock.Epoch(), PID: os.Getpid()}
	if err := writeJSON(os.Stdout, report); err != nil || !<-answered {
		x.release(lock, false, false)
		return errInterrupted
	}
	say := func(text string) { sayTo(shell, text) }
	lost, err := child.Hold(held{lock}, child.HoldOptions{
		File: file, OnLost: child.OnLost(x.lost.onLost), Grace: x.lost.grace, Margin: x.margin(), Guard: x.app.guardCommandLine(x.lock, lock.Token()),
		Say: say, Release: release, Begin: func() error { return x.begin(file, report) },
	})
	x.release(lock, lost != nil, false)
	if lost != nil {
		if text := x.loss(lock, lost).text(); text != "" {
			say(text)
		}
	}
	return err
}

// keptDescriptor is the keeper's number of the open file.
const keptDescriptor = 3

// begin leaves flock, and its terminal, with a last report.
func (x *flocking) begin(file *child.OpenFile, report descriptorBody) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // as its guard: see there
	var said bytes.Buffer
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err = errors.Join(err, writeJSON(&said, report), os.Chdir("/")); err != nil {
		return err
	}
	if err := file.Announce(x.role(), said.Bytes()); err != nil {
		return err
	}
	_, err = os.Stdout.Write(said.Bytes()) // flock ends now
	for fd := 1; fd <= 2; fd++ {
		err = errors.Join(err, unix.Dup3(int(null.Fd()), fd, 0))
	}
	return errors.Join(err, null.Close())
}

// sayTo prints a line on the standard error that a process has now, if it takes it at once.
func sayTo(pid int, text string) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", pid), os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return // it has ended, or its standard error cannot be opened again
	}
	defer f.Close()                        //nolint:errcheck // nothing is buffered
	fmt.Fprintf(f, "holdfast: %s\n", text) //nolint:errcheck // likewise
}
