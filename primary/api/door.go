// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/url"

	"github.com/holdfast-lock/holdfast/primary/watch"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Door is how front ends of other packages reach the service: what is asked there is
// answered as HTTP answers it, here or where the primary is. All methods are safe for
// use by several goroutines.
type Door struct {
	h      *HTTP
	writes map[string]func(body []byte) (*operation, error)
}

// Reply is an answer: a JSON object as HTTP sends it, and its status.
type Reply struct {
	Status cluster.Status
	Body   []byte
}

// Door makes a door to what h serves.
func (h *HTTP) Door() *Door { return &Door{h: h, writes: h.writes()} }

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
	x := d.h.answer(ctx, o, true)
	return Reply{x.status, x.body}
}

// Watch serves a watch until ctx ends, the watch does, or begun or send return an error. The
// last message says why it ended. Begun, if not nil, is called when the watch has begun:
// behind the reset, where it begins with one, and not at all where it is refused.
func (d *Door) Watch(ctx context.Context, q *pb.WatchRequest, begun func() error, send func(*pb.WatchResponse) error) error {
	return d.h.s.watch(ctx, q, begun, send)
}

// Losses has tell told of what is taken from a client's holders, see watch.Hub.Losses, by
// any server that is fed.
func (d *Door) Losses(client cluster.ClientID, after cluster.LSN, tell func([]watch.Loss)) (stop func()) {
	return d.h.s.b.Hub().Losses(client, after, tell)
}

// Lock reads the state of a lock from this server's own table, as gRPC's GetLock does. An
// error is a context that ended.
func (d *Door) Lock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	return d.h.s.getLock(ctx, q)
}

func refused(err error) Reply {
	x := answerReply(refusal(err), 0)
	return Reply{x.status, x.body}
}

// appendOperation understands an append.
func (h *HTTP) appendOperation(query url.Values, data []byte) (*operation, error) {
	m, err := wire.DecodeAppend(query, data)
	if err != nil {
		return nil, err
	}
	q, err := convert.ToAppend(m)
	if err != nil {
		return nil, err
	}
	if identify(q) {
		query.Set("client_id", string(q.Client))
		query.Set("request_id", fmt.Sprint(uint64(q.ID)))
	}
	return h.operation(q, "/v1/append?"+query.Encode(), data), nil
}
