// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
)

// fault is one bad thing that happens while server p is primary.
type fault struct {
	name string
	// inject does it. Mend, if there is one, undoes it.
	inject func(ctx context.Context, s *scenario, p int) (mend func() error, err error)
	// lasts is how long it lasts; 0 = until the cluster works in spite of it.
	lasts time.Duration
	// stays says that the term goes on.
	stays bool
}

// serverFaults happen to servers and their hosts, whatever the share is.
func serverFaults() []fault {
	return []fault{
		{name: "kill -9 the primary", lasts: 5 * time.Second, inject: signal("KILL")},
		{name: "SIGTERM the primary", lasts: 5 * time.Second, inject: signal("TERM")},
		{name: "power off the primary's host", inject: func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return s.powerOff(ctx, p), nil
		}},
		{name: "power off a replica's host", inject: func(ctx context.Context, s *scenario, p int) (func() error, error) {
			return s.powerOff(ctx, p%3+1), nil
		}, stays: true},
		{name: "step the primary's clock", inject: stepClock, stays: true},
	}
}

// networkFaults are those that a share must bear whose locks and files are a server's.
func networkFaults() []fault {
	return []fault{
		{name: "power off a replica's host that has read all files", inject: powerOffReader, stays: true},
		{name: "freeze the primary's host for 60 s", lasts: time.Minute, inject: func(_ context.Context, s *scenario, p int) (func() error, error) {
			return s.Host(p).Thaw, s.Host(p).Freeze()
		}},
		{name: "freeze a client that holds a lock for 40 s", lasts: 40 * time.Second, inject: suspendClient},
		{name: "cut the primary's host off for 10 s", lasts: 10 * time.Second, inject: cut},
		{name: "cut the primary's host off for 90 s", lasts: 90 * time.Second, inject: cut},
		{name: "cut the primary off from the share for 30 s", lasts: 30 * time.Second, inject: func(_ context.Context, s *scenario, p int) (func() error, error) {
			return s.Cut(s.Host(p), s.NFS.IP)
		}},
		{name: "cut the primary off from all but the share for 30 s", lasts: 30 * time.Second, inject: func(_ context.Context, s *scenario, p int) (func() error, error) {
			return s.Cut(s.Host(p), s.Host(p%3+1).IP, s.Host((p+1)%3+1).IP, tested(testHost))
		}},
		{name: "restart the NFS server's daemons", inject: func(ctx context.Context, s *scenario, _ int) (func() error, error) {
			_, err := s.NFS.Run(ctx, "rpc.nfsd 0; sleep 2; rpc.nfsd 8")
			return nil, err
		}},
		{name: "power off the NFS server", lasts: 5 * time.Second, inject: func(ctx context.Context, s *scenario, _ int) (func() error, error) {
			s.NFS.PowerOff()
			return func() error { return s.start(ctx, s.NFS) }, nil
		}},
		{name: "withdraw the export for 20 s", lasts: 20 * time.Second, inject: func(ctx context.Context, s *scenario, _ int) (func() error, error) {
			_, err := s.NFS.Run(ctx, "exportfs -ua; exportfs -f")
			return func() error {
				_, err := s.NFS.Run(ctx, "exportfs -ra; exportfs -f")
				return err
			}, err
		}},
		{name: "give the export another fsid for 15 s", lasts: 15 * time.Second, inject: func(ctx context.Context, s *scenario, _ int) (func() error, error) {
			return func() error { return s.export(ctx, otherFsid, fsid) }, s.export(ctx, fsid, otherFsid)
		}},
		{name: "give the export another fsid, mount anew", lasts: 5 * time.Second, inject: otherExport},
	}
}

// Of the export, see guest/role-nfsd.
const (
	fsid      = "fsid=5"
	otherFsid = "fsid=77"
)

// export exports the share with another fsid: what any host has open is stale.
func (s *scenario) export(ctx context.Context, from, to string) error {
	_, err := s.NFS.Run(ctx, fmt.Sprintf("exportfs -ua; sed -i s/%s/%s/ /etc/exports; exportfs -ra; exportfs -f", from, to))
	return err
}

// otherExport is a share that was moved to another filesystem, and mounted anew by an operator,
// while servers run.
func otherExport(ctx context.Context, s *scenario, _ int) (func() error, error) {
	move := func(from, to string) error {
		if err := s.export(ctx, from, to); err != nil {
			return err
		}
		for _, m := range s.Hosts {
			if err := s.Remount(ctx, m); err != nil {
				return err
			}
		}
		return nil
	}
	return func() error { return move(otherFsid, fsid) }, move(fsid, otherFsid)
}

func signal(name string) func(context.Context, *scenario, int) (func() error, error) {
	return func(ctx context.Context, s *scenario, p int) (func() error, error) {
		return func() error { return s.Serve(ctx, p) }, s.Signal(ctx, p, name)
	}
}

func cut(_ context.Context, s *scenario, p int) (func() error, error) {
	return func() error { return s.Host(p).Link(true) }, s.Host(p).Link(false)
}

// stepClock sets the clock of the primary's host an hour ahead, then two back, then right.
func stepClock(ctx context.Context, s *scenario, p int) (func() error, error) {
	for _, step := range []int{3600, -7200, 3600} {
		if _, err := s.Host(p).Run(ctx, fmt.Sprintf("date -s @$(( $(date +%%s) + %d ))", step)); err != nil {
			return nil, err
		}
		traffic.Rest(ctx, 8*time.Second)
	}
	return nil, nil
}

// name is one that no fault has used.
func (s *scenario) name(of string) string {
	s.names++
	return fmt.Sprintf("%s/%d", of, s.names)
}

// powerOffReader takes the power from a host that has read every file of the volume, also a
// protected one that nobody appends to any more, and appends to that.
func powerOffReader(ctx context.Context, s *scenario, p int) (func() error, error) {
	name := s.name("resting")
	add := func(request string) (err error) {
		var out []byte
		done := func() bool { // it may not be known in time whether the append was made
			cmd := s.Holdfast(ctx, "append", name, name+".txt", "--client-id", strings.ReplaceAll(name, "/", "-"), "--request-id", request)
			cmd.Stdin = strings.NewReader("line-" + request + "\n")
			out, err = cmd.CombinedOutput()
			return err == nil
		}
		if !cluster.Poll(ctx, faultLimit, done) {
			return fmt.Errorf("append to %s: %w: %s", name, err, out)
		}
		return nil
	}
	if err := add("1"); err != nil {
		return nil, err
	}
	if _, err := s.Host(p%3+1).Run(ctx, "find "+volume+" -type f -exec cat {} + > /dev/null 2>&1; :"); err != nil {
		return nil, err
	}
	mend, began := s.powerOff(ctx, p%3+1), time.Now()
	if err := add("2"); err != nil {
		return nil, err
	}
	s.t.Logf("an append to a file that the machine had read took %v", time.Since(began).Round(10*time.Millisecond))
	there, err := s.read(ctx, name+".txt")
	if string(there) != "line-1\nline-2\n" {
		s.t.Errorf("%s.txt holds %q", name, there)
	}
	return mend, err
}

// suspendClient freezes a host on which a command holds a lock and appends, for longer than its
// lease lasts. What it said was appended is judged at the end.
func suspendClient(ctx context.Context, s *scenario, p int) (func() error, error) {
	m := s.Host(p%3 + 1)
	name := s.name("suspended")
	loop := fmt.Sprintf("n=0; while :; do n=$((n+1)); echo line-$n | holdfast append %[1]s %[1]s.txt && echo line-$n >> /run/said; done", name)
	_, err := m.Run(ctx, fmt.Sprintf("rm -f /run/said; export HOLDFAST_ENDPOINTS=%s; ( setsid holdfast run --ttl 10s %s -- sh -c '%s' >> /run/client.log 2>&1; echo $? > /run/client.code ) & while ! [ -s /run/said ]; do sleep 0.2; done",
		strings.Join(s.Endpoints(), ","), name, loop))
	if err != nil {
		return nil, err
	}
	if err := m.Freeze(); err != nil {
		return nil, err
	}
	return func() error {
		if err := m.Thaw(); err != nil {
			return err
		}
		return s.judgeClient(ctx, m, name)
	}, nil
}

// judgeClient waits until the command has ended for the loss of its lock, and compares what it
// said with what is there.
func (s *scenario) judgeClient(ctx context.Context, m *Machine, name string) error {
	out, err := m.Run(ctx, "i=0; while ! [ -s /run/client.code ] && [ $i -lt 600 ]; do sleep 0.2; i=$((i+1)); done; cat /run/client.code; rm -f /run/client.code")
	if err != nil {
		return err
	}
	said, err := m.Get(ctx, "/run/said")
	if err != nil {
		return err
	}
	there, err := s.read(ctx, name+".txt")
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "3" {
		s.t.Errorf("the run of a frozen client ended with %q, and not for the loss of its lock", out)
	}
	acked, found := strings.Fields(string(said)), strings.Fields(string(there))
	for i := range max(len(acked), len(found)) {
		// The one in flight may be there, though nobody was told.
		if i >= len(found) || found[i] != fmt.Sprintf("line-%d", i+1) || i > len(acked) {
			s.t.Errorf("a frozen client was told of %d appends, and there are %d: %q and %q", len(acked), len(found), acked, found)
			break
		}
	}
	s.t.Logf("a client that was frozen for longer than its lease was told of %d appends, %d are there, and it ended with %s", len(acked), len(found), strings.TrimSpace(out))
	return nil
}

// start boots a machine and waits until it is up.
func (s *scenario) start(ctx context.Context, m *Machine) error {
	if err := m.Boot(); err != nil {
		return err
	}
	return m.Await(ctx)
}

// powerOff takes the power from a server's host. Mend boots it again.
func (s *scenario) powerOff(ctx context.Context, id int) (mend func() error) {
	s.Host(id).PowerOff()
	return func() error {
		if err := s.start(ctx, s.Host(id)); err != nil {
			return err
		}
		return s.supervise(ctx)
	}
}
