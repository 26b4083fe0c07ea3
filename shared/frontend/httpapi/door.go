// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Door serves front ends that speak HTTP's JSON over another transport: operations are answered as
// over HTTP, here or by the primary. All methods are safe for use by several goroutines.
type Door struct {
	h      *Handler
	writes map[string]func(body []byte) (*operation, error)
}

// Reply is an answer: a JSON object as HTTP sends it, and the status that it holds.
type Reply struct {
	Status cluster.Status
	Body   []byte
}

// Door returns a Door over the same service, with the limits of h.
func (h *Handler) Door() *Door { return &Door{h: h, writes: h.writes()} }

// Call executes what a POST to /v1/name with this JSON body would. It always answers:
// when ctx ends before the answer, with UNKNOWN.
func (d *Door) Call(ctx context.Context, name string, body []byte) Reply {
	parse, ok := d.writes[name]
	if !ok {
		return refused(wire.Invalid(fmt.Sprintf("there is no operation %q", name)))
	}
	o, err := parse(body)
	if err != nil {
		return refused(err)
	}
	return d.execute(ctx, o)
}

// Append is Call for a POST to /v1/append: the parameters, and the data.
func (d *Door) Append(ctx context.Context, parameters url.Values, data []byte) Reply {
	o, err := d.h.appendOperation(parameters, data)
	if err != nil {
		return refused(err)
	}
	return d.execute(ctx, o)
}

func (d *Door) execute(ctx context.Context, o *operation) Reply {
	x := d.h.answer(d.h.traced(service.OneRequest(ctx), o, ""), o, true)
	return Reply{x.status, x.body}
}

// Watch serves a watch until ctx ends, the watch does, or begun or send return an error. The last
// message says why it ended. Begun, if not nil, is called when the watch has begun: after the
// reset, where it begins with one, and not at all where it is refused.
func (d *Door) Watch(ctx context.Context, q *pb.WatchRequest, begun func() error, send func(*pb.WatchResponse) error) error {
	return d.h.s.Watch(ctx, q, begun, send)
}

// Losses calls deliver with what is taken from a client's holders, until stop is called, see
// service.Service.Losses. Every server that is fed does so.
func (d *Door) Losses(ctx context.Context, client cluster.ClientID, after cluster.LSN, deliver func([]watch.Loss)) (stop func()) {
	return d.h.s.Losses(ctx, client, after, deliver)
}

// Lock reads the state of a lock from this server's own table, as gRPC's GetLock does. An error is
// a context that ended.
func (d *Door) Lock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	return d.h.s.GetLock(ctx, q)
}

// Authenticate returns the caller that a credential proves, or whose connection it is, see service.Service.Authenticate.
func (d *Door) Authenticate(credential string, from net.Addr) (*access.Caller, error) {
	return d.h.s.Authenticate(credential, from)
}

// OnRevoked calls ended when the credential of the caller of ctx is revoked, see service.Service.OnRevoked.
func (d *Door) OnRevoked(ctx context.Context, ended func(*wire.Error)) (leave func()) {
	return d.h.s.OnRevoked(ctx, ended)
}

func refused(err error) Reply {
	x := answerReply(service.Refusal(err), 0)
	return Reply{x.status, x.body}
}

// appendOperation decodes an append: its parameters, and its data.
func (h *Handler) appendOperation(query url.Values, data []byte) (*operation, error) {
	m, err := wire.DecodeAppend(query, data)
	if err != nil {
		return nil, err
	}
	of := ops.Of(locktable.OpAppend)
	q, err := of.Request(m, "")
	if err != nil {
		return nil, err
	}
	if service.Identify(q) {
		query.Set("client_id", string(q.Client))
		query.Set("request_id", fmt.Sprint(uint64(q.ID)))
	}
	o := h.operation(of, q, data)
	o.path += "?" + query.Encode()
	return o, nil
}
