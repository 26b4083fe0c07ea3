// SPDX-License-Identifier: Apache-2.0

// Package servers runs servers to measure them: three Holdfast servers over a
// volume, as holdfast dev does, and the processes of a peer. All listen on
// loopback, with a directory that is removed afterwards.
package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

const (
	// count is how many servers run: the least of which one may fail.
	count = 3
	// healthLimit is how long they may take until all are well.
	healthLimit = 30 * time.Second
	// tableLimit is how long a server may take to get a whole table: a million locks are
	// sent in half a minute, by a primary that serves meanwhile.
	tableLimit = 3 * time.Minute
	// healthPoll is how often they are asked.
	healthPoll = 20 * time.Millisecond
)

// Cluster is a cluster of three Holdfast servers.
type Cluster struct {
	binary  string
	dir     string
	opt     Options
	servers []*server
	client  *clientlib.Client // to ask them how they are
}

type server struct {
	clientlib.Member
	*Process
	runtime runtimeLog
}

// Options change how the servers run. The zero value is the usual way.
type Options struct {
	// Flags are further ones of holdfast server.
	Flags []string
	// Collections makes the Go runtime of a server log its heap. Goroutines is how often it logs
	// its goroutines, which stops it for a moment; 0 = never. Runtime reads both.
	Collections bool
	Goroutines  time.Duration
}

// FreshDir makes a new directory below parent, and returns its path.
func FreshDir(parent string) (string, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, "bench-")
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// Start makes a volume in a fresh directory below parent, and starts three servers.
func Start(ctx context.Context, binary, parent string, opt Options) (_ *Cluster, err error) {
	dir, err := FreshDir(parent)
	if err != nil {
		return nil, err
	}
	c := &Cluster{binary: binary, dir: dir, opt: opt}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	addrs, err := FreeAddresses(count * 2)
	if err != nil {
		return nil, err
	}
	args := []string{binary, "init", "--plain", "--volume", c.Volume()} // as the systems that it is compared with
	for i := range count {
		m := clientlib.Member{ID: clientlib.ServerID(i + 1), Client: addrs[2*i], Peer: addrs[2*i+1]}
		c.servers = append(c.servers, &server{Member: m})
		args = append(args, "--server", fmt.Sprintf("%d=%s,%s", m.ID, m.Client, m.Peer))
	}
	if err := (Command{Args: args}).Run(); err != nil {
		return nil, err
	}
	for _, s := range c.servers {
		if err := c.Restart(s.ID); err != nil {
			return nil, err
		}
	}
	if c.client, err = clientlib.New(clientlib.Options{Endpoints: c.Endpoints(), Credential: clientlib.FromEnvironment}); err != nil {
		return nil, err
	}
	_, err = c.AwaitHealthy(ctx)
	return c, err
}

// Close ends the servers and removes their directory.
func (c *Cluster) Close() error {
	var all []*Process
	for _, s := range c.servers {
		if s.Process != nil {
			all = append(all, s.Process)
		}
	}
	err := Stop(all, syscall.SIGTERM)
	if c.client != nil {
		err = errors.Join(err, c.client.Close())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// Volume returns the directory of the volume.
func (c *Cluster) Volume() string { return filepath.Join(c.dir, "volume") }

// File returns the path of a protected file.
func (c *Cluster) File(name string) string {
	return filepath.Join(c.Volume(), "files", filepath.FromSlash(name))
}

// Endpoints returns the addresses for clients.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.Client)
	}
	return all
}

// PIDs returns the process IDs, in order of the servers' IDs.
func (c *Cluster) PIDs() []int {
	var all []int
	for _, s := range c.servers {
		all = append(all, s.PID())
	}
	return all
}

func (c *Cluster) server(id clientlib.ServerID) *server { return c.servers[id-1] }

func (c *Cluster) log(id clientlib.ServerID) string {
	return filepath.Join(c.dir, fmt.Sprintf("server-%d.log", id))
}

// Restart starts a server that does not run.
func (c *Cluster) Restart(id clientlib.ServerID) (err error) {
	s := c.server(id)
	args := []string{c.binary, "server", "--id", fmt.Sprint(id), "--volume", c.Volume(), "--data-dir", "none", "--log-format", "json"}
	start := Command{Name: fmt.Sprintf("server %d", id), Log: c.log(id), Args: append(args, c.opt.Flags...)}
	start.Env = c.opt.env()
	s.Process, err = start.Start()
	return err
}

// Signal sends a signal to a server.
func (c *Cluster) Signal(id clientlib.ServerID, s syscall.Signal) error {
	return c.server(id).Signal(s)
}

// Kill ends a server as kill -9 does, and waits until it is gone.
func (c *Cluster) Kill(id clientlib.ServerID) error { return c.server(id).Kill() }

// AwaitHealthy waits until one server is primary and the others could take over,
// and returns the ID of the primary. It returns an error after 30 s.
func (c *Cluster) AwaitHealthy(ctx context.Context) (clientlib.ServerID, error) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		s, err := c.client.Status(ctx)
		if err == nil && healthy(s) {
			return s.Primary.ID, nil
		}
		if dead := c.dead(); dead != nil {
			return 0, fmt.Errorf("%s has ended; the end of its log:\n%s", dead.name, dead.Tail())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("the servers were not all well within %v (%w); the end of server 1's log:\n%s", healthLimit, errors.Join(err, context.Cause(ctx)), c.servers[0].Tail())
		}
	}
}

// Health is how the servers are.
type Health struct {
	// Primary is 0 where none is known; Epoch is that of its term.
	Primary clientlib.ServerID
	Epoch   clientlib.Epoch
	// Well is true if one is primary and the others could take over.
	Well bool
}

// Health asks a server how all are.
func (c *Cluster) Health(ctx context.Context) (Health, error) {
	s, err := c.client.Status(ctx)
	if err != nil {
		return Health{}, err
	}
	h := Health{Epoch: s.Epoch, Well: healthy(s)}
	if s.Primary != nil {
		h.Primary = s.Primary.ID
	}
	return h, nil
}

// AwaitTables waits until every server is healthy and has the present table: one that was
// restarted has to get it first.
func (c *Cluster) AwaitTables(ctx context.Context) error {
	if _, err := c.AwaitHealthy(ctx); err != nil {
		return err
	}
	now, err := c.client.Status(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tableLimit)
	defer cancel()
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		s, err := c.client.Status(ctx)
		if err == nil && !slices.ContainsFunc(s.Servers, func(x clientlib.ServerInfo) bool { return x.LSN < now.LSN }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not every server had the table within %v: %w", tableLimit, errors.Join(err, context.Cause(ctx)))
		}
	}
}

func healthy(s clientlib.StatusInfo) bool {
	able := 0
	for _, x := range s.Servers {
		if x.Role == "replica" && x.Reachable && x.Able && x.Epoch == s.Epoch {
			able++
		}
	}
	return s.Primary != nil && able == count-1
}

func (c *Cluster) dead() *Process {
	for _, s := range c.servers {
		select {
		case <-s.Ended():
			return s.Process
		default:
		}
	}
	return nil
}

// Interval is the time of an activity, such as a checkpoint.
type Interval struct{ From, To time.Time }

// Checkpoints returns when the servers wrote checkpoints so far, according to their logs.
func (c *Cluster) Checkpoints() (all []Interval, err error) {
	err = c.lines(func(_ clientlib.ServerID, line []byte) {
		if i, ok := checkpointLine(line); ok {
			all = append(all, i)
		}
	})
	return all, err
}

// lines calls read with each line of each server's log so far.
func (c *Cluster) lines(read func(id clientlib.ServerID, line []byte)) error {
	for _, s := range c.servers {
		f, err := os.Open(c.log(s.ID))
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			read(s.ID, lines.Bytes())
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// LateKeepAlives returns how many keep-alives came after the end of a lease so far, according to the
// servers' logs.
func (c *Cluster) LateKeepAlives() (n int, err error) {
	err = c.lines(func(_ clientlib.ServerID, line []byte) {
		if bytes.Contains(line, []byte(`"a keep-alive came after a lease of its client had ended"`)) {
			n++
		}
	})
	return n, err
}

// Noticed returns when another server noticed first, according to the logs, that the primary was gone
// which was killed at struck; the zero time if none did.
func (c *Cluster) Noticed(killed clientlib.ServerID, struck time.Time) (first time.Time, err error) {
	err = c.lines(func(id clientlib.ServerID, line []byte) {
		at, ok := noticedLine(line)
		if ok && id != killed && at.After(struck) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	})
	return first, err
}

// noticedLine reads a line of the log that says that the primary is gone, or that this server is to be
// the next one.
func noticedLine(line []byte) (time.Time, bool) {
	var l struct {
		Time    time.Time `json:"time"`
		Message string    `json:"message"`
		Primary uint32    `json:"primary"`
	}
	if json.Unmarshal(line, &l) != nil {
		return time.Time{}, false
	}
	return l.Time, l.Message == "primary changed" && l.Primary == 0 || l.Message == "this server should be primary"
}

// checkpointLine reads the line of the log that ends a checkpoint.
func checkpointLine(line []byte) (Interval, bool) {
	var l struct {
		Time    time.Time `json:"time"`
		Message string    `json:"message"`
		Took    float64   `json:"took"` // milliseconds
	}
	if json.Unmarshal(line, &l) != nil || l.Message != "checkpoint" {
		return Interval{}, false
	}
	return Interval{l.Time.Add(-time.Duration(l.Took * float64(time.Millisecond))), l.Time}, true
}

// FindBinary returns the path of the holdfast binary to run: asked, else one beside
// this program, else one in PATH, else one built into dir from the source here.
func FindBinary(asked, dir string) (string, error) {
	if asked != "" {
		path, err := exec.LookPath(asked)
		if err != nil {
			return "", fmt.Errorf("--binary: %w: build one with make build and give bin/holdfast", err)
		}
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "holdfast")); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath("holdfast"); err == nil {
		return filepath.Abs(path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path, err := filepath.Abs(filepath.Join(dir, "holdfast"))
	if err != nil {
		return "", err
	}
	if err := (Command{Args: []string{"go", "build", "-o", path, "github.com/holdfast-lock/holdfast/cmd/holdfast"}}).Run(); err != nil {
		return "", fmt.Errorf("no holdfast binary beside this program or in PATH, and none could be built (%w): build one in the source with make build, then give --binary bin/holdfast", err)
	}
	return path, nil
}

// Version returns the version that a binary prints.
func Version(binary string) string {
	out, err := exec.Command(binary, "version").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
