// SPDX-License-Identifier: Apache-2.0

// Package supervisor runs the servers of a site's cells on this host, each in a process of its own, and starts again what ends.
//
// One process for each cell, because a server whose filesystem hangs ends its process: the other cells go on.
package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// firstPause and lastPause bound the pause before a server is started again. It doubles from one end to the next, and begins anew where
	// the server ran for ranWell.
	firstPause, lastPause = 250 * time.Millisecond, 10 * time.Second
	ranWell               = 30 * time.Second
	// readyWait is how long Ready waits for servers that are not ready: a cell whose volume is lost must not keep the others from being used.
	readyWait = 10 * time.Second
	// killWait is how long the ends of killed servers are waited for: one that hangs in the filesystem has none.
	killWait = time.Second
)

var (
	// ErrGivenUp means that every server has ended with the exit code after which it is not started again.
	ErrGivenUp = errors.New("no cell of the site is to be served here any more")
	// ErrKilled means that a second signal had the servers killed.
	ErrKilled = errors.New("a second signal came: the servers were killed")
)

// Options are the servers to run.
type Options struct {
	Cells []cluster.CellID
	// Command returns the command line of the server of a cell.
	Command func(cluster.CellID) []string
	// GiveUp is the exit code after which a server is not started again.
	GiveUp int
	// Ready is called once, when each server has said that it is ready, or has ended, or is late.
	Ready func()
	Log   zerolog.Logger
	// Output gets what the servers write to their standard error. A file is given to them as it is.
	Output io.Writer

	start func(k cluster.CellID, ready func()) (server, error) // nil = a process
}

// server is a server that was started.
type server interface {
	Signal(os.Signal)
	// Wait waits for its end, and returns its exit code, -1 if a signal ended it, and what people say to that.
	Wait() (code int, how string)
}

// Run runs the servers until signals has SIGTERM or SIGINT, and then has them end; at a second one it kills them. SIGHUP is passed on.
func Run(signals <-chan os.Signal, opt Options) error {
	if opt.start == nil {
		opt.start = opt.process
	}
	s := &supervisor{opt: opt, events: make(chan func()), over: make(chan struct{})}
	defer close(s.over)
	for _, k := range opt.Cells {
		c := &cell{id: k}
		s.cells = append(s.cells, c)
		s.start(c)
	}
	late := time.NewTimer(readyWait)
	defer late.Stop()
	for {
		if done, err := s.done(); done {
			return err
		}
		s.tellReady(false)
		select {
		case sig := <-signals:
			s.signal(sig)
		case <-late.C:
			s.tellReady(true)
		case <-s.killed:
			return ErrKilled
		case happened := <-s.events:
			happened()
		}
	}
}

// supervisor runs servers. Its goroutine is that of Run.
type supervisor struct {
	opt   Options
	cells []*cell
	// events are what Run is to do next; over is closed when it does nothing any more.
	events chan func()
	over   chan struct{}
	// stopping is true from the first signal on. From the second on, killed tells when ends are not waited for any more.
	stopping bool
	killed   <-chan time.Time
	ready    bool // Ready was called
}

// cell is the server of one cell.
type cell struct {
	id cluster.CellID
	// running is nil while there is no process.
	running server
	began   time.Time
	// pause is that before the last start, 0 for none.
	pause time.Duration
	// settled is true from when the first process was ready, or ended; gaveUp if there is to be no other.
	settled, gaveUp bool
}

// later has Run do something, if it still does anything.
func (s *supervisor) later(do func()) {
	select {
	case s.events <- do:
	case <-s.over:
	}
}

func (s *supervisor) start(c *cell) {
	if s.stopping {
		return
	}
	c.began = time.Now()
	p, err := s.opt.start(c.id, func() { s.later(func() { c.settled = true }) })
	if err != nil {
		s.ended(c, -1, err.Error())
		return
	}
	c.running = p
	go func() {
		code, how := p.Wait()
		s.later(func() { s.ended(c, code, how) })
	}()
}

// ended decides what follows the end of a server.
func (s *supervisor) ended(c *cell, code int, how string) {
	c.running, c.settled = nil, true
	log := s.opt.Log.With().Uint32("cell", uint32(c.id)).Str("end", how).Logger()
	switch {
	case s.stopping:
		log.Info().Msg("the server of a cell has ended")
		return
	case code == s.opt.GiveUp:
		c.gaveUp = true
		log.Error().Msg("the server of a cell has ended for good, and is not started again")
		return
	}
	if c.pause = min(2*c.pause, lastPause); c.pause == 0 || time.Since(c.began) >= ranWell {
		c.pause = firstPause
	}
	log.Error().Dur("pause", c.pause).Msg("the server of a cell has ended, and is started again after a pause")
	time.AfterFunc(c.pause, func() { s.later(func() { s.start(c) }) })
}

// done reports whether Run is to end, and with which error.
func (s *supervisor) done() (bool, error) {
	gaveUp := true
	for _, c := range s.cells {
		if c.running != nil {
			return false, nil
		}
		gaveUp = gaveUp && c.gaveUp
	}
	switch {
	case s.killed != nil:
		return true, ErrKilled
	case s.stopping:
		return true, nil
	case gaveUp:
		return true, ErrGivenUp
	}
	return false, nil
}

// signal passes a signal on. A server that was told to end is not told again: the second SIGTERM would be for the whole of it to end at once.
func (s *supervisor) signal(sig os.Signal) {
	switch {
	case sig == syscall.SIGHUP:
	case s.killed != nil:
		return
	case s.stopping:
		s.opt.Log.Warn().Msg("a second signal: killing the servers")
		sig, s.killed = syscall.SIGKILL, time.After(killWait)
	default:
		s.opt.Log.Info().Stringer("signal", sig).Msg("ending the servers")
		sig, s.stopping = syscall.SIGTERM, true
	}
	for _, c := range s.cells {
		if c.running != nil {
			c.running.Signal(sig)
		}
	}
}

// tellReady calls Ready when it is time for that.
func (s *supervisor) tellReady(late bool) {
	if s.ready || s.stopping {
		return
	}
	var waits []string
	for _, c := range s.cells {
		if !c.settled {
			waits = append(waits, fmt.Sprint(uint32(c.id)))
		}
	}
	if waits != nil && !late {
		return
	}
	if waits != nil {
		s.opt.Log.Warn().Strs("cells", waits).Msg("these cells are late, and the others are not kept waiting for them")
	}
	s.ready = true
	s.opt.Ready()
}
