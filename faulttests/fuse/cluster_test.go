// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// site is a cluster with a host for each server.
type site struct {
	*cluster.Cluster
	share *fuse.Share
	hosts map[hf.ServerID]*fuse.Mount
}

func newSite(t *testing.T, p fuse.Profile) *site {
	t.Helper()
	share := newShare(t)
	binary, err := cluster.Build(t.TempDir())
	must(t, err)
	s := &site{share: share, hosts: make(map[hf.ServerID]*fuse.Mount)}
	opt := cluster.Options{Binary: binary, Dir: share.Dir(), Dirs: make(map[hf.ServerID]string)}
	for id := hf.ServerID(1); id <= 3; id++ {
		s.hosts[id] = mount(t, share, p)
		opt.Dirs[id] = s.hosts[id].Dir()
	}
	s.Cluster = cluster.Start(t, opt)
	s.AwaitReplicas(cluster.Patience)
	return s
}

// writer appends numbered lines under one lock.
type writer struct {
	t    *testing.T
	lock *clientlib.Lock
	want strings.Builder
	n    int
}

func (s *site) newWriter(t *testing.T) *writer {
	t.Helper()
	client, err := clientlib.New(clientlib.Options{Endpoints: s.Endpoints()})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() }) // the servers may be gone
	lock, err := client.Acquire(t.Context(), "log", clientlib.AcquireOptions{TTL: time.Minute})
	must(t, err)
	return &writer{t: t, lock: lock}
}

// lines appends n lines, one by one.
func (w *writer) lines(n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), cluster.Patience)
	defer cancel()
	for range n {
		w.n++
		line := fmt.Sprintf("line %d\n", w.n)
		if _, err := w.lock.Append(ctx, "log.txt", []byte(line)); err != nil {
			w.t.Fatalf("append of %q: %v", line, err)
		}
		w.want.WriteString(line)
	}
}

// end stops the servers and looks at what is left.
func (s *site) end(t *testing.T, w *writer) {
	t.Helper()
	s.TermAll()
	for _, m := range s.hosts {
		must(t, m.Unmount())
	}
	if got, err := os.ReadFile(s.File("log.txt")); err != nil || string(got) != w.want.String() {
		t.Errorf("%d bytes in the file (%v), want %d", len(got), err, w.want.Len())
	}
	if _, err := s.Fsck(); err != nil {
		t.Error(err)
	}
}

// TestCluster runs servers on hosts that cache nothing, and on such that cache
// as NFS does, kills the primary, and takes the power from the share.
func TestCluster(t *testing.T) {
	for name, profile := range map[string]fuse.Profile{"strict": fuse.Strict(), "stale": fuse.Stale(2 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, profile)
			w := s.newWriter(t)
			began := time.Now()
			w.lines(200)
			t.Logf("200 appends one by one took %v", time.Since(began))
			p, epoch := s.Primary(t.Context())
			p.Kill()
			w.lines(100)
			if _, now := s.Primary(t.Context()); now <= epoch {
				t.Errorf("epoch %d after the primary of %d was killed", now, epoch)
			}
			p.Start()
			s.AwaitReplicas(cluster.Patience)

			s.KillAll()
			loss, err := s.share.PowerLoss(0)
			must(t, err)
			t.Logf("a power loss took %+v", loss)
			s.StartAll()
			w.lines(100)
			s.AwaitReplicas(cluster.Patience)
			s.end(t, w)
		})
	}
}

// TestClusterCutOff cuts the primary's host off from the share. Another
// server takes over; the calls that hung are done when it is back, and harm nothing.
func TestClusterCutOff(t *testing.T) {
	s := newSite(t, fuse.Strict())
	w := s.newWriter(t)
	w.lines(50)
	p, epoch := s.Primary(t.Context())
	cut := s.hosts[p.Member.ID].Cut()
	w.lines(50)
	next := s.AwaitTerm(cluster.Patience, epoch)
	if next == p {
		t.Errorf("a primary that is cut off becomes primary again")
	}
	t.Logf("%d calls hung on the old primary's host", cut.Waiting())
	cut.Release()
	w.lines(50)
	if !p.Running() {
		p.Start()
	}
	s.AwaitReplicas(cluster.Patience)
	s.end(t, w)
}

// told is what a server says of itself, and whether it says that its volume takes no writes.
func told(t *testing.T, x *cluster.Server) (own wire.ServerBody, stale bool) {
	t.Helper()
	body, err := x.Status(t.Context())
	for i := range body.Servers {
		if err == nil && body.Servers[i].ID == uint32(x.Member.ID) {
			own = body.Servers[i]
		}
	}
	return own, slices.ContainsFunc(own.Volume.Warnings, func(w string) bool { return strings.Contains(w, "HAS TAKEN NO WRITE") })
}

// remount kills the FUSE client of a server's host, and mounts the share again at the same path
// once the server has said so.
func (s *site) remount(t *testing.T, x *cluster.Server) {
	t.Helper()
	pid := x.PID()
	dead := s.hosts[x.Member.ID]
	must(t, dead.Unmount())
	cluster.Await(t, cluster.Patience, "status to tell of the dead mount", func() bool {
		own, stale := told(t, x)
		return stale && !own.Able
	})
	again, err := s.share.Mount(dead.Dir(), fuse.Strict())
	must(t, err)
	s.hosts[x.Member.ID] = again
	began := time.Now()
	cluster.Await(t, cluster.Patience, "the server to be able again", func() bool {
		own, stale := told(t, x)
		return own.Able && !stale && own.Role == "replica"
	})
	t.Logf("server %d is able %v after its mount", x.Member.ID, time.Since(began))
	if x.PID() != pid {
		t.Errorf("server %d ended: %s", x.Member.ID, x.Tail(1))
	}
}

// TestClusterFindsMountsAnew kills the FUSE client of a replica's host, and of the primary's.
// Mounted again at the same path, the share is found by the servers that run.
func TestClusterFindsMountsAnew(t *testing.T) {
	s := newSite(t, fuse.Strict())
	w := s.newWriter(t)
	w.lines(20)
	p, epoch := s.Primary(t.Context())
	for _, x := range s.Servers() {
		if x != p {
			s.remount(t, x)
			break
		}
	}
	w.lines(20)
	if now, e := s.Primary(t.Context()); now != p || e != epoch {
		t.Errorf("a replica's mount died, and the term of epoch %d became one of epoch %d", epoch, e)
	}
	s.remount(t, p)
	w.lines(20)
	s.AwaitReplicas(cluster.Patience)
	s.end(t, w)
}

// TestClusterUnderFaults lets one thing after another go wrong on the primary's
// host, and with the share, under a writer that goes on all the time.
func TestClusterUnderFaults(t *testing.T) {
	if !*faults {
		t.Skip("takes a minute: give -faults")
	}
	s := newSite(t, fuse.Stale(time.Second))
	w := s.newWriter(t)
	for _, f := range []fuse.Fault{
		{Ops: fuse.Fsync | fuse.Write, Delay: 2 * time.Millisecond, Jitter: 10 * time.Millisecond},
		{Ops: fuse.Fsync, Contains: "/wal-", Times: 1, Err: unix.EIO},
		{Ops: fuse.Fsync, Contains: "/wal-", Times: 1, Err: unix.EIO, Effect: fuse.Done},
		{Ops: fuse.Write, Contains: "/wal-", Skip: 3, Times: 1, Err: unix.EIO, Effect: fuse.DoneLate},
		{Ops: fuse.Write, Under: "files", Skip: 3, Times: 1, Err: unix.EIO, Effect: fuse.DoneLate},
		{Ops: fuse.Read, Contains: "/fence", Times: 1, Err: unix.EIO},
		{Ops: fuse.Read, Contains: "/fence", Times: 1, Err: unix.ESTALE},
		{Hang: true},
	} {
		p, epoch := s.Primary(t.Context())
		if p == nil {
			p = s.AwaitPrimary(cluster.Patience)
		}
		r := s.hosts[p.Member.ID].Inject(f)
		began := time.Now()
		w.lines(100)
		r.Release()
		w.lines(100)
		_, now := s.Primary(t.Context())
		t.Logf("%+v: %d hits, epochs %d to %d, %v", f, r.Hits(), epoch, now, time.Since(began))
		if r.Hits() == 0 {
			t.Errorf("the fault hit nobody")
		}
		s.startEnded(t)
	}
	for range 3 {
		loss, err := s.share.PowerLoss(0.5)
		must(t, err)
		t.Logf("a power loss took %+v", loss)
		cluster.Await(t, cluster.Patience, "somebody to notice", func() bool { p, _ := s.Primary(t.Context()); return p == nil })
		s.startEnded(t)
		w.lines(100)
		s.startEnded(t)
	}
	s.end(t, w)
}

// startEnded starts again the servers that ended, as their supervisor would.
func (s *site) startEnded(t *testing.T) {
	t.Helper()
	for _, x := range s.Servers() {
		if !x.Running() {
			t.Logf("server %d ended: %s", x.Member.ID, x.Tail(1))
			x.Start()
		}
	}
	s.AwaitReplicas(cluster.Patience)
}
