// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	// Each is that of each server.
	Each []time.Duration
	// Known says that the servers' is.
	Known bool
}

// Since is what was used after before.
func (c CPU) Since(before CPU) CPU {
	d := CPU{Client: c.Client - before.Client, Servers: c.Servers - before.Servers, Known: c.Known && before.Known}
	for i := range min(len(c.Each), len(before.Each)) {
		d.Each = append(d.Each, c.Each[i]-before.Each[i])
	}
	return d
}

// ReadCPU is the processor time so far of this process, and of the servers with
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
// what counts begins behind the last parenthesis.
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

// ResidentBytes is how much memory a process has now.
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
