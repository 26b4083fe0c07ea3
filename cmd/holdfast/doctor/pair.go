// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// seenWithin bounds how long a change by one mount may take to show on another.
const seenWithin = 5 * time.Second

// pair runs the trial between two directories of this host. Its findings go to
// the report of the second.
func pair(ctx context.Context, first, second *Report, opt Options) (err error) {
	dir, err := os.MkdirTemp(first.Path, probePrefix)
	if err != nil {
		second.add("same directory", Refuse, err.Error())
		return nil
	}
	defer func() {
		opt.Progress(Progress{Check: "clean up"})
		if e := os.RemoveAll(dir); e != nil {
			second.add("clean up", Warn, e.Error(), "rm -r "+dir)
		}
	}()
	a, err := enter(ctx, dir, first.Path, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	b, err := enter(ctx, filepath.Join(second.Path, filepath.Base(dir)), second.Path, opt)
	if err != nil {
		second.elsewhere(first.Path, err)
		return nil
	}
	defer func() { err = errors.Join(err, b.close()) }()
	second.oneSuperblock(first)
	return second.trial(ctx, a, b, opt)
}

// elsewhere adds the finding that a directory made in one place does not appear in this one.
func (r *Report) elsewhere(first string, err error) {
	r.add("same directory", Refuse, fmt.Sprintf("a directory made in %s does not appear in %s: %v", first, r.Path, err), "findmnt -T "+first, "findmnt -T "+r.Path)
}

// oneSuperblock adds the finding that two paths of a network filesystem share their caches.
func (r *Report) oneSuperblock(first *Report) {
	var a, b unix.Stat_t
	if !r.Network || unix.Stat(first.Path, &a) != nil || unix.Stat(r.Path, &b) != nil || a.Dev != b.Dev {
		return
	}
	r.add("mounts", Warn, fmt.Sprintf("%s and %s are one mount for the kernel, with one cache: this tests nothing about other hosts", first.Path, r.Path),
		"holdfast doctor --listen HOST:7600 "+first.Path+"   # on one host", "holdfast doctor --peer HOST:7600 "+r.Path+"   # on another")
}

// trial runs the probes between two agents and adds what they found.
func (r *Report) trial(ctx context.Context, a, b mountAgent, opt Options) error {
	t := &trial{a: a, b: b, rounds: opt.Rounds, mend: r.mend, coherent: r.coherent, progress: opt.Progress, add: r.record, patience: seenWithin}
	if r.Network {
		t.waiting = opt.Waiting
	}
	err := t.run(ctx)
	r.Staleness, r.Rounds = t.staleness.Round(time.Millisecond).String(), opt.Rounds
	if err != nil {
		return fmt.Errorf("the trial of %s and %s could not be finished: %w", a, b, err)
	}
	return nil
}

// enter opens the directory of a trial, which another mount may have made a moment ago.
func enter(ctx context.Context, dir, label string, opt Options) (*localAgent, error) {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	var fsys *osfs.FS
	_, err := poll(ctx, func() (err error) {
		fsys, err = osfs.Open(dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	h := newLocalAgent(fsys, label, opt.crewIn(dir))
	h.root = fsys
	return h, nil
}

// crewIn returns a crew for a directory; nil if the options name no command.
func (o Options) crewIn(dir string) crew {
	if len(o.Holder) == 0 {
		return nil
	}
	return func(ctx context.Context, name string) (io.Closer, error) {
		cmd := exec.Command(o.Holder[0], append(o.Holder[1:len(o.Holder):len(o.Holder)], dir, name)...)
		in, errIn := cmd.StdinPipe() // its end is the end of this process, and of the holder
		out, errOut := cmd.StdoutPipe()
		if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoCrew, err)
		}
		v := &victim{cmd: cmd, in: in}
		line, err := bufio.NewReader(out).ReadString('\n')
		if strings.TrimSpace(line) != holding {
			return nil, errors.Join(fmt.Errorf("the process that should hold %s said %q", name, line), err, v.Close())
		}
		return v, nil
	}
}

// victim is a process that holds a lock.
type victim struct {
	cmd *exec.Cmd
	in  io.Closer
}

// Close kills the process with SIGKILL, and waits for its end.
func (v *victim) Close() error {
	err := v.cmd.Process.Kill()
	var exit *exec.ExitError
	if e := v.cmd.Wait(); e != nil && !errors.As(e, &exit) {
		err = errors.Join(err, e)
	}
	v.in.Close() //nolint:errcheck // Wait has closed it
	return err
}

// holding is the line that a holder prints when it has the lock.
const holding = "holding"

// Hold takes the lock of the file name in dir, prints a line to out and holds the lock until in
// ends. It is the main function of a process that a trial kills, see Options.Holder.
func Hold(dir, name string, in io.Reader, out io.Writer) (err error) {
	fsys, err := osfs.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	l, err := fsys.TryLock(name)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, holding); err != nil {
		return errors.Join(err, l.Unlock())
	}
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, l.Unlock())
}
