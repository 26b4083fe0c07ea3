// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/wal"
)

// collectEvery is much less than a segment or a checkpoint lives.
const collectEvery = 100 * time.Millisecond

// Collector archives what servers remove from a volume while they run: it polls the volume from
// outside and gives every segment and checkpoint a second name in an archive. If hard links to
// the archive are not possible it keeps the file open, and copies it when later terms have been
// there for a while, because a segment is written as long as it is the newest. It changes nothing
// on the volume but link counts, which servers do not read for segments and checkpoints.
type Collector struct {
	volume, archive string

	stop    context.CancelFunc
	running sync.WaitGroup

	// owned by run, and by Stop once that has ended
	seen map[string]bool
	open map[string]openFile  // by the path in the archive
	came map[string]time.Time // when an epoch was first listed
	err  error                // of the last look, while it runs
}

// openFile is a file that could not be linked.
type openFile struct {
	*os.File
	from, epoch string
}

// settleAfter is how long after a later epoch appeared the segments of older ones are final, as
// far as a claimant would adopt them.
const settleAfter = 10 * time.Second

// StartCollector starts to collect from a volume into an empty directory outside of it, until Stop
// or the end of ctx.
func StartCollector(ctx context.Context, volumeDir, archive string) *Collector {
	c := newCollector(volumeDir, archive)
	ctx, c.stop = context.WithCancel(ctx)
	c.running.Go(func() { c.run(ctx) })
	return c
}

func newCollector(volumeDir, archive string) *Collector {
	return &Collector{volume: volumeDir, archive: archive, stop: func() {}, seen: map[string]bool{}, open: map[string]openFile{}, came: map[string]time.Time{}}
}

func (c *Collector) run(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		c.err = c.collect() // a filesystem under faults fails now and then: the next look counts
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *Collector) note(err error) {
	if c.err == nil && err != nil {
		c.err = err
	}
}

// Stop collects once more, including the fences, and completes the archive. Call it
// when the servers have stopped. After an error the archive may lack something;
// CheckLog notices if it lacks something for another reason.
func (c *Collector) Stop() error {
	c.stop()
	c.running.Wait()
	c.err = c.collect()
	c.note(c.fences())
	for to := range c.open {
		c.note(c.settle(to))
	}
	if c.err != nil {
		return fmt.Errorf("archive %s: %w", c.volume, c.err)
	}
	return nil
}

// collect archives what is new in every epoch's directory.
func (c *Collector) collect() error {
	epochs, err := os.ReadDir(filepath.Join(c.volume, "epochs"))
	if err != nil {
		return err
	}
	now := time.Now()
	settled := "" // the newest epoch that has been there for a while
	for _, e := range epochs {
		came, known := c.came[e.Name()]
		if !known {
			c.came[e.Name()] = now
		} else if now.Sub(came) > settleAfter {
			settled = max(settled, e.Name())
		}
		if err := c.epoch(filepath.Join("epochs", e.Name())); err != nil {
			return err
		}
	}
	for to, f := range c.open {
		if f.epoch < settled {
			if err := c.settle(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle copies an open file into the archive, or what its name leads to where the
// descriptor went bad.
func (c *Collector) settle(to string) error {
	f := c.open[to]
	err := copyOpen(f.File, to)
	if err != nil {
		again, openErr := os.Open(f.from)
		if openErr != nil {
			return err
		}
		err = errors.Join(copyOpen(again, to), again.Close())
	}
	if err == nil {
		_ = f.Close() // only read
		delete(c.open, to)
	}
	return err
}

func (c *Collector) epoch(dir string) error {
	entries, err := os.ReadDir(filepath.Join(c.volume, dir))
	if err != nil {
		return gone(err)
	}
	for _, x := range entries {
		name := filepath.Join(dir, x.Name())
		_, segment := wal.ParseSegmentName(x.Name())
		switch {
		case segment:
			err = c.keep(name)
		case x.IsDir() && strings.HasPrefix(x.Name(), checkpointPrefix) && !strings.HasSuffix(x.Name(), ".tmp"):
			err = errors.Join(c.keep(filepath.Join(name, requestsName)), c.keep(filepath.Join(name, viewName)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep gives one file its second name, once.
func (c *Collector) keep(name string) error {
	if c.seen[name] {
		return nil
	}
	from, to := filepath.Join(c.volume, name), filepath.Join(c.archive, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	err := os.Link(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went away just now: no name that is listed is that young
	}
	if err != nil {
		f, openErr := os.Open(from)
		if openErr != nil {
			return gone(openErr)
		}
		c.open[to] = openFile{File: f, from: from, epoch: strings.Split(name, string(filepath.Separator))[1]}
	}
	c.seen[name] = true
	return nil
}

// fences copies what says how far each term's log was adopted.
func (c *Collector) fences() error {
	epochs, err := os.ReadDir(filepath.Join(c.volume, "epochs"))
	if err != nil {
		return err
	}
	for _, e := range epochs {
		name := filepath.Join("epochs", e.Name(), "fence")
		f, err := os.Open(filepath.Join(c.volume, name))
		if err != nil {
			return err
		}
		to := filepath.Join(c.archive, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyOpen(f, to), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// copyOpen copies what an open file has from its beginning, whatever became of its name.
func copyOpen(f *os.File, to string) (err error) {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, io.NewSectionReader(f, 0, info.Size()))
	return err
}

// gone returns nil for the error of a name that disappeared meanwhile, else err.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
