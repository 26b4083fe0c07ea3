// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// leaseKeeper is a primary that knows what is left of each lease.
type leaseKeeper struct {
	*fedReplica
	left time.Duration
}

func (k leaseKeeper) Read(_ context.Context, f func(serving.View)) (serving.Reading, error) {
	f(serving.View{Table: k.table, Remaining: func(cluster.LockName, cluster.Token) time.Duration { return k.left }})
	return serving.Reading{Status: cluster.StatusOK, LSN: k.at.LSN, Epoch: 7}, nil
}

// The outcome of an acquire tells what is left of the lease, and not how long it was at first.
// A replica does not know.
func TestOutcomeTellsWhatIsLeft(t *testing.T) {
	r := newFedReplica(t)
	r.ask(locktable.Request{Op: locktable.OpAcquire, Client: "c1", Lock: "l", TTL: 10 * time.Second, MaxHold: 10 * time.Second})
	for name, test := range map[string]struct {
		b    serving.Backend
		want time.Duration
	}{
		"primary":          {leaseKeeper{r, 2 * time.Second}, 2 * time.Second},
		"primary, overdue": {leaseKeeper{r, 0}, 0},
		"replica":          {r, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := dialGRPC(t, test.b).Outcome(t.Context(), &pb.OutcomeRequest{ClientId: "c1", RequestId: 1})
			if err != nil || o.State != pb.RequestState_REQUEST_STATE_EXECUTED || o.Outcome.Token == 0 || o.Outcome.TtlMs != test.want.Milliseconds() {
				t.Errorf("%v, %v: want %v left", o, err, test.want)
			}
		})
	}
}
