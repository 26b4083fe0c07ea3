// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Body is the answer to every operation over HTTP. A field that does not concern the answer is left out, so that
// people read what there is, and programs find null in a missing field. What a program computes with is there also
// when it is zero, wherever the answer tells it: the place of an append, the length of the queue of a lock that is
// held, what a client holds, and when to come again. Durations are Go duration strings.
type Body struct {
	// Status is left out only of the outcome of a request that waits.
	Status    string  `json:"status,omitempty"`
	Message   string  `json:"message,omitempty"`
	Lock      string  `json:"lock,omitempty"`
	Token     uint64  `json:"token,omitempty"`
	TTL       string  `json:"ttl,omitempty"`
	Epoch     uint64  `json:"epoch,omitempty"`
	LSN       uint64  `json:"lsn,omitempty"`
	ClientID  string  `json:"client_id,omitempty"`
	RequestID uint64  `json:"request_id,omitempty"`
	Protected bool    `json:"protected,omitempty"`
	Repeat    bool    `json:"repeat,omitempty"`
	Holder    *Holder `json:"holder,omitempty"`
	// QueueLength is nil unless others hold the lock, or wait for it.
	QueueLength *uint32 `json:"queue_length,omitempty"`
	File        string  `json:"file,omitempty"`
	*Place
	Committed bool     `json:"committed,omitempty"`
	Primary   *Primary `json:"primary,omitempty"`
	// RetryAfter is "" if the server suggests nothing. With LIMITED, "0s" says that coming again does not help.
	RetryAfter string `json:"retry_after,omitempty"`
	Differs    bool   `json:"differs,omitempty"`
	// Grants are what a client holds, nil where nothing differs from what it believes.
	Grants []HeldLock `json:"grants,omitzero"`
	Ask    *AskBody   `json:"ask,omitempty"`
	Mode   string     `json:"mode,omitempty"` // how a token holds its lock; "" if the operation does not tell
	// MembersVersion is the version of the list of servers that a change made, or that refused it.
	MembersVersion uint64 `json:"members_version,omitempty"`
	// Cell is, with WRONG_CELL, the number of the cell that has the lock or the file; nil with any other status.
	Cell *uint32 `json:"cell,omitempty"`
	// Marked says that a grant has what was asked of it: after_token, remember or once. See Unmarked.
	Marked bool `json:"marked,omitempty"`
	// Limit and Weight are the permits of a grant, see Unlimited; with OTHER_LIMIT, Limit is that of those who hold the lock or wait for it.
	Limit  uint32 `json:"limit,omitempty"`
	Weight uint32 `json:"weight,omitempty"`
}

// Place is where an operation on a protected file took place, nil in a Body whose answer tells none. Offset 0 is the
// beginning of the file.
type Place struct {
	Offset     int64  `json:"offset"`
	Length     int64  `json:"length"`
	CRC32C     uint32 `json:"crc32c"`
	Generation uint64 `json:"generation"`
}

// PlaceOf converts the message, nil for nil.
func PlaceOf(r *pb.Receipt) *Place {
	if r == nil {
		return nil
	}
	return &Place{Offset: r.GetOffset(), Length: r.GetLength(), CRC32C: r.GetCrc32C(), Generation: r.GetGeneration()}
}

// AskBody is an operator's request to a holder to release the lock.
type AskBody struct {
	Lock      string `json:"lock"`
	Token     uint64 `json:"token"`
	LSN       uint64 `json:"lsn"`
	Actor     string `json:"actor"`
	Reason    string `json:"reason"`
	Grace     string `json:"grace"`
	Remaining string `json:"remaining"` // "" if it is not known
}

// AskBodyOf converts the message, nil for nil.
func AskBodyOf(a *pb.AskToRelease) *AskBody {
	if a == nil {
		return nil
	}
	return &AskBody{
		Lock: a.GetLock(), Token: a.GetToken(), LSN: a.GetLsn(), Actor: a.GetActor(), Reason: a.GetReason(),
		Grace: duration(a.GetGraceMs()), Remaining: ageOrNever(a.GetRemainingMs()),
	}
}

// HeldLock is one grant in the answer to a keep-alive.
type HeldLock struct {
	Lock  string `json:"lock"`
	Token uint64 `json:"token"`
}

// BodyOf converts an answer.
func BodyOf(a *pb.Answer) Body {
	status := FromStatus(a.GetStatus())
	b := Body{
		Status: status.String(), Message: a.GetMessage(),
		Lock: a.GetLock(), Token: a.GetToken(), TTL: someTime(a.GetTtlMs()),
		Epoch: a.GetEpoch(), LSN: a.GetLsn(), ClientID: a.GetClientId(), RequestID: a.GetRequestId(),
		Protected: a.GetProtected(), Repeat: a.GetRepeat(), Holder: HolderOf(a.GetHolder()),
		File: a.GetReceipt().GetFile(), Place: PlaceOf(a.GetReceipt()),
		Committed: a.GetCommitted(), Primary: PrimaryOf(a.GetPrimary()), RetryAfter: retryText(status, a.GetRetryAfterMs()),
		Ask: AskBodyOf(a.GetAsk()), MembersVersion: a.GetMembersVersion(),
		Marked: a.GetMarked(),
		Limit:  a.GetLimit(), Weight: a.GetWeight(),
	}
	if n := a.GetQueueLength(); n > 0 || status == cluster.StatusHeld || status == cluster.StatusWaitTimeout {
		b.QueueLength = &n
	}
	if status == cluster.StatusWrongCell {
		b.Cell = new(a.GetCell())
	}
	if a != nil && a.Mode != nil {
		b.Mode = ModeWord(*a.Mode)
	}
	return b
}

// KeepAliveBody converts the answer to a keep-alive into the same shape.
func KeepAliveBody(k *pb.KeepAliveResponse) Body {
	b := BodyOf(&pb.Answer{
		Status: k.GetStatus(), Message: k.GetMessage(), ClientId: k.GetClientId(), Epoch: k.GetEpoch(), Lsn: k.GetLsn(),
		Primary: k.GetPrimary(), RetryAfterMs: k.GetRetryAfterMs(),
	})
	if b.Differs = k.GetDiffers(); b.Differs {
		b.Grants = make([]HeldLock, 0, len(k.GetGrants())) // not nil: it may hold nothing
	}
	for _, g := range k.GetGrants() {
		b.Grants = append(b.Grants, HeldLock{Lock: g.GetLock(), Token: g.GetToken()})
	}
	return b
}

// OutcomeBody is the answer to a query for the outcome of a request. Status is that of the query; the state, and its
// age, are there if that is OK, and Outcome if the request waits or has an outcome.
type OutcomeBody struct {
	Status     string   `json:"status"`
	Message    string   `json:"message,omitempty"`
	Epoch      uint64   `json:"epoch,omitempty"`
	LSN        uint64   `json:"lsn,omitempty"`
	Age        string   `json:"age,omitempty"`
	State      string   `json:"state,omitempty"`
	Outcome    *Body    `json:"outcome,omitempty"`
	Primary    *Primary `json:"primary,omitempty"`
	RetryAfter string   `json:"retry_after,omitempty"`
}

// OutcomeBodyOf converts an outcome.
func OutcomeBodyOf(o *pb.OutcomeResponse) OutcomeBody {
	status := FromStatus(o.GetStatus())
	b := OutcomeBody{
		Status: status.String(), Message: o.GetMessage(), Epoch: o.GetEpoch(), LSN: o.GetLsn(),
		Primary: PrimaryOf(o.GetPrimary()), RetryAfter: retryText(status, o.GetRetryAfterMs()),
	}
	if status == cluster.StatusOK { // a refusal does not know
		b.Age, b.State = duration(o.GetAgeMs()), StateWord(o.GetState())
	}
	if a := o.GetOutcome(); a != nil {
		body := BodyOf(a)
		if a.Status == pb.Status_STATUS_NONE {
			body.Status = "" // it waits
		}
		b.Outcome = &body
	}
	return b
}

// LockBody is one lock with its waiters and files. Token 0 means that it is free.
type LockBody struct {
	Status      string       `json:"status"`
	Message     string       `json:"message"`
	Lock        string       `json:"lock"`
	Token       uint64       `json:"token"`
	TTL         string       `json:"ttl"`
	Remaining   string       `json:"remaining"` // "" if it is not known
	GrantEpoch  uint64       `json:"grant_epoch"`
	RequestID   uint64       `json:"request_id"`
	Heard       bool         `json:"heard"`
	Holder      *Holder      `json:"holder"`
	Since       Moment       `json:"since"` // by the primary's clock
	Metadata    string       `json:"metadata"`
	Ask         *AskBody     `json:"ask"`
	MaxHold     string       `json:"max_hold"` // "0s" = no end
	Heartbeat   bool         `json:"heartbeat"`
	Mode        string       `json:"mode"`    // "" if the lock is free
	Holders     uint32       `json:"holders"` // number of holders; the fields above are of the oldest grant
	SharedWith  []SharerBody `json:"shared_with"`
	QueueLength uint32       `json:"queue_length"`
	FileCount   uint32       `json:"file_count"`
	Waiters     []WaiterBody `json:"waiters"`
	Files       []FileBody   `json:"files"`
	Epoch       uint64       `json:"epoch"`
	LSN         uint64       `json:"lsn"`
	Age         string       `json:"age"`
	// LastToken is the token under which the lock was granted last, if it remembers that. Lists leave it out.
	LastToken uint64 `json:"last_token,omitempty"`
	// Done is the highest slot that is done, and DoneToken the token under which it was; "" for none. Lists leave it out.
	Done      string `json:"done,omitempty"`
	DoneToken uint64 `json:"done_token,omitempty"`
	// Limit is that of those who hold the lock or wait for it, 0 for none, and PermitsTaken how many permits the holders have. In a
	// reset of a watch that is 0 if not all holders are listed.
	Limit        uint32 `json:"limit,omitempty"`
	PermitsTaken uint32 `json:"permits_taken,omitempty"`
}

// SharerBody is a further holder of a lock that is held in shared mode.
type SharerBody struct {
	Holder
	TTL        string   `json:"ttl"`
	Remaining  string   `json:"remaining"` // "" if it is not known
	GrantEpoch uint64   `json:"grant_epoch"`
	RequestID  uint64   `json:"request_id"`
	Heard      bool     `json:"heard"`
	Metadata   string   `json:"metadata"`
	Ask        *AskBody `json:"ask"`
}

// WaiterBody is one waiting request.
type WaiterBody struct {
	ClientID  string `json:"client_id"`
	RequestID uint64 `json:"request_id"`
	LSN       uint64 `json:"lsn"`
	TTL       string `json:"ttl"`
	Wait      string `json:"wait"`
	Host      string `json:"host"`
	PID       int64  `json:"pid"`
	Command   string `json:"command"`
	Since     Moment `json:"since"`
	Metadata  string `json:"metadata"`
	Mode      string `json:"mode"`
	Identity  string `json:"identity,omitempty"`
	User      string `json:"user,omitempty"`
	Limit     uint32 `json:"limit,omitempty"`
	Weight    uint32 `json:"weight,omitempty"`
}

// FileBody is one protected file.
type FileBody struct {
	File        string `json:"file"`
	Lock        string `json:"lock"`
	Generation  uint64 `json:"generation"`
	Start       int64  `json:"start"`
	End         int64  `json:"end"`
	LastOffset  int64  `json:"last_offset"`
	LastLength  int64  `json:"last_length"`
	LastCRC32C  uint32 `json:"last_crc32c"`
	LastLSN     uint64 `json:"last_lsn"`
	Quarantined bool   `json:"quarantined"`
	Reason      string `json:"reason"`
	Sealed      bool   `json:"sealed"`
}

// LocksBody is a page of locks. Next is "" on the last one.
type LocksBody struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	Epoch   uint64     `json:"epoch"`
	LSN     uint64     `json:"lsn"`
	Age     string     `json:"age"`
	Locks   []LockBody `json:"locks"`
	Next    string     `json:"next"`
}

// LockBodyOf converts one lock.
func LockBodyOf(r *pb.GetLockResponse) LockBody {
	return lockBody(r.GetLock(), r.GetStatus(), r.GetMessage(), r.GetEpoch(), r.GetLsn(), r.GetAgeMs())
}

// LocksBodyOf converts a page of locks.
func LocksBodyOf(r *pb.ListLocksResponse) LocksBody {
	b := LocksBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), Epoch: r.GetEpoch(), LSN: r.GetLsn(),
		Age: duration(r.GetAgeMs()), Locks: make([]LockBody, len(r.GetLocks())), Next: r.GetNext(),
	}
	for i, l := range r.GetLocks() {
		b.Locks[i] = lockBody(l, r.GetStatus(), "", r.GetEpoch(), r.GetLsn(), r.GetAgeMs())
	}
	return b
}

func lockBody(l *pb.Lock, s pb.Status, message string, epoch, lsn uint64, ageMillis int64) LockBody {
	g := l.GetGrant()
	b := LockBody{
		Status: FromStatus(s).String(), Message: message, Epoch: epoch, LSN: lsn, Age: duration(ageMillis),
		Lock: l.GetName(), Token: g.GetToken(), TTL: duration(g.GetTtlMs()), GrantEpoch: g.GetEpoch(),
		RequestID: g.GetRequestId(), Heard: g.GetHeard(), MaxHold: duration(g.GetMaxHoldMs()), Heartbeat: g.GetHeartbeat(), QueueLength: l.GetQueueLength(), FileCount: l.GetFileCount(),
		Holders: l.GetHolders(), SharedWith: sharersOf(l), LastToken: l.GetLastToken(), Done: l.GetDone(), DoneToken: l.GetDoneToken(), Limit: l.GetLimit(), PermitsTaken: l.GetPermitsTaken(),
		Waiters: make([]WaiterBody, len(l.GetWaiters())), Files: make([]FileBody, len(l.GetFiles())),
	}
	if ms := g.GetRemainingMs(); ms >= 0 {
		b.Remaining = duration(ms)
	}
	if g.GetToken() != 0 {
		h := GrantHolder(g, l.GetHolders())
		h.PermitsTaken = l.GetPermitsTaken()
		b.Holder, b.Mode = &h, h.Mode
		b.Since, b.Metadata, b.Ask = b.Holder.Since, g.GetMetadata(), AskBodyOf(g.GetAsk())
	}
	for i, w := range l.GetWaiters() {
		h := w.GetHolder()
		b.Waiters[i] = WaiterBody{
			ClientID: w.GetClientId(), RequestID: w.GetRequestId(), LSN: w.GetLsn(), TTL: duration(w.GetTtlMs()), Wait: waitText(w.GetWaitMs()),
			User: h.GetUser(), Host: h.GetHost(), PID: h.GetPid(), Command: h.GetCommand(),
			Since: Moment(w.GetSinceUnixMs()), Metadata: w.GetMetadata(), Mode: ModeWord(w.GetMode()),
			Identity: h.GetIdentity(), Limit: w.GetLimit(), Weight: w.GetWeight(),
		}
	}
	for i, f := range l.GetFiles() {
		b.Files[i] = fileBody(f)
	}
	return b
}

// GrantHolder returns the holder of a grant of a lock with so many holders.
func GrantHolder(g *pb.Grant, holders uint32) Holder {
	h := g.GetHolder()
	return Holder{
		Client: cluster.ClientID(g.GetClientId()), Token: cluster.Token(g.GetToken()),
		User: h.GetUser(), Host: h.GetHost(), PID: h.GetPid(), Command: h.GetCommand(), Since: Moment(g.GetSinceUnixMs()),
		Mode: ModeWord(g.GetMode()), Holders: holders, Identity: h.GetIdentity(), Limit: g.GetLimit(), Weight: g.GetWeight(),
	}
}

func sharersOf(l *pb.Lock) []SharerBody {
	all := make([]SharerBody, len(l.GetSharedHolders()))
	for i, g := range l.GetSharedHolders() {
		all[i] = SharerBody{
			Holder: GrantHolder(g, l.GetHolders()), TTL: duration(g.GetTtlMs()), Remaining: ageOrNever(g.GetRemainingMs()),
			GrantEpoch: g.GetEpoch(), RequestID: g.GetRequestId(), Heard: g.GetHeard(), Metadata: g.GetMetadata(), Ask: AskBodyOf(g.GetAsk()),
		}
	}
	return all
}

// ModeWord returns the name of a mode, as in JSON.
func ModeWord(m pb.Mode) string {
	switch m {
	case pb.Mode_MODE_EXCLUSIVE:
		return "exclusive"
	case pb.Mode_MODE_SHARED:
		return "shared"
	}
	return fmt.Sprintf("mode(%d)", m)
}

// ParseMode returns the mode with this name; false if there is none.
func ParseMode(word string) (pb.Mode, bool) {
	switch word {
	case "exclusive", "":
		return pb.Mode_MODE_EXCLUSIVE, word != ""
	case "shared":
		return pb.Mode_MODE_SHARED, true
	}
	return 0, false
}

// Moment is a time of day for people, in milliseconds since 1970. In JSON it is RFC 3339 in
// UTC, and "" for 0, which means unknown.
type Moment int64

const momentLayout = "2006-01-02T15:04:05.000Z"

// Time returns the time, the zero one for 0, which means that it is not known.
func (m Moment) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m))
}

// String returns the time as in JSON.
func (m Moment) String() string {
	if m == 0 {
		return ""
	}
	return time.UnixMilli(int64(m)).UTC().Format(momentLayout)
}

// MarshalText implements encoding.TextMarshaler.
func (m Moment) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Moment) UnmarshalText(text []byte) error {
	if *m = 0; len(text) == 0 {
		return nil
	}
	t, err := time.Parse(momentLayout, string(text))
	*m = Moment(t.UnixMilli())
	return err
}

func duration(ms int64) string { return Millis(ms).String() }

// someTime formats a duration, "" for 0.
func someTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return duration(ms)
}

// retryText returns when a caller may come again, "" if the server suggests nothing. LIMITED always says it.
func retryText(s cluster.Status, ms int64) string {
	if s == cluster.StatusLimited {
		return duration(ms)
	}
	return someTime(ms)
}

// ageOrNever formats an age, "" for a negative one, which means never.
func ageOrNever(ms int64) string {
	if ms < 0 {
		return ""
	}
	return duration(ms)
}
