// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// processFaults kill and freeze processes.
func processFaults() []Fault {
	return []Fault{
		{Name: "kill -9 the primary", Deposes: true, Lasts: 300 * time.Millisecond, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			return killed(s.Primary)
		}},
		{Name: "kill -9 a replica", Lasts: 300 * time.Millisecond, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			return killed(s.Replica())
		}},
		{Name: "kill -9 the primary and a replica", Deposes: true, Lasts: 300 * time.Millisecond, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			return killed(s.Primary, s.Replica())
		}},
		{Name: "kill -9 the primary and its successor", Deposes: true, Lasts: 300 * time.Millisecond, Inject: killTwice},
		{Name: "kill -9 all three", Deposes: true, Lasts: 100 * time.Millisecond, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			s.Site.Cluster.KillAll()
			return restart(s.Site.Cluster.Servers()...), nil
		}},
		{Name: "SIGTERM the primary", Deposes: true, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			s.Primary.Term()
			return restart(s.Primary), nil
		}},
		{Name: "SIGSTOP the primary, long", Deposes: true, Lasts: 6 * time.Second, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			return frozen(s.Primary)
		}},
		{Name: "SIGSTOP all three, long", Lasts: 4 * time.Second, Inject: func(_ context.Context, s *Strike) (func() error, error) {
			return frozen(s.Site.Cluster.Servers()...)
		}},
		{Name: "stutter", Inject: stutter},
	}
}

// killed ends processes as kill -9 does, and starts them again in the end.
func killed(servers ...*cluster.Server) (mend func() error, err error) {
	for _, s := range servers {
		s.Kill()
	}
	return restart(servers...), nil
}

func restart(servers ...*cluster.Server) func() error {
	return func() error {
		for _, s := range servers {
			if !s.Running() {
				s.Start()
			}
		}
		return nil
	}
}

// frozen stops processes and continues them at the end.
func frozen(servers ...*cluster.Server) (mend func() error, err error) {
	for _, s := range servers {
		s.Stop()
	}
	return func() error {
		for _, s := range servers {
			s.Cont()
		}
		return nil
	}, nil
}

// killTwice kills the primary, and the next one as soon as it is primary.
func killTwice(ctx context.Context, s *Strike) (mend func() error, err error) {
	s.Primary.Kill()
	next := s.Primary
	cluster.Poll(ctx, cluster.Patience, func() bool {
		p, epoch := s.Site.Cluster.Primary(ctx)
		if p == nil || hf.Epoch(epoch) <= s.Epoch {
			return false
		}
		next = p
		return true
	})
	next.Kill()
	return restart(s.Primary, next), nil
}

// stutter freezes one server again and again, shorter and longer than the suspicion.
func stutter(ctx context.Context, s *Strike) (mend func() error, err error) {
	x := s.Anyone()
	for range 6 {
		x.Stop()
		traffic.Rest(ctx, time.Duration(50+s.Rand.IntN(700))*time.Millisecond)
		x.Cont()
		traffic.Rest(ctx, time.Duration(s.Rand.IntN(300))*time.Millisecond)
	}
	return nil, ctx.Err()
}
