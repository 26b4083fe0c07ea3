// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// Patience is how long a healthy cluster may take for any step. It is far more
// than needed, since the machine of a test may be busy.
const Patience = 30 * time.Second

// pollInterval is how often a condition is checked.
const pollInterval = 10 * time.Millisecond

// Await waits until the condition holds, and fails the test at the limit.
func Await(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	if !Poll(t.Context(), limit, condition) {
		t.Fatalf("waited %v for %s", limit, what)
	}
}

// Poll waits until the condition holds. It returns false at the limit or when ctx ends.
func Poll(ctx context.Context, limit time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return condition()
		case <-tick.C:
		}
	}
	return true
}

// Status asks the server for its own status, over HTTP.
func (s *Server) Status(ctx context.Context) (wire.StatusBody, error) {
	var body wire.StatusBody
	err := s.get(ctx, "/v1/status", &body)
	return body, err
}

// statusLimit bounds one question: a frozen server takes connections and never answers.
const statusLimit = 500 * time.Millisecond

func (s *Server) get(ctx context.Context, path string, into any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Member.HTTPAddress()+path, nil)
	if err != nil {
		return err
	}
	resp, err := s.c.web().Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s of server %d: %w: %s", path, s.Member.ID, err, b)
	}
	return nil
}

// web is how the harness asks servers.
func (c *Cluster) web() *http.Client {
	if c.opt.Net != nil {
		return c.opt.Net.web
	}
	return http.DefaultClient
}

// Primary returns the server that reports itself as primary, with its epoch,
// or nil. Frozen servers are not asked. If there are two, as is possible for a
// moment, it returns the one with the higher epoch.
func (c *Cluster) Primary(ctx context.Context) (found *Server, epoch uint64) {
	for _, s := range c.servers {
		if !s.answers() {
			continue
		}
		if own, err := s.PrimaryEpoch(ctx); err == nil && own >= max(epoch, 1) {
			found, epoch = s, own
		}
	}
	return found, epoch
}

// PrimaryEpoch returns the epoch in which the server reports itself as primary; 0 = it does not.
func (s *Server) PrimaryEpoch(ctx context.Context) (uint64, error) {
	body, err := s.Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, x := range body.Servers {
		if hf.ServerID(x.ID) == s.Member.ID && x.Role == "primary" {
			return x.Epoch, nil
		}
	}
	return 0, nil
}

// AwaitPrimary waits until a server is primary.
func (c *Cluster) AwaitPrimary(limit time.Duration) *Server {
	c.t.Helper()
	return c.AwaitTerm(limit, 0)
}

// AwaitTerm waits until a server is primary in a later epoch than behind.
func (c *Cluster) AwaitTerm(limit time.Duration, behind uint64) (s *Server) {
	c.t.Helper()
	Await(c.t, limit, fmt.Sprintf("a primary of an epoch behind %d", behind), func() bool {
		found, epoch := c.Primary(c.t.Context())
		if found == nil || epoch <= behind {
			return false
		}
		s = found
		return true
	})
	return s
}

// AwaitReplicas waits until every running server reports itself as primary, or as
// replica and able, and all report the same primary.
func (c *Cluster) AwaitReplicas(limit time.Duration) {
	c.t.Helper()
	Await(c.t, limit, "a primary with able replicas", func() bool {
		p, _ := c.Primary(c.t.Context())
		if p == nil {
			return false
		}
		body, err := p.Status(c.t.Context())
		if err != nil {
			return false
		}
		for _, x := range body.Servers {
			if s := c.servers[x.ID-1]; s != p && s.answers() && (x.Role != "replica" || !x.Able) {
				return false
			}
		}
		return true
	})
}

func join(endpoints []string) string { return strings.Join(endpoints, ",") }
