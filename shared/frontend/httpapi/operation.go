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
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// operation is a request to the primary, decoded and with its IDs, beside its form over HTTP.
type operation struct {
	method string // "" = POST
	path   string // with the query
	body   []byte
	// local executes it on this server.
	local func(context.Context) (reply, error)
	// lock and file are those that it names, "" for none.
	lock cluster.LockName
	file cluster.FileName
	// client is the one that it is about, or whose request, where it names no lock; "" for none.
	client cluster.ClientID
	// request is nil where the lock table is not asked.
	request *locktable.Request
	// recorded is set if the lock table is asked, though request is nil: the primary alone knows the request.
	recorded bool
	// forwarded is that of the table of operations.
	forwarded bool
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
	return q == nil && !o.recorded || retry.Decided(x.status, x.committed, q == nil || q.Op != locktable.OpBreak)
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
	all := map[string]func([]byte) (*operation, error){}
	for _, o := range ops.All() {
		switch {
		case !o.Posted(), o.Data:
		case o.Op == locktable.OpOpenClient:
			all[o.Name] = func(body []byte) (*operation, error) { return h.openClient(o, body) }
		case o.Op == 0:
			all[o.Name] = func(body []byte) (*operation, error) { return h.plainOperation(o, body) }
		default:
			all[o.Name] = func(body []byte) (*operation, error) { return h.tableOperation(o, body) }
		}
	}
	return all
}

// plainOperation decodes a request that is not the lock table's.
func (h *Handler) plainOperation(o *ops.Operation, body []byte) (*operation, error) {
	m := o.New()
	if err := wire.Decode(body, m); err != nil {
		return nil, err
	}
	lock, client := "", ""
	switch m := m.(type) {
	case interface{ GetLock() string }:
		lock = m.GetLock()
	case interface{ GetClientId() string }:
		client = m.GetClientId()
	}
	return &operation{
		path: o.Path(), body: body, lock: cluster.LockName(lock), client: cluster.ClientID(client), forwarded: o.Forwarded, repeatable: o.Repeat != ops.Again,
		local: func(ctx context.Context) (reply, error) {
			r, err := o.Serve(ctx, h.s, m)
			if err != nil {
				return reply{}, err
			}
			return replyOf(r), nil
		},
	}, nil
}

// replyOf encodes the answer to an operation.
func replyOf(r ops.Response) reply {
	switch r := r.(type) {
	case *pb.KeepAliveResponse:
		return newReply(r.GetStatus(), 0, wire.KeepAliveBody(r))
	case *pb.LoginResponse:
		return newReply(r.GetStatus(), 0, wire.LoginBodyOf(r))
	case *pb.OutcomeResponse:
		return newReply(r.GetStatus(), 0, wire.OutcomeBodyOf(r))
	case *pb.ProveResponse:
		return newReply(r.GetStatus(), 0, wire.ProofBodyOf(r))
	}
	a, _ := r.(*pb.Answer) // all others
	return answerReply(a, 0)
}

// tableOperation decodes a request to the lock table.
func (h *Handler) tableOperation(o *ops.Operation, body []byte) (*operation, error) {
	m := o.New()
	if err := wire.Decode(body, m); err != nil {
		return nil, err
	}
	q, err := o.Request(m, "")
	if err != nil {
		return nil, err
	}
	made := service.Identify(q)
	if made {
		if body, err = withIDs(body, q); err != nil {
			return nil, err
		}
	}
	x := h.operation(o, q, body)
	x.cleanUp = made && q.Op == locktable.OpAcquire
	return x, nil
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
func (h *Handler) operation(of *ops.Operation, q *locktable.Request, body []byte) *operation {
	q.Own = true
	o := &operation{path: of.Path(), body: body, lock: q.Lock, file: q.File, request: q, forwarded: of.Forwarded, repeatable: repeats(q)}
	if q.Op == locktable.OpAcquire {
		o.wait = q.Wait
		if q.Wait == locktable.WaitForever {
			o.wait = -1
		}
	}
	if q.Op == locktable.OpCancel {
		o.client = q.Client
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
func (h *Handler) openClient(o *ops.Operation, body []byte) (*operation, error) {
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
	q, err := o.Request(m, "")
	if err != nil {
		return nil, err
	}
	return h.operation(o, q, body), nil
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
	fields := map[string]any{"client_id": q.Client, "request_id": service.RequestOf(q)}
	if q.Op == locktable.OpRelease {
		fields["lock"], fields["token"] = q.Lock, q.Token
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	x, err := h.run(ctx, h.operation(ops.Of(q.Op), q, body), true)
	if err != nil {
		return nil, err
	}
	var b wire.Body
	if err := json.Unmarshal(x.body, &b); err != nil {
		return nil, err
	}
	return &pb.Answer{Status: pb.Status(x.status), Token: b.Token}, nil
}
