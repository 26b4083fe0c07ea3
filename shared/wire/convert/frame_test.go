// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func operations() []*pb.Operation {
	return []*pb.Operation{
		{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 1, LowWater: 1, Lock: "a", TtlMs: 30000}}},
		{Correlation: 1 << 40, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{ClientId: "c2", RequestId: 300, Lock: "a/b", TtlMs: 1, WaitMs: new(int64(-1))}}},
		{Correlation: 3, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{ClientId: "c1", RequestId: 3, Lock: "l", WaitMs: new(int64(0)), TtlMs: -5}}},
		{Correlation: 4, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 4, Lock: "l", WaitMs: new(int64(-7))}}},
		{Correlation: 5, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{RequestId: 5, Lock: "l", Mode: pb.Mode_MODE_SHARED, Holder: &pb.Holder{Host: "h"}}}},
		{Correlation: 6, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{Lock: "no IDs", TtlMs: 30000}}},
		{Correlation: 7, Request: &pb.Operation_Acquire{Acquire: &pb.AcquireRequest{ClientId: "no request", Lock: "l"}}},
		{Correlation: 8, Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{RequestId: 8, LowWater: 2, Lock: "l", Token: 1 << 63}}},
		{Correlation: 9, Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{LowWater: 2, Lock: "l"}}},
		{Correlation: 10, Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{RequestId: 10, Lock: "l", Token: 3, File: "f", Data: []byte("data")}}},
		{Correlation: 11, Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{
			ClientId: "c3", RequestId: 11, LowWater: 2, Lock: "l", Token: 3, File: "d/f", Data: []byte("data"), Crc32C: new(uint32(0)), AdoptExisting: true,
		}}},
		{Correlation: 15, Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{
			RequestId: 15, Lock: "l", Token: 3, File: "f", Data: []byte("data"), ExpectedOffset: new(int64(0)),
		}}},
		{Correlation: 12, Request: &pb.Operation_Append{Append: &pb.FileAppendRequest{RequestId: 12}}},
		{Correlation: 13, Request: &pb.Operation_Bind{Bind: &pb.BindFileRequest{RequestId: 13, Lock: "l", Token: 3, File: "f"}}},
		{Correlation: 14},
	}
}

// appended is what was appended without an error.
func appended(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// asFrames decodes a SessionRequest as sessions do.
func asFrames(b []byte) (requests []locktable.Request, errs []string, only bool, err error) {
	names := convert.Names{}
	if _, only, err = wire.CountOnly(b, wire.TagOperations); !only {
		return nil, nil, false, err
	}
	err = convert.EachOperation(b, func(plain *wire.OperationFrame, op *pb.Operation) {
		var r locktable.Request
		var failed error
		if plain != nil {
			failed = convert.FromFrame(&r, plain, "session", names)
		} else {
			failed = inSession(&r, op, "session")
		}
		requests, errs = append(requests, r), append(errs, text(failed))
	})
	return requests, errs, only, err
}

// inSession sets r to the request of an operation, by the generated code.
func inSession(r *locktable.Request, op *pb.Operation, client cluster.ClientID) error {
	o, m, err := ops.InSession(op)
	if err != nil {
		return err
	}
	return o.Into(r, m, client)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// asMessages decodes it with the generated code.
func asMessages(m *pb.SessionRequest) (requests []locktable.Request, errs []string) {
	for _, op := range m.Operations {
		var r locktable.Request
		failed := inSession(&r, proto.Clone(op).(*pb.Operation), "session")
		requests, errs = append(requests, r), append(errs, text(failed))
	}
	return requests, errs
}

// A session decodes what it has heard of before, also the IDs of clients, without allocating.
func TestRepeatedNamesTakeNoMemory(t *testing.T) {
	names := convert.Names{}
	o := wire.OperationFrame{Kind: wire.OperationAcquire, Client: []byte("@123456789"), RequestID: 1, LowWater: 1, Lock: []byte("a/lock/with/a/long/name"), TTLMillis: 1000, WaitMillis: 1000}
	var r locktable.Request
	if n := testing.AllocsPerRun(100, func() {
		if err := convert.FromFrame(&r, &o, "session", names); err != nil {
			t.Error(err)
		}
	}); n != 0 || r.Client != "@123456789" {
		t.Errorf("%v allocations for an operation of %s", n, r.Client)
	}
}

// What is written by hand reads like what the generated code writes, and both ways
// to read it agree.
func TestOperationFrames(t *testing.T) {
	m := &pb.SessionRequest{Operations: operations()}
	var byHand []byte
	for _, op := range m.Operations {
		byHand = appended(wire.AppendOperation(byHand, op))
	}
	var back pb.SessionRequest
	if err := proto.Unmarshal(byHand, &back); err != nil || !proto.Equal(&back, m) {
		t.Fatalf("written by hand: %v\n%v", err, &back)
	}
	if n, only, err := wire.CountOnly(byHand, wire.TagOperations); n != len(m.Operations) || !only || err != nil {
		t.Errorf("%d operations counted, %v, %v", n, only, err)
	}
	got, gotErrs, only, err := asFrames(byHand)
	want, wantErrs := asMessages(m)
	if err != nil || !only || !reflect.DeepEqual(gotErrs, wantErrs) {
		t.Fatalf("read by hand: %v, %v, %q, want %q", err, only, gotErrs, wantErrs)
	}
	for i := range want {
		if wantErrs[i] == "" && !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("operation %d:\ngot  %+v\nwant %+v", i, got[i], want[i])
		}
	}
	mixed := appended(wire.AppendRequest(byHand, &pb.SessionRequest{KeepAlives: []*pb.KeepAliveRequest{{Held: 1}}}))
	if _, _, only, err := asFrames(mixed); only || err != nil {
		t.Errorf("a message with a keep-alive is not operations only: %v", err)
	}
}

func TestTextsThatAreNotUTF8AreRefused(t *testing.T) {
	op := &pb.Operation{Request: &pb.Operation_Break{Break: &pb.BreakLockRequest{Lock: "l", Reason: "caf\xe9"}}}
	if b, err := wire.AppendOperation([]byte("before"), op); err == nil || string(b) != "before" {
		t.Errorf("%q, %v", b, err)
	}
}

func FuzzOperationFrames(f *testing.F) {
	for _, op := range operations() {
		f.Add(appended(wire.AppendOperation(nil, op)))
	}
	f.Add([]byte{0x12, 0x04, 0x12, 0x02, 0x20, 0x05}) // the lock as a number
	f.Fuzz(func(t *testing.T, b []byte) {
		got, gotErrs, only, err := asFrames(b)
		var m pb.SessionRequest
		if failed := proto.Unmarshal(b, &m); failed != nil {
			return // texts that are not UTF-8 are refused later
		}
		if err != nil {
			t.Fatalf("the generated code reads it: %v", err)
		}
		want, wantErrs := asMessages(&m)
		if !only {
			return
		}
		if !reflect.DeepEqual(gotErrs, wantErrs) {
			t.Fatalf("errors %q, want %q", gotErrs, wantErrs)
		}
		for i := range want {
			if wantErrs[i] == "" && !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("operation %d:\ngot  %+v\nwant %+v", i, got[i], want[i])
			}
		}
	})
}

func outcomes() []locktable.Outcome {
	return []locktable.Outcome{
		{Status: cluster.StatusOK, Client: "c", Request: 4, LSN: 77, Epoch: 3, Lock: "l", Token: 77, TTL: 1500 * time.Millisecond},
		{Status: cluster.StatusOK, Client: "~anonymous", Request: 1, LSN: 1 << 60, Epoch: 1 << 33, Token: 9, Repeat: true},
		{Status: cluster.StatusHeld, Client: "c", QueueLength: 3},
		{Status: cluster.StatusInvalidArgument, Message: "ttl 1ms: use 1s to 10m0s"},
		{Status: cluster.StatusError, Message: "not \xff UTF-8"},
		{},
		{Status: cluster.StatusOK, Client: "c", LSN: 99, Epoch: 3, Token: 77, File: "d/f", Generation: 1, Offset: 1 << 40, Length: 100, CRC: 1 << 31},
		{Status: cluster.StatusStorageUnavailable, Client: "c", File: "f", Message: "the disk is full"},
	}
}

// An answer reads the same however it was written and is read.
func TestAnswerFrames(t *testing.T) {
	for _, out := range outcomes() {
		b, ok := convert.AppendOutcome(nil, 5, &out)
		if !ok {
			t.Fatalf("%+v is a plain outcome", out)
		}
		want := convert.FromOutcome(&out)
		want.ClientId, want.RequestId, want.Lock, want.Correlation = "", 0, "", 5
		var m pb.SessionResponse
		if err := proto.Unmarshal(b, &m); err != nil || len(m.Answers) != 1 || !proto.Equal(m.Answers[0], want) {
			t.Errorf("%+v: %v\ngot  %v\nwant %v", out, err, &m, want)
		}
		var got []*pb.Answer
		only, err := wire.EachAnswer(b, func(a *pb.Answer) { got = append(got, a) })
		if err != nil || !only || len(got) != 1 || !proto.Equal(got[0], want) {
			t.Errorf("%+v: %v, %v\ngot  %v\nwant %v", out, only, err, got, want)
		}
	}
	for _, out := range []locktable.Outcome{
		{Status: cluster.StatusHeld, Holder: &locktable.LockHolder{Client: "c"}},
		{Status: cluster.StatusFileQuarantined, Committed: true},
		{Status: cluster.StatusOK, Client: "c", Token: 7, Marked: true},
	} {
		if b, ok := convert.AppendOutcome([]byte("before"), 5, &out); ok || string(b) != "before" {
			t.Errorf("%+v has more than a plain answer", out)
		}
	}
}

func FuzzAnswerFrames(f *testing.F) {
	for _, out := range outcomes() {
		b, _ := convert.AppendOutcome(nil, 5, &out)
		f.Add(b)
	}
	full := convert.FromOutcome(&locktable.Outcome{
		Status: cluster.StatusHeld, Holder: &locktable.LockHolder{Client: "c", Token: 3}, File: "f", LSN: 3, Length: 4, Committed: true,
	})
	f.Add(appended(wire.AppendResponse(nil, &pb.SessionResponse{Answers: []*pb.Answer{full, full}})))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []*pb.Answer
		only, err := wire.EachAnswer(b, func(a *pb.Answer) { got = append(got, a) })
		var m pb.SessionResponse
		if failed := proto.Unmarshal(b, &m); failed != nil {
			return
		}
		if err != nil {
			t.Fatalf("the generated code reads it: %v", err)
		}
		if !only {
			return
		}
		if len(got) != len(m.Answers) {
			t.Fatalf("%d answers, want %d", len(got), len(m.Answers))
		}
		for i := range got {
			if utf8.ValidString(got[i].Message) && !proto.Equal(got[i], m.Answers[i]) {
				t.Fatalf("answer %d:\ngot  %v\nwant %v", i, got[i], m.Answers[i])
			}
		}
	})
}
