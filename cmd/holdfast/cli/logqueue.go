// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// logLines is how many log lines may wait for a slow reader; more are dropped.
const logLines = 4096

// logQueue writes a log from a goroutine of its own. A reader that stops reading, like a pager
// or a stalled journal, costs lines but blocks no writer: the loops that log decide which server
// is primary and who holds a lock, and a process that gets a signal has to end.
type logQueue struct {
	w       io.Writer
	missing string // the line about dropped lines, with %d for their number
	lines   chan logLine
	dropped atomic.Int64
	stop    chan struct{}
	stopped chan struct{}
}

// logLine is a queued line and its destination.
type logLine struct {
	to io.Writer
	b  []byte
}

// newLogQueue returns a queue that writes to w, from a goroutine that it starts. After dropped
// lines it writes missing, with their number in place of %d.
func newLogQueue(w io.Writer, missing string) *logQueue {
	q := &logQueue{w: w, missing: missing, lines: make(chan logLine, logLines), stop: make(chan struct{}), stopped: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a line, or drops and counts it. It never blocks.
func (q *logQueue) Write(b []byte) (int, error) { return logSink{q, q.w}.Write(b) }

// logSink queues output for another destination than the log's, in order with the log.
type logSink struct {
	queue *logQueue
	to    io.Writer
}

// Write queues a line, or drops and counts it. It never blocks.
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

// write writes a line, after one about lines that were dropped before it or shortly before.
func (q *logQueue) write(l logLine) {
	if n := q.dropped.Swap(0); n > 0 {
		_, _ = fmt.Fprintf(q.w, q.missing+"\n", n)
	}
	_, _ = l.to.Write(l.b)
}

// attach has all output of a process pass through its log queue: a reader that does not read
// the log may not read the other output either.
func (q *logQueue) attach(a *app) {
	a.Stdout, a.Stderr = logSink{q, a.Stdout}, logSink{q, a.Stderr}
	a.flush = sync.OnceFunc(func() { q.Close(logFlush) })
}

// Close writes the queued lines, for at most wait. Lines that come later are not written.
func (q *logQueue) Close(wait time.Duration) {
	close(q.stop)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-q.stopped:
	case <-t.C:
	}
}
