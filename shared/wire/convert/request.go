// SPDX-License-Identifier: Apache-2.0

// Package convert translates between the messages of package wire and the types of the
// lock table. It is for servers; clients need package wire only.
package convert

import (
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

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

// identified is a request that may bring its IDs.
type identified interface {
	GetClientId() string
	GetRequestId() uint64
	GetLowWater() uint64
}

// ToRequest converts the message of an operation. session is the client that a request with a
// request ID and no client ID is of; "" for none.
func ToRequest(op locktable.Op, m proto.Message, session cluster.ClientID) (*locktable.Request, error) {
	switch q := m.(type) {
	case *pb.OpenClientRequest:
		return &locktable.Request{Op: op, Nonce: q.GetNonce()}, nil
	case *pb.ForgetClientRequest:
		return &locktable.Request{Op: op, Client: cluster.ClientID(q.GetClientId())}, nil
	case identified:
		client, id := q.GetClientId(), q.GetRequestId()
		if client == "" && id != 0 {
			client = string(session)
		}
		if op == locktable.OpCancel {
			return cancel(client, id, q.GetLowWater())
		}
		r := &locktable.Request{}
		if err := fill(r, op, client, id, q.GetLowWater()); err != nil {
			return nil, err
		}
		return r, fillContent(r, m)
	}
	return nil, wire.Invalid(fmt.Sprintf("%T is no request to the lock table", m))
}

// fillContent takes what a message has besides its IDs.
func fillContent(r *locktable.Request, m proto.Message) (err error) {
	if q, ok := m.(interface{ GetLock() string }); ok {
		r.Lock = cluster.LockName(q.GetLock())
	}
	if q, ok := m.(interface{ GetToken() uint64 }); ok {
		r.Token = cluster.Token(q.GetToken())
	}
	if q, ok := m.(interface{ GetFile() string }); ok {
		r.File = cluster.FileName(q.GetFile())
	}
	if q, ok := m.(interface{ GetTtlMs() int64 }); ok {
		if r.TTL, err = duration("ttl_ms", q.GetTtlMs()); err != nil {
			return err
		}
	}
	switch q := m.(type) {
	case *pb.AcquireRequest:
		return fillAcquire(r, q)
	case *pb.ReleaseRequest:
		r.Done = q.GetDone()
	case *pb.FileAppendRequest:
		fillAppend(r, q)
	case *pb.BindFileRequest:
		r.AdoptExisting = q.GetAdoptExisting()
	case *pb.SetMetadataRequest:
		r.Metadata = q.GetMetadata()
	case *pb.BreakLockRequest:
		r.Actor, r.Reason = q.GetActor(), q.GetReason()
		r.Grace, err = duration("grace_ms", q.GetGraceMs())
	case *pb.ChangeMembersRequest:
		fillChange(r, q)
	}
	return err
}

// fillChange leaves a change that it does not know without a kind: the lock table refuses it, to whom it may be told.
func fillChange(r *locktable.Request, q *pb.ChangeMembersRequest) {
	kinds := map[string]cluster.ChangeKind{"add": cluster.AddServer, "set": cluster.SetServer, "remove": cluster.RemoveServer}
	r.Members = &locktable.MembersRequest{Change: cluster.MemberChange{
		Kind: kinds[q.GetChange()], Server: cluster.Member{ID: cluster.ServerID(q.GetServer()), Client: q.GetClient(), Peer: q.GetPeer()},
		IfVersion: q.GetIfVersion(), Force: q.GetForce(),
	}}
}

func fillAcquire(r *locktable.Request, q *pb.AcquireRequest) (err error) {
	if err := fillWait(r, q.GetWaitMs()); err != nil {
		return err
	}
	if q.GetMode() < 0 || q.GetMode() > math.MaxUint8 {
		return wire.Invalid(fmt.Sprintf("unknown lock mode %d", q.GetMode()))
	}
	r.Mode = locktable.Mode(q.GetMode())
	r.Holder = ToHolder(q.GetHolder())
	r.Metadata, r.Heartbeat = q.GetMetadata(), q.GetHeartbeat()
	r.After, r.Remember = cluster.Token(q.GetAfterToken()), q.GetRemember()
	r.Slot = cluster.Slot(q.GetOnce())
	if r.Permit = (locktable.Permit{Limit: q.GetLimit(), Weight: q.GetWeight()}); r.Permit.Limit != 0 {
		r.Permit.Weight = max(1, r.Permit.Weight)
	}
	r.MaxHold, err = duration("max_hold_ms", q.GetMaxHoldMs())
	return err
}

// fillAppend keeps the slice of data, and computes the CRC if it is not given.
func fillAppend(r *locktable.Request, q *pb.FileAppendRequest) {
	r.Data, r.AdoptExisting, r.CRC = q.GetData(), q.GetAdoptExisting(), q.GetCrc32C()
	r.At = q.ExpectedOffset
	if q.Crc32C == nil {
		r.CRC = crc32.Checksum(r.Data, crc32.MakeTable(crc32.Castagnoli))
	}
}

// cancel needs both IDs: a request to be cancelled has some.
func cancel(client string, id, lowWater uint64) (*locktable.Request, error) {
	of, target, err := ToIDs(client, id)
	if err != nil {
		return nil, err
	}
	return &locktable.Request{Op: locktable.OpCancel, Client: of, Target: target, LowWater: cluster.RequestID(lowWater)}, nil
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

// fill takes the IDs of a request that may come without them.
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
	return fillWait(r, wait)
}

func fillWait(r *locktable.Request, wait int64) (err error) {
	if r.Wait = locktable.WaitForever; wait != -1 {
		r.Wait, err = duration("wait_ms", wait)
	}
	return err
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
