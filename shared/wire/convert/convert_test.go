// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestEnumsAreTheTables(t *testing.T) {
	known := 0
	for k := locktable.KindGrant; k <= locktable.MaxKind; k++ {
		if !k.Known() {
			continue
		}
		known++
		if got := wire.EventWord(pb.EventKind(k)); got != k.String() {
			t.Errorf("kind %d is event %q, want %q", k, got, k)
		}
	}
	if len(pb.EventKind_name) != known+1 {
		t.Errorf("%d events for %d kinds", len(pb.EventKind_name), known)
	}
	for state, want := range map[locktable.RequestState]string{
		locktable.RequestNotSeen: "not_seen", locktable.RequestPending: "pending", locktable.RequestExecuted: "executed",
		locktable.RequestCancelled: "cancelled", locktable.RequestStale: "stale",
	} {
		if got := wire.StateWord(pb.RequestState(state)); got != want {
			t.Errorf("state %d is %q, want %q", state, got, want)
		}
	}
	if pb.Mode(locktable.ModeShared) != pb.Mode_MODE_SHARED || pb.Mode(locktable.ModeExclusive) != pb.Mode_MODE_EXCLUSIVE {
		t.Error("modes differ")
	}
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
		{&pb.Operation{Request: &pb.Operation_SetMetadata{SetMetadata: &pb.SetMetadataRequest{
			RequestId: 4, LowWater: 2, Lock: "l", Token: 3, Metadata: "m",
		}}}, changed(locktable.OpMetadata, func(q *locktable.Request) { q.Client, q.File, q.Metadata = "session", "", "m" })},
	}
}

func TestInto(t *testing.T) {
	for _, c := range slices.Concat(intoBasics(), intoRest()) {
		got := &locktable.Request{}
		if err := convert.Into(got, c.op, "session"); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v:\ngot  %+v, %v\nwant %+v", c.op, got, err, c.want)
		}
	}
	for _, op := range []*pb.Operation{
		{Correlation: 5}, {Request: &pb.Operation_Renew{}}, {Request: &pb.Operation_Outcome{}},
		{Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{ClientId: "c", Lock: "l", Token: 3}}},
	} {
		if err := convert.Into(&locktable.Request{}, op, "c"); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("%v: %v", op, err)
		}
	}
	anonymous := &locktable.Request{}
	op := &pb.Operation{Request: &pb.Operation_Release{Release: &pb.ReleaseRequest{Lock: "l", Token: 3}}}
	if err := convert.Into(anonymous, op, "session"); err != nil || !convert.Anonymous(anonymous) {
		t.Errorf("an operation without IDs: %+v, %v", anonymous, err)
	}
	if q, err := convert.ToOpenClient(&pb.OpenClientRequest{Nonce: 6}); err != nil || q.Nonce != 6 || convert.Anonymous(q) {
		t.Errorf("OpenClient: %+v, %v", q, err)
	}
}

func TestToAcquireRefuses(t *testing.T) {
	for _, c := range []struct {
		q    *pb.AcquireRequest
		want string
	}{
		{&pb.AcquireRequest{ClientId: "c"}, "request_id is missing"},
		{&pb.AcquireRequest{RequestId: 1}, "client_id is missing"},
		{&pb.AcquireRequest{LowWater: 1}, "low_water needs client_id"},
		{&pb.AcquireRequest{TtlMs: -1}, "ttl_ms -1: use milliseconds from 0 on"},
		{&pb.AcquireRequest{TtlMs: math.MaxInt64}, "ttl_ms 9223372036854775807: use"},
		{&pb.AcquireRequest{WaitMs: new(int64(-2))}, "wait_ms -2: use milliseconds from 0 on, or -1 for ever"},
		{&pb.AcquireRequest{WaitMs: new(int64(math.MaxInt64))}, "wait_ms 9223372036854775807"},
		{&pb.AcquireRequest{Mode: 256}, "unknown lock mode 256"},
		{&pb.AcquireRequest{Mode: -1}, "unknown lock mode -1"},
	} {
		_, err := convert.ToAcquire(c.q)
		if !errors.Is(err, wire.ErrInvalidArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.q, err, c.want)
		}
	}
	q, err := convert.ToAcquire(&pb.AcquireRequest{Lock: "l", TtlMs: 1000})
	if err != nil || !convert.Anonymous(q) || q.Wait != 0 {
		t.Errorf("without IDs: %+v, %v", q, err)
	}
	for _, ids := range []struct {
		client string
		id     uint64
	}{{"", 1}, {"c", 0}, {"c", 1 << 63}, {"a b", 1}} {
		if _, _, err := convert.ToIDs(ids.client, ids.id); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("IDs %v: %v", ids, err)
		}
	}
	for _, q := range []*pb.RenewLeaseRequest{{Lock: "l"}, {Token: 1}} {
		if _, _, err := convert.ToLease(q); !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("lease %v: %v", q, err)
		}
	}
}

func TestFromOutcome(t *testing.T) {
	for _, c := range []struct {
		out  locktable.Outcome
		want *pb.Answer
	}{
		{
			locktable.Outcome{Status: cluster.StatusOK, Client: "~x", Request: 1, LSN: 9, Epoch: 2, Lock: "l", Token: 9, TTL: time.Second + 1},
			&pb.Answer{Status: pb.Status_STATUS_OK, ClientId: "~x", RequestId: 1, Lsn: 9, Epoch: 2, Lock: "l", Token: 9, TtlMs: 1000},
		},
		{
			locktable.Outcome{
				Status: cluster.StatusHeld, Client: "c", Request: 1, Lock: "l", QueueLength: 2,
				Holder: &locktable.LockHolder{Client: "d", Token: 5, Holder: locktable.Holder{Host: "h", PID: 3, Command: "x"}},
			},
			&pb.Answer{
				Status: pb.Status_STATUS_HELD, ClientId: "c", RequestId: 1, Protected: true, Lock: "l", QueueLength: 2,
				Holder: &pb.LockHolder{ClientId: "d", Token: 5, Host: "h", Pid: 3, Command: "x"},
			},
		},
		{
			locktable.Outcome{
				Status: cluster.StatusFileQuarantined, Client: "c", Request: 1, LSN: 9, Epoch: 2, Lock: "l", Token: 5,
				File: "f", Generation: 1, Offset: 10, Length: 4, CRC: 77, Committed: true, Repeat: true, Message: "m",
			},
			&pb.Answer{
				Status: pb.Status_STATUS_FILE_QUARANTINED, ClientId: "c", RequestId: 1, Protected: true, Lsn: 9, Epoch: 2, Lock: "l", Token: 5,
				Committed: true, Repeat: true, Message: "m",
				Receipt: &pb.Receipt{File: "f", Offset: 10, Length: 4, Crc32C: 77, Lsn: 9, Token: 5, Epoch: 2, Generation: 1},
			},
		},
		{ // where a file ended, or was sealed, has no record either
			locktable.Outcome{Status: cluster.StatusOffsetMismatch, Client: "c", Request: 1, File: "f", Generation: 2, Offset: 10},
			&pb.Answer{
				Status: pb.Status_STATUS_OFFSET_MISMATCH, ClientId: "c", RequestId: 1, Protected: true,
				Receipt: &pb.Receipt{File: "f", Offset: 10, Generation: 2},
			},
		},
		{ // what is left is rounded down, for whoever may hold; up, for whoever is to let go
			locktable.Outcome{Status: cluster.StatusOK, Client: "c", Request: 1, HoldLeft: 2*time.Second - 1, Ask: &locktable.Ask{Lock: "l", Token: 3, Grace: time.Second + 1, Remaining: time.Second - 1}},
			&pb.Answer{
				Status: pb.Status_STATUS_OK, ClientId: "c", RequestId: 1, Protected: true, HoldLeftMs: 1999,
				Ask: &pb.AskToRelease{Lock: "l", Token: 3, GraceMs: 1001, RemainingMs: 999},
			},
		},
		{ // a refusal that left no record has no receipt
			locktable.Outcome{Status: cluster.StatusInvalidToken, Client: "c", Request: 1, File: "f"},
			&pb.Answer{Status: pb.Status_STATUS_INVALID_TOKEN, ClientId: "c", RequestId: 1, Protected: true},
		},
	} {
		if got := convert.FromOutcome(&c.out); !proto.Equal(got, c.want) {
			t.Errorf("%+v:\ngot  %v\nwant %v", c.out, got, c.want)
		}
	}
	if got := convert.FromLookup(locktable.RequestPending, &locktable.Outcome{Lock: "l"}); got.State != pb.RequestState_REQUEST_STATE_PENDING || got.Outcome.Lock != "l" {
		t.Errorf("lookup: %v", got)
	}
}

func TestFromViews(t *testing.T) {
	v := &locktable.LockView{Name: "l", QueueLength: 2, FileCount: 1, Grant: locktable.Grant{Lock: "l", Token: 4, TTL: time.Second}}
	if got := convert.FromView(v, convert.RemainingUnknown, false); got.Grant.RemainingMs != -1 || got.Grant.TtlMs != 1000 || got.QueueLength != 2 || got.FileCount != 1 {
		t.Errorf("view: %v", got)
	}
	if got := convert.FromGrant(&v.Grant, -time.Second, true); got.RemainingMs != 0 || !got.Heard {
		t.Errorf("overdue grant: %v", got)
	}
	if got := convert.FromView(&locktable.LockView{Name: "l", Grant: locktable.Grant{Lock: "l"}}, 0, false); got.Grant != nil {
		t.Errorf("free lock: %v", got)
	}
	if got := convert.FromWaiter(&locktable.Waiter{Wait: locktable.WaitForever}); got.WaitMs != -1 || got.Holder != nil {
		t.Errorf("waiter: %v", got)
	}
	if got := convert.FromWaiter(&locktable.Waiter{Wait: time.Millisecond + 1}); got.WaitMs != 2 {
		t.Errorf("a waiter waits longer than it seems: %v", got)
	}
	if got := convert.FromRecord(&locktable.Record{Time: 9}, time.UnixMilli(5)); got.UnixMs != 9 {
		t.Errorf("the record's time is its own: %v", got)
	}
	if got := convert.FromFile("f", &locktable.FileState{Lock: "l", Generation: 2, LastCRC: 3}); got.Name != "f" || got.Generation != 2 || got.LastCrc32C != 3 {
		t.Errorf("file: %v", got)
	}
	if got := convert.FromRecord(&locktable.Record{LSN: 8, Kind: locktable.KindGrant, Lock: "l"}, time.UnixMilli(5)); got.Token != 8 || got.UnixMs != 5 {
		t.Errorf("grant event: %v", got)
	}
	if got := convert.FromRecord(&locktable.Record{LSN: 8, Kind: locktable.KindExpire, Token: 3}, time.UnixMilli(5)); got.Token != 3 {
		t.Errorf("expire event: %v", got)
	}
	for k := locktable.KindGrant; k.Known(); k++ {
		ends := k == locktable.KindExpire || k == locktable.KindBreak || k == locktable.KindForceClear || k == locktable.KindRelease
		if got := convert.LossReason(k); (got != pb.LossReason_LOSS_REASON_NONE) != ends {
			t.Errorf("%v is a loss by %v", k, got)
		}
	}
}
