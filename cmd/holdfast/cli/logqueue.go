// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// logLines is how many lines of a log wait for their reader; the rest is dropped.
const logLines = 4096

// logQueue writes a log from a goroutine of its own. A reader that does not read, like a pager
// or a stalled journal, costs lines and holds up nobody: the loops that log decide who reigns
// and who holds a lock.
type logQueue struct {
	w       io.Writer
	lines   chan []byte
	dropped atomic.Int64
	stop    chan struct{}
	stopped chan struct{}
}

func newLogQueue(w io.Writer) *logQueue {
	q := &logQueue{w: w, lines: make(chan []byte, logLines), stop: make(chan struct{}), stopped: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a line, or drops and counts it. It never blocks.
func (q *logQueue) Write(b []byte) (int, error) {
	select {
	case q.lines <- append([]byte(nil), b...):
	default:
		q.dropped.Add(1)
	}
	return len(b), nil
}

func (q *logQueue) run() {
	defer close(q.stopped)
	for {
		select {
		case b := <-q.lines:
			q.write(b)
			continue
		default:
		}
		select {
		case b := <-q.lines:
			q.write(b)
		case <-q.stop:
			if len(q.lines) == 0 {
				return
			}
		}
	}
}

// write writes a line, and says first what is missing before it, or shortly before.
func (q *logQueue) write(b []byte) {
	if n := q.dropped.Swap(0); n > 0 {
		_, _ = fmt.Fprintf(q.w, `{"level":"warn","dropped":%d,"message":"log lines were dropped: nobody read them in time"}`+"\n", n)
	}
	_, _ = q.w.Write(b)
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
