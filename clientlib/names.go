// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// This file is the one place in which the exported API of clientlib names packages of the
// servers: a program that uses the library imports clientlib and the packages below it only.

// Names and numbers.
type (
	// LockName is a clean path with slashes, such as "billing/job", of 1 to MaxLockName
	// bytes. Locks need not be created.
	LockName = cluster.LockName
	// FileName is the path of a protected file, relative to the directory files of the
	// volume, of 1 to MaxFileName bytes.
	FileName = cluster.FileName
	// ClientID is the name under which the service knows a client: see Options.ClientID.
	ClientID = cluster.ClientID
	// RequestID numbers the requests of one client, from 1. 0 is no request.
	RequestID = cluster.RequestID
	// Token is the fencing token of a grant. Each grant has a higher one than every grant
	// before it, of any lock of the cluster. 0 is no token.
	Token = cluster.Token
	// LSN is the number of a record in the log of the service. It rises by one with each
	// record and is never used twice; 0 is before the first one. A token is the LSN of its
	// grant.
	LSN = cluster.LSN
	// Epoch is the number of a term, the time in which one server is the primary. It rises
	// with each term. 0 = not known.
	Epoch = cluster.Epoch
	// Generation counts the contents that a protected file has had: the first is 1, and each
	// rotation begins the next one. 0 = the present one, or not known.
	Generation = cluster.Generation
	// ServerID is the number of a server, from 1. 0 is no server.
	ServerID = cluster.ServerID
	// CellID is the number of a cell of a site, from 0.
	CellID = cluster.CellID
	// Member is a server of the cluster with its addresses, host:port each.
	Member = cluster.Member
)

// The limits of names and texts, in bytes.
const (
	MaxLockName = cluster.MaxLockName
	MaxFileName = cluster.MaxFileName
	MaxClientID = cluster.MaxClientID
	// MaxAppend bounds the data of one Append, and of one piece that ReadFile returns.
	MaxAppend = cluster.MaxAppend
	// MaxMetadata bounds what a holder publishes with its grant.
	MaxMetadata = cluster.MaxMetadata
	// MaxText bounds an actor, a reason, a host and a command, each.
	MaxText = cluster.MaxText
)

// The modes of a grant: HolderInfo.Mode.
const (
	// ModeExclusive is that of a lock which one holder has alone.
	ModeExclusive = "exclusive"
	// ModeShared is that of a lock which others may hold at the same time: see
	// AcquireOptions.Shared.
	ModeShared = "shared"
)

// What the service reports.
type (
	// HolderInfo describes the holder of a lock: its client and token, its process, when it
	// was granted the lock, by the clock of the primary, and its mode. Holders counts who
	// holds the lock, where the value describes the oldest of them.
	HolderInfo = wire.Holder
	// Moment is a time of day in milliseconds since 1970, as the clock of a server had it. It
	// is for people; 0 = not known.
	Moment = wire.Moment
	// PrimaryInfo names the primary, with its addresses for clients.
	PrimaryInfo = wire.Primary
	// EventBody is an Event in JSON: see Event.Body.
	EventBody = wire.EventBody
	// Status is the result of a request. Its String is the word that stands in JSON, such as
	// "HELD". Each but StatusOK has an error below, which errors.Is finds.
	Status = cluster.Status
	// ServiceError is the refusal of a request by the service: its Status, and what came
	// with it. It wraps the error of its Status; errors.As finds it in a *CallError. Its
	// methods Answer, Detail and GRPCStatus, which speak of messages of the protocol, are
	// for servers.
	ServiceError = wire.Error
)

// The statuses, each with the meaning of its error below; that of StatusError is ErrInternal.
const (
	StatusOK                 = cluster.StatusOK
	StatusError              = cluster.StatusError
	StatusInvalidToken       = cluster.StatusInvalidToken
	StatusPermissionDenied   = cluster.StatusPermissionDenied
	StatusSecondaryMode      = cluster.StatusSecondaryMode
	StatusServerFencing      = cluster.StatusServerFencing
	StatusHeld               = cluster.StatusHeld
	StatusWaitTimeout        = cluster.StatusWaitTimeout
	StatusLeaseExpired       = cluster.StatusLeaseExpired
	StatusCancelled          = cluster.StatusCancelled
	StatusNoQuorum           = cluster.StatusNoQuorum
	StatusStaleRequest       = cluster.StatusStaleRequest
	StatusInvalidArgument    = cluster.StatusInvalidArgument
	StatusTooLarge           = cluster.StatusTooLarge
	StatusStorageUnavailable = cluster.StatusStorageUnavailable
	StatusFileQuarantined    = cluster.StatusFileQuarantined
	StatusUnknown            = cluster.StatusUnknown
	StatusOffsetMismatch     = cluster.StatusOffsetMismatch
	StatusFileSealed         = cluster.StatusFileSealed
	StatusUnauthenticated    = cluster.StatusUnauthenticated
	StatusLimited            = cluster.StatusLimited
	StatusLockChanged        = cluster.StatusLockChanged
	StatusAlreadyDone        = cluster.StatusAlreadyDone
	StatusOtherLimit         = cluster.StatusOtherLimit
	StatusWrongCell          = cluster.StatusWrongCell
)

// StatusOf returns the status of an error: StatusOK for nil, and false for an error that the
// service did not return, such as a broken connection.
func StatusOf(err error) (Status, bool) { return wire.StatusOf(err) }

// The refusals of the service, one for each status but OK. errors.Is finds them in a *CallError
// or *LostError. A call retries by itself where that may help: it returns ErrSecondaryMode,
// ErrServerFencing, ErrNoQuorum and ErrStorageUnavailable when its budget is used up.
var (
	// ErrHeld: others hold the lock or wait for it, and the caller did not want to wait. See
	// HeldError.
	ErrHeld = wire.ErrHeld
	// ErrWaitTimeout: the wait ended before the lock was granted.
	ErrWaitTimeout = wire.ErrWaitTimeout
	// ErrInvalidToken: the token is not that of a live grant of the lock.
	ErrInvalidToken = wire.ErrInvalidToken
	// ErrLeaseExpired: the lease of the grant has ended.
	ErrLeaseExpired = wire.ErrLeaseExpired
	// ErrCancelled: the request was cancelled and will never be executed.
	ErrCancelled = wire.ErrCancelled
	// ErrUnknown: it is not known whether the request was executed. Client.Outcome finds out.
	ErrUnknown = wire.ErrUnknown
	// ErrStaleRequest: the service does not remember this request ID or this client any
	// more. The request was not executed now.
	ErrStaleRequest = wire.ErrStaleRequest
	// ErrInvalidArgument: the request is wrong in itself, and would be refused again.
	ErrInvalidArgument = wire.ErrInvalidArgument
	// ErrTooLarge: the data is longer than MaxAppend.
	ErrTooLarge = wire.ErrTooLarge
	// ErrFileQuarantined: the protected file was changed from outside. Lock.Rotate begins a
	// new generation.
	ErrFileQuarantined = wire.ErrFileQuarantined
	// ErrFileSealed: nothing more is appended to this generation of the file. Lock.Rotate
	// begins a new one.
	ErrFileSealed = wire.ErrFileSealed
	// ErrOffsetMismatch: the file does not end at the offset that was asked for. See
	// OffsetError.
	ErrOffsetMismatch = wire.ErrOffsetMismatch
	// ErrPermissionDenied: the caller may not do this.
	ErrPermissionDenied = wire.ErrPermissionDenied
	// ErrUnauthenticated: the credential is missing, wrong, expired or revoked.
	ErrUnauthenticated = wire.ErrUnauthenticated
	// ErrLimited: a quota of the caller, or of a prefix, leaves no room: it holds, waits for, watches or has appended as much as it may. Nothing was
	// done. A call that is only too fast waits by itself until its turn, or until its context ends.
	ErrLimited = wire.ErrLimited
	// ErrLockChanged: somebody was granted the lock after AcquireOptions.AfterToken, or it is not known any more that nobody
	// was. What was true of what the lock protects need not be true any more.
	ErrLockChanged = wire.ErrLockChanged
	// ErrWrongCell: the lock and the file are of two cells of the site, or a Client of one cell was asked for what another one has.
	ErrWrongCell = wire.ErrWrongCell
	// ErrAlreadyDone: the slot of AcquireOptions.Once is done: nothing is left to do for it.
	ErrAlreadyDone = wire.ErrAlreadyDone
	// ErrOtherLimit: others hold the lock, or wait for it, with another AcquireOptions.Limit, or with none. The text of the error
	// says which.
	ErrOtherLimit = wire.ErrOtherLimit
	// ErrStorageUnavailable: the volume or the file cannot take this now. Nothing was done.
	ErrStorageUnavailable = wire.ErrStorageUnavailable
	// ErrSecondaryMode: the server is not the primary.
	ErrSecondaryMode = wire.ErrSecondaryMode
	// ErrServerFencing: the server is becoming the primary.
	ErrServerFencing = wire.ErrServerFencing
	// ErrNoQuorum: the primary has lost contact with the majority of the servers.
	ErrNoQuorum = wire.ErrNoQuorum
	// ErrInternal: the service failed. Nothing was done.
	ErrInternal = wire.ErrInternal
)

// ErrOtherCluster is the error of a call that found, at the addresses it knows, servers of
// another cluster than the one this Client began with: the volume was made anew, say, or
// the addresses were given away. Client IDs, tokens and LSNs mean something else there.
// If the old cluster is no more, make a new Client.
var ErrOtherCluster = wire.ErrOtherCluster
