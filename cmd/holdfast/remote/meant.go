// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// meant remembers the cluster that answered a Caller first. Every later call carries its ID, so
// that servers of another cluster refuse it: names, tokens and IDs mean something else there.
type meant struct {
	mu  sync.Mutex
	id  string
	met map[string]bool // addresses at which it answered
}

// otherError reports that a server belongs to another cluster and executed nothing.
type otherError struct{ text string }

func (e *otherError) Error() string { return e.text }

func other(err error) bool {
	_, is := errors.AsType[*otherError](err)
	return is
}

// call is a client interceptor: it adds the cluster ID to a call, and notes which cluster answers.
func (m *meant) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	m.mu.Lock()
	if m.id != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, wire.ClusterKey, m.id)
	}
	m.mu.Unlock()
	err := invoke(ctx, method, req, reply, cc, opts...)
	_, told := errors.AsType[*wire.Error](wire.FromGRPC(err))
	switch who, says := reply.(interface{ GetClusterId() string }); {
	case status.Code(err) == codes.FailedPrecondition && !told:
		return &otherError{status.Convert(err).Message()}
	case err != nil || !says:
		return err
	default:
		return m.note(cc.Target(), who.GetClusterId())
	}
}

// note records the cluster ID of the server that answered at an address; "" if the answer has none.
// It returns an *otherError for another cluster.
func (m *meant) note(addr, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == "" {
		return nil
	}
	if m.id == "" {
		m.id = id
	}
	if m.id != id {
		return &otherError{fmt.Sprintf("this server belongs to cluster %s, and the command began with cluster %s: check the endpoints", id, m.id)}
	}
	m.met[addr] = true
	return nil
}

func (m *meant) knows(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.met[addr]
}

// acquaint learns to which cluster the target belongs, if that is not known. It returns an
// *otherError if that is another one, and nil if the server does not answer.
func (c *Caller) acquaint(ctx context.Context) error {
	if c.meant.knows(c.target) {
		return nil
	}
	stub, err := c.stub()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime/4)
	defer cancel()
	if _, err = stub.Status(ctx, &pb.StatusRequest{Local: true}); other(err) {
		return err
	}
	return nil
}
