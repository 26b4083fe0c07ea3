// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestStatusTableIsComplete(t *testing.T) {
	sentinels := map[error]bool{}
	for _, s := range cluster.Statuses() {
		err := wire.Err(s)
		if (err == nil) != (s == cluster.StatusOK) {
			t.Errorf("%v has sentinel %v", s, err)
		}
		if sentinels[err] {
			t.Errorf("%v shares its sentinel %v", s, err)
		}
		sentinels[err] = true
		if got, ok := wire.StatusOf(err); !ok || got != s {
			t.Errorf("status of the sentinel of %v: %v, %v", s, got, ok)
		}
		if got, ok := wire.StatusOf(fmt.Errorf("call: %w", &wire.Error{Status: s})); !ok || got != s {
			t.Errorf("status of a wrapped Error of %v: %v, %v", s, got, ok)
		}
		if s != cluster.StatusOK && !errors.Is(&wire.Error{Status: s}, err) {
			t.Errorf("Error of %v is not its sentinel", s)
		}
		if http := wire.HTTPCode(s); (http == 200) != (s == cluster.StatusOK) || http < 200 || http > 599 {
			t.Errorf("%v has HTTP code %d", s, http)
		}
		unavailable := s == cluster.StatusSecondaryMode || s == cluster.StatusServerFencing ||
			s == cluster.StatusNoQuorum || s == cluster.StatusStorageUnavailable
		stranger := s == cluster.StatusUnauthenticated // a gRPC error, as users of gRPC expect
		limited := s == cluster.StatusLimited          // as well
		if code := wire.GRPCCode(s); (code == codes.Unavailable) != unavailable || (code == codes.Unauthenticated) != stranger || (code == codes.ResourceExhausted) != limited || (code == codes.OK) == (unavailable || stranger || limited) {
			t.Errorf("%v has gRPC code %v", s, code)
		}
		if got := wire.FromStatus(pb.Status(s)); got != s {
			t.Errorf("%v comes back as %v", s, got)
		}
	}
}

func TestUnknownIsBelievedOfStrangeStatuses(t *testing.T) {
	for _, n := range []pb.Status{-1, 0, 26, 255, 256 + 1, 1 << 30} {
		if got := wire.FromStatus(n); got != cluster.StatusUnknown {
			t.Errorf("status %d: %v", n, got)
		}
		if err := wire.AnswerError(&pb.Answer{Status: n}); !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("answer with status %d: %v", n, err)
		}
	}
	if _, ok := wire.StatusOf(errors.New("disk on fire")); ok {
		t.Error("a strange error has a status")
	}
}

func TestProtoStatusesAreTheClusters(t *testing.T) {
	if got, want := len(pb.Status_name), len(cluster.Statuses())+1; got != want {
		t.Fatalf("%d statuses in holdfast.proto, want %d", got, want)
	}
	for _, s := range append(cluster.Statuses(), cluster.StatusNone) {
		if got := pb.Status(s).String(); got != "STATUS_"+s.String() {
			t.Errorf("%d is %s in holdfast.proto and %v in cluster", s, got, s)
		}
	}
}

func fullError(s cluster.Status) *wire.Error {
	return &wire.Error{
		Status: s, Message: "because", Lock: "a/b", Token: 7, Client: "c1", Request: 3, Epoch: 5, LSN: 9,
		Primary: &wire.Primary{ID: 2, Client: "h:1", OldHTTP: "h:2"}, RetryAfter: 30 * time.Millisecond,
		Holder: &wire.Holder{Client: "c2", Token: 6, Host: "n1", PID: 12, Command: "make", Mode: "shared", Holders: 3, Identity: "user:alice"}, QueueLength: 4,
		Committed: true,
		Receipt:   &wire.Receipt{File: "f", Offset: 1, Length: 2, CRC32C: 3, LSN: 9, Token: 7, Epoch: 5, Generation: 8},
	}
}

func TestErrorsRoundTrip(t *testing.T) {
	for _, s := range cluster.Statuses()[1:] {
		e := fullError(s)
		if got := wire.AnswerError(e.Answer()); !reflect.DeepEqual(got, error(e)) {
			t.Errorf("%v as an answer: %+v", s, got)
		}

		// As grpc-go does it: the handler's error becomes a status, and that an error again.
		st, ok := status.FromError(fmt.Errorf("acquire: %w", e))
		if !ok || st.Code() == codes.OK || st.Code() == codes.Unknown {
			t.Fatalf("%v as a gRPC status: %v, %v", s, st, ok)
		}
		want := &wire.Error{
			Status: s, Message: e.Message, Client: e.Client, Request: e.Request, Epoch: e.Epoch,
			Primary: e.Primary, RetryAfter: e.RetryAfter,
		}
		if got := wire.FromGRPC(st.Err()); !reflect.DeepEqual(got, error(want)) {
			t.Errorf("%v over gRPC: %+v", s, got)
		}
		a, err := wire.Unary(e.Answer())
		if isValue := wire.GRPCCode(s) == codes.OK; isValue != (a != nil) || isValue != (err == nil) {
			t.Errorf("unary %v: %v, %v", s, a, err)
		}
	}
}

func TestForeignGRPCErrorsStay(t *testing.T) {
	if err := wire.FromGRPC(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
	for _, err := range []error{errors.New("x"), status.Error(codes.Unavailable, "connection refused")} {
		if got := wire.FromGRPC(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  *wire.Error
		want string
	}{
		{&wire.Error{Status: cluster.StatusHeld}, "the lock is held"},
		{&wire.Error{Status: cluster.StatusHeld, Message: "by c2"}, "the lock is held: by c2"},
		{&wire.Error{Status: cluster.StatusHeld, Message: "the lock is held"}, "the lock is held"},
		{&wire.Error{Status: cluster.StatusOK}, "OK"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestMillis(t *testing.T) {
	const ms = time.Millisecond
	if f, c := wire.FloorMillis(ms+1), wire.CeilMillis(ms+1); f != 1 || c != 2 {
		t.Errorf("1 ms and a bit: floor %d, ceil %d", f, c)
	}
	if c := wire.CeilMillis(2 * ms); c != 2 {
		t.Errorf("2 ms: ceil %d", c)
	}
	for _, n := range []int64{1 << 62, -1 << 62} {
		if d := wire.Millis(n); (d > 0) != (n > 0) {
			t.Errorf("%d ms turned round: %v", n, d)
		}
	}
}
