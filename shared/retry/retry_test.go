// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func TestDecided(t *testing.T) {
	always := map[cluster.Status]bool{
		cluster.StatusOK: true, cluster.StatusWaitTimeout: true, cluster.StatusCancelled: true, cluster.StatusLeaseExpired: true,
	}
	for _, s := range cluster.Statuses() {
		for _, committed := range []bool{false, true} {
			for _, named := range []bool{false, true} {
				want := always[s] || s == cluster.StatusInvalidToken && named || s != cluster.StatusInvalidToken && committed
				if got := retry.Decided(s, committed, named); got != want {
					t.Errorf("%v, committed %v, named %v: %v", s, committed, named, got)
				}
			}
		}
	}
}

// A status whose attempt did nothing is repeated only where another attempt may do better, and one
// whose attempt may have been executed always.
func TestVerdicts(t *testing.T) {
	repeated := map[cluster.Status]retry.Verdict{
		cluster.StatusSecondaryMode: retry.NotPrimary, cluster.StatusServerFencing: retry.NotYet, cluster.StatusNoQuorum: retry.Later,
		cluster.StatusStorageUnavailable: retry.Later, cluster.StatusUnknown: retry.Unknown,
	}
	for _, s := range cluster.Statuses() {
		if got := retry.OfStatus(s, false); got != repeated[s] {
			t.Errorf("%v: verdict %d, want %d", s, got, repeated[s])
		}
		if got := retry.OfStatus(s, true); got != retry.Final {
			t.Errorf("%v, committed: verdict %d", s, got)
		}
		if got := retry.OfError(fmt.Errorf("call: %w", &wire.Error{Status: s})); got != repeated[s] {
			t.Errorf("an error with %v: verdict %d, want %d", s, got, repeated[s])
		}
	}
	limited := &wire.Error{Status: cluster.StatusLimited, RetryAfter: 1}
	if got := retry.OfError(limited); got != retry.TooFast || got.Final() || got.Doubtful() {
		t.Errorf("a rate that was exceeded: verdict %d", got)
	}
	for after, want := range map[int64]retry.Verdict{0: retry.Final, 5: retry.TooFast} {
		if got := retry.Judge(&pb.Answer{Status: pb.Status_STATUS_LIMITED, RetryAfterMs: after}, nil); got.Verdict != want || (got.Err == nil) != want.Final() {
			t.Errorf("LIMITED for %d ms: %+v", after, got)
		}
	}
	unsent := &retry.UnsentError{Err: status.Error(codes.Unavailable, "connection refused")}
	for err, want := range map[error]retry.Verdict{
		nil: retry.Final, unsent: retry.Unsent, context.DeadlineExceeded: retry.Unknown, fmt.Errorf("x: %w", wire.ErrOtherCluster): retry.OtherCluster,
		status.Error(codes.Unavailable, "reset"): retry.Unknown, status.Error(codes.Internal, "reset"): retry.Unknown,
		status.Error(codes.FailedPrecondition, "cluster a, not b"): retry.OtherCluster,
		status.Error(codes.Unimplemented, "no such method"):        retry.Refused, status.Error(codes.PermissionDenied, "no"): retry.Refused,
		status.Error(codes.ResourceExhausted, "too long"): retry.TooLong,
	} {
		if got := retry.OfError(err); got != want {
			t.Errorf("%v: verdict %d, want %d", err, got, want)
		}
	}
}

// An answer that stands is judged without an allocation: nearly every call of a client ends so.
func TestJudgeOfAnAnswerAllocatesNothing(t *testing.T) {
	a := &pb.Answer{Status: pb.Status_STATUS_OK}
	if n := testing.AllocsPerRun(100, func() {
		if x := retry.Judge(a, nil); x.Err != nil {
			t.Error(x.Err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// People are told what happened, not how gRPC says it; programs find the same error.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "connection refused",
		`connection error: desc = "error reading server preface: http2: frame too large"`:                              "something else answers there, or a server that speaks TLS",
		"name resolver error: produced zero addresses":                                                                 "no such host",
		"it is closed": "it is closed",
		`connection error: desc = "transport: Error while dialing: TLS with h1:7601: it was issued by \"CN=x\""`: `TLS with h1:7601: it was issued by "CN=x"`,
		`connection error: desc = "error reading server preface: TLS with h1:7601: it is refused"`:               "TLS with h1:7601: it is refused",
	} {
		err := status.Error(codes.Unavailable, text)
		got := retry.Plain(&retry.UnsentError{Err: err})
		if got.Error() != want || !errors.Is(got, err) {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
	if got := retry.Plain(status.Error(codes.DeadlineExceeded, "context deadline exceeded")); got.Error() != "no answer in time" {
		t.Errorf("got %v", got)
	}
	for _, err := range []error{errors.New("x"), &wire.Error{Status: cluster.StatusHeld}} {
		if got := retry.Plain(err); got != err {
			t.Errorf("%v is told as %v", err, got)
		}
	}
	if got := retry.Plain(nil); got != nil {
		t.Errorf("got %v", got)
	}
}
