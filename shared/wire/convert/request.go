// SPDX-License-Identifier: Apache-2.0

// Package convert translates between the messages of package wire and the types of the
// lock table. It is for servers; clients need package wire only.
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

// Anonymous reports whether a request has no IDs, so that the receiving server has to make
// them before it forwards or executes it.
func Anonymous(q *locktable.Request) bool {
	return q.Op != locktable.OpOpenClient && q.Op != locktable.OpForget && q.Client == "" && q.ID == 0
}

// Into sets r to the request of one operation of a session. client is used if it has a request
// ID and no client ID. RenewLease and Outcome are no requests to the table.
func Into(r *locktable.Request, op *pb.Operation, client cluster.ClientID) error {
	q, err := toRequest(op, client)
	if err == nil {
		*r = *q
	}
	return err
}

func toRequest(op *pb.Operation, client cluster.ClientID) (*locktable.Request, error) {
	own := func(id *string, request uint64) {
		if *id == "" && request != 0 {
			*id = string(client)
		}
	}
	switch x := op.GetRequest().(type) {
	case *pb.Operation_Acquire:
		own(&x.Acquire.ClientId, x.Acquire.RequestId)
		return ToAcquire(x.Acquire)
	case *pb.Operation_Release:
		own(&x.Release.ClientId, x.Release.RequestId)
		return ToRelease(x.Release)
	case *pb.Operation_Append:
		own(&x.Append.ClientId, x.Append.RequestId)
		return ToAppend(x.Append)
	case *pb.Operation_Bind:
		own(&x.Bind.ClientId, x.Bind.RequestId)
		return ToBind(x.Bind)
	case *pb.Operation_Unbind:
		own(&x.Unbind.ClientId, x.Unbind.RequestId)
		return ToUnbind(x.Unbind)
	case *pb.Operation_Rotate:
		own(&x.Rotate.ClientId, x.Rotate.RequestId)
		return ToRotate(x.Rotate)
	case *pb.Operation_Seal:
		own(&x.Seal.ClientId, x.Seal.RequestId)
		return ToSeal(x.Seal)
	case *pb.Operation_Cancel:
		own(&x.Cancel.ClientId, x.Cancel.RequestId)
		return ToCancel(x.Cancel)
	case *pb.Operation_Break:
		own(&x.Break.ClientId, x.Break.RequestId)
		return ToBreak(x.Break)
	case *pb.Operation_Downgrade:
		own(&x.Downgrade.ClientId, x.Downgrade.RequestId)
		return ToDowngrade(x.Downgrade)
	case *pb.Operation_SetMetadata:
		own(&x.SetMetadata.ClientId, x.SetMetadata.RequestId)
		return ToMetadata(x.SetMetadata)
	}
	return nil, wire.Invalid(fmt.Sprintf("operation %d asks for nothing that this server knows", op.GetCorrelation()))
}

// ToOpenClient converts an OpenClient.
func ToOpenClient(q *pb.OpenClientRequest) (*locktable.Request, error) {
	return &locktable.Request{Op: locktable.OpOpenClient, Nonce: q.GetNonce()}, nil
}

// ToForget converts a ForgetClient.
func ToForget(q *pb.ForgetClientRequest) (*locktable.Request, error) {
	return &locktable.Request{Op: locktable.OpForget, Client: cluster.ClientID(q.GetClientId())}, nil
}

// ToAcquire converts an Acquire.
func ToAcquire(q *pb.AcquireRequest) (*locktable.Request, error) {
	r, err := request(locktable.OpAcquire, q.GetClientId(), q.GetRequestId(), q.GetLowWater())
	if err != nil {
		return nil, err
	}
	if err := fillTimes(r, q.GetTtlMs(), q.GetWaitMs()); err != nil {
		return nil, err
	}
	if q.GetMode() < 0 || q.GetMode() > math.MaxUint8 {
		return nil, wire.Invalid(fmt.Sprintf("unknown lock mode %d", q.GetMode()))
	}
	r.Lock, r.Mode = cluster.LockName(q.GetLock()), locktable.Mode(q.GetMode())
	h := q.GetHolder()
	r.Holder = locktable.Holder{Host: h.GetHost(), PID: int(h.GetPid()), Command: h.GetCommand()}
	r.Metadata, r.Heartbeat = q.GetMetadata(), q.GetHeartbeat()
	r.MaxHold, err = duration("max_hold_ms", q.GetMaxHoldMs())
	return r, err
}

// ToRelease converts a Release.
func ToRelease(q *pb.ReleaseRequest) (*locktable.Request, error) {
	return tokenRequest(locktable.OpRelease, q)
}

// ToDowngrade converts a Downgrade.
func ToDowngrade(q *pb.DowngradeRequest) (*locktable.Request, error) {
	return tokenRequest(locktable.OpDowngrade, q)
}

// ToAppend converts a FileAppend. It keeps the slice of data, and computes the CRC if it is not
// given.
func ToAppend(q *pb.FileAppendRequest) (*locktable.Request, error) {
	r, err := fileRequest(locktable.OpAppend, q)
	if err != nil {
		return nil, err
	}
	r.Data, r.AdoptExisting, r.CRC = q.GetData(), q.GetAdoptExisting(), q.GetCrc32C()
	r.At = q.ExpectedOffset
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

// ToSeal converts a SealFile.
func ToSeal(q *pb.SealFileRequest) (*locktable.Request, error) {
	return fileRequest(locktable.OpSeal, q)
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
	if err != nil {
		return nil, err
	}
	r.Actor, r.Reason = q.GetActor(), q.GetReason()
	r.Grace, err = duration("grace_ms", q.GetGraceMs())
	return r, err
}

// ToMetadata converts a SetMetadata.
func ToMetadata(q *pb.SetMetadataRequest) (*locktable.Request, error) {
	r, err := tokenRequest(locktable.OpMetadata, q)
	if err == nil {
		r.Metadata = q.GetMetadata()
	}
	return r, err
}

// ToIDs returns the IDs of a query about a request: both are needed.
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

// leaseMessage names a grant.
type leaseMessage interface {
	GetLock() string
	GetToken() uint64
}

// ToLease returns the lock and token of a RenewLease or Verify.
func ToLease(q leaseMessage) (cluster.LockName, cluster.Token, error) {
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
	r := &locktable.Request{}
	if err := fill(r, op, client, id, lowWater); err != nil {
		return nil, err
	}
	return r, nil
}

func fill(r *locktable.Request, op locktable.Op, client string, id, lowWater uint64) error {
	switch {
	case client != "" && id == 0:
		return wire.Invalid("request_id is missing: client_id and request_id go together, from 1; leave out both to have them made")
	case client == "" && id != 0:
		return wire.Invalid("client_id is missing: client_id and request_id go together; leave out both to have them made")
	case client == "" && lowWater != 0:
		return wire.Invalid("low_water needs client_id and request_id")
	}
	r.Op, r.Client, r.ID, r.LowWater = op, cluster.ClientID(client), cluster.RequestID(id), cluster.RequestID(lowWater)
	return nil
}

// fillTimes takes TTL and wait of an acquire.
func fillTimes(r *locktable.Request, ttl, wait int64) (err error) {
	if r.TTL, err = duration("ttl_ms", ttl); err != nil {
		return err
	}
	if wait == -1 {
		r.Wait = locktable.WaitForever
		return nil
	}
	r.Wait, err = duration("wait_ms", wait)
	return err
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

// duration refuses what a Duration cannot hold.
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
