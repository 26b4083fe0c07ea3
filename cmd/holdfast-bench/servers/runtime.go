// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// env has the Go runtime write into the log: a line for each collection of the heap,
// and every so often a line for each goroutine.
func (o Options) env() []string {
	var debug []string
	if o.Collections {
		debug = append(debug, "gctrace=1")
	}
	if o.Goroutines > 0 {
		debug = append(debug, fmt.Sprintf("schedtrace=%d,scheddetail=1", o.Goroutines.Milliseconds()))
	}
	if debug == nil {
		return nil
	}
	return []string{"GODEBUG=" + strings.Join(debug, ",")}
}

// Runtime is the latest output of the Go runtime of a server.
type Runtime struct {
	// LiveBytes is the heap that the last collection left, and the stacks of
	// goroutines, in whole MiB; 0 = none yet.
	LiveBytes int64
	// Goroutines is the number of live goroutines, including the runtime's own; 0 = not known yet.
	Goroutines int
}

// runtimeLog reads a log on from where it was.
type runtimeLog struct {
	at       int64
	told     Runtime
	counting int // goroutines of the trace that is being read
}

// Runtime reads what a server's runtime has written to its log since the last call, if Options
// enabled that.
func (c *Cluster) Runtime(id clientlib.ServerID) (Runtime, error) {
	s := c.server(id)
	f, err := os.Open(c.log(id))
	if err != nil {
		return Runtime{}, err
	}
	err = s.runtime.read(f)
	return s.runtime.told, errors.Join(err, f.Close())
}

// read reads whole lines to the end.
func (l *runtimeLog) read(f io.ReadSeeker) error {
	if _, err := f.Seek(l.at, io.SeekStart); err != nil {
		return err
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.at += int64(len(line))
		l.line(line)
	}
}

// line reads one line. A trace is complete when something else follows it.
func (l *runtimeLog) line(line []byte) {
	switch {
	case bytes.HasPrefix(line, []byte("  G")):
		if !bytes.Contains(line, []byte("status=6(")) { // that one has ended
			l.counting++
		}
		return
	case bytes.HasPrefix(line, []byte("  ")): // processors and threads
		return
	}
	if l.counting > 0 {
		l.told.Goroutines, l.counting = l.counting, 0
	}
	if live, ok := liveBytes(string(line)); ok {
		l.told.LiveBytes = live
	}
}

// liveBytes reads a line as "gc 7 @5.1s 0%: … ms cpu, 40->41->12 MB, 64 MB goal, 3 MB stacks, …": the
// last of the three is what is live.
func liveBytes(line string) (bytes int64, ok bool) {
	if !strings.HasPrefix(line, "gc ") {
		return 0, false
	}
	for part := range strings.SplitSeq(line, ", ") {
		sizes, is := strings.CutSuffix(part, " MB")
		if at := strings.LastIndex(sizes, "->"); is && at >= 0 {
			sizes, ok = sizes[at+len("->"):], true
		} else if sizes, is = strings.CutSuffix(part, " MB stacks"); !is {
			continue
		}
		mib, err := strconv.ParseInt(sizes, 10, 64)
		if err != nil {
			return 0, false
		}
		bytes += mib << 20
	}
	return bytes, ok
}
