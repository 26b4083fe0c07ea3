// SPDX-License-Identifier: Apache-2.0

package holdfasttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// Expire has the lease of a lock run out now, or each of those that share it, as if its holder had not renewed it: the
// holder learns of it (clientlib.LossExpired, or clientlib.LossRefused if it renews at that moment), and the next one in the queue gets the lock.
func (s *Server) Expire(lock clientlib.LockName) {
	s.tb.Helper()
	s.mustJump(primary.Jump{Lock: lock}, func(v serving.View) error {
		for range v.Table.Grants(lock) {
			return nil
		}
		return fmt.Errorf("expire %q: it is not held", lock)
	})
}

// Advance has d pass for leases, waits in a queue and graces, at the servers and at the clients that this Server made:
// what has less left has ended when it returns. A client that is cut off notices within the twentieth part of its
// TTL. Timers and time.Now do not move.
func (s *Server) Advance(d time.Duration) {
	s.tb.Helper()
	if d <= 0 {
		s.tb.Fatalf("holdfasttest: advance by %v: time goes forward only", d)
	}
	s.mustJump(primary.Jump{By: d}, func(serving.View) error { return nil })
	s.clock.advance(d)
}

// mustJump has the primary end leases, and returns when that has happened. Check is called before.
func (s *Server) mustJump(x primary.Jump, check func(serving.View) error) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.jump(ctx, x, check); err != nil {
		s.tb.Fatalf("holdfasttest: %v", err)
	}
}

func (s *Server) jump(ctx context.Context, x primary.Jump, check func(serving.View) error) error {
	for {
		p, err := s.primary(ctx)
		if err != nil {
			return err
		}
		var refused error
		if !p.read(ctx, func(v serving.View) { refused = check(v) }) {
			continue
		}
		if refused != nil {
			return refused
		}
		select {
		case p.jumps <- x:
		case <-time.After(timing().Suspicion): // its term has ended
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		if p.read(ctx, func(serving.View) {}) { // what is read later was committed
			return nil
		}
	}
}

// read reports whether the process could read, as primary, what is committed.
func (x *running) read(ctx context.Context, f func(serving.View)) bool {
	r, err := x.node.Read(ctx, f)
	return err == nil && r.Status == cluster.StatusOK && !r.Local
}

// primary waits for a server that answers, as primary.
func (s *Server) primary(ctx context.Context) (*running, error) {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		for _, m := range s.members {
			x := m.process()
			if x != nil && !s.isApart(m.id) && x.node.Role() == election.RolePrimary && x.read(ctx, func(serving.View) {}) {
				return x, nil
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, errors.New("no server became primary")
		}
	}
}

// Break ends the grant of a lock at once, as an operator does with holdfast break: its holder learns the reason
// (clientlib.LossBroken).
func (s *Server) Break(lock clientlib.LockName, reason string) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Client().Break(ctx, lock, clientlib.BreakOptions{Actor: "holdfasttest", Reason: reason}); err != nil {
		s.tb.Fatalf("holdfasttest: break: %v", err)
	}
}

// Pause makes the service silent until Resume: nothing that clients send arrives, and no answer leaves. Leases go on
// running out. Servers hear each other.
func (s *Server) Pause() { s.paused.Cut() }

// Resume ends a Pause. What was sent meanwhile arrives.
func (s *Server) Resume() { s.paused.Mend() }

// CutOff makes the service silent for one client that this Server made, until Rejoin: as if its network had failed.
func (s *Server) CutOff(c *clientlib.Client) {
	s.tb.Helper()
	s.mu.Lock()
	gate := s.mu.clients[c]
	s.mu.Unlock()
	if gate == nil {
		s.tb.Fatal("holdfasttest: cut off: use a client of Client or NewClient")
	}
	gate.Cut()
}

// Rejoin ends a CutOff.
func (s *Server) Rejoin(c *clientlib.Client) {
	s.mu.Lock()
	gate := s.mu.clients[c]
	s.mu.Unlock()
	if gate != nil {
		gate.Mend()
	}
}

// Failover kills the primary and waits until another server has taken over, with all locks; then it starts the killed
// one again. With one server, that one takes over after its restart.
func (s *Server) Failover() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.failover(ctx); err != nil {
		s.tb.Fatalf("holdfasttest: failover: %v", err)
	}
}

func (s *Server) failover(ctx context.Context) error {
	x, err := s.primary(ctx)
	if err != nil {
		return err
	}
	m := s.members[x.node.Server()-1]
	m.kill()
	if len(s.members) > 1 {
		if _, err := s.primary(ctx); err != nil {
			return errors.Join(err, m.start())
		}
	}
	if err := m.start(); err != nil {
		return err
	}
	_, err = s.primary(ctx)
	return err
}

// Partition cuts the primary off, from clients and from the other servers, until Heal. If there are others it waits
// until one of them has taken over.
func (s *Server) Partition() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x, err := s.primary(ctx)
	if err != nil {
		s.tb.Fatalf("holdfasttest: partition: %v", err)
	}
	id := x.node.Server()
	s.setApart(id, true)
	if 2*s.together() <= len(s.members) {
		return // no majority is left that could elect one
	}
	if _, err := s.primary(ctx); err != nil {
		s.tb.Fatalf("holdfasttest: partition: %v", err)
	}
}

// Heal ends all partitions.
func (s *Server) Heal() {
	for _, m := range s.members {
		s.setApart(m.id, false)
	}
}

func (s *Server) setApart(id cluster.ServerID, apart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.apart[id] = apart
	if gate := s.members[id-1].apart; apart {
		gate.Cut()
	} else {
		gate.Mend()
	}
}

func (s *Server) isApart(id cluster.ServerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.apart[id]
}

// divided reports whether two servers do not hear each other.
func (s *Server) divided(a, b cluster.ServerID) bool { return s.isApart(a) || s.isApart(b) }

// together counts the servers that hear each other.
func (s *Server) together() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.members)
	for _, apart := range s.mu.apart {
		if apart {
			n--
		}
	}
	return n
}
