// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/wal"
)

// Usage is what servers use at one moment, or the limits of that. The number of goroutines
// cannot be seen from outside; the number of threads can.
type Usage struct {
	Descriptors int   // of one process
	Threads     int   // of one process
	Resident    int64 // bytes of memory of one process
	LogBytes    int64 // in segments under epochs/, each inode once
	// Files under epochs/ but the fence and claim.json, which every epoch keeps for ever.
	Files int
}

// DefaultLimits returns what three servers may use under the load of the tests.
//
// Of log there are two terms at most, each with what it logged since its checkpoint before the newest: twice 64 MiB
// for small tables, and 64 MiB in segments that are only partly needed, open, or prepared. That makes 384 MiB. The
// rest is for what is logged while a checkpoint is written, for two segments of each term that ended before it could
// remove anything, and for one of each claim since then that never began (PROTOCOL 9.3).
func DefaultLimits() Usage {
	return Usage{Descriptors: 512, Threads: 256, Resident: 1 << 30, LogBytes: 512 << 20, Files: 256}
}

// sampleEvery is how often usage is measured.
const sampleEvery = 500 * time.Millisecond

// Sampler measures processes and their volume from outside.
type Sampler struct {
	volume  string
	pids    func() []int
	limits  Usage
	report  *Report
	stop    context.CancelFunc
	running sync.WaitGroup

	// owned by run, and by Stop once that has ended
	most    Usage
	samples int
}

// StartSampler starts to measure, until Stop or the end of ctx. pids returns the present
// processes; 0 and ended ones are skipped. Findings go to the report.
func StartSampler(ctx context.Context, volumeDir string, pids func() []int, limits Usage, r *Report) *Sampler {
	s := &Sampler{volume: volumeDir, pids: pids, limits: limits, report: r}
	ctx, s.stop = context.WithCancel(ctx)
	s.running.Go(func() { s.run(ctx) })
	return s
}

// Stop ends the sampler, compares the highest usage with the limits, and returns it.
func (s *Sampler) Stop() Usage {
	s.stop()
	s.running.Wait()
	s.report.Checked(I16, s.samples)
	for _, x := range []struct {
		what          string
		most, allowed int64
	}{
		{"descriptors", int64(s.most.Descriptors), int64(s.limits.Descriptors)},
		{"threads", int64(s.most.Threads), int64(s.limits.Threads)},
		{"bytes of memory", s.most.Resident, s.limits.Resident},
		{"bytes of log", s.most.LogBytes, s.limits.LogBytes},
		{"files under epochs/", int64(s.most.Files), int64(s.limits.Files)},
	} {
		if x.most > x.allowed {
			s.report.Violation(I16, "%d %s, at most %d are allowed", x.most, x.what, x.allowed)
		}
	}
	s.report.Figure("most used", "%d descriptors, %d threads, %d MiB of memory by one server; %d MiB of log, %d files under epochs/",
		s.most.Descriptors, s.most.Threads, s.most.Resident>>20, s.most.LogBytes>>20, s.most.Files)
	return s.most
}

func (s *Sampler) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.sample()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Sampler) sample() {
	for _, pid := range s.pids() {
		if u, err := processUsage(pid); err == nil { // else it has ended
			s.add(u)
		}
	}
	u, err := volumeUsage(s.volume)
	if err != nil {
		s.report.Violation(Run, "sample the volume: %v", err)
		return
	}
	s.add(u)
}

func (s *Sampler) add(u Usage) {
	s.samples++
	s.most = Usage{
		Descriptors: max(s.most.Descriptors, u.Descriptors), Threads: max(s.most.Threads, u.Threads),
		Resident: max(s.most.Resident, u.Resident), LogBytes: max(s.most.LogBytes, u.LogBytes), Files: max(s.most.Files, u.Files),
	}
}

// processUsage reads /proc.
func processUsage(pid int) (u Usage, err error) {
	if pid == 0 {
		return u, errors.New("no process")
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return u, err
	}
	u.Descriptors = len(fds)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range bytes.Lines(b) {
		var n int64
		if k, _ := fmt.Sscanf(string(line), "VmRSS: %d kB", &n); k == 1 {
			u.Resident = n << 10
		}
		if k, _ := fmt.Sscanf(string(line), "Threads: %d", &n); k == 1 {
			u.Threads = int(n)
		}
	}
	return u, nil
}

// volumeUsage counts what lies under epochs/. What vanishes meanwhile is gone.
func volumeUsage(dir string) (u Usage, err error) {
	inodes := map[uint64]bool{}
	err = filepath.WalkDir(filepath.Join(dir, "epochs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "fence" || d.Name() == "claim.json" {
			return gone(err)
		}
		u.Files++
		if _, segment := wal.ParseSegmentName(d.Name()); !segment && d.Name() != wal.NextName {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return gone(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && inodes[st.Ino] {
			return nil
		} else if ok {
			inodes[st.Ino] = true
		}
		u.LogBytes += info.Size()
		return nil
	})
	return u, err
}
