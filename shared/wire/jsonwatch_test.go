// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestEventBodies(t *testing.T) {
	const none = `"file":"","generation":0,"offset":0,"length":0,"crc32c":0,"actor":"","reason":"","server_id":0,"reset":null,`
	const rest = `"status":"OK","message":"","primary":null,"retry_after":"0s"}`
	const nobody = `"time":"","lock":"","token":0,"client_id":"","request_id":0,"ttl":"0s","wait":"0s","holder":null,"metadata":"",`
	for want, b := range map[string]wire.EventBody{
		`{"kind":"grant","lsn":9,"epoch":2,"time":"1970-01-01T00:00:01.500Z","lock":"l","token":9,"client_id":"c","request_id":3,"ttl":"30s","wait":"0s",` +
			`"holder":{"client_id":"c","token":9,"host":"h","pid":7,"command":"x","since":"1970-01-01T00:00:01.500Z","mode":"exclusive","holders":0},"metadata":"m",` + none + rest: wire.EventBodyOf(&pb.Event{
			Lsn: 9, Epoch: 2, Kind: pb.EventKind_EVENT_KIND_GRANT, Lock: "l", Token: 9, ClientId: "c", RequestId: 3, TtlMs: 30000,
			Holder: &pb.Holder{Host: "h", Pid: 7, Command: "x"}, UnixMs: 1500, Metadata: "m",
		}),
		`{"kind":"enqueue","lsn":9,"epoch":2,"time":"","lock":"l","token":0,"client_id":"c","request_id":3,"ttl":"30s","wait":"forever",` +
			`"holder":{"client_id":"c","token":0,"host":"","pid":0,"command":"","since":"","mode":"exclusive","holders":0},"metadata":"",` + none + rest: wire.EventBodyOf(&pb.Event{
			Lsn: 9, Epoch: 2, Kind: pb.EventKind_EVENT_KIND_ENQUEUE, Lock: "l", ClientId: "c", RequestId: 3, TtlMs: 30000, WaitMs: -1,
		}),
		`{"kind":"append","lsn":9,"epoch":2,"time":"","lock":"l","token":4,"client_id":"c","request_id":3,"ttl":"0s","wait":"0s","holder":null,"metadata":"",` +
			`"file":"f","generation":1,"offset":10,"length":5,"crc32c":77,"actor":"a","reason":"r","server_id":3,"reset":null,` + rest: wire.EventBodyOf(&pb.Event{
			Lsn: 9, Epoch: 2, Kind: pb.EventKind_EVENT_KIND_APPEND, Lock: "l", Token: 4, ClientId: "c", RequestId: 3,
			File: "f", Generation: 1, Offset: 10, Length: 5, Crc32C: 77, Actor: "a", Reason: "r", ServerId: 3,
		}),
		`{"kind":"bookmark","lsn":9,"epoch":2,` + nobody + none + rest: wire.WatchBodyOf(&pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: 9, Epoch: 2}),
		`{"kind":"reset","lsn":0,"epoch":2,` + nobody + strings.Replace(none, "null", `{"part":1,"last":false,"reason":"old","locks":[]}`, 1) + rest: wire.WatchBodyOf(&pb.WatchResponse{
			Status: pb.Status_STATUS_OK, Lsn: 9, Epoch: 2, Reset_: &pb.Reset{Part: 1, Reason: "old"},
		}),
		`{"kind":"end","lsn":9,"epoch":0,` + nobody + none +
			`"status":"SECONDARY_MODE","message":"m","primary":{"id":2,"client":"g","http":"h"},"retry_after":"50ms"}`: wire.WatchBodyOf(&pb.WatchResponse{
			Status: pb.Status_STATUS_SECONDARY_MODE, Message: "m", Lsn: 9, Primary: &pb.Primary{Id: 2, Client: "g", Http: "h"}, RetryAfterMs: 50,
		}),
	} {
		got, err := json.Marshal(b)
		if err != nil || string(got) != want {
			t.Errorf("got\n%s, %v, want\n%s", got, err, want)
		}
	}
	last := wire.WatchBodyOf(&pb.WatchResponse{Status: pb.Status_STATUS_OK, Lsn: 9, Epoch: 2, Reset_: &pb.Reset{Last: true, Locks: []*pb.Lock{{Name: "l"}}}})
	if l := last.Reset.Locks[0]; last.LSN != 9 || l.LSN != 9 || l.Epoch != 2 || l.Status != "OK" || l.Lock != "l" {
		t.Errorf("the last piece: %+v", last)
	}
}

func TestEventWords(t *testing.T) {
	words := 0
	for n := range pb.EventKind_name {
		k := pb.EventKind(n)
		got, err := wire.ParseEventWord(wire.EventWord(k))
		if err == nil && got == k {
			words++
		} else if !errors.Is(err, wire.ErrInvalidArgument) {
			t.Errorf("%v: %v, %v", k, got, err)
		}
	}
	if words != len(pb.EventKind_name)-4 { // no record, clients that come and go, and what was so already
		t.Errorf("%d words", words)
	}
	_, err := wire.ParseEventWord("Grant")
	if want := `there is no event kind "Grant": use grant, enqueue, release, `; err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
