// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// SiteOptions configure a site. Binary and Cells are required; of Options, it takes Binary and Args.
type SiteOptions struct {
	Options
	Cells int
	// Pins are the prefixes that are pinned, "PREFIX=CELL".
	Pins []string
	// Paths has the volumes of cells that are not in the directory of the site.
	Paths map[hf.CellID]SitePath
}

// SitePath is where a cell's volume is: for its servers, and for the test.
type SitePath struct{ Servers, Test string }

// Site is several volumes, its cells, with a supervisor on each of three hosts, which runs a server of each cell there.
type Site struct {
	// Hosts has the supervisors, as if they were servers of a cluster. They have no status.
	Hosts *Cluster
	// Cells are in the order of their numbers. Their servers are started by the supervisors, also after Kill.
	Cells []*Cluster
}

// StartSite makes a site, starts its supervisors and waits for a primary of each cell.
func StartSite(t testing.TB, opt SiteOptions) *Site {
	t.Helper()
	hosts := &Cluster{t: t, opt: opt.Options, dir: filepath.Join(t.TempDir(), "site"), logs: t.TempDir(), site: true}
	s := &Site{Hosts: hosts}
	t.Cleanup(hosts.cleanup)
	t.Cleanup(s.killAll)
	args := []string{"site", "init", "--plain", "--cells", fmt.Sprint(opt.Cells), hosts.dir}
	// A server has a port for each cell, and the ports of all servers are beside each other.
	base := freePorts(t, (siteHosts*opt.Cells+portSpacing-1)/portSpacing)
	for i := range siteHosts {
		m := hf.Member{ID: hf.ServerID(i + 1), Client: fmt.Sprintf("127.0.0.1:%d", base+i*opt.Cells)}
		args = append(args, "--server", fmt.Sprintf("%d=%s", m.ID, m.Client))
		hosts.servers = append(hosts.servers, &Server{Member: m, c: hosts, log: filepath.Join(hosts.logs, fmt.Sprintf("host-%d.log", m.ID))})
	}
	for _, pin := range opt.Pins {
		args = append(args, "--pin", pin)
	}
	for k, p := range opt.Paths {
		args = append(args, "--path", fmt.Sprintf("%d=%s", k, p.Servers))
	}
	if out, err := hosts.Command(args...).CombinedOutput(); err != nil {
		t.Fatalf("holdfast site init: %v\n%s", err, out)
	}
	for k := range hf.CellID(opt.Cells) {
		s.Cells = append(s.Cells, s.cell(k, cmp.Or(opt.Paths[k].Test, filepath.Join(hosts.dir, "cells", fmt.Sprint(uint32(k))))))
	}
	hosts.StartAll()
	for _, c := range s.Cells {
		c.AwaitPrimary(Patience)
	}
	return s
}

// siteHosts is how many hosts a site has.
const siteHosts = 3

// cell is the cluster of a cell, whose servers run under the supervisors.
func (s *Site) cell(k hf.CellID, dir string) *Cluster {
	s.Hosts.t.Helper()
	c := &Cluster{t: s.Hosts.t, opt: s.Hosts.opt, dir: dir, logs: s.Hosts.logs}
	members, err := c.members()
	if err != nil {
		c.t.Fatal(err)
	}
	for i, m := range members {
		c.servers = append(c.servers, &Server{Member: m, c: c, log: s.Hosts.servers[i].log, host: s.Hosts.servers[i], cell: k})
	}
	return c
}

// KillHost ends a supervisor and its servers at once, as the death of their host does.
func (s *Site) KillHost(host *Server) {
	pids := children(host.PID())
	host.Kill()
	for pid := range pids {
		s.kill(pid)
	}
}

// kill kills a process that served a cell a moment ago, if it still does.
func (s *Site) kill(pid int) {
	p, err := os.FindProcess(pid) // from here on, nobody else is meant by it
	if err == nil && s.serves(pid) {
		_ = p.Signal(killSignal) // it may have ended
	}
}

// serves reports whether a process is the server of a cell.
func (s *Site) serves(pid int) bool { return slices.Contains(commandOf(pid), "--site="+s.Hosts.dir) }

// Left returns the servers of cells that run, whoever started them.
func (s *Site) Left() (pids []int) {
	for _, pid := range processes() {
		if s.serves(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAll ends everything, also a server that was frozen when its supervisor died.
func (s *Site) killAll() {
	s.Hosts.KillAll()
	for _, pid := range s.Left() {
		s.kill(pid)
	}
}

// child returns the process of a server that a supervisor runs, nil while there is none.
func (s *Server) child() *os.Process {
	host := s.host.PID()
	for pid, args := range children(host) {
		if !slices.Contains(args, fmt.Sprintf("--cell=%d", s.cell)) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err == nil && parentOf(pid) == host { // so nobody else got the number before p was found
			return p
		}
	}
	return nil
}

// gone waits until a supervised process has ended. One that hangs in a system call is not waited for any longer.
func (s *Server) gone(pid int) {
	Poll(s.c.t.Context(), 2*time.Second, func() bool { return s.PID() != pid })
}

// children returns the command lines of the living children of a process.
func children(of int) map[int][]string {
	all := map[int][]string{}
	for _, pid := range processes() {
		if of == 0 || parentOf(pid) != of {
			continue
		}
		if args := commandOf(pid); len(args) > 0 {
			all[pid] = args
		}
	}
	return all
}

// processes returns the numbers of all processes.
func processes() (all []int) {
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name)) // they are digits
		all = append(all, pid)
	}
	return all
}

// commandOf returns the command line of a process; none of one that has ended.
func commandOf(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}

// stat returns what /proc/PID/stat has behind the name of the command.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

// The places of what is read there.
const (
	statParent = 1
	statUser   = 11
	statSystem = 12
	// tick is what times there count: that of Linux, on all processors.
	tick = 10 * time.Millisecond
)

func parentOf(pid int) int {
	fields := stat(pid)
	if len(fields) <= statParent {
		return 0
	}
	parent, _ := strconv.Atoi(fields[statParent]) // they are digits
	return parent
}

// CPU returns how much time of processors the process has used.
func (s *Server) CPU() time.Duration {
	fields := stat(s.PID())
	if len(fields) <= statSystem {
		return 0
	}
	user, _ := strconv.Atoi(fields[statUser])     // they are digits
	system, _ := strconv.Atoi(fields[statSystem]) // likewise
	return time.Duration(user+system) * tick
}

// signalChild sends a signal to a supervised process, if there is one.
func (s *Server) signalChild(sig syscall.Signal) {
	if p := s.child(); p != nil {
		_ = p.Signal(sig) // it may have ended
	}
}
