// SPDX-License-Identifier: Apache-2.0

// Package convert translates between the messages of package wire and the words
// of the lock table. It is for servers; clients need package wire only.
package convert

import (
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// The conversions of requests check what the conversion itself would lose or
// misread, and that client_id and request_id come together; everything else is
// for locktable.Request.Validate. A request without both IDs keeps them empty:
// see Anonymous. Errors are *wire.Error with INVALID_ARGUMENT.

// Anonymous says that a request brought no IDs, so the receiving server has to
// make them before it forwards or executes it.
func Anonymous(q *locktable.Request) bool {
	return q.Op != locktable.OpOpenClient && q.Client == "" && q.ID == 0
}

// ToRequest is the request of one operation of a session; client stands in where
// it names none. RenewLease and Outcome are no requests to the table: nil, nil.
func ToRequest(op *pb.Operation, client cluster.ClientID) (*locktable.Request, error) {
	own := func(id *string) {
		if *id == "" {
			*id = string(client)
		}
	}
	switch x := op.GetRequest().(type) {
	case *pb.Operation_Acquire:
		own(&x.Acquire.ClientId)
		return ToAcquire(x.Acquire)
	case *pb.Operation_Release:
		own(&x.Release.ClientId)
		return ToRelease(x.Release)
	case *pb.Operation_Append:
		own(&x.Append.ClientId)
		return ToAppend(x.Append)
	case *pb.Operation_Bind:
		own(&x.Bind.ClientId)
		return ToBind(x.Bind)
	case *pb.Operation_Unbind:
		own(&x.Unbind.ClientId)
		return ToUnbind(x.Unbind)
	case *pb.Operation_Rotate:
		own(&x.Rotate.ClientId)
		return ToRotate(x.Rotate)
	case *pb.Operation_Cancel:
		own(&x.Cancel.ClientId)
		return ToCancel(x.Cancel)
	case *pb.Operation_Break:
		own(&x.Break.ClientId)
		return ToBreak(x.Break)
	case *pb.Operation_Renew, *pb.Operation_Outcome:
		return nil, nil
	}
	return nil, wire.Invalid(fmt.Sprintf("operation %d asks for nothing that this server knows", op.GetCorrelation()))
}

// ToOpenClient converts an OpenClient.
func ToOpenClient(q *pb.OpenClientRequest) (*locktable.Request, error) {
	return &locktable.Request{Op: locktable.OpOpenClient, Nonce: q.GetNonce()}, nil
}

// ToAcquire converts an Acquire.
func ToAcquire(q *pb.AcquireRequest) (*locktable.Request, error) {
	r, err := request(locktable.OpAcquire, q.GetClientId(), q.GetRequestId(), q.GetLowWater())
	if err != nil {
		return nil, err
	}
	if r.TTL, err = duration("ttl_ms", q.GetTtlMs()); err != nil {
		return nil, err
	}
	if q.GetWaitMs() == -1 {
		r.Wait = locktable.WaitForever
	} else if r.Wait, err = duration("wait_ms", q.GetWaitMs()); err != nil {
		return nil, err
	}
	if q.GetMode() < 0 || q.GetMode() > math.MaxUint8 {
		return nil, wire.Invalid(fmt.Sprintf("unknown lock mode %d", q.GetMode()))
	}
	r.Lock, r.Mode = cluster.LockName(q.GetLock()), locktable.Mode(q.GetMode())
	h := q.GetHolder()
	r.Holder = locktable.Holder{Host: h.GetHost(), PID: int(h.GetPid()), Command: h.GetCommand()}
	return r, nil
}

// ToRelease converts a Release.
func ToRelease(q *pb.ReleaseRequest) (*locktable.Request, error) {
	return tokenRequest(locktable.OpRelease, q)
}

// ToAppend converts a FileAppend. It keeps the data, and computes a CRC that is not given.
func ToAppend(q *pb.FileAppendRequest) (*locktable.Request, error) {
	r, err := fileRequest(locktable.OpAppend, q)
	if err != nil {
		return nil, err
	}
	r.Data, r.AdoptExisting, r.CRC = q.GetData(), q.GetAdoptExisting(), q.GetCrc32C()
	if q.Crc32C == nil {
		r.CRC = crc32.Checksum(r.Data, crc32.MakeTable(crc32.Castagnoli))
	}
	return r, nil
}

// ToBind converts a BindFile.
func ToBind(q *pb.BindFileRequest) (*locktable.Request, error) {
	r, err := fileRequest(locktable.OpBind, q)
	if err == nil {
		r.AdoptExisting = q.GetAdoptExisting()
	}
	return r, err
}

// ToUnbind converts an UnbindFile.
func ToUnbind(q *pb.UnbindFileRequest) (*locktable.Request, error) {
	return fileRequest(locktable.OpUnbind, q)
}

// ToRotate converts a RotateFile.
func ToRotate(q *pb.RotateFileRequest) (*locktable.Request, error) {
	return fileRequest(locktable.OpRotate, q)
}

// ToCancel converts a Cancel. It needs both IDs.
func ToCancel(q *pb.CancelRequest) (*locktable.Request, error) {
	client, target, err := ToIDs(q.GetClientId(), q.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &locktable.Request{
		Op: locktable.OpCancel, Client: client, Target: target, LowWater: cluster.RequestID(q.GetLowWater()),
	}, nil
}

// ToBreak converts a BreakLock.
func ToBreak(q *pb.BreakLockRequest) (*locktable.Request, error) {
	r, err := tokenRequest(locktable.OpBreak, q)
	if err == nil {
		r.Actor, r.Reason = q.GetActor(), q.GetReason()
	}
	return r, err
}

// ToIDs checks the IDs of a question about a request: both are needed.
func ToIDs(client string, request uint64) (cluster.ClientID, cluster.RequestID, error) {
	id := cluster.ClientID(client)
	if err := id.Validate(); err != nil {
		return "", 0, wire.Invalid(err.Error())
	}
	if request == 0 || cluster.RequestID(request) > locktable.MaxRequestID {
		return "", 0, wire.Invalid(fmt.Sprintf("request_id %d: use 1 to %d", request, locktable.MaxRequestID))
	}
	return id, cluster.RequestID(request), nil
}

// ToLease checks the lock and token of a RenewLease.
func ToLease(q *pb.RenewLeaseRequest) (cluster.LockName, cluster.Token, error) {
	name := cluster.LockName(q.GetLock())
	if err := name.Validate(); err != nil {
		return "", 0, wire.Invalid(err.Error())
	}
	if q.GetToken() == 0 {
		return "", 0, wire.Invalid("token is missing")
	}
	return name, cluster.Token(q.GetToken()), nil
}

// request begins a request that may come without IDs.
func request(op locktable.Op, client string, id, lowWater uint64) (*locktable.Request, error) {
	switch {
	case client != "" && id == 0:
		return nil, wire.Invalid("request_id is missing: client_id and request_id go together, from 1; leave out both to have them made")
	case client == "" && id != 0:
		return nil, wire.Invalid("client_id is missing: client_id and request_id go together; leave out both to have them made")
	case client == "" && lowWater != 0:
		return nil, wire.Invalid("low_water needs client_id and request_id")
	}
	return &locktable.Request{
		Op: op, Client: cluster.ClientID(client), ID: cluster.RequestID(id), LowWater: cluster.RequestID(lowWater),
	}, nil
}

type tokenMessage interface {
	GetClientId() string
	GetRequestId() uint64
	GetLowWater() uint64
	GetLock() string
	GetToken() uint64
}

func tokenRequest(op locktable.Op, q tokenMessage) (*locktable.Request, error) {
	r, err := request(op, q.GetClientId(), q.GetRequestId(), q.GetLowWater())
	if err == nil {
		r.Lock, r.Token = cluster.LockName(q.GetLock()), cluster.Token(q.GetToken())
	}
	return r, err
}

type fileMessage interface {
	tokenMessage
	GetFile() string
}

func fileRequest(op locktable.Op, q fileMessage) (*locktable.Request, error) {
	r, err := tokenRequest(op, q)
	if err == nil {
		r.File = cluster.FileName(q.GetFile())
	}
	return r, err
}

// duration refuses what a Duration would bend.
func duration(name string, ms int64) (time.Duration, error) {
	d := wire.Millis(ms)
	if ms < 0 || d.Milliseconds() != ms {
		hint := ""
		if name == "wait_ms" {
			hint = ", or -1 for ever"
		}
		return 0, wire.Invalid(fmt.Sprintf("%s %d: use milliseconds from 0 on%s", name, ms, hint))
	}
	return d, nil
}
