// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Primary is the primary server, to which a client should turn.
type Primary struct {
	ID cluster.ServerID `json:"id"`
	// Client is its address, host:port, and OldHTTP another one, see cluster.Member; "" if it is not known.
	Client  string `json:"client"`
	OldHTTP string `json:"http,omitempty"`
}

// Holder is the holder of a lock.
type Holder struct {
	Client  cluster.ClientID `json:"client_id"`
	Token   cluster.Token    `json:"token"`
	Host    string           `json:"host"`
	PID     int64            `json:"pid"`
	Command string           `json:"command"`
	Since   Moment           `json:"since"`
	Mode    string           `json:"mode"`
	Holders uint32           `json:"holders"` // number of holders; this one has the oldest grant
	// Identity is that of the client, such as user:alice, as its credential proved it; "" for none.
	Identity string `json:"identity,omitempty"`
	// User is the operating system's user that runs the process. Like Host, PID and Command the client says so itself.
	User string `json:"user,omitempty"`
	// Limit and Weight are the permits of the grant, of a lock with a limit. PermitsTaken is how many permits all holders have, 0 where the answer does
	// not tell.
	Limit        uint32 `json:"limit,omitempty"`
	Weight       uint32 `json:"weight,omitempty"`
	PermitsTaken uint32 `json:"permits_taken,omitempty"`
}

// Receipt is the place of an append in a protected file.
type Receipt struct {
	File       cluster.FileName   `json:"file"`
	Offset     int64              `json:"offset"`
	Length     int64              `json:"length"`
	CRC32C     uint32             `json:"crc32c"`
	LSN        cluster.LSN        `json:"lsn"`
	Token      cluster.Token      `json:"token"`
	Epoch      cluster.Epoch      `json:"epoch"`
	Generation cluster.Generation `json:"generation"`
}

// Error is an answer with a status other than OK. errors.Is finds the sentinel of its status.
type Error struct {
	Status  cluster.Status
	Message string // for people; "" = the sentinel says it all

	Lock    cluster.LockName
	Token   cluster.Token
	Client  cluster.ClientID
	Request cluster.RequestID
	Epoch   cluster.Epoch
	LSN     cluster.LSN

	// Primary is nil if it is not known.
	Primary *Primary
	// RetryAfter is 0 if the server does not suggest one.
	RetryAfter time.Duration

	// With StatusHeld; Holder is nil if only others wait.
	Holder      *Holder
	QueueLength int

	// With StatusWrongCell: the cell that has the lock or the file.
	Cell cluster.CellID

	// Committed is set if a refused append is in the log nevertheless, with Receipt.
	Committed bool
	Receipt   *Receipt
}

// Error returns the text of the sentinel and the message.
func (e *Error) Error() string {
	s := find(e.Status).status.String()
	if err := e.Unwrap(); err != nil {
		s = err.Error()
	}
	if e.Message != "" && e.Message != s {
		return s + ": " + e.Message
	}
	return s
}

// Unwrap returns the sentinel of the status.
func (e *Error) Unwrap() error { return Err(e.Status) }

// Invalid returns an Error with StatusInvalidArgument.
func Invalid(message string) *Error {
	return &Error{Status: cluster.StatusInvalidArgument, Message: message}
}

// Unmarked returns an error if an acquire asked for something that a lock remembers, and was granted without it: by a server of an
// older version, which ignores what it does not know. Such a grant has to be given back.
func Unmarked(a *pb.Answer, asked bool) error {
	if !asked || a.GetMarked() {
		return nil
	}
	return Invalid("the server is of an older version, which does not know what a lock remembers: upgrade all servers, then type holdfast upgrade --finish")
}

// Unlimited returns an error if an acquire asked for permits, and was granted the lock without their limit: by a server of an older
// version, which ignores what it does not know. Such a grant has to be given back.
func Unlimited(a *pb.Answer, limit, weight uint32) error {
	if limit == 0 || a.GetLimit() == limit && a.GetWeight() == max(1, weight) {
		return nil
	}
	return Invalid("the server is of an older version, which does not know locks with a limit: upgrade all servers, then type holdfast upgrade --finish")
}

// GRPCStatus has grpc-go send the error with its detail when a handler returns it. A
// status that should have been a value becomes FAILED_PRECONDITION.
func (e *Error) GRPCStatus() *status.Status {
	code := GRPCCode(e.Status)
	if code == codes.OK {
		code = codes.FailedPrecondition
	}
	st := status.New(code, e.Error())
	if with, err := st.WithDetails(e.Detail()); err == nil {
		return with
	}
	return st
}

// Detail returns the error as the typed detail of a gRPC error.
func (e *Error) Detail() *pb.ErrorDetail {
	return &pb.ErrorDetail{
		Status: pb.Status(e.Status), Message: e.Message, Primary: e.Primary.proto(), RetryAfterMs: CeilMillis(e.RetryAfter),
		ClientId: string(e.Client), RequestId: uint64(e.Request), Epoch: uint64(e.Epoch),
	}
}

// FromDetail returns the Error that Detail encoded.
func FromDetail(d *pb.ErrorDetail) *Error {
	return &Error{
		Status: FromStatus(d.GetStatus()), Message: d.GetMessage(), Primary: PrimaryOf(d.GetPrimary()), RetryAfter: Millis(d.GetRetryAfterMs()),
		Client: cluster.ClientID(d.GetClientId()), Request: cluster.RequestID(d.GetRequestId()), Epoch: cluster.Epoch(d.GetEpoch()),
	}
}

// FromGRPC turns a gRPC error with a detail into an *Error. Any other error, a
// broken connection above all, is returned as it is: the request may have been
// executed or not.
func FromGRPC(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own // its detail would contain less
	}
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	for _, d := range st.Details() {
		if d, ok := d.(*pb.ErrorDetail); ok {
			return FromDetail(d)
		}
	}
	return err
}

// ReturnOf returns the message of a call's result: the encoded answer, or the error if it is not nil.
func ReturnOf(answer []byte, err error) *pb.Return {
	if err == nil {
		return &pb.Return{Response: answer}
	}
	st := status.Convert(err)
	r := &pb.Return{Code: uint32(st.Code()), Message: strings.ToValidUTF8(st.Message(), "?")}
	if e, ok := errors.AsType[*Error](err); ok {
		r.Detail = e.Detail()
	}
	return r
}

// ReturnError returns the error of a call's result, nil if it has an answer. It is what FromGRPC makes
// of the same error over gRPC.
func ReturnError(r *pb.Return) error {
	switch {
	case r.GetCode() == uint32(codes.OK):
		return nil
	case r.GetDetail() != nil:
		return FromDetail(r.GetDetail())
	}
	return status.Error(codes.Code(r.GetCode()), r.GetMessage())
}

// AnswerError returns the *Error of an answer, nil for OK.
func AnswerError(a *pb.Answer) error {
	s := FromStatus(a.GetStatus())
	if s == cluster.StatusOK {
		return nil
	}
	e := &Error{
		Status: s, Message: a.GetMessage(), Lock: cluster.LockName(a.GetLock()), Token: cluster.Token(a.GetToken()),
		Client: cluster.ClientID(a.GetClientId()), Request: cluster.RequestID(a.GetRequestId()),
		Epoch: cluster.Epoch(a.GetEpoch()), LSN: cluster.LSN(a.GetLsn()),
		Primary: PrimaryOf(a.GetPrimary()), RetryAfter: Millis(a.GetRetryAfterMs()),
		Holder: HolderOf(a.GetHolder()), QueueLength: int(a.GetQueueLength()), Cell: cluster.CellID(a.GetCell()),
		Committed: a.GetCommitted(), Receipt: ReceiptOf(a.GetReceipt()),
	}
	return e
}

// FailureOf returns the *Error of any response, nil for OK. It has what the response has of a
// message, a primary and a time to retry after; that of an Answer is complete.
func FailureOf(r interface{ GetStatus() pb.Status }) error {
	if a, ok := r.(*pb.Answer); ok {
		return AnswerError(a)
	}
	e := &Error{Status: FromStatus(r.GetStatus())}
	if e.Status == cluster.StatusOK {
		return nil
	}
	if m, ok := r.(interface{ GetMessage() string }); ok {
		e.Message = m.GetMessage()
	}
	if p, ok := r.(interface{ GetPrimary() *pb.Primary }); ok {
		e.Primary = PrimaryOf(p.GetPrimary())
	}
	if a, ok := r.(interface{ GetRetryAfterMs() int64 }); ok {
		e.RetryAfter = Millis(a.GetRetryAfterMs())
	}
	return e
}

// Unary returns what a unary call returns: the error for a status that is a gRPC
// error, else the answer as a value.
func Unary(a *pb.Answer) (*pb.Answer, error) {
	if GRPCCode(FromStatus(a.GetStatus())) == codes.OK {
		return a, nil
	}
	return nil, AnswerError(a)
}

// Answer returns the error as an answer.
func (e *Error) Answer() *pb.Answer {
	a := &pb.Answer{
		Status: pb.Status(e.Status), Message: e.Message, Lock: string(e.Lock), Token: uint64(e.Token),
		ClientId: string(e.Client), RequestId: uint64(e.Request), Epoch: uint64(e.Epoch), Lsn: uint64(e.LSN),
		Primary: e.Primary.proto(), RetryAfterMs: CeilMillis(e.RetryAfter),
		QueueLength: uint32(e.QueueLength), Committed: e.Committed, Cell: uint32(e.Cell),
		Protected: e.Client != "" && !e.Client.Anonymous(),
	}
	if h := e.Holder; h != nil {
		a.Holder = &pb.LockHolder{
			ClientId: string(h.Client), Token: uint64(h.Token), User: h.User, Host: h.Host, Pid: h.PID, Command: h.Command, SinceUnixMs: int64(h.Since), Holders: h.Holders, Identity: h.Identity,
			Limit: h.Limit, Weight: h.Weight, PermitsTaken: h.PermitsTaken,
		}
		a.Holder.Mode, _ = ParseMode(h.Mode)
	}
	if r := e.Receipt; r != nil {
		a.Receipt = &pb.Receipt{
			File: string(r.File), Offset: r.Offset, Length: r.Length, Crc32C: r.CRC32C,
			Lsn: uint64(r.LSN), Token: uint64(r.Token), Epoch: uint64(r.Epoch), Generation: uint64(r.Generation),
		}
	}
	return a
}

// FromStatus returns the status with this number on the wire, StatusUnknown for a number
// that this binary does not know.
func FromStatus(s pb.Status) cluster.Status {
	if s <= 0 || int(s) > len(statusTable) {
		return cluster.StatusUnknown
	}
	return cluster.Status(s)
}

func (p *Primary) proto() *pb.Primary {
	if p == nil {
		return nil
	}
	return &pb.Primary{Id: uint32(p.ID), Client: p.Client, Http: cmp.Or(p.OldHTTP, p.Client)}
}

// PrimaryOf converts the message, nil for nil.
func PrimaryOf(p *pb.Primary) *Primary {
	if p == nil {
		return nil
	}
	return &Primary{ID: cluster.ServerID(p.Id), Client: p.Client, OldHTTP: oldHTTP(p.Client, p.Http)}
}

// HolderOf converts the message, nil for nil.
func HolderOf(h *pb.LockHolder) *Holder {
	if h == nil {
		return nil
	}
	return &Holder{
		Client: cluster.ClientID(h.ClientId), Token: cluster.Token(h.Token), User: h.User, Host: h.Host, PID: h.Pid, Command: h.Command,
		Since: Moment(h.SinceUnixMs), Mode: ModeWord(h.Mode), Holders: h.Holders, Identity: h.Identity,
		Limit: h.Limit, Weight: h.Weight, PermitsTaken: h.PermitsTaken,
	}
}

// ReceiptOf converts the message, nil for nil.
func ReceiptOf(r *pb.Receipt) *Receipt {
	if r == nil {
		return nil
	}
	return &Receipt{
		File: cluster.FileName(r.File), Offset: r.Offset, Length: r.Length, CRC32C: r.Crc32C,
		LSN: cluster.LSN(r.Lsn), Token: cluster.Token(r.Token), Epoch: cluster.Epoch(r.Epoch), Generation: cluster.Generation(r.Generation),
	}
}

// oldHTTP returns the address for HTTP of a server, "" if that is the one for all clients.
func oldHTTP(client, http string) string {
	if http == client {
		return ""
	}
	return http
}
