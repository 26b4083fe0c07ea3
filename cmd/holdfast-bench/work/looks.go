// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

// Units of what is looked at.
const (
	unitMiB   = "MiB"
	unitCount = ""
)

// looks are what was seen of servers, volume and this program.
type looks struct {
	*churn
	began time.Time
	all   []*bench.Series
	line  strings.Builder
}

// note adds a value to its series. The floor is what two looks at something that
// does not grow may differ by.
func (l *looks) note(name, unit string, floor, value float64) {
	fmt.Fprintf(&l.line, ", %s %s%s", name, trim(value), unit)
	for _, s := range l.all {
		if s.Name == name {
			s.Add(time.Since(l.began), value)
			return
		}
	}
	s := &bench.Series{Name: name, Unit: unit, Floor: floor}
	s.Add(time.Since(l.began), value)
	l.all = append(l.all, s)
}

func trim(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0") }

// run looks until ctx ends.
func (l *looks) run(ctx context.Context, every time.Duration) error {
	for t := time.NewTicker(every); ; {
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			t.Stop()
			return fmt.Errorf("look at the servers: %w", err)
		}
	}
}

// judged is all series with their verdicts.
func (l *looks) judged() []*bench.Series {
	for _, s := range l.all {
		s.Judge()
	}
	return l.all
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (l *looks) look(ctx context.Context) error {
	l.line.Reset()
	for i, pid := range l.pids() {
		if err := l.server(clientlib.ServerID(i+1), pid); err != nil {
			return err
		}
	}
	if err := l.volume(); err != nil {
		return err
	}
	if err := l.table(ctx); err != nil && ctx.Err() == nil {
		// There was no primary for long: the next look may tell.
		l.churn.note("status", err)
	}
	l.self()
	l.Say("churn, %v%s", time.Since(l.began).Round(time.Second), l.line.String())
	return nil
}

// server samples a process.
func (l *looks) server(id clientlib.ServerID, pid int) error {
	name := func(what string) string { return fmt.Sprintf("server %d %s", id, what) }
	rss, err := bench.ResidentBytes(pid)
	if err != nil {
		return err
	}
	open, err := bench.Descriptors(pid)
	if err != nil {
		return err
	}
	r, err := l.Servers.Runtime(id)
	if err != nil {
		return err
	}
	l.note(name("resident"), unitMiB, 4, mib(rss))
	if r.LiveBytes > 0 {
		l.note(name("live heap and stacks"), unitMiB, 2, mib(r.LiveBytes))
	}
	l.note(name("descriptors"), unitCount, 8, float64(open))
	if r.Goroutines > 0 {
		l.note(name("goroutines"), unitCount, 16, float64(r.Goroutines))
	}
	return nil
}

// volume samples the directory without the protected files, which grow on purpose.
func (l *looks) volume() error {
	for _, x := range []struct{ name, dir string }{{"volume", ""}, {"epochs", "epochs"}} {
		files, bytes, err := bench.DirUsage(filepath.Join(l.Servers.Volume(), x.dir), "files")
		if err != nil {
			return err
		}
		l.note(x.name+" bytes", unitMiB, 16, mib(bytes))
		l.note(x.name+" files", unitCount, 2, float64(files))
	}
	n, err := countLines(filepath.Join(l.Servers.Volume(), "processed_requests.log"))
	if err == nil {
		l.note("receipts", unitCount, 100, float64(n))
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}

// table samples the counts of the primary.
func (l *looks) table(ctx context.Context) error {
	s, err := l.target.client(0).Status(ctx)
	if err != nil {
		return err
	}
	if s.Table == nil {
		return errors.New("the status has no table")
	}
	l.note("locks", unitCount, 20, float64(s.Table.Locks))
	l.note("held", unitCount, 20, float64(s.Table.Held))
	l.note("waiting", unitCount, 10, float64(s.Table.Waiting))
	l.note("clients", unitCount, 100, float64(s.Table.Clients))
	return nil
}

// self samples this program, which is mostly the client library.
func (l *looks) self() {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	l.note("client live heap", unitMiB, 2, mib(int64(heap[0].Value.Uint64())))
	l.note("client goroutines", unitCount, 100, float64(runtime.NumGoroutine()))
	if open, err := bench.Descriptors(os.Getpid()); err == nil {
		l.note("client descriptors", unitCount, 30, float64(open))
	}
}

// countLines counts the lines of a file that may be replaced meanwhile.
func countLines(path string) (n int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for b := make([]byte, 1<<16); ; {
		got, err := f.Read(b)
		n += bytes.Count(b[:got], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
