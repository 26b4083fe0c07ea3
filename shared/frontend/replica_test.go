// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// statusOf is the status of an answer that came as a value or as an error.
func statusOf(s pb.Status, err error) cluster.Status {
	if err != nil {
		told, _ := wire.StatusOf(wire.FromGRPC(err))
		return told
	}
	return wire.FromStatus(s)
}

// What a replica has may be old: that a request was not seen, or waits, is no truth there, nor
// that a token is dead. What was decided stays so.
func TestReplicaTellsOnlyWhatStaysSo(t *testing.T) {
	r := newFedReplica(t)
	held := r.ask(locktable.Request{Op: locktable.OpAcquire, Client: "a", Lock: "l", TTL: time.Minute})
	r.ask(locktable.Request{Op: locktable.OpAcquire, Client: "b", Lock: "l", TTL: time.Minute, Wait: locktable.WaitForever})
	c := dialGRPC(t, r)
	for _, x := range []struct {
		client  string
		request uint64
		want    cluster.Status
	}{
		{"a", 1, cluster.StatusOK},
		{"b", 2, cluster.StatusSecondaryMode},
		{"c", 1, cluster.StatusSecondaryMode},
	} {
		o, err := c.Outcome(t.Context(), &pb.OutcomeRequest{ClientId: x.client, RequestId: x.request})
		if got := statusOf(o.GetStatus(), err); got != x.want {
			t.Errorf("outcome of request %d of %s: %v (%v), want %v", x.request, x.client, got, o.GetState(), x.want)
		}
	}
	for _, token := range []uint64{uint64(held.Token), uint64(held.Token) + 1} {
		a, err := c.Verify(t.Context(), &pb.VerifyRequest{Lock: "l", Token: token})
		if got := statusOf(a.GetStatus(), err); got != cluster.StatusSecondaryMode {
			t.Errorf("verify of token %d: %v", token, got)
		}
	}
}
