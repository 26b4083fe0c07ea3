// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/work"
)

// ours is Holdfast with three servers of its own, used through one client unless a load has others.
type ours struct {
	*work.Holdfast
	servers *servers.Cluster
	// asker is a client for what is no load.
	asker *clientlib.Client
}

func startOurs(ctx context.Context, o *options, dir string) (_ service, version string, err error) {
	binary, err := servers.FindBinary(o.binary, dir)
	if err != nil {
		return nil, "", err
	}
	s := &ours{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.servers, err = servers.Start(ctx, binary, dir, servers.Options{}); err != nil {
		return nil, "", err
	}
	if s.asker, err = clientlib.New(clientlib.Options{Endpoints: s.servers.Endpoints(), Credential: clientlib.FromEnvironment}); err != nil {
		return nil, "", err
	}
	if s.Holdfast, err = work.NewHoldfast(s.servers.Endpoints(), 1, nil); err != nil {
		return nil, "", err
	}
	return s, servers.Version(binary), nil
}

// PIDs are those of now: a server that was killed comes back as another process.
func (s *ours) PIDs() []int { return s.servers.PIDs() }

// Clients connects clients that acquire with a wait, as users do.
func (s *ours) Clients(ctx context.Context, n int, wait time.Duration) (service, error) {
	h, err := work.NewHoldfast(s.servers.Endpoints(), n, nil)
	if err != nil {
		return nil, err
	}
	h.Wait = wait
	if err := h.Connect(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return &ourClients{h, s.servers}, nil
}

// ourClients are the clients of one load.
type ourClients struct {
	*work.Holdfast
	servers *servers.Cluster
}

func (s *ourClients) PIDs() []int { return s.servers.PIDs() }

// verify compares what was appended with the file.
func (s *ourClients) verify(ctx context.Context, a bench.Appended) error {
	return (&work.Env{Servers: s.servers}).Verify(s.Holdfast)(ctx, a)
}

func (s *ours) Close() error {
	var errs []error
	if s.Holdfast != nil {
		errs = append(errs, s.Holdfast.Close())
	}
	if s.asker != nil {
		errs = append(errs, s.asker.Close())
	}
	if s.servers != nil {
		errs = append(errs, s.servers.Close())
	}
	return errors.Join(errs...)
}

func (s *ours) Kill(ctx context.Context) (bench.Strike, func() error, error) {
	primary, err := s.servers.AwaitHealthy(ctx)
	strike := func(context.Context) (time.Time, error) {
		return time.Now(), s.servers.Signal(primary, syscall.SIGKILL)
	}
	mend := func() error { return errors.Join(s.servers.Kill(primary), s.servers.Restart(primary)) }
	return strike, mend, err
}

func (s *ours) Handover(ctx context.Context) (bench.Strike, error) {
	_, err := s.servers.AwaitHealthy(ctx)
	return func(ctx context.Context) (time.Time, error) {
		began := time.Now()
		_, err := s.asker.Handover(ctx, 0)
		return began, err
	}, err
}
