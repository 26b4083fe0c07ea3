// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// shared is a volume on a share, mounted once for each server, and a network of its own.
func shared(name string, profile fuse.Profile, args ...string) Place {
	return Place{Name: name, Available: fuse.Available, Open: func(t testing.TB, binary string, seed uint64) *Site {
		t.Helper()
		s := &Site{Name: name, Net: cluster.NewNet(t), Mounts: map[hf.ServerID]*fuse.Mount{}, Floor: 40}
		backing := filepath.Join(t.TempDir(), "volume")
		dirs := map[hf.ServerID]string{}
		for id := range hf.ServerID(3) {
			dirs[id+1] = t.TempDir()
		}
		s.Cluster = cluster.New(t, cluster.Options{Binary: binary, Dir: backing, Dirs: dirs, Net: s.Net, Args: args})
		var err error
		if s.Share, err = fuse.NewShare(backing, seed); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Share.Close() }) //nolint:errcheck // what matters was closed by Settle
		for id, dir := range dirs {
			if s.Mounts[id], err = s.Share.Mount(dir, profile); err != nil {
				t.Fatal(err)
			}
		}
		s.Cluster.StartAll()
		s.Cluster.AwaitReplicas(cluster.Patience)
		return s
	}}
}

// shareFaults break the share or one server's way to it.
func shareFaults() []Fault {
	share := func(name string, deposes bool, lasts time.Duration, inject func(*Strike) []*fuse.Rule) Fault {
		return Fault{Name: name, Deposes: deposes, Lasts: lasts, Needs: needsShare, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			rules := inject(s)
			return func() error {
				for _, r := range rules {
					r.Release()
				}
				return nil
			}, nil
		}}
	}
	primary := func(f fuse.Fault) func(*Strike) []*fuse.Rule {
		return func(s *Strike) []*fuse.Rule {
			if f.Times > 0 {
				f.Skip = s.Rand.IntN(20)
			}
			return []*fuse.Rule{s.mount(s.Primary).Inject(f)}
		}
	}
	everywhere := func(f fuse.Fault) func(*Strike) []*fuse.Rule {
		return func(s *Strike) []*fuse.Rule { return []*fuse.Rule{s.Site.Share.Inject(f)} }
	}
	const brief, long = 2 * time.Second, 8 * time.Second
	return []Fault{
		share("every call of the primary takes 20 ms longer", false, brief, primary(fuse.Fault{Delay: 10 * time.Millisecond, Jitter: 20 * time.Millisecond})),
		share("every sync of the share takes 50 ms longer", false, brief, everywhere(fuse.Fault{Ops: fuse.Fsync | fuse.FsyncDir, Delay: 50 * time.Millisecond})),
		share("EIO once at a sync of the primary's log, then clean", true, brief, primary(fuse.Fault{Ops: fuse.Fsync, Contains: "/wal-", Times: 1, Err: unix.EIO})),
		share("EIO at a write of the primary's log that is done all the same", true, brief, primary(fuse.Fault{Ops: fuse.Write, Contains: "/wal-", Times: 1, Err: unix.EIO, Effect: fuse.Done})),
		share("EIO at a write of the primary's log that is done late", true, brief, primary(fuse.Fault{Ops: fuse.Write, Contains: "/wal-", Times: 1, Err: unix.EIO, Effect: fuse.DoneLate})),
		share("ESTALE once at the primary's check", true, brief, primary(fuse.Fault{Ops: fuse.Read, Contains: "/fence", Times: 1, Err: unix.ESTALE})),
		share("one call in a thousand of everybody fails", false, brief, everywhere(fuse.Fault{Chance: 0.001, Err: unix.EIO})),
		share("the share is full", false, brief, everywhere(fuse.Fault{Ops: fuse.Write | fuse.Create | fuse.Mkdir | fuse.Fallocate, Err: unix.ENOSPC})),
		share("protected files take no writes", false, brief, everywhere(fuse.Fault{Ops: fuse.Write, Under: "files", Err: unix.ENOSPC})),
		share("the share is read-only", false, brief, everywhere(fuse.Fault{Ops: fuse.Changes, Err: unix.EROFS})),
		share("the primary's mount is cut off", true, long, func(s *Strike) []*fuse.Rule { return []*fuse.Rule{s.mount(s.Primary).Cut()} }),
		share("a replica's mount is cut off", false, long, func(s *Strike) []*fuse.Rule { return []*fuse.Rule{s.mount(s.Replica()).Cut()} }),
		share("the primary's soft mount is cut off", true, long, func(s *Strike) []*fuse.Rule { return []*fuse.Rule{s.mount(s.Primary).CutSoft()} }),
		share("one protected file hangs on the primary's mount", false, long, primary(fuse.Fault{Ops: fuse.Write | fuse.Fsync, Under: "files/deep", Hang: true})),
		share("one protected file hangs on every mount", false, long, everywhere(fuse.Fault{Under: "files/deep", Hang: true})),
		share("the whole share hangs", false, long, everywhere(fuse.Fault{Hang: true})),
		{Name: "the primary loses its flocks", Needs: needsShare, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			s.mount(s.Primary).DropLocks()
			return nil, nil
		}},
		{Name: "power loss of the share", Needs: needsShare, Inject: powerLoss(false)},
		{Name: "power loss of the share and of all servers", Deposes: true, Needs: needsShare, Inject: powerLoss(true)},
	}
}

func (s *Strike) mount(x *cluster.Server) *fuse.Mount { return s.Site.Mounts[x.Member.ID] }

func needsShare(s *Site) error {
	if s.Share == nil {
		return errNoShare
	}
	return nil
}

// powerLoss restarts the file server; what was not synced is gone, in part.
func powerLoss(servers bool) func(context.Context, *Strike) (func() error, error) {
	return func(_ context.Context, s *Strike) (func() error, error) {
		if servers {
			s.Site.Cluster.KillAll()
		}
		loss, err := s.Site.Share.PowerLoss(s.Rand.Float64())
		if err != nil {
			return nil, fmt.Errorf("power loss: %w", err)
		}
		s.Site.lost(loss)
		return restart(s.Site.Cluster.Servers()...), nil
	}
}

func (s *Site) lost(l fuse.Loss) {
	s.Loss.Names += l.Names
	s.Loss.Pages += l.Pages
	s.Loss.Torn += l.Torn
}
