// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// An extension has the same answer at every server, a repeat too, and renewals after it last for the
// new TTL.
func TestExtend(t *testing.T) {
	b, primary, replica, _ := pair(t)
	token := primary.ok("/v1/acquire", `{"lock":"l","ttl":"10s","client_id":"c","request_id":1}`).Token
	extend := fmt.Sprintf(`{"lock":"l","token":%d,"ttl":"1m","client_id":"c","request_id":2}`, token)
	first := replica.ok("/v1/extend", extend)
	if first.Token != token || first.TTL != "1m0s" || first.Repeat {
		t.Errorf("extended: %+v", first)
	}
	for i, h := range []*site{primary, replica} {
		again := h.ok("/v1/extend", extend)
		if left, err := time.ParseDuration(again.TTL); !again.Repeat || again.LSN != first.LSN || err != nil || left > time.Minute || left < 50*time.Second {
			t.Errorf("a repeat at server %d: %+v, %v", i+1, again, err)
		}
		renewed := h.ok("/v1/renew", fmt.Sprintf(`{"lock":"l","token":%d}`, token))
		if left, err := time.ParseDuration(renewed.TTL); err != nil || left < 50*time.Second {
			t.Errorf("a renewal at server %d: %+v, %v", i+1, renewed, err)
		}
		for _, ttl := range []string{"59s", "1ms", "24h"} {
			if code, body := h.post("/v1/extend", fmt.Sprintf(`{"lock":"l","token":%d,"ttl":%q}`, token, ttl)); code != 400 {
				t.Errorf("a TTL of %s at server %d: %d %+v", ttl, i+1, code, body)
			}
		}
		if code, body := h.post("/v1/extend", fmt.Sprintf(`{"lock":"l","token":%d,"ttl":"2m","client_id":"b","request_id":1}`, token)); code != 412 {
			t.Errorf("of another client at server %d: %d %+v", i+1, code, body)
		}
	}
	c := dialGRPC(t, b)
	s := welcomed(t, c, "c")
	ask(t, s, &pb.Operation{Correlation: 7, Request: &pb.Operation_Extend{Extend: &pb.ExtendRequest{RequestId: 3, Lock: "l", Token: token, TtlMs: 90_000}}})
	if a := answers(t, s, 1)[7]; a.GetStatus() != pb.Status_STATUS_OK || a.GetTtlMs() != 90_000 {
		t.Errorf("in a session: %v", a)
	}
	r, err := c.GetLock(t.Context(), &pb.GetLockRequest{Lock: "l"})
	if err != nil || r.GetLock().GetGrant().GetTtlMs() != 90_000 {
		t.Errorf("the lock is shown with a TTL of %d ms, %v", r.GetLock().GetGrant().GetTtlMs(), err)
	}
}
