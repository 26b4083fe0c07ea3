// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// bricks is a volume on GlusterFS with the options that Holdfast asks for,
// mounted once for each server, and a network of its own. The test reads
// through the first mount, which is as true as the others.
func bricks(name string) Place {
	return Place{Name: name, Available: gluster.Available, Open: func(t testing.TB, binary string, _ uint64) *Site {
		t.Helper()
		v := gluster.Start(t, gluster.Options{Tuning: gluster.Ours})
		s := &Site{Name: name, Net: cluster.NewNet(t), Gluster: v, Floor: 20}
		dirs := map[hf.ServerID]string{}
		for i, mount := range v.Mounts() {
			dirs[hf.ServerID(i+1)] = filepath.Join(mount, "volume")
		}
		s.Cluster = cluster.Start(t, cluster.Options{Binary: binary, Dir: dirs[1], Dirs: dirs, Net: s.Net})
		s.Cluster.AwaitReplicas(cluster.Patience)
		return s
	}}
}

// brickFaults take bricks away, from all clients or from one.
func brickFaults() []Fault {
	needs := func(s *Site) error {
		if s.Gluster == nil {
			return errNoBricks
		}
		return nil
	}
	const brief, long = 3 * time.Second, 15 * time.Second // the latter is longer than network.ping-timeout
	return []Fault{
		{Name: "a brick is killed", Needs: needs, Lasts: brief, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			v, i := s.Site.Gluster, s.Rand.IntN(gluster.Replicas)
			return func() error {
				if err := v.StartBrick(i); err != nil {
					return err
				}
				return v.AwaitHealed()
			}, v.StopBrick(i)
		}},
		{Name: "the primary's host does not reach a brick", Needs: needs, Lasts: long, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			v, client, i := s.Site.Gluster, int(s.Primary.Member.ID)-1, s.Rand.IntN(gluster.Replicas)
			return func() error {
				if err := v.JoinBrick(client, i); err != nil {
					return err
				}
				return v.AwaitHealed()
			}, v.CutBrick(client, i)
		}},
	}
}
