// SPDX-License-Identifier: Apache-2.0

// Package ops is the table of operations: everything that a client can ask of a server, one row
// each. The front ends are driven by it: a gRPC method, a path over HTTP, an operation of a
// WebSocket, of a session or a line of text exists because its row has it, and docs/http.md is
// compared with it.
//
// A new operation is a row here, beside its message (shared/wire/holdfast.proto), the fields of it
// that no other operation has (shared/wire/convert, ToRequest), and what the lock table does.
package ops

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Operation is one row of the table.
type Operation struct {
	// Name is the word for the operation in WebSocket messages, in docs/http.md, and in the path of
	// what is posted over HTTP.
	Name string
	// Method is the gRPC method; "" means that there is none.
	Method string
	// Message is a nil message of the request's type; nil where a request has no message.
	Message proto.Message
	// Route is the method and path over HTTP, as http.ServeMux takes them; "" means that there is
	// none.
	Route string
	// Line is the command of the line protocol that asks for this operation; the zero Line means
	// that there is none.
	Line Line
	// Op is what the lock table is asked; 0 means that the request is not one to the lock table.
	Op locktable.Op
	// Serve answers a request that is not one to the lock table. It is nil for those that are, for
	// streams, and for what a front end answers itself.
	Serve func(context.Context, *service.Service, proto.Message) (Response, error)
	// Server says which servers execute the operation.
	Server Server
	// Verb is what its caller has to be allowed.
	Verb access.Verb
	// Repeat says what happens if a request comes a second time.
	Repeat Repeat
	// Forwarded is set if a server that cannot execute a request that came over HTTP, WebSocket or
	// as a line has the primary execute it. Over gRPC clients find the primary themselves.
	Forwarded bool
	// Data is set if the body over HTTP is the data of the request, and not JSON.
	Data bool
	// AnyCluster is set if the operation is executed also where the client means another cluster
	// than the server's: it is how clients find that out.
	AnyCluster bool
}

// Line is a command of the line protocol: its first word, and how many fields may follow.
type Line struct {
	Verb         string
	Fewest, Most int
}

// Response is the answer to a request.
type Response interface {
	proto.Message
	GetStatus() pb.Status
	GetMessage() string
}

// Server says which servers execute an operation. Its String is the word in docs/http.md.
type Server string

// The servers that execute an operation.
const (
	// Primary is for what only the primary can do: a replica answers SECONDARY_MODE.
	Primary Server = "primary"
	// Any is for what every server does with what it has, which may be old at a replica.
	Any Server = "any"
)

// Repeat says what happens if a request comes a second time. Its text is that in docs/http.md.
type Repeat string

// What happens if a request comes a second time.
const (
	// Once is for requests that are executed at most once under the same IDs: a repeat gets the
	// same answer.
	Once Repeat = "same answer"
	// Harmless is for requests that are executed again, with no other effect than one execution.
	Harmless Repeat = "harmless"
	// Again is for requests that are executed again, with another effect.
	Again Repeat = "again"
)

// All returns the table. No row of it, here or below, must be changed.
func All() []*Operation {
	all := make([]*Operation, len(table))
	for i := range table {
		all[i] = &table[i]
	}
	return all
}

// Named returns the operation with this name, nil if there is none.
func Named(name string) *Operation {
	return find(func(o *Operation) bool { return o.Name == name })
}

// Of returns the operation that asks the lock table for op, nil if there is none.
func Of(op locktable.Op) *Operation {
	return find(func(o *Operation) bool { return op != 0 && o.Op == op })
}

// OfMethod returns the operation of a method of the gRPC service, nil if there is none.
func OfMethod(method string) *Operation {
	return find(func(o *Operation) bool { return o.Method == method })
}

// OfVerb returns the operation that a command of the line protocol asks for, nil if there is none.
// Upper and lower case are the same.
func OfVerb(verb string) *Operation {
	return find(func(o *Operation) bool { return o.Line.Verb != "" && strings.EqualFold(o.Line.Verb, verb) })
}

func find(is func(*Operation) bool) *Operation {
	for i := range table {
		if is(&table[i]) {
			return &table[i]
		}
	}
	return nil
}

// InSession returns the operation that one of a session asks for, and its message. It returns an
// error with INVALID_ARGUMENT if there is none.
func InSession(op *pb.Operation) (*Operation, proto.Message, error) {
	x := op.ProtoReflect()
	if asked := x.WhichOneof(x.Descriptor().Oneofs().ByName("request")); asked != nil {
		m := x.Get(asked).Message()
		if o := find(func(o *Operation) bool {
			return o.Message != nil && o.Message.ProtoReflect().Descriptor() == m.Descriptor()
		}); o != nil {
			return o, m.Interface(), nil
		}
	}
	return nil, nil, wire.Invalid(fmt.Sprintf("operation %d asks for nothing that this server knows", op.GetCorrelation()))
}

// New returns an empty message for a request of an operation that has one.
func (o *Operation) New() proto.Message { return o.Message.ProtoReflect().New().Interface() }

// Request returns the request to the lock table that a message is, see convert.ToRequest. It
// returns an error with INVALID_ARGUMENT also if the operation is none of the lock table's.
func (o *Operation) Request(m proto.Message, session cluster.ClientID) (*locktable.Request, error) {
	if o.Op == 0 {
		return nil, wire.Invalid(o.Name + " is no request to the lock table")
	}
	return convert.ToRequest(o.Op, m, session)
}

// Into sets r to what Request returns.
func (o *Operation) Into(r *locktable.Request, m proto.Message, session cluster.ClientID) error {
	q, err := o.Request(m, session)
	if err == nil {
		*r = *q
	}
	return err
}

// Unary reports whether a request has one answer, which the service makes.
func (o *Operation) Unary() bool { return o.Op != 0 || o.Serve != nil }

// Path returns the path over HTTP, "" if there is none.
func (o *Operation) Path() string {
	_, path, _ := strings.Cut(o.Route, " ")
	return path
}

// Posted reports whether requests are posted over HTTP to the operation's own path, and so may come over a WebSocket. What is posted to the path
// of a name is no request of ours.
func (o *Operation) Posted() bool {
	return strings.HasPrefix(o.Route, http.MethodPost) && !o.HasName()
}

// HasName reports whether the path over HTTP ends with a name.
func (o *Operation) HasName() bool { return strings.HasSuffix(o.Route, "{name...}") }

// Open reports whether a request is answered also for a credential that is none: clients find the primary by such requests,
// and monitors look after the server. Not so whoami, whose caller wants to know what is wrong with his credential.
func (o *Operation) Open() bool { return o.Verb == access.Open && o.AnyCluster }

// Waits reports whether a request may wait in a queue, for hours perhaps.
func (o *Operation) Waits() bool { return o.Op == locktable.OpAcquire }

// OfClient reports whether requests are about a client, and not about a request of it.
func (o *Operation) OfClient() bool {
	if o.Message == nil {
		return false
	}
	fields := o.Message.ProtoReflect().Descriptor().Fields()
	return fields.ByName("client_id") != nil && fields.ByName("request_id") == nil
}

// serve returns a Serve that calls f, a method of the service.
func serve[Q proto.Message, R Response](f func(*service.Service, context.Context, Q) (R, error)) func(context.Context, *service.Service, proto.Message) (Response, error) {
	return func(ctx context.Context, s *service.Service, m proto.Message) (Response, error) {
		r, err := f(s, ctx, m.(Q))
		if err != nil {
			return nil, err // not an R that is nil
		}
		return r, nil
	}
}
