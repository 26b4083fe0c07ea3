// SPDX-License-Identifier: Apache-2.0

// Package retry has the one list of what the result of an attempt allows: whether the answer stands,
// whether another server or a later attempt may do better, and whether the request may have been
// executed. Every caller of a server decides by it: the client library, the command line, and a
// replica that forwards to the primary. It also has the pauses between attempts.
//
// The callers have loops of their own, because they find the primary in different ways.
package retry

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// UnsentError is the error of an attempt that reached no server. The errors of gRPC do not tell, so
// the caller has to wrap one where it knows.
type UnsentError struct{ Err error }

// Error returns the text of Err.
func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UnsentError) Unwrap() error { return e.Err }

// Verdict is what the result of one attempt allows. The zero value is Final.
type Verdict uint8

// The verdicts. A repeat always has the request ID of the first attempt.
const (
	// Final: the server answered, and every attempt would get this answer.
	Final Verdict = iota
	// Refused: the transport refused the request and would again. The attempt did nothing.
	Refused
	// TooLong: the request or the answer is too long for the transport, and would be again. If it is
	// the answer, the request was executed.
	TooLong
	// NotPrimary: the server is not the primary, and the attempt did nothing. Ask another one.
	NotPrimary
	// NotYet: the server is becoming the primary, and the attempt did nothing. Ask it again soon.
	NotYet
	// Later: the primary takes no requests now, and the attempt did nothing. Ask it again later.
	Later
	// OtherCluster: the server belongs to another cluster, and the attempt did nothing.
	OtherCluster
	// Unsent: the attempt reached no server. Ask another one.
	Unsent
	// TooFast: the caller exceeds a rate, and the attempt did nothing. Ask the same server again, when it says.
	TooFast
	// Unknown: the attempt may have been executed, or may be yet. Ask again.
	Unknown
)

// Final reports whether another attempt gets no better result.
func (v Verdict) Final() bool { return v <= TooLong }

// Doubtful reports whether the attempt may have been executed without a usable answer.
func (v Verdict) Doubtful() bool { return v == Unknown || v == TooLong }

// OfStatus returns the verdict on an answer, without regard to the time after which it asks for a repeat: of LIMITED that
// tells a rate, which a repeat may keep, from a count. Committed is the answer's: such a request is in the
// log, and a repeat gets no other answer.
func OfStatus(s cluster.Status, committed bool) Verdict {
	if committed {
		return Final
	}
	switch s {
	case cluster.StatusSecondaryMode:
		return NotPrimary
	case cluster.StatusServerFencing:
		return NotYet
	case cluster.StatusNoQuorum, cluster.StatusStorageUnavailable:
		return Later
	case cluster.StatusUnknown:
		return Unknown
	default:
		return Final
	}
}

// OfError returns the verdict on the error of a gRPC call, in the form that wire.FromGRPC gives it.
func OfError(err error) Verdict {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		if e.Status == cluster.StatusLimited && e.RetryAfter > 0 {
			return TooFast
		}
		return OfStatus(e.Status, e.Committed)
	}
	if errors.Is(err, wire.ErrOtherCluster) {
		return OtherCluster
	}
	switch status.Code(err) {
	case codes.OK:
		return Final
	case codes.FailedPrecondition: // without a status only a server of another cluster sends it
		return OtherCluster
	case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return Refused
	case codes.ResourceExhausted:
		return TooLong
	}
	if _, ok := errors.AsType[*UnsentError](err); ok {
		return Unsent
	}
	return Unknown
}

// Decided reports whether an answer holds for every attempt of its request, also for one whose
// answer was lost or that is still under way: a receipt does, and so does a permanent refusal.
// Any other refusal holds for its own attempt only. committed is the answer's; named is set if
// the request names its token, which a break need not.
func Decided(s cluster.Status, committed, named bool) bool {
	switch s {
	case cluster.StatusOK, cluster.StatusWaitTimeout, cluster.StatusCancelled, cluster.StatusLeaseExpired:
		return true
	case cluster.StatusInvalidToken:
		return named // a dead token stays dead
	default:
		return committed // it is in the log, even if not in its file
	}
}

// Attempt is the result of one attempt over gRPC.
type Attempt struct {
	Verdict Verdict
	// Err is nil for an answer that stands, whatever its status.
	Err error
	// Primary is the server to ask instead, nil if the result names none.
	Primary *wire.Primary
	// RetryAfter is how long the server asks to wait before the next attempt, 0 if it does not.
	RetryAfter time.Duration
}

// Response is implemented by the answers to all calls.
type Response interface{ GetStatus() pb.Status }

// Stands reports whether Judge returns the zero value for an answer: nearly every call ends so.
func Stands(r Response) bool {
	a, ok := r.(*pb.Answer)
	if r.GetStatus() == pb.Status_STATUS_LIMITED && a.GetRetryAfterMs() > 0 {
		return false
	}
	return OfStatus(wire.FromStatus(r.GetStatus()), ok && a.GetCommitted()) == Final
}

// Judge returns what the result of a gRPC call allows.
func Judge(r Response, err error) Attempt {
	if err == nil {
		if Stands(r) {
			return Attempt{}
		}
		err = wire.FailureOf(r)
	}
	err = wire.FromGRPC(err)
	x := Attempt{Verdict: OfError(err), Err: err}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		x.Primary, x.RetryAfter = e.Primary, e.RetryAfter
	}
	return x
}

// plainError is an error of gRPC with another text.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }

func (e *plainError) Unwrap() error { return e.err }

// Plain wraps an error of gRPC, so that its text is for people, without what gRPC puts around it. Other errors are returned as
// they are.
func Plain(err error) error {
	said, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	if !ok || said.GRPCStatus().Code() == codes.OK {
		return err
	}
	if _, own := said.(*wire.Error); own {
		return err
	}
	text := said.GRPCStatus().Message()
	switch i, j := strings.LastIndex(text, "connect: "), strings.Index(text, "TLS with "); {
	case j >= 0: // what package join says of a handshake, as gRPC quotes it
		text = strings.ReplaceAll(strings.TrimSuffix(text[j:], `"`), `\"`, `"`)
	case strings.Contains(text, "error reading server preface"):
		text = "something else answers there, or a server that speaks TLS"
	case strings.Contains(text, "produced zero addresses"):
		text = "no such host"
	case said.GRPCStatus().Code() == codes.DeadlineExceeded:
		text = "no answer in time"
	case i >= 0: // the part that matters
		text = strings.Trim(text[i+len("connect: "):], `"`)
	}
	return &plainError{text, err}
}
