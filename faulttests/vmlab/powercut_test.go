// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

var cuts = flag.Int("vmlab.cuts", 2, "how often to take the power from a host with all servers, for each filesystem")

// All servers run on one machine with a disk of its own, which loses its power under load. What is
// on the disk is judged before any server runs, and what the next term makes of it afterwards.
func TestPowerCutsOfOneHost(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			if s := begin(t, Disk(fstype)); s != nil {
				for n := range *cuts {
					if !s.cutPower(t.Context(), n+1) {
						break
					}
				}
				s.end()
				s.judge(t.Context())
			}
		})
	}
}

// cutPower takes the power from the one host, and says whether the cluster worked again.
func (s *scenario) cutPower(ctx context.Context, n int) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*faultLimit)
	defer cancel()
	traffic.Rest(ctx, time.Duration(1+rand.IntN(4000))*time.Millisecond)
	m := s.Hosts[0]
	m.PowerOff()
	off := time.Now()
	if err := s.start(ctx, m); err != nil {
		s.t.Error(err)
		return false
	}
	if err := s.Mount(ctx, m); err != nil {
		s.t.Error(err)
		return false
	}
	out, err := m.Run(ctx, "holdfast fsck --volume "+volume)
	if err != nil {
		s.t.Errorf("cut %d: fsck before any server runs: %v", n, err)
	}
	missing, err := s.missing(ctx, off)
	if err != nil {
		s.t.Error(err)
		return false
	}
	mended := time.Now()
	if err := s.supervise(ctx); err != nil {
		s.t.Error(err)
		return false
	}
	works := cluster.Poll(ctx, faultLimit, func() bool { return s.acked(mended) > enough })
	if !works {
		s.t.Errorf("cut %d: %d appends were acknowledged since", n, s.acked(mended))
	}
	after, err := s.missing(ctx, off)
	if err != nil || after > 0 {
		s.t.Errorf("cut %d: %d bytes that were acknowledged before it are still not in their files: %v", n, after, err)
	}
	s.t.Logf("cut %d: %d acknowledged bytes were in the log and not in their files, %d when servers ran again; the longest pause was %v\n%s",
		n, missing, after, s.pause(off.Add(-time.Second)).Round(100*time.Millisecond), out)
	return works
}

// missing counts the bytes of appends, acknowledged until then, that lie behind the ends of files.
func (s *scenario) missing(ctx context.Context, until time.Time) (n int64, err error) {
	appends, _, _ := s.ledger.Entries()
	ends := map[hf.FileName]int64{}
	for _, a := range appends {
		if a.Acked && a.Answered.Before(until) {
			ends[a.File] = max(ends[a.File], int64(a.Receipt.Offset)+int64(a.Receipt.Length))
		}
	}
	for name, end := range ends {
		b, err := s.read(ctx, string(name))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		n += max(0, end-int64(len(b)))
	}
	return n, nil
}
