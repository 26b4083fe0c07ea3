// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// operation is a request to the primary, decoded and with its IDs, beside its form over HTTP.
type operation struct {
	path string // with the query
	body []byte
	// local executes it on this server.
	local func(context.Context) (reply, error)
	// request is nil where the lock table is not asked.
	request *locktable.Request
	// repeatable reports whether it may be sent again when it is not known to be executed.
	repeatable bool
	// cleanUp reports whether it is an acquire under IDs made here: without its caller it serves
	// no one, and a caller that gets UNKNOWN does not know what to release.
	cleanUp bool
	// wait is how long the answer may take on purpose, negative for ever.
	wait time.Duration
}

// settles reports whether an answer holds for every attempt, also for one whose answer was lost.
// What is not the lock table's changes nothing that a later answer does not show.
func (o *operation) settles(x reply) bool {
	q := o.request
	return q == nil || retry.Decided(x.status, x.committed, q.Op != locktable.OpBreak)
}

// unknown returns the answer to an operation that may have been executed.
func (o *operation) unknown(message string) reply {
	out := locktable.Outcome{Status: cluster.StatusUnknown, Message: message}
	if q := o.request; q != nil {
		out.Client, out.Request, out.Lock = q.Client, service.RequestOf(q), q.Lock
	}
	return answerReply(convert.FromOutcome(&out), 0)
}

// writes returns the decoders of the operations that take a JSON object, by name.
func (h *Handler) writes() map[string]func(body []byte) (*operation, error) {
	return map[string]func(body []byte) (*operation, error){
		"open":      h.openClient,
		"acquire":   tableOperation(h, "acquire", empty[pb.AcquireRequest], convert.ToAcquire),
		"downgrade": tableOperation(h, "downgrade", empty[pb.DowngradeRequest], convert.ToDowngrade),
		"release":   tableOperation(h, "release", empty[pb.ReleaseRequest], convert.ToRelease),
		"bind":      tableOperation(h, "bind", empty[pb.BindFileRequest], convert.ToBind),
		"unbind":    tableOperation(h, "unbind", empty[pb.UnbindFileRequest], convert.ToUnbind),
		"rotate":    tableOperation(h, "rotate", empty[pb.RotateFileRequest], convert.ToRotate),
		"seal":      tableOperation(h, "seal", empty[pb.SealFileRequest], convert.ToSeal),
		"cancel":    tableOperation(h, "cancel", empty[pb.CancelRequest], convert.ToCancel),
		"break":     tableOperation(h, "break", empty[pb.BreakLockRequest], convert.ToBreak),
		"metadata":  tableOperation(h, "metadata", empty[pb.SetMetadataRequest], convert.ToMetadata),
		"renew": plainOperation("renew", true, empty[pb.RenewLeaseRequest], func(ctx context.Context, q *pb.RenewLeaseRequest) (reply, error) {
			a, err := h.s.Renew(ctx, q)
			return answerReply(a, 0), err
		}),
		"verify": plainOperation("verify", true, empty[pb.VerifyRequest], func(ctx context.Context, q *pb.VerifyRequest) (reply, error) {
			a, err := h.s.Verify(ctx, q)
			return answerReply(a, 0), err
		}),
		"keepalive": plainOperation("keepalive", true, empty[pb.KeepAliveRequest], func(ctx context.Context, q *pb.KeepAliveRequest) (reply, error) {
			r, err := h.s.KeepAlive(ctx, q)
			return newReply(r.GetStatus(), 0, wire.KeepAliveBody(r)), err
		}),
		"outcome": plainOperation("outcome", true, empty[pb.OutcomeRequest], func(ctx context.Context, q *pb.OutcomeRequest) (reply, error) {
			r, err := h.s.Outcome(ctx, q)
			return newReply(r.GetStatus(), 0, wire.OutcomeBodyOf(r)), err
		}),
		"handover": plainOperation("handover", false, empty[pb.HandoverRequest], func(ctx context.Context, q *pb.HandoverRequest) (reply, error) {
			a, err := h.s.Handover(ctx, q)
			return answerReply(a, 0), err
		}),
	}
}

// empty makes an empty message.
func empty[M any]() *M { return new(M) }

// plainOperation decodes a request that is not the lock table's.
func plainOperation[Q wire.Request](
	name string, repeatable bool, fresh func() Q, do func(context.Context, Q) (reply, error),
) func([]byte) (*operation, error) {
	return func(body []byte) (*operation, error) {
		q := fresh()
		if err := wire.Decode(body, q); err != nil {
			return nil, err
		}
		return &operation{
			path: "/v1/" + name, body: body, repeatable: repeatable,
			local: func(ctx context.Context) (reply, error) { return do(ctx, q) },
		}, nil
	}
}

// tableOperation decodes a request to the lock table.
func tableOperation[Q wire.Request](
	h *Handler, name string, fresh func() Q, to func(Q) (*locktable.Request, error),
) func([]byte) (*operation, error) {
	return func(body []byte) (*operation, error) {
		m := fresh()
		if err := wire.Decode(body, m); err != nil {
			return nil, err
		}
		q, err := to(m)
		if err != nil {
			return nil, err
		}
		made := service.Identify(q)
		if made {
			if body, err = withIDs(body, q); err != nil {
				return nil, err
			}
		}
		o := h.operation(q, "/v1/"+name, body)
		o.cleanUp = made && q.Op == locktable.OpAcquire
		return o, nil
	}
}

// withIDs puts the IDs of q into a JSON object, for the server it is forwarded to.
func withIDs(body []byte, q *locktable.Request) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, wire.Invalid("not JSON: " + err.Error())
	}
	fields["client_id"] = json.RawMessage(strconv.Quote(string(q.Client))) // printable ASCII
	fields["request_id"] = json.RawMessage(strconv.FormatUint(uint64(q.ID), 10))
	return json.Marshal(fields)
}

// operation returns the operation of a request to the lock table that has its IDs.
func (h *Handler) operation(q *locktable.Request, path string, body []byte) *operation {
	q.Own = true
	o := &operation{path: path, body: body, request: q, repeatable: repeats(q)}
	if q.Op == locktable.OpAcquire {
		o.wait = q.Wait
		if q.Wait == locktable.WaitForever {
			o.wait = -1
		}
	}
	o.local = func(ctx context.Context) (reply, error) {
		again := *q // a backend keeps what it was given
		a, err := h.s.Execute(ctx, &again)
		return answerReply(a, 0), err
	}
	return o
}

// repeats reports whether a request which was executed is not executed again when it
// comes once more. Of anonymous clients only grants are remembered.
func repeats(q *locktable.Request) bool {
	return !q.Client.Anonymous() || q.Op == locktable.OpAcquire || q.Op == locktable.OpCancel
}

// openClient decodes an open. Without a nonce the server draws one: then the client is known only
// by the answer, if it arrives.
func (h *Handler) openClient(body []byte) (*operation, error) {
	m := &pb.OpenClientRequest{}
	if err := wire.Decode(body, m); err != nil {
		return nil, err
	}
	if m.Nonce == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		m.Nonce = max(1, binary.LittleEndian.Uint64(b[:]))
		body = fmt.Appendf(nil, `{"nonce":%d}`, m.Nonce)
	}
	q, err := convert.ToOpenClient(m)
	if err != nil {
		return nil, err
	}
	return h.operation(q, "/v1/open", body), nil
}

// append answers an append, whose body is the data.
func (h *Handler) append(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		h.refuse(w, 0, wire.Invalid("query: "+err.Error()))
		return
	}
	// Wrong parameters are refused before a body is read.
	if _, err := wire.DecodeAppend(query, nil); err != nil {
		h.refuse(w, 0, err)
		return
	}
	data, err := readBody(w, r, cluster.MaxAppend)
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	o, err := h.appendOperation(query, data)
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	h.execute(w, r, o)
}

// executeAnywhere executes a cancel or release for a caller that is gone, here or at the primary.
func (h *Handler) executeAnywhere(ctx context.Context, q *locktable.Request) (*pb.Answer, error) {
	name, fields := "cancel", map[string]any{"client_id": q.Client, "request_id": service.RequestOf(q)}
	if q.Op == locktable.OpRelease {
		name, fields["lock"], fields["token"] = "release", q.Lock, q.Token
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	x, err := h.run(ctx, h.operation(q, "/v1/"+name, body), true)
	if err != nil {
		return nil, err
	}
	var b wire.Body
	if err := json.Unmarshal(x.body, &b); err != nil {
		return nil, err
	}
	return &pb.Answer{Status: pb.Status(x.status), Token: b.Token}, nil
}
