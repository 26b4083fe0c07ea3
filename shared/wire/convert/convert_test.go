// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"errors"
	"math"
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
		_, err := convert.ToRequest(locktable.OpAcquire, c.q, "")
		if !errors.Is(err, wire.ErrInvalidArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.q, err, c.want)
		}
	}
	q, err := convert.ToRequest(locktable.OpAcquire, &pb.AcquireRequest{Lock: "l", TtlMs: 1000}, "")
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
				Holder: &locktable.LockHolder{Client: "d", Token: 5, Holder: locktable.Holder{Host: "h", PID: 3, Command: "x"}, Identity: "user:d"},
			},
			&pb.Answer{
				Status: pb.Status_STATUS_HELD, ClientId: "c", RequestId: 1, Protected: true, Lock: "l", QueueLength: 2,
				Holder: &pb.LockHolder{ClientId: "d", Token: 5, Host: "h", Pid: 3, Command: "x", Identity: "user:d"},
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
