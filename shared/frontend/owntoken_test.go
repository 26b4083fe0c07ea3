// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A token that a list of locks shows is of no use to who names itself otherwise than its
// holder. Passed on, it works without a name, or under its holder's.
func TestTokenIsItsClients(t *testing.T) {
	_, primary, replica, _ := pair(t)
	for i, h := range []*site{primary, replica} {
		lock := fmt.Sprintf("l%d", i)
		token := h.ok("/v1/acquire", fmt.Sprintf(`{"lock":%q,"ttl":"30s","client_id":"a","request_id":%d}`, lock, i+1)).Token
		file := fmt.Sprintf("/v1/append?lock=%s&token=%d&file=f%d", lock, token, i)
		if code, body := h.post(file+"&client_id=b&request_id=1", "x"); code != 412 || body.Status != "INVALID_TOKEN" {
			t.Errorf("append of another: %d %+v", code, body)
		}
		for _, op := range []string{"release", "metadata", "downgrade"} {
			if code, body := h.post("/v1/"+op, fmt.Sprintf(`{"lock":%q,"token":%d,"client_id":"b","request_id":2}`, lock, token)); code != 412 {
				t.Errorf("%s of another: %d %+v", op, code, body)
			}
		}
		h.ok(file, "one\n")
		h.ok(file+fmt.Sprintf("&client_id=a&request_id=%d", 10+i), "two\n")
		h.ok("/v1/release", fmt.Sprintf(`{"lock":%q,"token":%d}`, lock, token))
	}
}

// Over gRPC, too, unless the call says that it means it or is of an opened client: the client
// library asks from several of those for one program.
func TestTokenIsItsClientsOverGRPC(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	held, err := c.Acquire(t.Context(), &pb.AcquireRequest{ClientId: "a", RequestId: 1, Lock: "l", TtlMs: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := c.OpenClient(t.Context(), &pb.OpenClientRequest{Nonce: 7})
	if err != nil {
		t.Fatal(err)
	}
	say := func(client string, id uint64, passedOn bool) cluster.Status {
		ctx := t.Context()
		if passedOn {
			ctx = wire.PassedOn(metadata.NewOutgoingContext(ctx, metadata.Pairs("other", "1")))
		}
		a, err := c.SetMetadata(ctx, &pb.SetMetadataRequest{ClientId: client, RequestId: id, Lock: "l", Token: held.GetToken(), Metadata: "m"})
		return statusOf(a.GetStatus(), err)
	}
	for _, x := range []struct {
		client   string
		id       uint64
		passedOn bool
		want     cluster.Status
	}{
		{"b", 1, false, cluster.StatusInvalidToken},
		{"b", 1, true, cluster.StatusOK},
		{"a", 2, false, cluster.StatusOK},
		{"", 0, false, cluster.StatusOK},
		{"cli-x", 1, false, cluster.StatusOK},
		{opened.GetClientId(), 1, false, cluster.StatusOK},
	} {
		if got := say(x.client, x.id, x.passedOn); got != x.want {
			t.Errorf("%q, passed on %v: %v, want %v", x.client, x.passedOn, got, x.want)
		}
	}
}

// On a session, which only the client library speaks, whoever has the token may use it: the
// library uses another client's only where its program has attached it, and an older one, which
// cannot say so, must not lose a lock because the server was upgraded. Today's library gets the
// same answer for a call, which it marks.
func TestTokenOnASessionMayBePassedOn(t *testing.T) {
	c := dialGRPC(t, startPrimary(t))
	s := welcomed(t, c, "b")
	for i, release := range []func(lock string, token uint64) pb.Status{
		func(lock string, token uint64) pb.Status {
			ask(t, s, operation(1, &pb.ReleaseRequest{RequestId: 1, Lock: lock, Token: token}))
			return answers(t, s, 1)[1].GetStatus()
		},
		func(lock string, token uint64) pb.Status {
			a, err := c.Release(wire.PassedOn(t.Context()), &pb.ReleaseRequest{ClientId: "b", RequestId: 2, Lock: lock, Token: token})
			if err != nil {
				t.Errorf("a call: %v", err)
			}
			return a.GetStatus()
		},
	} {
		lock := fmt.Sprint("l", i)
		held, err := c.Acquire(t.Context(), &pb.AcquireRequest{ClientId: "a", RequestId: uint64(i + 1), Lock: lock, TtlMs: 30_000})
		if err != nil {
			t.Fatal(err)
		}
		if got := release(lock, held.GetToken()); got != pb.Status_STATUS_OK {
			t.Errorf("way %d: %v", i, got)
		}
	}
}

func TestForgetClient(t *testing.T) {
	b := startPrimary(t)
	c := dialGRPC(t, b)
	held, err := c.Acquire(t.Context(), &pb.AcquireRequest{ClientId: "a", RequestId: 1, Lock: "l", TtlMs: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	forget := func() cluster.Status {
		a, err := c.ForgetClient(t.Context(), &pb.ForgetClientRequest{ClientId: "a"})
		return statusOf(a.GetStatus(), err)
	}
	if got := forget(); got != cluster.StatusInvalidArgument {
		t.Errorf("a holder: %v", got)
	}
	if _, err := c.Release(t.Context(), &pb.ReleaseRequest{ClientId: "a", RequestId: 2, Lock: "l", Token: held.GetToken()}); err != nil {
		t.Fatal(err)
	}
	if got := forget(); got != cluster.StatusOK {
		t.Errorf("who holds nothing: %v", got)
	}
	o, err := c.Outcome(t.Context(), &pb.OutcomeRequest{ClientId: "a", RequestId: 2})
	if err != nil || o.GetState() != pb.RequestState_REQUEST_STATE_NOT_SEEN {
		t.Errorf("it is remembered: %v, %v", o.GetState(), err)
	}
}
