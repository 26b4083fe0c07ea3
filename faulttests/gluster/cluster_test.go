// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
	"github.com/holdfast-lock/holdfast/faulttests/torture"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// floor is how many calls a second must get through while nothing is wrong.
const floor = 20

// TestCluster runs three servers, each with a mount of its own, under clients
// that append and lock, and kills primaries, freezes them, kills bricks and cuts
// the primary's mount from one. Nothing may be lost or doubled. It takes some minutes.
func TestCluster(t *testing.T) {
	for _, fencing := range []time.Duration{hf.DefaultTiming().FencingPeriod, 5 * time.Second} {
		t.Run(fmt.Sprint("fencing ", fencing), func(t *testing.T) {
			v := start(t, gluster.Options{})
			site := &torture.Site{Name: "GlusterFS", Cluster: startServers(t, v, fencing), Floor: floor}
			site.Cluster.AwaitReplicas(cluster.Patience)
			seed := uint64(time.Now().UnixNano())
			r := torture.RunRound(t, site, sourceText(t), schedule(v), seed, 20*time.Minute)
			t.Logf(`seed %d: %v, %.0f calls/s while nothing was wrong, longest silence %v
  %d appends (%.1f MB), %d grants, %d operations in the history, %d without an answer, last epoch %d, last LSN %d
  lines acknowledged %d, found %d; lost %d, duplicate %d, out of order %d, foreign %d
%s`, seed, r.Took.Round(time.Second), r.Rate, r.Gap.Round(time.Millisecond),
				r.Appends, float64(r.Bytes)/1e6, r.Grants, r.Operations, r.Indeterminate, r.Epoch, r.LSN,
				r.Lines.LinesIn, r.Lines.LinesOut, r.Lines.Lost, r.Lines.Duplicate, r.Lines.Misordered, r.Lines.Foreign,
				check.Describe(r.Failovers))
		})
	}
}

func startServers(t *testing.T, v *gluster.Volume, fencing time.Duration) *cluster.Cluster {
	t.Helper()
	opt := cluster.Options{
		Binary: build(t), Dirs: map[hf.ServerID]string{},
		Args: []string{"--fencing-period", fencing.String()},
	}
	for i, m := range v.Mounts() {
		opt.Dirs[hf.ServerID(i+1)] = filepath.Join(m, "volume")
	}
	opt.Dir = opt.Dirs[1]
	return cluster.Start(t, opt)
}

// schedule is what happens, in order.
func schedule(v *gluster.Volume) []torture.Fault {
	bricks := []torture.Fault{killBrick(v), cutPrimary(v)}
	var all []torture.Fault
	for _, name := range []string{
		"kill -9 the primary", "kill -9 the primary", "kill -9 the primary", "SIGSTOP the primary, long", killedBrick,
		"kill -9 the primary", "kill -9 the primary and its successor", "kill -9 all three", cutMount,
		"kill -9 the primary", "SIGTERM the primary", "SIGSTOP the primary, long", killedBrick, "kill -9 the primary",
	} {
		known := slices.Concat(torture.All(), bricks)
		i := slices.IndexFunc(known, func(f torture.Fault) bool { return f.Name == name })
		all = append(all, known[i])
	}
	return all
}

// The faults of the filesystem.
const (
	killedBrick = "kill -9 a brick"
	cutMount    = "cut the primary's mount from a brick"
)

func killBrick(v *gluster.Volume) torture.Fault {
	return torture.Fault{Name: killedBrick, Lasts: 5 * time.Second, Inject: func(_ context.Context, s *torture.Strike) (func() error, error) {
		i := s.Rand.IntN(gluster.Replicas)
		return func() error {
			if err := v.StartBrick(i); err != nil {
				return err
			}
			return v.AwaitHealed()
		}, v.StopBrick(i)
	}}
}

// givenUp is within what time a server has ended whose call hung beyond the
// storage timeout: it ends when the call does, which the joined brick lets it.
const givenUp = 15 * time.Second

// cutPrimary lasts longer than network.ping-timeout, and the mount hangs until then.
func cutPrimary(v *gluster.Volume) torture.Fault {
	return torture.Fault{Name: cutMount, Lasts: 20 * time.Second, Deposes: true, Inject: func(_ context.Context, s *torture.Strike) (func() error, error) {
		client, brick := int(s.Primary.Member.ID)-1, s.Rand.IntN(gluster.Replicas)
		return func() error {
			if err := v.JoinBrick(client, brick); err != nil {
				return err
			}
			s.Primary.Ended(givenUp)
			s.Site.Cluster.StartAll()
			return v.AwaitHealed()
		}, v.CutBrick(client, brick)
	}}
}

// textBytes is how much text there is to append; clients begin again at its end.
const textBytes = 2 << 20

func sourceText(t *testing.T) [][]byte {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	lines, err := check.SourceText(filepath.Join(strings.TrimSpace(string(out)), "src"), textBytes)
	must(t, err)
	return lines
}
