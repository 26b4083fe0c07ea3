// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// doer notes the identity of what is executed.
type doer struct {
	*fedReplica
	identity string
}

func (d *doer) Do(_ context.Context, q *locktable.Request) (locktable.Outcome, error) {
	d.identity = q.Identity
	return locktable.Outcome{Status: cluster.StatusOK}, nil
}

// TestServiceAsksForTheCaller wants requests executed for the caller of their context, and outcomes
// shown to the identity of their client only.
func TestServiceAsksForTheCaller(t *testing.T) {
	d := &doer{fedReplica: newFedReplica(t)}
	d.ask(locktable.Request{Op: locktable.OpAcquire, Client: "c1", Lock: "l", TTL: 10 * time.Second, Identity: "user:alice"})
	s := service.New(d, service.Options{})
	for identity, want := range map[string]pb.Status{
		"user:alice": pb.Status_STATUS_OK, "user:bob": pb.Status_STATUS_PERMISSION_DENIED, "": pb.Status_STATUS_PERMISSION_DENIED,
	} {
		ctx := serving.WithCaller(t.Context(), &access.Caller{Identity: identity})
		o, err := s.Outcome(ctx, &pb.OutcomeRequest{ClientId: "c1", RequestId: 1})
		if err != nil || o.Status != want || (o.Outcome != nil) != (want == pb.Status_STATUS_OK) {
			t.Errorf("an outcome for %q: %v, %v, want %v", identity, o, err, want)
		}
		if _, err := s.Execute(ctx, &locktable.Request{Op: locktable.OpAcquire, Lock: "m"}); err != nil || d.identity != identity {
			t.Errorf("executed for %q, want %q: %v", d.identity, identity, err)
		}
	}
	if _, err := s.Execute(t.Context(), &locktable.Request{Op: locktable.OpAcquire, Lock: "m", Identity: "user:alice"}); err != nil || d.identity != "" {
		t.Errorf("a request that says it is alice's is executed for %q: %v", d.identity, err)
	}
}
