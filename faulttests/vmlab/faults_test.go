// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

var (
	run     = flag.Bool("vmlab", false, "boot virtual machines; they take minutes")
	options = flag.String("vmlab.options", Asked, "mount the share with these `options`")
	made    = flag.String("vmlab.image", "", "the directory of a built image; the test sets it for itself")
	which   = flag.String("vmlab.fault", "", "inject only faults whose name matches this `regexp`")
	quietly = flag.Duration("vmlab.quiet", 20*time.Second, "let clients work for this long before the first fault")
)

const (
	// bootLimit is how long machines may take to boot, and the first server to reign.
	bootLimit = 5 * time.Minute
	// faultLimit is how long a cluster may take to work again: longer than any lease or grace.
	faultLimit = 6 * time.Minute
	// enough appends in a row say that the cluster works again.
	enough = 30
)

// scenario is a lab whose clients work.
type scenario struct {
	*Lab
	t      *testing.T
	ledger check.Ledger
}

// fault is one bad thing that happens to the host of the primary, and what mends it.
type fault struct {
	name   string
	inject func(ctx context.Context, s *scenario, primary int) (mend func() error, err error)
	lasts  time.Duration
}

func (s *scenario) host(id int) *Machine { return s.Hosts[id-1] }

// faults of the main scenario.
func faults() []fault {
	return []fault{
		{"kill -9 the primary", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return func() error { return s.Serve(ctx, p) }, s.Signal(ctx, p, "KILL")
		}, 5 * time.Second},
		{"SIGTERM the primary", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return func() error { return s.Serve(ctx, p) }, s.Signal(ctx, p, "TERM")
		}, 5 * time.Second},
		{"power off the primary's host", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			s.host(p).PowerOff()
			return func() error { return s.revive(ctx, p) }, nil
		}, 0},
		{"freeze the primary's host for 60 s", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return s.host(p).Thaw, s.host(p).Freeze()
		}, time.Minute},
		{"cut the primary's host off for 10 s", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return func() error { return s.host(p).Link(true) }, s.host(p).Link(false)
		}, 10 * time.Second},
		{"cut the primary's host off for 90 s", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return func() error { return s.host(p).Link(true) }, s.host(p).Link(false)
		}, 90 * time.Second},
		{"power off a replica's host", func(ctx context.Context, s *scenario, p int) (func() error, error) {
			s.host(p%3 + 1).PowerOff()
			return func() error { return s.revive(ctx, p%3+1) }, nil
		}, 0},
		{"restart the NFS server's daemons", func(ctx context.Context, s *scenario, _ int) (func() error, error) {
			_, err := s.NFS.Run(ctx, "rpc.nfsd 0; sleep 2; rpc.nfsd 8")
			return nil, err
		}, 0},
		{"power off the NFS server", func(ctx context.Context, s *scenario, _ int) (func() error, error) {
			s.NFS.PowerOff()
			return func() error { return s.start(ctx, s.NFS) }, nil
		}, 5 * time.Second},
	}
}

// start boots a machine and waits until it is up.
func (s *scenario) start(ctx context.Context, m *Machine) error {
	if err := m.Boot(); err != nil {
		return err
	}
	return m.Await(ctx)
}

// revive boots a server's host again.
func (s *scenario) revive(ctx context.Context, id int) error {
	if err := s.start(ctx, s.host(id)); err != nil {
		return err
	}
	if err := s.Mount(ctx, s.host(id)); err != nil {
		return err
	}
	return s.Serve(ctx, id)
}

// TestFaults lets clients append while the machines of servers fail, and compares what they were
// told with what is there.
func TestFaults(t *testing.T) {
	prepareImage(t)
	if !cluster.Inside(t, "-vmlab.image="+*made) {
		return
	}
	s := &scenario{Lab: newLab(t), t: t}
	ctx := t.Context()
	boot, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	began := time.Now()
	if err := s.Boot(boot); err != nil {
		t.Fatal(err)
	}
	for id := range 3 {
		if err := s.Serve(boot, id+1); err != nil {
			t.Fatal(err)
		}
	}
	id, epoch, err := s.Primary(boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("server %d reigns in epoch %d, %v after the machines were switched on", id, epoch, time.Since(began).Round(time.Second))
	end := s.work(ctx)
	traffic.Rest(ctx, *quietly)
	t.Logf("undisturbed: %d appends in %v, the longest pause was %v", s.acked(began), *quietly, s.pause(began).Round(10*time.Millisecond))
	only := regexp.MustCompile(*which)
	for _, f := range faults() {
		if only.MatchString(f.name) && !s.strike(ctx, f) {
			break
		}
	}
	end()
	s.judge(ctx)
}

// prepareImage skips the test where the lab is not wanted, or cannot run, and builds the image
// outside of every namespace, because the kernel has to be downloaded.
func prepareImage(t *testing.T) {
	t.Helper()
	if !*run {
		t.Skip("boots virtual machines: see make vmlab")
	}
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	if *made == "" {
		*made = t.TempDir()
		t.Cleanup(func() { *made = "" })
		build(t, *made)
	}
}

// build makes the image and the binary.
func build(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", binaryIn(dir), "github.com/holdfast-lock/holdfast/cmd/holdfast")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build holdfast: %v: %s", err, out)
	}
	if err := Build(dir, binaryIn(dir), os.DirFS("guest")); err != nil {
		t.Fatal(err)
	}
}

func binaryIn(dir string) string { return filepath.Join(dir, "holdfast") }

func newLab(t *testing.T) *Lab {
	t.Helper()
	l := New(t, ImageIn(*made), binaryIn(*made), Settings{})
	l.Options = *options
	return l
}

// work has clients append until end is called.
func (s *scenario) work(ctx context.Context) (end func()) {
	var working sync.WaitGroup
	over := make(chan struct{})
	lines, err := check.SourceText(filepath.Join("..", ".."), 1<<20)
	if err != nil {
		s.t.Fatal(err)
	}
	const clients = 4
	for i := range clients {
		c, err := clientlib.New(clientlib.Options{Endpoints: s.Endpoints(), Budget: faultLimit})
		if err != nil {
			s.t.Fatal(err)
		}
		w := &traffic.Worker{
			Client: c, Speaker: check.NewSpeaker(lines, i, clients), Ledger: &s.ledger, Rand: rand.New(rand.NewPCG(2, uint64(i))),
			Places: []traffic.Place{
				{Lock: hf.LockName(fmt.Sprintf("own/%d", i)), File: hf.FileName(fmt.Sprintf("own/%d.txt", i))},
				{Lock: "all", File: "all.txt"},
			},
			TTL: 30 * time.Second, Pace: 50 * time.Millisecond, Limit: faultLimit, Storage: true, Lossy: true,
		}
		working.Go(func() {
			w.Run(ctx, func() bool {
				select {
				case <-over:
					return true
				default:
					return false
				}
			})
			c.Close() //nolint:errcheck // the servers may be gone
		})
	}
	return func() { close(over); working.Wait() }
}

// told are the moments in which appends were acknowledged since then, in order.
func (s *scenario) told(since time.Time) (all []time.Time) {
	appends, _, _ := s.ledger.Entries()
	for _, a := range appends {
		if a.Acked && a.Answered.After(since) {
			all = append(all, a.Answered)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

func (s *scenario) acked(since time.Time) int { return len(s.told(since)) }

// pause is the longest time without an acknowledgement since then.
func (s *scenario) pause(since time.Time) (longest time.Duration) {
	all := s.told(since)
	for i := 1; i < len(all); i++ {
		longest = max(longest, all[i].Sub(all[i-1]))
	}
	return longest
}

// strike injects a fault and mends it, and says whether the cluster worked again.
func (s *scenario) strike(ctx context.Context, f fault) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*faultLimit)
	defer cancel()
	p, before, err := s.Primary(ctx)
	if err != nil {
		s.t.Errorf("before %q: %v", f.name, err)
		return false
	}
	began := time.Now()
	mend, err := f.inject(ctx, s, p)
	if err != nil {
		s.t.Errorf("%s: %v", f.name, err)
		return false
	}
	traffic.Rest(ctx, f.lasts)
	if f.lasts > 0 && mend != nil {
		err, mend = mend(), nil
	}
	works := err == nil && cluster.Poll(ctx, faultLimit, func() bool { return s.acked(began) > enough })
	pause := s.pause(began.Add(-time.Second))
	_, after, _ := s.Primary(ctx)
	s.t.Logf("%-40s server %d, epoch %d -> %d: the longest pause was %v", f.name, p, before, after, pause.Round(10*time.Millisecond))
	if !works {
		s.t.Errorf("%s: %d appends were acknowledged since: %v", f.name, s.acked(began), err)
		return false
	}
	if mend != nil {
		if err := mend(); err != nil {
			s.t.Errorf("mend %q: %v", f.name, err)
			return false
		}
	}
	return s.supervise(ctx)
}

// supervise starts the servers that have given up, as their supervisor does.
func (s *scenario) supervise(ctx context.Context) bool {
	for id := 1; id <= 3; id++ {
		if s.Running(ctx, id) {
			continue
		}
		said, err := s.host(id).Run(ctx, "tail -n 2 /run/server.log | cut -c1-300")
		s.t.Logf("server %d has ended: %s (%v)", id, strings.TrimSpace(said), err)
		if err := s.Serve(ctx, id); err != nil {
			s.t.Errorf("start server %d: %v", id, err)
			return false
		}
	}
	return true
}

// judge compares what clients were told with the files, and has fsck look at the volume.
func (s *scenario) judge(ctx context.Context) {
	at := s.Hosts[0]
	v := check.Judge(&s.ledger, func(name hf.FileName) ([]byte, error) { return at.Get(ctx, volume+"/files/"+string(name)) })
	s.t.Logf("%+v", v)
	for _, bad := range v.Bad {
		s.t.Error(bad)
	}
	for id := 1; id <= 3; id++ {
		if err := s.Signal(ctx, id, "TERM"); err != nil {
			s.t.Log(err)
		}
	}
	out, err := at.Run(ctx, "sleep 5; holdfast fsck --volume "+volume)
	if err != nil {
		s.t.Error(err)
	}
	s.t.Log(strings.TrimSpace(out))
}
