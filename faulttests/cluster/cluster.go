// SPDX-License-Identifier: Apache-2.0

// Package cluster runs real servers for tests: three processes or fewer of the holdfast
// binary over one volume in a temporary directory, on loopback, which can be
// killed, paused, continued and queried.
//
// Net puts them on a network of their own, which can be cut in one direction or
// lose packets. Trace injects faults into single system calls of a server.
//
// It touches only processes that it started, by their process ID. They always end
// with the test: by t.Cleanup, also after a panic, and by
// the parent-death signal if the test process itself is killed. When a test
// fails, its volume and its servers' logs are copied to t.ArtifactDir().
package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
)

// Options configure a cluster. Only Binary is required.
type Options struct {
	// Binary is the path of the holdfast binary, see Build.
	Binary string
	// Init is the binary that makes the volume; "" = Binary.
	Init string
	// Dir is the directory of the volume; "" = a temporary one.
	Dir string
	// Dirs has the path of the volume for servers that do not use Dir, but a mount of their own.
	Dirs map[hf.ServerID]string
	// Args are further arguments for every server.
	Args []string
	// Net is the network in which the servers run; nil = loopback.
	Net *Net
	// Servers is how many there are, at most three; 0 = three.
	Servers int
}

// Cluster is one volume and its servers.
type Cluster struct {
	t       testing.TB
	opt     Options
	dir     string // of the volume
	logs    string
	servers []*Server
	site    bool // dir is that of a site, and the servers are supervisors
}

// New makes a cluster with a fresh volume. No server runs yet.
func New(t testing.TB, opt Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t, opt: opt, dir: opt.Dir, logs: t.TempDir()}
	if c.dir == "" {
		c.dir = filepath.Join(t.TempDir(), "volume")
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.cleanup)
	members, err := c.init()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		c.servers = append(c.servers, &Server{Member: m, c: c, log: filepath.Join(c.logs, fmt.Sprintf("server-%d.log", m.ID))})
	}
	return c
}

// Start makes a cluster, starts all servers and waits for a primary.
func Start(t testing.TB, opt Options) *Cluster {
	t.Helper()
	c := New(t, opt)
	c.StartAll()
	c.AwaitPrimary(Patience)
	return c
}

// init runs holdfast init and reads which addresses it gave to whom.
func (c *Cluster) init() (hf.Members, error) {
	addresses := c.addresses()
	args := []string{"init", "--plain", "--volume", c.dir} // faults do not ask who a client is, and some tests look at what it says
	for i, address := range addresses {
		args = append(args, "--server", fmt.Sprintf("%d=%s", i+1, address))
	}
	cmd := c.Command(args...)
	if c.opt.Init != "" {
		cmd.Path = c.opt.Init
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("holdfast init: %w\n%s", err, out)
	}
	return c.members()
}

// members reads the servers that the volume was made with.
func (c *Cluster) members() (hf.Members, error) {
	b, err := os.ReadFile(filepath.Join(c.dir, "CLUSTER"))
	if err != nil {
		return nil, err
	}
	var found volume.Cluster
	if err := json.Unmarshal(b, &found); err != nil {
		return nil, fmt.Errorf("read CLUSTER: %w", err)
	}
	return found.Servers, nil
}

// addresses are where the servers are to listen.
func (c *Cluster) addresses() (all []string) {
	n := cmp.Or(c.opt.Servers, 3)
	if c.opt.Net != nil {
		for id := range hf.ServerID(n) {
			all = append(all, c.opt.Net.Host(id+1)) // on the usual ports
		}
		return all
	}
	base := FreePorts(c.t)
	for i := range n {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", base+i))
	}
	return all
}

// Dir returns the path of the volume.
func (c *Cluster) Dir() string { return c.dir }

// DirOf returns the path of the volume for a server.
func (c *Cluster) DirOf(id hf.ServerID) string {
	if dir, ok := c.opt.Dirs[id]; ok {
		return dir
	}
	return c.dir
}

// File returns the path of a protected file.
func (c *Cluster) File(name string) string {
	return filepath.Join(c.dir, "files", filepath.FromSlash(name))
}

// Servers returns all servers, in order of ID.
func (c *Cluster) Servers() []*Server { return c.servers }

// Server returns the server with an ID, from 1 on.
func (c *Cluster) Server(id hf.ServerID) *Server { return c.servers[id-1] }

// Add makes a server with the next ID, at free ports of its own, which is neither in the list nor started. It returns the
// server, which counts among all from now on.
func (c *Cluster) Add() *Server {
	c.t.Helper()
	id, base := hf.ServerID(len(c.servers)+1), FreePorts(c.t)
	m := hf.Member{ID: id, Client: fmt.Sprintf("127.0.0.1:%d", base), Peer: fmt.Sprintf("127.0.0.1:%d", base+1)}
	s := &Server{Member: m, c: c, log: filepath.Join(c.logs, fmt.Sprintf("server-%d.log", id))}
	c.servers = append(c.servers, s)
	return s
}

// Endpoints returns the addresses for clients of all servers.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.Member.Client)
	}
	return all
}

// StartAll starts the servers that do not run.
func (c *Cluster) StartAll() {
	c.t.Helper()
	for _, s := range c.servers {
		if !s.Running() {
			s.Start()
		}
	}
}

// KillAll ends all servers as kill -9 does, at once.
func (c *Cluster) KillAll() {
	for _, s := range c.servers {
		s.signal(killSignal)
	}
	for _, s := range c.servers {
		s.await()
	}
}

// TermAll sends SIGTERM once to all servers, and waits until they have ended.
func (c *Cluster) TermAll() {
	c.t.Helper()
	for _, s := range c.servers {
		s.signal(termSignal)
	}
	for _, s := range c.servers {
		s.awaitTerm()
	}
}

// Run runs the binary with the given arguments to its end, with the cluster's
// endpoints in its environment, and returns what it printed.
func (c *Cluster) Run(args ...string) (string, error) {
	cmd := c.Command(args...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Command returns a command of the binary with the given arguments, not started.
func (c *Cluster) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.opt.Binary, args...)
	cmd.SysProcAttr = processAttr()
	cmd.Env = os.Environ()
	if len(c.servers) > 0 {
		cmd.Env = append(cmd.Env, "HOLDFAST_ENDPOINTS="+join(c.Endpoints()))
	}
	return cmd
}

// Fsck verifies the volume, whose servers should not run, with the binary's own
// fsck. It returns an error if fsck found errors.
func (c *Cluster) Fsck() (fsck.Report, error) {
	var r fsck.Report
	cmd := c.Command("fsck", "--volume", c.dir, "-o", "json")
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		var stderr []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = exit.Stderr
		}
		return r, fmt.Errorf("fsck: %w (%w): %s%s", err, jsonErr, out, stderr)
	}
	if err != nil || r.Errors > 0 {
		return r, fmt.Errorf("fsck: %d errors (%w): %v", r.Errors, err, r.Findings)
	}
	return r, nil
}

// cleanup ends every process that was started, and keeps what is worth keeping:
// the logs, and of a failed test the volume too.
func (c *Cluster) cleanup() {
	c.KillAll()
	c.keep("logs", c.logs)
	c.findRaces()
	if !c.t.Failed() {
		return
	}
	c.keep("volume", c.dir)
	c.t.Logf("volume and logs: %s (go test -artifacts keeps them)", c.t.ArtifactDir())
	for _, s := range c.servers {
		c.t.Logf("the end of server %d's log:\n%s", s.Member.ID, s.Tail(15))
	}
}

// findRaces fails the test where a server that was built with the race detector reported a race.
func (c *Cluster) findRaces() {
	const report = "WARNING: DATA RACE"
	for _, s := range c.servers {
		b, err := os.ReadFile(s.log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.t.Errorf("look for races: %v", err)
		}
		if i := bytes.Index(b, []byte(report)); i >= 0 {
			c.t.Errorf("server %d has a data race:\n%.3000s", s.Member.ID, b[i:])
		}
	}
}

func (c *Cluster) keep(name, dir string) {
	if err := os.CopyFS(filepath.Join(c.t.ArtifactDir(), name), os.DirFS(dir)); err != nil {
		c.t.Logf("keep %s: %v", dir, err)
	}
}
