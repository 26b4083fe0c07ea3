// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of processor times in /proc, the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU is processor time.
type CPU struct {
	Client, Servers time.Duration
	// Each is the time of each server.
	Each []time.Duration
	// Known is true if the time of the servers is known.
	Known bool
}

// Since returns the time used since the earlier reading before.
func (c CPU) Since(before CPU) CPU {
	d := CPU{Client: c.Client - before.Client, Servers: c.Servers - before.Servers, Known: c.Known && before.Known}
	for i := range min(len(c.Each), len(before.Each)) {
		d.Each = append(d.Each, c.Each[i]-before.Each[i])
	}
	return d
}

// ReadCPU returns the processor time so far of this process, and of the servers with
// their children.
func ReadCPU(servers []int) (CPU, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return CPU{}, fmt.Errorf("getrusage: %w", err)
	}
	c := CPU{Client: time.Duration(u.Utime.Nano() + u.Stime.Nano()), Known: len(servers) > 0}
	if !c.Known {
		return c, nil
	}
	all, err := processes()
	if err != nil {
		return CPU{}, err
	}
	c.Servers = treeCPU(all, servers)
	for _, pid := range servers {
		c.Each = append(c.Each, treeCPU(all, []int{pid}))
	}
	return c, nil
}

// process is what /proc says of one.
type process struct {
	pid, parent int
	// used is by itself and by children that it has waited for.
	used time.Duration
}

func processes() ([]process, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		if p, ok := parseStat(string(b)); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// parseStat reads a line of /proc/PID/stat. The name in it may contain anything, so
// the fields begin after the last parenthesis.
func parseStat(line string) (process, bool) {
	open, shut := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || shut < open {
		return process{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line[:open]))
	f := strings.Fields(line[shut+1:])
	if err != nil || len(f) < 15 {
		return process{}, false
	}
	p := process{pid: pid}
	if p.parent, err = strconv.Atoi(f[1]); err != nil {
		return process{}, false
	}
	for _, ticks := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			return process{}, false
		}
		p.used += time.Duration(n) * tick
	}
	return p, true
}

// treeCPU is what the roots and their descendants used.
func treeCPU(all []process, roots []int) time.Duration {
	in := map[int]bool{}
	for _, pid := range roots {
		in[pid] = true
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.parent] && !in[p.pid] {
				in[p.pid], grown = true, true
			}
		}
	}
	sum := time.Duration(0)
	for _, p := range all {
		if in[p.pid] {
			sum += p.used
		}
	}
	return sum
}

// ResidentBytes returns the resident memory of a process now.
func ResidentBytes(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("process %d has ended: see its log", pid)
	}
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS for process %d", pid)
}

// Descriptors returns how many files and connections a process has open.
func Descriptors(pid int) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all), err
}

// DirUsage returns how many files there are below a directory and how many bytes they
// use on the disk, each counted once even if it has several names. Entries of dir itself
// with a name in without are left out, and so are files that disappear meanwhile.
func DirUsage(dir string, without ...string) (files int, bytes int64, err error) {
	seen := map[uint64]bool{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && filepath.Dir(path) == filepath.Clean(dir) && slices.Contains(without, d.Name()):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[s.Ino] {
			return nil
		}
		seen[s.Ino] = true
		files++
		bytes += s.Blocks * 512
		return nil
	})
	return files, bytes, err
}
