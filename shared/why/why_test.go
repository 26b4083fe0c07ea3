// SPDX-License-Identifier: Apache-2.0

package why

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestAdvice(t *testing.T) {
	held := func(left int64, heard bool) *pb.Grant {
		return &pb.Grant{Lock: "l", Token: 7, TtlMs: 60_000, RemainingMs: left, Heard: heard, ClientId: "@1"}
	}
	shared := func(left int64, heard bool, token uint64) *pb.Grant {
		g := held(left, heard)
		g.Mode, g.Token = pb.Mode_MODE_SHARED, token
		return g
	}
	together := func(queue uint32, all ...*pb.Grant) *pb.Lock {
		return &pb.Lock{Name: "l", Grant: all[0], SharedHolders: all[1:], Holders: uint32(len(all)), QueueLength: queue}
	}
	told := shared(50_000, true, 8)
	told.Ask = &pb.AskToRelease{RemainingMs: 41_000}
	ask := held(50_000, true)
	ask.Ask = &pb.AskToRelease{RemainingMs: 41_000}
	for name, x := range map[string]struct {
		lock *pb.Lock
		want string
	}{
		"free":      {&pb.Lock{Name: "l"}, "it is free: the next request gets it"},
		"owed":      {&pb.Lock{Name: "l", QueueLength: 1}, "it is free, and goes to the first in the queue within moments"},
		"alone":     {&pb.Lock{Name: "l", Grant: held(55_000, true)}, "its holder is alive, it was heard 5s ago, and no request waits: wait for it with holdfast acquire l --wait 10m"},
		"waited":    {&pb.Lock{Name: "l", Grant: held(55_000, true), QueueLength: 1}, "its holder is alive, it was heard 5s ago: talk to it, or ask it to let go: holdfast break l --token 7 --reason TEXT --grace 1m"},
		"silent":    {&pb.Lock{Name: "l", Grant: held(12_000, true), QueueLength: 1}, "its holder's client was not heard for 48s: the lease ends in 12s, unless it comes back; to end it now: holdfast break l --token 7 --reason TEXT"},
		"unheard":   {&pb.Lock{Name: "l", Grant: held(55_000, false)}, "its holder's client was not heard since the failover: the lease ends in 55s, unless it comes back; to end it now: holdfast break l --token 7 --reason TEXT"},
		"asked":     {&pb.Lock{Name: "l", Grant: ask}, "its holder was asked to let go, and the lock is taken from it in 41s; to end it now: holdfast break l --token 7 --reason TEXT"},
		"not known": {&pb.Lock{Name: "l", Grant: held(-1, false)}, "only a primary knows how long the lease lasts: ask one with holdfast why l; where none runs, the next one counts it anew, with its whole TTL of 1m0s"},
		"named for shells": {&pb.Lock{Name: "$(reboot)'s", Grant: held(55_000, false)},
			`its holder's client was not heard since the failover: the lease ends in 55s, unless it comes back; to end it now: holdfast break '$(reboot)'\''s' --token 7 --reason TEXT`},
		"quarantine": {&pb.Lock{Name: "l", Grant: held(55_000, true), Files: []*pb.File{{Name: "f", Quarantined: true, Reason: "foreign bytes"}}},
			"its file f is quarantined (foreign bytes): nothing can be appended there before holdfast file rotate f --lock l"},
		"shared": {together(0, shared(55_000, true, 7), shared(50_000, true, 8)),
			"it is shared by 2, and an exclusive request waits for each of them; to share it with them: holdfast acquire l --shared"},
		"shared and waited for": {together(1, told, shared(50_000, true, 9)),
			"it is shared by 2, and an exclusive request waits for each of them; 1 asked to let go; talk to them, or ask each of them to let go: holdfast break l --token 9 --reason TEXT --grace 1m"},
		"the youngest sharer is unheard": {together(1, shared(55_000, true, 7), shared(20_000, true, 8), shared(41_000, false, 9)),
			"it is shared by 3, and an exclusive request waits for each of them; 2 of them may be gone: that of token 9, the last to end, was not heard since the failover; its lease ends in 41s, unless it comes back; to end it now: holdfast break l --token 9 --reason TEXT"},
		"a sharer is silent": {together(1, shared(55_000, true, 7), shared(20_000, true, 8)),
			"it is shared by 2, and an exclusive request waits for each of them; 1 of them may be gone: that of token 8, the last to end, was not heard for 40s; its lease ends in 20s, unless it comes back; to end it now: holdfast break l --token 8 --reason TEXT"},
	} {
		b := wire.LockBodyOf(&pb.GetLockResponse{Status: pb.Status_STATUS_OK, Lock: x.lock})
		if got := advice(&b, x.lock); got != x.want {
			t.Errorf("%s: %s\nwant %s", name, got, x.want)
		}
	}
}

// What a command got and left is renewed by nobody: its holder is not "alive".
func TestOfWhatACommandGot(t *testing.T) {
	for client, want := range map[string]string{"@9": "its holder is alive", "~7A": "nothing renews it", "cli-7A": "nothing renews it"} {
		l := wire.LockBody{Lock: "l", Token: 7, Remaining: "20s", Heard: true, Holder: &wire.Holder{Client: cluster.ClientID(client)}}
		got := advice(&l, &pb.Lock{Grant: &pb.Grant{Token: 7, TtlMs: 30_000, RemainingMs: 20_000}})
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", client, got)
		}
	}
}
