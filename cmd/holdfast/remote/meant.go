// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// passthrough begins the target of a connection whose dialer wants the address as it is.
const passthrough = "passthrough:///"

// meantCluster remembers the cluster that answered a Caller first. Every later call carries its ID,
// so that servers of another cluster refuse it: names, tokens and IDs mean something else there.
type meantCluster struct {
	known wire.KnownCluster
	mu    sync.Mutex      // guards what is below
	met   map[string]bool // addresses at which it answered
	// gateways has the addresses at which a status was asked for, and whether a gateway is there.
	gateways map[string]bool
	// several is set when a status told of further cells.
	several bool
}

// otherError reports that a server belongs to another cluster and executed nothing.
type otherError struct{ text string }

func (e *otherError) Error() string { return e.text }

func (e *otherError) Unwrap() error { return wire.ErrOtherCluster }

// check is a client interceptor that notes which cluster answers.
func (m *meantCluster) check(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	addr := strings.TrimPrefix(cc.Target(), passthrough)
	if s, says := reply.(interface{ GetGateway() bool }); says {
		m.noteGateway(addr, s.GetGateway())
	}
	if s, says := reply.(interface{ GetCells() []*pb.CellServers }); says && len(s.GetCells()) > 0 {
		m.noteCells()
	}
	if who, says := reply.(interface{ GetClusterId() string }); says {
		return m.note(addr, who.GetClusterId())
	}
	return nil
}

// note records the cluster ID of the server that answered at an address; "" if the answer has none.
// It returns an *otherError for another cluster.
func (m *meantCluster) note(addr, id string) error {
	own, same := m.known.Check(id)
	if !same {
		return &otherError{fmt.Sprintf("this server belongs to cluster %s, and the command began with cluster %s: check the endpoints", id, own)}
	}
	if id == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.met[addr] = true
	return nil
}

func (m *meantCluster) noteGateway(addr string, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gateways[addr] = there
}

func (m *meantCluster) noteCells() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.several = true
}

// told reports whether a status was answered.
func (m *meantCluster) told() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.gateways) > 0
}

func (m *meantCluster) severalCells() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.several
}

// gateway reports whether a gateway is at an address; known, whether that is known.
func (m *meantCluster) gateway(addr string) (there, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there, known = m.gateways[addr]
	return there, known
}

func (m *meantCluster) knows(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.met[addr]
}

// throughGateway reports whether a gateway is at the target: other servers may be out of reach then, so the call stays there. Where that is
// not known, it asks, and learns to which cluster the target belongs: a server that it names has to be of the same.
func (c *Caller) throughGateway(ctx context.Context) bool {
	there, known := c.cluster.gateway(c.target)
	if !known || !c.cluster.knows(c.target) {
		_ = c.askStatus(ctx) // where it does not answer, the next server is asked
		there, _ = c.cluster.gateway(c.target)
	}
	return there
}

// acquaint learns to which cluster the target belongs, if that is not known. It returns an error if
// that is another one, and nil if the server does not answer.
func (c *Caller) acquaint(ctx context.Context) error {
	if c.cluster.knows(c.target) {
		return nil
	}
	if err := c.askStatus(ctx); retry.OfError(wire.FromGRPC(err)) == retry.OtherCluster {
		return err
	}
	return nil
}

// askStatus asks the target for its status, of which the interceptor takes what it tells of the cluster.
func (c *Caller) askStatus(ctx context.Context) error {
	stub, err := c.stub()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime/4)
	defer cancel()
	_, err = stub.Status(ctx, &pb.StatusRequest{Local: true})
	return err
}
