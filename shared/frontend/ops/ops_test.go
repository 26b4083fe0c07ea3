// SPDX-License-Identifier: Apache-2.0

package ops_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// carriers are the methods of the gRPC service that are no operations of their own.
const carriers = "Session"

// Every method of the gRPC service is in the table, with the message that it takes.
func TestTableHasEveryMethod(t *testing.T) {
	methods := pb.File_shared_wire_holdfast_proto.Services().ByName("LockService").Methods()
	known := 0
	for i := range methods.Len() {
		m := methods.Get(i)
		o := ops.OfMethod(string(m.Name()))
		if m.Name() == carriers {
			continue
		}
		known++
		switch {
		case o == nil:
			t.Errorf("no operation is method %s", m.Name())
		case o.Message.ProtoReflect().Descriptor() != m.Input():
			t.Errorf("%s takes %s, and its method %s", o.Name, o.Message.ProtoReflect().Descriptor().Name(), m.Input().Name())
		case o.Unary() == m.IsStreamingServer():
			t.Errorf("%s: a stream %v, and its method %v", o.Name, !o.Unary(), m.IsStreamingServer())
		}
	}
	for _, o := range ops.All() {
		if o.Method != "" {
			known--
		}
	}
	if known != 0 {
		t.Errorf("%d methods more than operations that have one", known)
	}
}

// A name, a route, a method and an operation of the lock table are each those of one operation, and
// a row says all that front ends need.
func TestTableFitsItself(t *testing.T) {
	seen := map[any]string{}
	once := func(o *ops.Operation, what any, given bool) {
		if other, ok := seen[what]; ok && given {
			t.Errorf("%v is of %s and of %s", what, other, o.Name)
		}
		seen[what] = o.Name
	}
	for _, o := range ops.All() {
		once(o, "name "+o.Name, true)
		once(o, "route "+o.Route, o.Route != "")
		once(o, "method "+o.Method, o.Method != "")
		once(o, "verb "+o.Line.Verb, o.Line.Verb != "")
		once(o, o.Op, o.Op != 0)
		if o.Server == "" || o.Repeat == "" {
			t.Errorf("%s does not say who executes it, or what a repeat is", o.Name)
		}
		if o.Verb == "" || o.Op != 0 && o.Verb != service.VerbOf(o.Op) {
			t.Errorf("%s is of verb %q, and its request of %q", o.Name, o.Verb, service.VerbOf(o.Op))
		}
		if o.Op != 0 && (o.Serve != nil || o.Server != ops.Primary) {
			t.Errorf("%s is of the lock table, which only the primary changes", o.Name)
		}
		if o.Posted() && (o.Path() != "/v1/"+o.Name || !o.Unary() || !o.Forwarded) {
			t.Errorf("%s is posted to %s", o.Name, o.Path())
		}
		if byLockID := strings.Contains(o.Route, "/v1/terraform/"); o.Repeat == ops.Once && !byLockID && (o.Op == 0 || o.Op != locktable.OpOpenClient && field(o, "request_id") == nil) {
			t.Errorf("%s is executed once, and has no request ID", o.Name)
		}
	}
	for op := locktable.OpAcquire; op < 64; op++ {
		if o := ops.Of(op); (o == nil) != (op.String() == fmt.Sprintf("op(%d)", op)) {
			t.Errorf("operation %v of the lock table: %v", op, o)
		}
	}
	if o := ops.Of(0); o != nil {
		t.Errorf("no operation is %s", o.Name)
	}
	if o := ops.OfVerb(""); o != nil {
		t.Errorf("no command is %s", o.Name)
	}
}

func field(o *ops.Operation, name protoreflect.Name) protoreflect.FieldDescriptor {
	return o.Message.ProtoReflect().Descriptor().Fields().ByName(name)
}

// Every operation that a session carries is in the table. Those that a client numbers, and no other,
// are about a request.
func TestTableHasEveryOperationOfSessions(t *testing.T) {
	var op *pb.Operation
	fields := op.ProtoReflect().Descriptor().Oneofs().ByName("request").Fields()
	for i := range fields.Len() {
		x := (&pb.Operation{}).ProtoReflect()
		x.Set(fields.Get(i), x.NewField(fields.Get(i)))
		o, m, err := ops.InSession(x.Interface().(*pb.Operation))
		if err != nil || m == nil || m.ProtoReflect().Descriptor() != fields.Get(i).Message() || !o.Unary() {
			t.Errorf("%s: %v, %v, %v", fields.Get(i).Name(), o, m, err)
		}
	}
	for name, want := range map[string]bool{"keepalive": true, "acquire": false, "outcome": false, "verify": false, "healthz": false} {
		if got := ops.Named(name).OfClient(); got != want {
			t.Errorf("%s is about a client: %v", name, got)
		}
	}
}

// inSession sets r to the request to the lock table that one operation of a session is.
func inSession(r *locktable.Request, op *pb.Operation, client cluster.ClientID) error {
	o, m, err := ops.InSession(op)
	if err != nil {
		return err
	}
	return o.Into(r, m, client)
}

// into is an operation and the request that it is in a session.
type into struct {
	op   *pb.Operation
	want *locktable.Request
}

// changed is a request with everything that most have, changed.
func changed(op locktable.Op, change func(*locktable.Request)) *locktable.Request {
	q := locktable.Request{Op: op, Client: "c", ID: 4, LowWater: 2, Lock: "l", Token: 3, File: "f"}
	change(&q)
	return &q
}

// crcOf is the CRC of data.
func crcOf(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// intoBasics are the operations on locks and files.
func intoBasics() []into {
	data := []byte("line\n")
	crc := crcOf(data)
	none := func(*locktable.Request) {}
	return []into{
		{&pb.Operation{Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", TtlMs: 1500, WaitMs: new(int64(-1)), Holder: &pb.Holder{Host: "h", Pid: 9, Command: "x"},
		}}}, changed(locktable.OpAcquire, func(q *locktable.Request) {
			q.Token, q.File, q.TTL, q.Wait = 0, "", 1500*time.Millisecond, locktable.WaitForever
			q.Holder = locktable.Holder{Host: "h", PID: 9, Command: "x"}
		})},
		{&pb.Operation{Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{RequestId: 4, LowWater: 2, Lock: "l", Token: 3}}},
			changed(locktable.OpRelease, func(q *locktable.Request) { q.Client, q.File = "session", "" })},
		{&pb.Operation{Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f", Data: data, AdoptExisting: true,
		}}}, changed(locktable.OpAppend, func(q *locktable.Request) { q.Data, q.CRC, q.AdoptExisting = data, crc, true })},
		{&pb.Operation{Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f", Data: data, Crc32C: new(uint32(0)),
		}}}, changed(locktable.OpAppend, func(q *locktable.Request) { q.Data = data })},
		{&pb.Operation{Request: &pb.Operation_Bind{Bind: &pb.BindFileRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f", AdoptExisting: true,
		}}}, changed(locktable.OpBind, func(q *locktable.Request) { q.AdoptExisting = true })},
		{&pb.Operation{Request: &pb.Operation_Unbind{Unbind: &pb.UnbindFileRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f",
		}}}, changed(locktable.OpUnbind, none)},
		{&pb.Operation{Request: &pb.Operation_Rotate{Rotate: &pb.RotateFileRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f",
		}}}, changed(locktable.OpRotate, none)},
		{&pb.Operation{Request: &pb.Operation_Cancel{Cancel: &pb.CancelRequest{RequestId: 4, LowWater: 2}}},
			&locktable.Request{Op: locktable.OpCancel, Client: "session", Target: 4, LowWater: 2}},
	}
}

// intoRest are those with more to say.
func intoRest() []into {
	data := []byte("line\n")
	crc := crcOf(data)
	return []into{
		{&pb.Operation{Request: &pb.Operation_Break{Break: &pb.BreakLockRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, Actor: "a", Reason: "r", GraceMs: 1500,
		}}}, changed(locktable.OpBreak, func(q *locktable.Request) {
			q.File, q.Actor, q.Reason, q.Grace = "", "a", "r", 1500*time.Millisecond
		})},
		{&pb.Operation{Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", TtlMs: 1500, WaitMs: new(int64(20)), Mode: pb.Mode_MODE_SHARED,
			Metadata: "m", Heartbeat: true, MaxHoldMs: 2500,
		}}}, changed(locktable.OpAcquire, func(q *locktable.Request) {
			q.Token, q.File, q.TTL, q.Wait, q.Mode = 0, "", 1500*time.Millisecond, 20*time.Millisecond, locktable.ModeShared
			q.Metadata, q.Heartbeat, q.MaxHold = "m", true, 2500*time.Millisecond
		})},
		{&pb.Operation{Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{
			ClientId: "c", RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f", Data: data, ExpectedOffset: new(int64(7)),
		}}}, changed(locktable.OpAppend, func(q *locktable.Request) { q.Data, q.CRC, q.At = data, crc, new(int64(7)) })},
		{&pb.Operation{Request: &pb.Operation_Seal{Seal: &pb.SealFileRequest{
			RequestId: 4, LowWater: 2, Lock: "l", Token: 3, File: "f",
		}}}, changed(locktable.OpSeal, func(q *locktable.Request) { q.Client = "session" })},
		{&pb.Operation{Request: &pb.Operation_Downgrade{Downgrade: &pb.DowngradeRequest{
			RequestId: 4, LowWater: 2, Lock: "l", Token: 3,
		}}}, changed(locktable.OpDowngrade, func(q *locktable.Request) { q.Client, q.File = "session", "" })},
		{&pb.Operation{Request: &pb.Operation_Extend{Extend: &pb.ExtendRequest{
			RequestId: 4, LowWater: 2, Lock: "l", Token: 3, TtlMs: 1500,
		}}}, changed(locktable.OpExtend, func(q *locktable.Request) { q.Client, q.File, q.TTL = "session", "", 1500*time.Millisecond })},
		{&pb.Operation{Request: &pb.Operation_SetMetadata{SetMetadata: &pb.SetMetadataRequest{
			RequestId: 4, LowWater: 2, Lock: "l", Token: 3, Metadata: "m",
		}}}, changed(locktable.OpMetadata, func(q *locktable.Request) { q.Client, q.File, q.Metadata = "session", "", "m" })},
	}
}

func TestInto(t *testing.T) {
	for _, c := range slices.Concat(intoBasics(), intoRest()) {
		got := &locktable.Request{}
		if err := inSession(got, c.op, "session"); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v:\ngot  %+v, %v\nwant %+v", c.op, got, err, c.want)
		}
	}
	for _, op := range []*pb.Operation{
		{Correlation: 5}, {Request: &pb.Operation_Renew{}}, {Request: &pb.Operation_Outcome{}},
		{Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{ClientId: "c", Lock: "l", Token: 3}}},
	} {
		if err := inSession(&locktable.Request{}, op, "c"); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("%v: %v", op, err)
		}
	}
	anonymous := &locktable.Request{}
	op := &pb.Operation{Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{Lock: "l", Token: 3}}}
	if err := inSession(anonymous, op, "session"); err != nil || !convert.Anonymous(anonymous) {
		t.Errorf("an operation without IDs: %+v, %v", anonymous, err)
	}
	if q, err := convert.ToRequest(locktable.OpOpenClient, &pb.OpenClientRequest{Nonce: 6}, ""); err != nil || q.Nonce != 6 || convert.Anonymous(q) {
		t.Errorf("OpenClient: %+v, %v", q, err)
	}
}

// TestMetricsNeedACaller: probes are for everybody, metrics for callers that the rules permit anything, and those of locks for who may read them.
func TestMetricsNeedACaller(t *testing.T) {
	want := map[string]access.Verb{"metrics": access.Keep, "lockmetrics": access.Read, "livez": access.Open, "readyz": access.Open, "healthz": access.Open}
	for _, o := range ops.All() {
		if v, ok := want[o.Name]; ok && o.Verb != v {
			t.Errorf("%s are of verb %q, want %q", o.Name, o.Verb, v)
		}
	}
}
