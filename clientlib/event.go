// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// EventKind is the kind of an event, the word that stands in JSON.
type EventKind string

// The kinds of events.
const (
	EventGrant       EventKind = "grant"
	EventEnqueue     EventKind = "enqueue"
	EventRelease     EventKind = "release"
	EventExpire      EventKind = "expire"
	EventWaitTimeout EventKind = "wait_timeout"
	// EventSkip: the slot for which a request waited was done by another holder.
	EventSkip       EventKind = "skip"
	EventCancel     EventKind = "cancel"
	EventAppend     EventKind = "append"
	EventBind       EventKind = "bind"
	EventUnbind     EventKind = "unbind"
	EventQuarantine EventKind = "quarantine"
	EventRotate     EventKind = "rotate"
	// EventSeal: this generation of the file has ended.
	EventSeal EventKind = "seal"
	// EventForceClear: all holders and waiters of all locks are gone.
	EventForceClear EventKind = "force_clear"
	// EventBreak: an operator ended the grant; see Actor and Reason.
	EventBreak EventKind = "break"
	// EventHandedOver: the primary ended its term on purpose.
	EventHandedOver EventKind = "handed_over"
	// EventTerm: a term of Server begins.
	EventTerm EventKind = "term"
	// EventMetadata: the holder publishes another text with its grant.
	EventMetadata EventKind = "metadata"
	// EventAsk: the holder is asked to release the lock within Wait; see Actor and Reason.
	EventAsk EventKind = "ask"
	// EventDowngrade: the holder, which had the lock alone, shares it from now on.
	EventDowngrade EventKind = "downgrade"
	// EventExtend: the lease lasts for TTL after each renewal from now on.
	EventExtend EventKind = "extend"
	// EventLevel: the feature level of the cluster was raised, by holdfast upgrade.
	EventLevel EventKind = "level"
	// EventMembers: the list of the cluster's servers was changed.
	EventMembers EventKind = "members"
	// EventForgetMark: what a lock remembered is forgotten.
	EventForgetMark EventKind = "forget_mark"
	// EventOwn: it was logged which names this cell of a site owns.
	EventOwn EventKind = "own"

	// EventReset is no record of the log: it has a piece of the present state, see Reset.
	EventReset EventKind = "reset"
	// EventBookmark means that everything up to its LSN was yielded.
	EventBookmark EventKind = "bookmark"
)

// Event is one thing that happened, or a piece of a reset, or a bookmark. Fields that its kind
// does not use are zero.
type Event struct {
	Kind EventKind
	// LSN is where to resume: WatchOptions.After. It is 0 within a reset, which
	// can only be begun again.
	LSN LSN
	// Epoch is that of the term which recorded it.
	Epoch Epoch

	Lock LockName
	// Token is that of the grant which began, ended or was used.
	Token   Token
	Client  ClientID
	Request RequestID
	TTL     time.Duration
	// Wait is how long a waiter waits at most, and with EventAsk the grace; Forever has no end.
	Wait   time.Duration
	Holder Holder
	// Identity is that of the caller whose request it was, of a grant that of its client, such as
	// user:alice; "" for none.
	Identity string

	// Offset and Length are the place of an append in this generation, in bytes.
	File           FileName
	Generation     Generation
	Offset, Length int64
	CRC32C         uint32

	Actor, Reason string
	// Shared reports whether a grant or a wait is for the lock in shared mode.
	Shared bool
	// Limit and Weight are those of a grant or a wait.
	Limit, Weight uint32
	// Metadata is that of a grant or a wait, or the new one.
	Metadata string
	Server   ServerID
	// Time is when it was decided, by the clock of the primary of Epoch; for people.
	Time time.Time

	// Reset is not nil with EventReset.
	Reset *Reset

	message *pb.WatchResponse // in which it came
	event   *pb.Event         // nil for what is no record
}

// Body returns the event as JSON has it, over HTTP and on the command line.
func (e *Event) Body() EventBody {
	if e.event != nil {
		return wire.EventBodyOf(e.event)
	}
	return wire.WatchBodyOf(e.message)
}

// Reset is a piece of the state. With the first piece, everything that was known before is void;
// with the last one the state is complete.
type Reset struct {
	// Part counts the pieces from 0.
	Part int
	// Last reports whether the state is complete.
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
		Kind: EventKind(wire.EventWord(e.GetKind())), LSN: LSN(e.GetLsn()), Epoch: Epoch(e.GetEpoch()),
		Lock: LockName(e.GetLock()), Token: Token(e.GetToken()),
		Client: ClientID(e.GetClientId()), Request: RequestID(e.GetRequestId()),
		TTL: wire.Millis(e.GetTtlMs()), Wait: wait, Shared: e.GetMode() == pb.Mode_MODE_SHARED, Limit: e.GetLimit(), Weight: e.GetWeight(),
		Holder: holderOf(h), Identity: h.GetIdentity(),
		File: FileName(e.GetFile()), Generation: Generation(e.GetGeneration()),
		Offset: e.GetOffset(), Length: e.GetLength(), CRC32C: e.GetCrc32C(),
		Actor: e.GetActor(), Reason: e.GetReason(), Metadata: e.GetMetadata(), Server: ServerID(e.GetServerId()),
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
