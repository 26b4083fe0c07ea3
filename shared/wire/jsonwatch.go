// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// The kinds of messages of a watch besides events.
const (
	// WordReset is a piece of the state. With the first one a watcher drops what it knew.
	WordReset = "reset"
	// WordBookmark means that everything up to its LSN was sent.
	WordBookmark = "bookmark"
	// WordEnd is the last message of a watch; its status and message have the reason.
	WordEnd = "end"
)

// EventBody is one message of a watch: an event, a piece of a reset, a bookmark or the
// end. All fields are always present. What does not concern it is
// zero, "" or null.
type EventBody struct {
	// Kind is the name of the event, or one of the three above.
	Kind string `json:"kind"`
	// LSN is where to resume; 0 within a reset, which can only be started again.
	LSN   uint64 `json:"lsn"`
	Epoch uint64 `json:"epoch"`
	// Time is when the primary decided it, by its clock; for people.
	Time       Moment     `json:"time"`
	Lock       string     `json:"lock"`
	Token      uint64     `json:"token"`
	ClientID   string     `json:"client_id"`
	RequestID  uint64     `json:"request_id"`
	TTL        string     `json:"ttl"`
	Wait       string     `json:"wait"`
	Holder     *Holder    `json:"holder"` // to whom the lock was granted, or who waits for it
	Metadata   string     `json:"metadata"`
	File       string     `json:"file"`
	Generation uint64     `json:"generation"`
	Offset     int64      `json:"offset"`
	Length     int64      `json:"length"`
	CRC32C     uint32     `json:"crc32c"`
	Actor      string     `json:"actor"`
	Reason     string     `json:"reason"`
	ServerID   uint32     `json:"server_id"`
	Reset      *ResetBody `json:"reset"`
	Status     string     `json:"status"`
	Message    string     `json:"message"`
	Primary    *Primary   `json:"primary"`
	RetryAfter string     `json:"retry_after"`
}

// ResetBody is a piece of the state, from part 0 to the last one.
type ResetBody struct {
	Part   uint32 `json:"part"`
	Last   bool   `json:"last"`
	Reason string `json:"reason"` // "" if the watcher did not ask to resume
	// Locks are in the order of their names, without waiters and files.
	Locks []LockBody `json:"locks"`
}

// EventBodyOf converts an event.
func EventBodyOf(e *pb.Event) EventBody {
	b := EventBody{
		Kind: EventWord(e.GetKind()), LSN: e.GetLsn(), Epoch: e.GetEpoch(), Time: Moment(e.GetUnixMs()),
		Lock: e.GetLock(), Token: e.GetToken(), ClientID: e.GetClientId(), RequestID: e.GetRequestId(),
		TTL: duration(e.GetTtlMs()), Wait: waitText(e.GetWaitMs()), Metadata: e.GetMetadata(),
		File: e.GetFile(), Generation: e.GetGeneration(), Offset: e.GetOffset(), Length: e.GetLength(), CRC32C: e.GetCrc32C(),
		Actor: e.GetActor(), Reason: e.GetReason(), ServerID: e.GetServerId(), Status: cluster.StatusOK.String(), RetryAfter: duration(0),
	}
	if k := e.GetKind(); k == pb.EventKind_EVENT_KIND_GRANT || k == pb.EventKind_EVENT_KIND_ENQUEUE {
		h := e.GetHolder()
		b.Holder = &Holder{
			Client: cluster.ClientID(b.ClientID), Token: cluster.Token(b.Token),
			User: h.GetUser(), Host: h.GetHost(), PID: h.GetPid(), Command: h.GetCommand(), Since: b.Time,
			Mode: ModeWord(e.GetMode()), Identity: h.GetIdentity(), Limit: e.GetLimit(), Weight: e.GetWeight(),
		}
	}
	return b
}

// WatchBodyOf converts a message of a watch that has no events.
func WatchBodyOf(r *pb.WatchResponse) EventBody {
	b := EventBody{
		Kind: WordBookmark, LSN: r.GetLsn(), Epoch: r.GetEpoch(), TTL: duration(0), Wait: duration(0),
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(),
		Primary: PrimaryOf(r.GetPrimary()), RetryAfter: duration(r.GetRetryAfterMs()),
	}
	x := r.GetReset_()
	switch {
	case FromStatus(r.GetStatus()) != cluster.StatusOK:
		b.Kind = WordEnd
	case x != nil:
		b.Kind = WordReset
		b.Reset = &ResetBody{Part: x.GetPart(), Last: x.GetLast(), Reason: x.GetReason(), Locks: make([]LockBody, len(x.GetLocks()))}
		for i, l := range x.GetLocks() {
			b.Reset.Locks[i] = lockBody(l, r.GetStatus(), "", r.GetEpoch(), r.GetLsn(), 0)
		}
		if !x.GetLast() {
			b.LSN = 0
		}
	}
	return b
}

// waitText formats the longest wait of a request.
func waitText(ms int64) string {
	if ms < 0 {
		return "forever"
	}
	return duration(ms)
}

// ParseEventWord returns the kind of event with this name. It returns an error for a kind that
// cannot be watched.
func ParseEventWord(word string) (pb.EventKind, error) {
	k := pb.EventKind(pb.EventKind_value["EVENT_KIND_"+strings.ToUpper(word)])
	if word != EventWord(k) || !watched(k) {
		return 0, Invalid(fmt.Sprintf("there is no event kind %q: use %s", word, strings.Join(EventWords(), ", ")))
	}
	return k, nil
}

// watched reports whether events of this kind are sent to watchers: those of clients are not, nor
// those that changed nothing.
func watched(k pb.EventKind) bool {
	return k != pb.EventKind_EVENT_KIND_NONE && k != pb.EventKind_EVENT_KIND_OPEN_CLIENT && k != pb.EventKind_EVENT_KIND_FORGET_CLIENT && k != pb.EventKind_EVENT_KIND_ALREADY
}

// EventWords returns the names of the events that can be watched, in the order of their numbers.
func EventWords() (words []string) {
	var kinds []pb.EventKind
	for _, n := range pb.EventKind_value {
		if k := pb.EventKind(n); watched(k) {
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, cmp.Compare)
	for _, k := range kinds {
		words = append(words, EventWord(k))
	}
	return words
}

// LossBody reports to a holder that its grant has ended. All fields are always present.
type LossBody struct {
	Lock           string   `json:"lock"` // "" = every lock
	Token          uint64   `json:"token"`
	RequestID      uint64   `json:"request_id"` // of the acquire
	Reason         string   `json:"reason"`     // LossWord
	LSN            uint64   `json:"lsn"`
	Epoch          uint64   `json:"epoch"`
	SuccessorToken uint64   `json:"successor_token"` // 0 if the lock was not granted anew yet
	LastAppend     *Receipt `json:"last_append"`     // null if nothing was appended under the token
	Actor          string   `json:"actor"`
	Message        string   `json:"message"`
}

// LossBodyOf converts a loss.
func LossBodyOf(l *pb.Loss) LossBody {
	b := LossBody{
		Lock: l.GetLock(), Token: l.GetToken(), RequestID: l.GetRequestId(), Reason: LossWord(l.GetReason()),
		LSN: l.GetLsn(), Epoch: l.GetEpoch(), SuccessorToken: l.GetSuccessorToken(), Actor: l.GetActor(), Message: l.GetMessage(),
	}
	if r := l.GetLastAppend(); r != nil {
		b.LastAppend = &Receipt{
			File: cluster.FileName(r.GetFile()), Offset: r.GetOffset(), Length: r.GetLength(), CRC32C: r.GetCrc32C(), LSN: cluster.LSN(r.GetLsn()),
			Token: cluster.Token(r.GetToken()), Epoch: cluster.Epoch(r.GetEpoch()), Generation: cluster.Generation(r.GetGeneration()),
		}
	}
	return b
}
