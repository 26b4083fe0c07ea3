// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestLossBodies(t *testing.T) {
	for want, l := range map[string]*pb.Loss{
		`{"lock":"l","token":9,"request_id":3,"reason":"broken","lsn":12,"epoch":2,"successor_token":13,` +
			`"last_append":{"file":"f","offset":4,"length":5,"crc32c":77,"lsn":11,"token":9,"epoch":2,"generation":1},"actor":"ann","message":"m"}`: {
			Lock: "l", Token: 9, RequestId: 3, Reason: pb.LossReason_LOSS_REASON_BROKEN, Lsn: 12, Epoch: 2, SuccessorToken: 13, Actor: "ann", Message: "m",
			LastAppend: &pb.Receipt{File: "f", Offset: 4, Length: 5, Crc32C: 77, Lsn: 11, Token: 9, Epoch: 2, Generation: 1},
		},
		`{"lock":"","token":0,"request_id":0,"reason":"force_cleared","lsn":12,"epoch":2,"successor_token":0,"last_append":null,"actor":"","message":""}`: {
			Reason: pb.LossReason_LOSS_REASON_FORCE_CLEARED, Lsn: 12, Epoch: 2,
		},
	} {
		if got, err := json.Marshal(wire.LossBodyOf(l)); err != nil || string(got) != want {
			t.Errorf("got\n%s, %v, want\n%s", got, err, want)
		}
	}
}
