// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// logLines is how many lines of a log wait for their reader; the rest is dropped.
const logLines = 4096

// logQueue writes a log from a goroutine of its own. A reader that does not read, like a pager
// or a stalled journal, costs lines and holds up nobody: the loops that log decide who reigns
// and who holds a lock, and a process that is told to end has to.
type logQueue struct {
	w       io.Writer
	missing string // says how many lines are missing
	lines   chan logLine
	dropped atomic.Int64
	stop    chan struct{}
	stopped chan struct{}
}

// logLine is what waits, and where it goes.
type logLine struct {
	to io.Writer
	b  []byte
}

// newLogQueue begins to write to w. Before the lines that follow dropped ones it writes missing,
// with their number in place of %d.
func newLogQueue(w io.Writer, missing string) *logQueue {
	q := &logQueue{w: w, missing: missing, lines: make(chan logLine, logLines), stop: make(chan struct{}), stopped: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a line, or drops and counts it. It never blocks.
func (q *logQueue) Write(b []byte) (int, error) { return logSink{q, q.w}.Write(b) }

// logSink queues what goes elsewhere than the log does, in order with it.
type logSink struct {
	queue *logQueue
	to    io.Writer
}

// Write is like that of logQueue.
func (s logSink) Write(b []byte) (int, error) {
	select {
	case s.queue.lines <- logLine{s.to, append([]byte(nil), b...)}:
	default:
		s.queue.dropped.Add(1)
	}
	return len(b), nil
}

func (q *logQueue) run() {
	defer close(q.stopped)
	for {
		select {
		case l := <-q.lines:
			q.write(l)
			continue
		default:
		}
		select {
		case l := <-q.lines:
			q.write(l)
		case <-q.stop:
			if len(q.lines) == 0 {
				return
			}
		}
	}
}

// write writes a line, and says first what is missing before it, or shortly before.
func (q *logQueue) write(l logLine) {
	if n := q.dropped.Swap(0); n > 0 {
		_, _ = fmt.Fprintf(q.w, q.missing+"\n", n)
	}
	_, _ = l.to.Write(l.b)
}

// attach lets a process whose log this is print nothing past it: whoever does not read the log
// may not read that either.
func (q *logQueue) attach(a *app) {
	a.Stdout, a.Stderr = logSink{q, a.Stdout}, logSink{q, a.Stderr}
	a.flush = sync.OnceFunc(func() { q.Close(logFlush) })
}

// Close writes what is queued, for as long as wait. Lines that come later are not written.
func (q *logQueue) Close(wait time.Duration) {
	close(q.stop)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-q.stopped:
	case <-t.C:
	}
}
