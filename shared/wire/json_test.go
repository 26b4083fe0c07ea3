// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestDecodeAcquire(t *testing.T) {
	var got pb.AcquireRequest
	err := wire.Decode([]byte(`{"lock":"billing/job","ttl":"1m30s","wait":"5s","client_id":"c1","request_id":18446744073709551615,
		"low_water":1,"holder":{"host":"n1","pid":7,"command":"make"}} `), &got)
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.AcquireRequest{
		Lock: "billing/job", TtlMs: 90000, WaitMs: new(int64(5000)), ClientId: "c1", RequestId: 1<<64 - 1, LowWater: 1,
		Holder: &pb.Holder{Host: "n1", Pid: 7, Command: "make"},
	}
	if !proto.Equal(&got, want) {
		t.Errorf("got %v, want %v", &got, want)
	}

	var ever, try pb.AcquireRequest
	if err := wire.Decode([]byte(`{"wait":"forever"}`), &ever); err != nil || ever.GetWaitMs() != -1 {
		t.Errorf("wait for ever: %v, %v", &ever, err)
	}
	if err := wire.Decode([]byte(`{}`), &try); err != nil || try.WaitMs != nil {
		t.Errorf("try: %v, %v", &try, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{``, `the body is empty: send a JSON object`},
		{`[]`, `not a JSON object`},
		{`null`, `not a JSON object`},
		{`{"lock":"a"`, `the JSON is cut off`},
		{`{"lock":`, `the JSON is cut off`},
		{`{"lock" "a"}`, `not JSON: `},
		{`{"lock":"a"} {}`, `there is something behind the JSON object`},
		{"{\"lock\":\"\xff\"}", `the body is not valid UTF-8`},
		{`{"lokc":"a"}`, `unknown field "lokc": allowed are client_id, request_id, low_water, lock, ttl, wait, holder`},
		{`{"Lock":"a"}`, `unknown field "Lock": allowed are`},
		{`{"lock":"a","lock":"b"}`, `field "lock" is given twice`},
		{`{"lock":7}`, `field "lock": use a string`},
		{`{"lock":null}`, `field "lock": use a string`},
		{`{"ttl":30}`, `field "ttl": use a string such as "30s"`},
		{`{"ttl":"30"}`, `field "ttl": "30" is no duration: use a Go duration string such as "30s" or "1m30s"`},
		{`{"ttl":"-1s"}`, `field "ttl": "-1s" is negative`},
		{`{"ttl":"forever"}`, `field "ttl": "forever" is no duration`},
		{`{"ttl":"1ns"}`, `field "ttl": "1ns" is finer than a millisecond`},
		{`{"wait":5}`, `field "wait": use a string such as "5s", or "forever"`},
		{`{"wait":"-1s"}`, `field "wait": "-1s" is negative`},
		{`{"request_id":"1"}`, `field "request_id": use a whole number from 0 to 18446744073709551615`},
		{`{"request_id":1.5}`, `field "request_id": use a whole number`},
		{`{"request_id":-1}`, `field "request_id": use a whole number`},
		{`{"request_id":null}`, `field "request_id": use a whole number`},
		{`{"request_id":18446744073709551616}`, `field "request_id": use a whole number`},
		{`{"holder":{"pdi":1}}`, `field "holder": unknown field "pdi": allowed are user, host, pid, command`},
		{`{"holder":"me"}`, `field "holder": not a JSON object`},
	} {
		err := wire.Decode([]byte(c.body), &pb.AcquireRequest{})
		var e *wire.Error
		if !errors.As(err, &e) || !errors.Is(err, wire.ErrInvalidArgument) || !strings.HasPrefix(e.Message, c.want) {
			t.Errorf("%s: got %v, want %s", c.body, err, c.want)
		}
	}
}

func TestDecodeEveryRequest(t *testing.T) {
	const ids = `"client_id":"c","request_id":2,"low_water":1`
	const file = `{` + ids + `,"lock":"l","token":3,"file":"f"`
	check := func(err error, got, want proto.Message) {
		t.Helper()
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	decode(t, check, `{`+ids+`,"lock":"l","token":3}`, &pb.ReleaseRequest{ClientId: "c", RequestId: 2, LowWater: 1, Lock: "l", Token: 3})
	decode(t, check, `{"lock":"l","token":3}`, &pb.RenewLeaseRequest{Lock: "l", Token: 3})
	decode(t, check, `{"client_id":"c","held":4}`, &pb.KeepAliveRequest{ClientId: "c", Held: 4})
	decode(t, check, `{`+ids+`}`, &pb.CancelRequest{ClientId: "c", RequestId: 2, LowWater: 1})
	decode(t, check, `{"client_id":"c","request_id":2}`, &pb.OutcomeRequest{ClientId: "c", RequestId: 2})
	decode(t, check, `{`+ids+`,"lock":"l","token":3,"actor":"a","reason":"r"}`,
		&pb.BreakLockRequest{ClientId: "c", RequestId: 2, LowWater: 1, Lock: "l", Token: 3, Actor: "a", Reason: "r"})
	decode(t, check, file+`,"adopt_existing":true}`,
		&pb.BindFileRequest{ClientId: "c", RequestId: 2, LowWater: 1, Lock: "l", Token: 3, File: "f", AdoptExisting: true})
	decode(t, check, file+`}`, &pb.UnbindFileRequest{ClientId: "c", RequestId: 2, LowWater: 1, Lock: "l", Token: 3, File: "f"})
	decode(t, check, file+`}`, &pb.RotateFileRequest{ClientId: "c", RequestId: 2, LowWater: 1, Lock: "l", Token: 3, File: "f"})
	decode(t, check, `{"nonce":9}`, &pb.OpenClientRequest{Nonce: 9})
	decode(t, check, `{"to":3,"reason":"r"}`, &pb.HandoverRequest{To: 3, Reason: "r"})

	got, err := wire.DecodeAppend(url.Values{
		"lock": {"l"}, "token": {"3"}, "file": {"f"}, "client_id": {"c"}, "request_id": {"2"}, "adopt_existing": {"true"}, "crc32c": {"0"},
	}, []byte("data"))
	check(err, got, &pb.FileAppendRequest{
		ClientId: "c", RequestId: 2, Lock: "l", Token: 3, File: "f", AdoptExisting: true, Crc32C: new(uint32(0)), Data: []byte("data"),
	})
	for query, want := range map[string]string{
		"tokn=3": `unknown field "tokn"`, "token=x": `parameter "token": use a whole number`,
		"token=1&token=2": `parameter "token" is given 2 times`, "adopt_existing=1": `parameter "adopt_existing": use true or false`,
	} {
		values, _ := url.ParseQuery(query)
		if _, err := wire.DecodeAppend(values, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// decode decodes into a fresh message of want's type.
func decode(t *testing.T, check func(error, proto.Message, proto.Message), body string, want proto.Message) {
	t.Helper()
	got := want.ProtoReflect().New().Interface()
	check(wire.Decode([]byte(body), got), got, want)
}

// keys lists the names in a JSON object in order.
func keys(t *testing.T, v any) []string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// An answer has the fields that it tells something by, and of those that programs compute with also the zeros.
func TestBodiesLeaveOutWhatIsEmpty(t *testing.T) {
	for want, body := range map[string]any{
		`{"status":"OK","lock":"a","token":18446744073709551615,"ttl":"29.5s","epoch":2,"lsn":3,"client_id":"c","request_id":1,"protected":true}`: wire.BodyOf(&pb.Answer{
			Status: pb.Status_STATUS_OK, Lock: "a", Token: 1<<64 - 1, TtlMs: 29500, ClientId: "c", RequestId: 1, Epoch: 2, Lsn: 3, Protected: true,
		}),
		`{"status":"OK","token":5,"marked":true}`:        wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_OK, Token: 5, Marked: true}),
		`{"status":"OK","token":5,"limit":3,"weight":2}`: wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_OK, Token: 5, Limit: 3, Weight: 2}),
		`{"status":"UNKNOWN"}`:                           wire.BodyOf(nil),
		`{"status":"OK","lsn":3,"repeat":true,"file":"f","offset":0,"length":4,"crc32c":0,"generation":1}`: wire.BodyOf(&pb.Answer{
			Status: pb.Status_STATUS_OK, Lsn: 3, Repeat: true, Receipt: &pb.Receipt{File: "f", Length: 4, Generation: 1},
		}),
		`{"status":"HELD","lock":"a","queue_length":0}`:         wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_HELD, Lock: "a"}),
		`{"status":"WAIT_TIMEOUT","lock":"a","queue_length":2}`: wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_WAIT_TIMEOUT, Lock: "a", QueueLength: 2}),
		`{"status":"LIMITED","retry_after":"0s"}`:               wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_LIMITED}),
		`{"status":"SERVER_FENCING","retry_after":"1.5s"}`:      wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_SERVER_FENCING, RetryAfterMs: 1500}),
		`{"status":"OK","mode":"exclusive"}`:                    wire.BodyOf(&pb.Answer{Status: pb.Status_STATUS_OK, Mode: new(pb.Mode_MODE_EXCLUSIVE)}),
		`{"status":"OK","client_id":"c"}`:                       wire.KeepAliveBody(&pb.KeepAliveResponse{Status: pb.Status_STATUS_OK, ClientId: "c"}),
		`{"status":"OK","differs":true,"grants":[]}`:            wire.KeepAliveBody(&pb.KeepAliveResponse{Status: pb.Status_STATUS_OK, Differs: true}),
		`{"status":"OK","differs":true,"grants":[{"lock":"a","token":5}]}`: wire.KeepAliveBody(&pb.KeepAliveResponse{
			Status: pb.Status_STATUS_OK, Differs: true, Grants: []*pb.HeldLock{{Lock: "a", Token: 5}},
		}),
		`{"status":"OK","age":"0s","state":"not_seen"}`: wire.OutcomeBodyOf(&pb.OutcomeResponse{Status: pb.Status_STATUS_OK}),
		`{"status":"OK","age":"0s","state":"pending","outcome":{"lock":"a"}}`: wire.OutcomeBodyOf(&pb.OutcomeResponse{
			Status: pb.Status_STATUS_OK, State: pb.RequestState_REQUEST_STATE_PENDING, Outcome: &pb.Answer{Lock: "a"},
		}),
		`{"status":"NO_QUORUM","message":"m"}`:     wire.OutcomeBodyOf(&pb.OutcomeResponse{Status: pb.Status_STATUS_NO_QUORUM, Message: "m"}),
		`{"status":"LIMITED","retry_after":"0s"} `: wire.OutcomeBodyOf(&pb.OutcomeResponse{Status: pb.Status_STATUS_LIMITED}),
		`{"status":"OK","token":5,"proof":"p","ttl":"0s","mode":"exclusive"}`: wire.ProofBodyOf(&pb.ProveResponse{
			Status: pb.Status_STATUS_OK, Token: 5, Proof: "p", Mode: pb.Mode_MODE_EXCLUSIVE,
		}),
		`{"status":"INVALID_TOKEN","lock":"a"}`: wire.ProofBodyOf(&pb.ProveResponse{Status: pb.Status_STATUS_INVALID_TOKEN, Lock: "a"}),
	} {
		if b, err := json.Marshal(body); err != nil || string(b) != strings.TrimSpace(want) {
			t.Errorf("got  %s, %v\nwant %s", b, err, want)
		}
	}
}

// Programs that tell an answer by its status find that everywhere, and every refusal as the status that it is.
func TestEveryStatusIsInItsBody(t *testing.T) {
	for _, s := range cluster.Statuses() {
		if b := wire.BodyOf(fullError(s).Answer()); b.Status != s.String() || !slices.Contains(keys(t, b), "status") {
			t.Errorf("%v became %+v", s, b)
		}
	}
}

func TestReadBodies(t *testing.T) {
	lock := &pb.Lock{
		Name: "a", QueueLength: 1, FileCount: 1,
		Grant:   &pb.Grant{Lock: "a", Token: 5, ClientId: "c", TtlMs: 1000, RemainingMs: -1, Holder: &pb.Holder{Host: "n"}},
		Waiters: []*pb.Waiter{{ClientId: "d", WaitMs: -1}, {ClientId: "e", WaitMs: 10}}, Files: []*pb.File{{Name: "f"}},
	}
	l := wire.LockBodyOf(&pb.GetLockResponse{Status: pb.Status_STATUS_OK, Lock: lock})
	if l.Remaining != "" || l.Holder == nil || l.Holder.Host != "n" || l.Waiters[0].Wait != "forever" || l.Waiters[1].Wait != "10ms" || l.Files[0].File != "f" {
		t.Errorf("lock: %+v", l)
	}
	if free := wire.LockBodyOf(&pb.GetLockResponse{}); free.Holder != nil || free.Waiters == nil || free.Files == nil {
		t.Errorf("free lock: %+v", free)
	}
	if page := wire.LocksBodyOf(&pb.ListLocksResponse{Locks: []*pb.Lock{lock}, Next: "a"}); len(page.Locks) != 1 || page.Next != "a" {
		t.Errorf("page: %+v", page)
	}
	s := wire.StatusBodyOf(&pb.StatusResponse{
		Role: pb.Role_ROLE_PRIMARY, Servers: []*pb.Server{{Id: 2, Role: pb.Role_ROLE_UNREACHABLE, HeardAgoMs: -1}, {Volume: &pb.VolumeStatus{Canary: &pb.CanaryStatus{Looks: 7, AgeMs: 5, MaxLagMs: 1500, StaleReads: 2, StaleDirectReads: 1}}}}, Table: &pb.TableStatus{Locks: 3},
	})
	if s.Role != "primary" || s.Servers[0].Role != "unreachable" || s.Servers[0].HeardAgo != "" || s.Table.Locks != 3 || s.Servers[0].Volume.Warnings == nil {
		t.Errorf("status: %+v", s)
	}
	if none, k := s.Servers[0].Volume.Canary, s.Servers[1].Volume.Canary; none.Age != "" || k != (wire.CanaryBody{Looks: 7, Age: "5ms", MaxLag: "1.5s", StaleReads: 2, StaleDirectReads: 1}) {
		t.Errorf("canary: %+v, %+v", none, k)
	}
	o := wire.OutcomeBodyOf(&pb.OutcomeResponse{Status: pb.Status_STATUS_OK, State: pb.RequestState_REQUEST_STATE_PENDING, Outcome: &pb.Answer{}})
	if o.State != "pending" || o.Outcome == nil || o.Outcome.Status != "" {
		t.Errorf("outcome: %+v", o)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"lock":"billing/job","ttl":"30s","wait":"5s","client_id":"c1","request_id":1}`))
	f.Add([]byte(`{"lock":"a","ttl":"1h","wait":"forever","holder":{"host":"h","pid":-1,"command":"\u0000"}}`))
	f.Add([]byte(`{"lock":"a","lock":"b"}`))
	f.Add([]byte(`{"holder":{"holder":[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var q pb.AcquireRequest
		err := wire.Decode(body, &q)
		if err != nil {
			var e *wire.Error
			if !errors.As(err, &e) || e.Status != cluster.StatusInvalidArgument || e.Message == "" {
				t.Fatalf("%q: error %v", body, err)
			}
			return
		}
		// What is accepted is JSON, and what came of it can be sent on.
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("accepted %q", body)
		}
		if q.TtlMs < 0 || q.GetWaitMs() < -1 {
			t.Fatalf("%q: ttl %d, wait %d", body, q.TtlMs, q.GetWaitMs())
		}
		if _, err := proto.Marshal(&q); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
	})
}

// Half a pair of surrogates, and bytes that are no UTF-8, stand for no text: a decoder makes
// the same of all of them, and two locks would be one.
func TestHalfACharacterIsRefused(t *testing.T) {
	for text, good := range map[string]bool{
		`"a"`: true, `"\ud83d\ude00"`: true, `"\u00e4"`: true, "\"\u00e4\"": true, `"\\ud800"`: true,
		`"\ud800"`: false, `"\udbff"`: false, `"\udc00x"`: false, `"x\ud83d\u0041"`: false, `"\ud83d\ud83d"`: false, "\"\xff\"": false, "\"\xed\xa0\x80\"": false,
	} {
		if wire.WholeText([]byte(text)) != good {
			t.Errorf("%q is a whole text: %t", text, !good)
		}
		for _, field := range []string{"lock", "metadata"} {
			q := &pb.AcquireRequest{}
			err := wire.Decode([]byte(`{"ttl":"1s","`+field+`":`+text+`}`), q)
			if (err == nil) != good {
				t.Errorf("%s %s: %v", field, text, err)
			}
		}
		if wire.Decode([]byte(`{"holder":{"command":`+text+`}}`), &pb.AcquireRequest{}) == nil != good {
			t.Errorf("within an object: %s", text)
		}
	}
}

// TestMoment: JSON has times in UTC, with milliseconds, in whatever zone its writer is, and "" for one that is not known.
func TestMoment(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 30, 0, 123e6, time.UTC)
	for _, x := range []struct {
		at   wire.Moment
		want string
	}{
		{0, `""`},
		{1, `"1970-01-01T00:00:00.001Z"`},
		{wire.Moment(at.UnixMilli()), `"2026-03-29T01:30:00.123Z"`},
		{wire.Moment(at.In(time.FixedZone("", 3600)).UnixMilli()), `"2026-03-29T01:30:00.123Z"`},
	} {
		b, err := json.Marshal(x.at)
		if err != nil || string(b) != x.want {
			t.Errorf("%d is written as %s, %v; want %s", x.at, b, err, x.want)
		}
		var back wire.Moment
		if err := json.Unmarshal(b, &back); err != nil || back != x.at {
			t.Errorf("%s is read as %d, %v; want %d", b, back, err, x.at)
		}
	}
}
