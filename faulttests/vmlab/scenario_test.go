// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"errors"
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
	options = flag.String("vmlab.options", Asked, "mount the NFS share with these `options`")
	made    = flag.String("vmlab.image", "", "the directory of a built image; the test sets it for itself")
	which   = flag.String("vmlab.fault", "", "inject only faults, and have the doctor look only at options, that match this `regexp`")
	quietly = flag.Duration("vmlab.quiet", 20*time.Second, "let clients work for this long before the first fault")
	lasting = flag.Duration("vmlab.for", 0, "inject the faults again, in random order, until this is over")
	logs    = flag.String("vmlab.logs", "", "keep the logs of the servers in this `directory`")
)

const (
	// bootLimit is how long machines may take to boot, and the first server to be primary.
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
	end    func()                     // ends the clients' work
	pauses map[string][]time.Duration // by fault
	names  int                        // used by faults so far
}

// TestFaultsOnNFS lets clients append while the machines of servers fail, and compares what they
// were told with what is there.
func TestFaultsOnNFS(t *testing.T) {
	if s := begin(t, NFS(*options)); s != nil {
		s.strikeAll(slices.Concat(serverFaults(), networkFaults()))
	}
}

// The same on a disk that three machines share. Nodes that hear nothing of one another for a while
// reset themselves there, so they are not frozen or cut off.
func TestFaultsOnOCFS2(t *testing.T) {
	if s := begin(t, OCFS2()); s != nil {
		s.strikeAll(serverFaults())
	}
}

// begin boots a lab whose clients work; nil in the process that only starts the one that does.
func begin(t *testing.T, share Share) *scenario {
	prepareImage(t)
	if err := share.missing(); err != nil {
		t.Skip(err)
	}
	if !cluster.Inside(t, "-vmlab.image="+*made) {
		return nil
	}
	s := &scenario{Lab: New(t, ImageIn(*made), binaryIn(*made), share), t: t, pauses: map[string][]time.Duration{}}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	began := time.Now()
	if err := s.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	id, epoch, err := s.Primary(ctx)
	if err != nil {
		s.keepLogs(t.Context())
		t.Fatal(err)
	}
	t.Logf("%s: server %d is primary in epoch %d, %v after the machines were switched on", share.Name, id, epoch, time.Since(began).Round(time.Second))
	s.end = s.work(t.Context())
	traffic.Rest(t.Context(), *quietly)
	t.Logf("undisturbed: %d appends in %v, the longest pause was %v", s.acked(began), *quietly, s.pause(began).Round(10*time.Millisecond))
	return s
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

// strikeAll injects faults, each once or until the time is over, and judges what became of the work.
func (s *scenario) strikeAll(faults []fault) {
	ctx := s.t.Context()
	only := regexp.MustCompile(*which)
	faults = slices.DeleteFunc(faults, func(f fault) bool { return !only.MatchString(f.name) })
	began := time.Now()
	for n, works := 0, true; works && (n < len(faults) || time.Since(began) < *lasting); n++ {
		if n > 0 && n%len(faults) == 0 {
			rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		works = s.strike(ctx, faults[n%len(faults)])
	}
	s.end()
	s.judge(ctx)
	s.report(faults)
}

// report is a table of the pauses.
func (s *scenario) report(faults []fault) {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | times | pause, median | longest |\n|---|---|---|---|\n", s.share.Name)
	slices.SortFunc(faults, func(x, y fault) int { return strings.Compare(x.name, y.name) })
	for _, f := range faults {
		if all := slices.Sorted(slices.Values(s.pauses[f.name])); len(all) > 0 {
			fmt.Fprintf(&b, "| %s | %d | %.1f s | %.1f s |\n", f.name, len(all), all[len(all)/2].Seconds(), all[len(all)-1].Seconds())
		}
	}
	s.t.Log("\n" + b.String())
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
	mended := time.Now()
	if f.lasts > 0 && mend != nil {
		err, mend = mend(), nil
	}
	works := err == nil && cluster.Poll(ctx, faultLimit, func() bool { return s.acked(mended) > enough })
	pause := s.pause(began.Add(-time.Second))
	_, after, _ := s.Primary(ctx)
	s.pauses[f.name] = append(s.pauses[f.name], pause)
	s.t.Logf("%s %-52s server %d, epoch %d -> %d: the longest pause was %v", began.UTC().Format(time.TimeOnly), f.name, p, before, after, pause.Round(10*time.Millisecond))
	if f.stays && after != before {
		s.t.Errorf("%s: the term of epoch %d ended", f.name, before)
	}
	if !works {
		s.t.Errorf("%s: %d appends were acknowledged since: %v", f.name, s.acked(mended), err)
		return false
	}
	if mend != nil {
		err = mend()
	}
	// A process that has given up may hang in the share for a while before it is gone.
	whole := err == nil && cluster.Poll(ctx, bootLimit, func() bool {
		err = s.supervise(ctx)
		return err == nil && s.whole(ctx)
	})
	if !whole {
		s.t.Errorf("%s: the cluster is not well again: %v", f.name, err)
	}
	return whole
}

// whole reports whether all servers are able to be primary.
func (s *scenario) whole(ctx context.Context) bool {
	return s.Holdfast(ctx, "status", "--timeout", "3s").Run() == nil
}

// supervise mounts the share where it is not, and starts the servers that have given up, as a
// supervisor does.
func (s *scenario) supervise(ctx context.Context) error {
	for id := 1; id <= 3; id++ {
		if s.Running(ctx, id) {
			continue
		}
		m := s.Host(id)
		said, err := m.Run(ctx, fmt.Sprintf("[ ! -e /run/server.%[1]d.log ] || tail -n 2 /run/server.%[1]d.log | cut -c1-300", id))
		if err != nil {
			return err
		}
		if said != "" { // and not the machine
			s.t.Logf("server %d has ended: %s", id, strings.TrimSpace(said))
		}
		if err := errors.Join(s.Mount(ctx, m), s.Serve(ctx, id)); err != nil {
			return err
		}
	}
	return nil
}

// read is a protected file's content, as a host sees it that is on.
func (s *scenario) read(ctx context.Context, name string) ([]byte, error) {
	for _, m := range s.Hosts {
		if m.On() {
			return m.Get(ctx, volume+"/files/"+name)
		}
	}
	return nil, errors.New("no host is on")
}

// wake boots the machines that are off, as after a fault that failed.
func (s *scenario) wake(ctx context.Context) (err error) {
	for _, m := range s.all() {
		if !m.On() {
			err = errors.Join(err, s.start(ctx, m))
		}
	}
	return errors.Join(err, s.supervise(ctx))
}

// judge compares what clients were told with the files, and has fsck look at the volume.
func (s *scenario) judge(ctx context.Context) {
	if err := s.wake(ctx); err != nil {
		s.t.Error(err)
	}
	v := check.Judge(&s.ledger, func(name hf.FileName) ([]byte, error) { return s.read(ctx, string(name)) })
	s.t.Logf("%+v", v)
	for _, bad := range v.Bad {
		s.t.Error(bad)
	}
	s.keepLogs(ctx)
	for id := 1; id <= 3; id++ {
		if err := s.Signal(ctx, id, "TERM"); err != nil {
			s.t.Log(err)
		}
	}
	out, err := s.Hosts[0].Run(ctx, "sleep 5; holdfast fsck --volume "+volume)
	if err != nil {
		s.t.Error(err)
	}
	s.t.Log(strings.TrimSpace(out))
}

func (s *scenario) keepLogs(ctx context.Context) {
	if *logs == "" {
		return
	}
	for id := 1; id <= 3; id++ {
		b, err := s.Host(id).Get(ctx, fmt.Sprintf("/run/server.%d.log", id))
		if err == nil {
			err = os.WriteFile(filepath.Join(*logs, fmt.Sprintf("server.%d.log", id)), b, 0o644)
		}
		if err != nil {
			s.t.Log(err)
		}
	}
}
