// SPDX-License-Identifier: Apache-2.0

// Package dev runs the servers of one volume as processes of this host, to try
// Holdfast and to test it. They are real processes: kill one and see.
//
// A server that dies is not started again: the output says how to do that, and the
// others go on.
package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Options are the servers to run.
type Options struct {
	// Command is the start of the command line of a server: the binary, "server" and flags.
	Command []string
	Volume  string
	Servers cluster.Members
	// Metrics are the addresses for their metrics; those without one serve them on the port for clients only.
	Metrics map[cluster.ServerID]string
	// Output gets the servers' log lines, each with the server in front, and the messages of this
	// package. Its Write must not block: otherwise the servers could not be ended.
	Output io.Writer
	// Started is called when all servers have been started, with their process IDs.
	Started func(pids map[cluster.ServerID]int)
}

const (
	// endWait is how long the servers may take to end: longer than a handover.
	endWait = 8 * time.Second
	// maxLine bounds a log line, in bytes.
	maxLine = 1 << 20
)

// CheckPorts returns an error that names the first of the addresses that is in use.
func CheckPorts(addrs []string) error {
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is in use: is another holdfast dev running? Use --base-port for other ports, or end what listens there (ss -ltnp)", addr)
		}
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Run runs the servers until ctx ends, and then ends them, or until all of them have ended. It says what they leave on
// the disk.
func Run(ctx context.Context, opt Options) error {
	d := &fleet{opt: opt, ended: make(chan ending, len(opt.Servers))}
	d.out.w = opt.Output
	for _, m := range opt.Servers {
		if err := d.start(m); err != nil {
			d.stop()
			return errors.Join(err, d.wait(nil))
		}
	}
	if opt.Started != nil {
		pids := map[cluster.ServerID]int{}
		for _, p := range d.running {
			pids[p.id] = p.cmd.Process.Pid
		}
		opt.Started(pids)
	}
	err := d.wait(ctx.Done())
	d.say("dev      | what the servers stored stays, %d MiB; when you need it no more:\ndev      |   rm -r %s", stored(opt.Volume)>>20, opt.Volume)
	return err
}

// stored returns how many bytes the files in a directory have. What cannot be read counts nothing.
func stored(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// fleet is the running servers.
type fleet struct {
	opt     Options
	running []*process
	ended   chan ending
	out     struct {
		sync.Mutex
		w io.Writer
	}
}

type process struct {
	id  cluster.ServerID
	cmd *exec.Cmd
}

type ending struct {
	process *process
	err     error
}

// commandLine returns the command that starts a server, also for an operator.
func (d *fleet) commandLine(id cluster.ServerID) []string {
	args := slices.Concat(d.opt.Command, []string{"--id", fmt.Sprint(id), "--volume", d.opt.Volume})
	if at := d.opt.Metrics[id]; at != "" {
		args = append(args, "--metrics-listen", at)
	}
	return args
}

func (d *fleet) start(m cluster.Member) error {
	args := d.commandLine(m.ID)
	cmd := exec.Command(args[0], args[1:]...)
	// A group of its own: Ctrl-C comes to this process alone, which passes it
	// on; and no server outlives a dev that was killed. (The signal comes with the
	// death of the thread that forked, and Go ends no threads while none is locked.)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	logs, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	p := &process{id: m.ID, cmd: cmd}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start server %d: %w", m.ID, err)
	}
	d.running = append(d.running, p)
	var copied sync.WaitGroup
	copied.Go(func() { d.copy(p.id, logs) })
	go func() {
		err := cmd.Wait()
		w.Close() //nolint:errcheck // never fails
		copied.Wait()
		d.ended <- ending{p, err}
	}()
	return nil
}

// copy puts the server in front of each line of its log.
func (d *fleet) copy(id cluster.ServerID, logs io.Reader) {
	r := bufio.NewReaderSize(logs, maxLine)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			d.say("server %d | %s", id, strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

func (d *fleet) say(format string, args ...any) {
	d.out.Lock()
	defer d.out.Unlock()
	fmt.Fprintf(d.out.w, format+"\n", args...)
}

// wait waits for the servers, and ends them when stop is closed.
func (d *fleet) wait(stop <-chan struct{}) error {
	stopping := stop == nil
	var late <-chan time.Time
	for len(d.running) > 0 {
		select {
		case <-stop:
			stop, stopping = nil, true
			d.say("dev      | ending the servers")
			d.stop()
			late = time.After(endWait)
		case <-late:
			for _, p := range d.running {
				d.say("dev      | server %d does not end: killing it", p.id)
				p.cmd.Process.Kill() //nolint:errcheck // it has ended
			}
		case e := <-d.ended:
			d.remove(e.process)
			if !stopping {
				d.say("dev      | server %d (pid %d) died: %v; start it again with\ndev      |   %s",
					e.process.id, e.process.cmd.Process.Pid, e.err, strings.Join(d.commandLine(e.process.id), " "))
			}
		}
	}
	if !stopping {
		return errors.New("all servers have died")
	}
	return nil
}

// stop asks the servers to end, all at once: a primary that looks for a successor
// finds none that is not ending too, says so and ends.
func (d *fleet) stop() {
	for _, p := range d.running {
		p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it has ended
	}
}

func (d *fleet) remove(p *process) {
	for i, x := range d.running {
		if x == p {
			d.running = append(d.running[:i], d.running[i+1:]...)
			return
		}
	}
}
