// SPDX-License-Identifier: Apache-2.0

// Package helper runs parts of a workload in processes of their own: clients whose processor time and
// file descriptors are theirs, servers to compare with, loads beside the servers. A helper is this program,
// started again. It ends when its standard input does, and so with the program that started it, however
// that ends.
package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// word is the first argument of a helper, and its kind the second.
	word = "helper"
	// endLimit is how long a helper may take to end before it is killed.
	endLimit = 20 * time.Second
)

// Func is what a helper does. It returns soon after in has ended. What it writes to out, a line of JSON
// for each message, is for the program that started it.
type Func func(ctx context.Context, args []string, in io.Reader, out io.Writer) error

// Main runs the function of this helper, and exits. It returns if this process is no helper. Programs
// that start helpers call it first, and so do their tests.
func Main(all map[string]Func) {
	if len(os.Args) < 3 || os.Args[1] != word {
		return
	}
	f, ok := all[os.Args[2]]
	if !ok {
		fmt.Fprintf(os.Stderr, "helper %q: there is no such kind: start helpers only from the program itself\n", os.Args[2])
		os.Exit(2)
	}
	if err := f(context.Background(), os.Args[3:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "helper %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a helper as the program sees it that started it. It is for one goroutine.
type Process struct {
	kind string
	cmd  *exec.Cmd
	in   io.WriteCloser
	asks *json.Encoder
	says *json.Decoder
	out  *os.File      // of says
	done chan struct{} // closed when it has ended
}

// Start starts a helper. The caller closes it.
func Start(kind string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{kind: kind, cmd: exec.Command(self, append([]string{word, kind}, args...)...), done: make(chan struct{})}
	// In a group of its own: an interrupt from the terminal ends this program, which ends its helpers.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe, which must be read to its end before the process is waited for.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, p.in.Close())
	}
	p.cmd.Stdout = w
	err = p.cmd.Start()
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start helper %s: %w", kind, err), r.Close(), p.in.Close())
	}
	p.asks, p.says, p.out = json.NewEncoder(p.in), json.NewDecoder(r), r
	go func() { // it ends with the process
		defer close(p.done)
		p.cmd.Wait() //nolint:errcheck // what it says on standard error says more
	}()
	return p, nil
}

// PID returns its process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tell sends it a message.
func (p *Process) Tell(message any) error {
	if err := p.asks.Encode(message); err != nil {
		return fmt.Errorf("helper %s (pid %d) takes no messages, see what it has printed: %w", p.kind, p.PID(), err)
	}
	return nil
}

// Hear waits for its next message. When ctx ends, the helper is killed, and Hear returns the cause.
func (p *Process) Hear(ctx context.Context, message any) error {
	stop := context.AfterFunc(ctx, func() { p.cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	defer stop()
	err := p.says.Decode(message)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("helper %s (pid %d) has ended, see what it has printed: %w", p.kind, p.PID(), err)
	}
	return nil
}

// Close ends it, and kills it if it takes long, which is an error. It may be called again.
func (p *Process) Close() error {
	p.in.Close()        //nolint:errcheck // it may have ended
	defer p.out.Close() //nolint:errcheck // nothing is read any more
	late := time.NewTimer(endLimit)
	defer late.Stop()
	select {
	case <-p.done:
		return nil
	case <-late.C:
	}
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.done
	return errors.Join(fmt.Errorf("helper %s (pid %d) did not end within %v and was killed", p.kind, p.PID(), endLimit), err)
}

// CloseAll closes helpers, all at the same time.
func CloseAll(all []*Process) error {
	for _, p := range all {
		p.in.Close() //nolint:errcheck // Close tells more
	}
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// UntilEnd returns a context that ends when in does, for helpers that get no messages.
func UntilEnd(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // it ends with the process
		io.Copy(io.Discard, in) //nolint:errcheck // however it ends, the starter has gone
		cancel()
	}()
	return ctx, cancel
}
