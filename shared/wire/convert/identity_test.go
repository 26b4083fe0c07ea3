// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestIdentityIsShown wants the identity wherever a holder or waiter is shown, also where nothing is
// known of its process.
func TestIdentityIsShown(t *testing.T) {
	const alice, bob = "user:alice", "user:bob"
	lock := convert.FromView(&locktable.LockView{Name: "l", Holders: 2, Grant: locktable.Grant{Lock: "l", Token: 1, Identity: alice}}, 0, true)
	lock.SharedHolders = []*pb.Grant{convert.FromGrant(&locktable.Grant{Lock: "l", Token: 2, Identity: bob}, 0, true)}
	lock.Waiters = []*pb.Waiter{convert.FromWaiter(&locktable.Waiter{Lock: "l", Client: "c", Identity: bob})}
	body := wire.LockBodyOf(&pb.GetLockResponse{Lock: lock})
	past := wire.HistoryBodyOf(&pb.HistoryResponse{Grants: []*pb.PastGrant{
		convert.FromEnd(&history.End{Lock: "l", Token: 1, Identity: alice}), convert.FromHeld(&locktable.Grant{Lock: "l", Token: 2, Identity: bob}),
	}})
	event := wire.EventBodyOf(convert.FromRecord(&locktable.Record{LSN: 1, Kind: locktable.KindGrant, Lock: "l", Identity: alice}, time.UnixMilli(1)))
	held := convert.FromOutcome(&locktable.Outcome{Holder: &locktable.LockHolder{Client: "c", Identity: alice}})
	for what, x := range map[string][2]string{
		"holder": {body.Holder.Identity, alice}, "sharer": {body.SharedWith[0].Identity, bob}, "waiter": {body.Waiters[0].Identity, bob},
		"past grant": {past.Grants[0].Identity, alice}, "live grant": {past.Grants[1].Identity, bob}, "event": {event.Holder.Identity, alice},
		"refusal": {wire.HolderOf(held.Holder).Identity, alice},
	} {
		if x[0] != x[1] {
			t.Errorf("the %s is of %q, want %q", what, x[0], x[1])
		}
	}
}
