// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventGrant       EventKind = "grant"
	EventEnqueue     EventKind = "enqueue"
	EventRelease     EventKind = "release"
	EventExpire      EventKind = "expire"
	EventWaitTimeout EventKind = "wait_timeout"
	EventCancel      EventKind = "cancel"
	EventAppend      EventKind = "append"
	EventBind        EventKind = "bind"
	EventUnbind      EventKind = "unbind"
	EventQuarantine  EventKind = "quarantine"
	EventRotate      EventKind = "rotate"
	// EventSeal: nothing is appended to this generation of the file any more.
	EventSeal EventKind = "seal"
	// EventForceClear: all holders and waiters of all locks are gone.
	EventForceClear EventKind = "force_clear"
	// EventBreak: an operator ended the grant; see Actor and Reason.
	EventBreak EventKind = "break"
	// EventResigned: a reign ended on purpose.
	EventResigned EventKind = "resigned"
	// EventReign: a reign begins, of Server.
	EventReign EventKind = "reign"
	// EventMetadata: the holder says something else with its grant.
	EventMetadata EventKind = "metadata"
	// EventAsk: the holder is asked to let go within Wait; see Actor and Reason.
	EventAsk EventKind = "ask"
	// EventDowngrade: the holder, who had the lock alone, shares it from now on.
	EventDowngrade EventKind = "downgrade"

	// EventReset is no record of the log: the state is told from the start, see Reset.
	EventReset EventKind = "reset"
	// EventBookmark says only that everything up to its LSN was yielded.
	EventBookmark EventKind = "bookmark"
)

// Event is one thing that happened. Fields that its kind does not use are zero.
type Event struct {
	Kind EventKind
	// LSN is where to resume: WatchOptions.After. It is 0 within a reset, which
	// can only be begun again.
	LSN   cluster.LSN
	Epoch cluster.Epoch

	Lock cluster.LockName
	// Token was granted, ended or used.
	Token   cluster.Token
	Client  cluster.ClientID
	Request cluster.RequestID
	TTL     time.Duration
	// Wait is how long a waiter waits at most; Forever has no end.
	Wait   time.Duration
	Holder Holder

	File           cluster.FileName
	Generation     cluster.Generation
	Offset, Length int64
	CRC32C         uint32

	Actor, Reason string
	// Shared is of a grant or a place.
	Shared bool
	// Metadata is of a grant, a place or an EventMetadata.
	Metadata string
	Server   cluster.ServerID
	// Time is when it was decided, by the clock of the primary of Epoch; for people.
	Time time.Time

	// Reset is not nil with EventReset.
	Reset *Reset

	message *pb.WatchResponse // that told it
	event   *pb.Event         // nil for what is no record
}

// Body is the event as it is told in JSON, over HTTP and on the command line.
func (e *Event) Body() wire.EventBody {
	if e.event != nil {
		return wire.EventBodyOf(e.event)
	}
	return wire.WatchBodyOf(e.message)
}

// Reset is a piece of the state: forget what you knew, with the first piece. With
// the last one the state is complete.
type Reset struct {
	// Part counts the pieces from 0.
	Part int
	Last bool
	// Reason is why the watch could not go on where it was; "" if it has just begun.
	Reason string
	// Locks are in the order of their names over all pieces, without waiters and files.
	Locks []LockInfo
}

func eventOf(e *pb.Event) Event {
	h := e.GetHolder()
	wait := Forever
	if e.GetWaitMs() >= 0 {
		wait = wire.Millis(e.GetWaitMs())
	}
	return Event{
		Kind: EventKind(wire.EventWord(e.GetKind())), LSN: cluster.LSN(e.GetLsn()), Epoch: cluster.Epoch(e.GetEpoch()),
		Lock: cluster.LockName(e.GetLock()), Token: cluster.Token(e.GetToken()),
		Client: cluster.ClientID(e.GetClientId()), Request: cluster.RequestID(e.GetRequestId()),
		TTL: wire.Millis(e.GetTtlMs()), Wait: wait, Shared: e.GetMode() == pb.Mode_MODE_SHARED,
		Holder: Holder{Host: h.GetHost(), PID: int(h.GetPid()), Command: h.GetCommand()},
		File:   cluster.FileName(e.GetFile()), Generation: cluster.Generation(e.GetGeneration()),
		Offset: e.GetOffset(), Length: e.GetLength(), CRC32C: e.GetCrc32C(),
		Actor: e.GetActor(), Reason: e.GetReason(), Metadata: e.GetMetadata(), Server: cluster.ServerID(e.GetServerId()),
		Time: time.UnixMilli(e.GetUnixMs()), event: e,
	}
}

func resetOf(r *pb.WatchResponse) *Reset {
	x := r.GetReset_()
	reset := &Reset{Part: int(x.GetPart()), Last: x.GetLast(), Reason: x.GetReason()}
	for _, l := range x.GetLocks() {
		reset.Locks = append(reset.Locks, lockInfoOf(l, r.GetEpoch(), r.GetLsn(), 0))
	}
	return reset
}
