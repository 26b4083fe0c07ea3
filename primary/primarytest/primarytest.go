// SPDX-License-Identifier: Apache-2.0

// Package primarytest is what tests of a primary and of its front ends begin with: a
// volume, a term over it, and a primary that serves.
package primarytest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/watch"
)

// Members are three servers at addresses where nobody listens.
func Members() cluster.Members {
	return cluster.Members{
		{ID: 1, Client: "h1:1", Peer: "h1:3"},
		{ID: 2, Client: "h2:1", Peer: "h2:3"},
		{ID: 3, Client: "h3:1", Peer: "h3:3"},
	}
}

// Timing has no pauses that a test would wait for.
func Timing() cluster.Timing {
	t := cluster.DefaultTiming()
	t.Heartbeat, t.Suspicion, t.FencingPeriod = 5*time.Millisecond, 50*time.Millisecond, 0
	return t
}

// Init makes a volume.
func Init(tb testing.TB, fsys vfs.FS, members cluster.Members) {
	tb.Helper()
	if _, err := volume.Init(tb.Context(), fsys, members, rand.Reader); err != nil {
		tb.Fatalf("init: %v", err)
	}
}

// InitCell makes a volume that is cell 0 of a site, in which cell 1 has what begins with p/.
func InitCell(tb testing.TB, fsys vfs.FS, members cluster.Members) {
	tb.Helper()
	InitCellOf(tb, fsys, members, cluster.Pin{Prefix: "p/", Cell: 1})
}

// InitCellOf makes a volume that is cell 0 of a site, which has all names but those that are pinned to others.
func InitCellOf(tb testing.TB, fsys vfs.FS, members cluster.Members, pins ...cluster.Pin) {
	tb.Helper()
	division, err := cluster.Divide(1, pins)
	if err == nil {
		own := &cluster.Own{Site: cluster.ID{7}, Version: 1, Division: division}
		_, err = volume.InitCell(fsys, volume.FeatureLevel, members, own, rand.Reader, func(volume.Cluster) error { return nil })
	}
	if err != nil {
		tb.Fatalf("init: %v", err)
	}
}

// Claim opens a volume and claims a term over it. The caller closes the volume.
func Claim(tb testing.TB, fsys vfs.FS, opt volume.Options) (*volume.Volume, *volume.Term) {
	tb.Helper()
	opt.Random = rand.Reader
	v, err := volume.Open(fsys, opt)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	prepared, err := v.Prepare(tb.Context())
	if err != nil {
		tb.Fatalf("prepare: %v", err)
	}
	r, err := v.Claim(tb.Context(), prepared)
	if err != nil {
		tb.Fatalf("claim: %v", err)
	}
	return v, r
}

// Term is a primary that serves until the end of the test.
type Term struct {
	Volume  *volume.Volume
	Primary *primary.Primary
	Hub     *watch.Hub
}

// Serve has server 1 term over a volume, with the timing of this package.
func Serve(tb testing.TB, fsys vfs.FS, opt volume.Options) *Term {
	tb.Helper()
	return ServeUnder(tb, fsys, opt, nil)
}

// ServeUnder is Serve under access rules.
func ServeUnder(tb testing.TB, fsys vfs.FS, opt volume.Options, rules func() *access.Rules) *Term {
	tb.Helper()
	opt.Server = 1
	v, r := Claim(tb, fsys, opt)
	timing, log := Timing(), zerolog.New(tb.Output()).Level(zerolog.WarnLevel)
	hub := watch.New(timing.StorageTimeout)
	p := primary.New(r, primary.Options{Server: opt.Server, Timing: timing, Log: log, Watch: hub.Feed(false), Rules: rules})
	ctx, stop := context.WithCancelCause(context.Background())
	var running sync.WaitGroup
	ended := make(chan error, 1)
	running.Go(func() { ended <- p.Run(ctx) })
	running.Go(func() { hub.Run(ctx) }) //nolint:errcheck // it says that the test is over
	tb.Cleanup(func() {
		stop(errors.New("the test is over"))
		running.Wait()
		if err := v.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	select {
	case <-p.Serving():
	case err := <-ended:
		tb.Fatalf("the term ended: %v", err)
	}
	return &Term{Volume: v, Primary: p, Hub: hub}
}
