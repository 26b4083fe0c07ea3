// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Op is what a request asks for. Ops are numbered for ever, because content
// hashes are made of them: append only.
type Op uint8

// The operations and the fields of Request that each one uses, beside Client,
// ID and LowWater.
const (
	// OpAcquire asks for Lock: TTL, Wait, Mode, Holder, Metadata, MaxHold, Heartbeat, Remember, After, Slot, Permit.
	OpAcquire Op = 1
	// OpRelease ends the grant Token of Lock: Done.
	OpRelease Op = 2
	// OpAppend appends Data to File under Token of Lock: CRC, AdoptExisting, At.
	OpAppend Op = 3
	// OpBind binds File to Lock under Token: AdoptExisting.
	OpBind Op = 4
	// OpUnbind ends the binding of File to Lock under Token.
	OpUnbind Op = 5
	// OpRotate gives File, bound to Lock, a new inode under Token.
	OpRotate Op = 6
	// OpCancel ends the wait of request Target of Client, or keeps it from ever being
	// executed. It has no ID of its own.
	OpCancel Op = 7
	// OpBreak ends the grant of Lock, of Token if that is set: Actor, Reason. With a
	// Grace its holder is asked first, and has that long to release.
	OpBreak Op = 8
	// OpOpenClient makes a client for Nonce. It has neither Client nor ID.
	OpOpenClient Op = 9
	// OpMetadata replaces the Metadata of the grant Token of Lock.
	OpMetadata Op = 10
	// OpSeal ends the present generation of File, bound to Lock, under Token.
	OpSeal Op = 11
	// OpDowngrade makes the exclusive grant Token of Lock a shared one.
	OpDowngrade Op = 16
	// OpForget drops what is remembered of Client, which holds nothing and waits for
	// nothing. It has no ID.
	OpForget Op = 17
	// OpExtend gives the grant Token of Lock a TTL that is not shorter than its own.
	OpExtend Op = 18
	// OpMembers changes the list of servers: Change.
	OpMembers Op = 19
)

var opWords = [...]string{
	OpAcquire: "acquire", OpRelease: "release", OpAppend: "append", OpBind: "bind", OpUnbind: "unbind",
	OpRotate: "rotate", OpCancel: "cancel", OpBreak: "break", OpOpenClient: "open_client", OpMetadata: "metadata",
	OpSeal: "seal", OpDowngrade: "downgrade", OpForget: "forget", OpExtend: "extend", OpMembers: "members",
}

// String returns the name of the operation, as in "acquire".
func (op Op) String() string {
	if int(op) < len(opWords) && opWords[op] != "" {
		return opWords[op]
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// Request is one request of a client. A repeat of it has the same content, the Wait
// included; only LowWater and Holder may differ.
type Request struct {
	// The small fields stand together, because a server makes one of these for every request.
	Op            Op
	Mode          Mode
	AdoptExisting bool         // bind a file that is not empty
	Own           bool         // refuse a token that was granted to another named client than this one
	Heartbeat     bool         // only the use of its own token renews the lease, not its client's keep-alives
	Remember      bool         // remember the lock's last token when nobody holds it any more
	Done          bool         // of OpRelease: the slot of the grant is done
	CRC           uint32       // CRC-32C of Data
	Mark          cluster.Mark // of OpOpenClient; set by the primary, not by the client
	Level         uint32       // the feature level that its records may need, 0 = this binary's; set by the primary
	Permit        Permit       // of OpAcquire: what it takes of a lock with a limit

	Client   cluster.ClientID
	ID       cluster.RequestID
	LowWater cluster.RequestID // the lowest ID that the client still cares about, at most ID; 0 = unchanged

	Lock   cluster.LockName
	Token  cluster.Token
	TTL    time.Duration
	Wait   time.Duration // 0 = try, WaitForever = no deadline
	Holder Holder

	File cluster.FileName
	Data []byte
	// At, if not nil, is the only offset that the append may go to. It is never changed.
	At *int64

	Target cluster.RequestID
	Actor  string
	Reason string
	Grace  time.Duration // of OpBreak
	Nonce  uint64

	Members *MembersRequest // of OpMembers, nil for the others

	Metadata string // of OpAcquire and OpMetadata
	MaxHold  time.Duration
	// After, if not 0, is the token that the lock must have been granted under last: since then nobody had it. Such a request
	// does not wait, because whoever it waited for would change that. It includes Remember.
	After cluster.Token
	// Slot is what an acquire is for: once that is done, by a release that says so, nobody gets the lock for it, nor for an earlier one.
	Slot cluster.Slot

	// Identity is that of the caller, such as user:alice, "" of one without a credential. Only the
	// server sets it, from what the caller's credential proved. A repeat has to come from the same
	// identity, over whichever connection.
	Identity string
	// MostLocks and MostWaits are how many grants, and places in queues, the identity may have by quotas, 0 = any number. The
	// primary counts and refuses: Decide does not look at them.
	MostLocks, MostWaits int64
}

// Validate checks what can be checked without the table. It returns StatusOK, or
// StatusInvalidArgument or StatusTooLarge with a message that says what to change.
func (q *Request) Validate(t cluster.Timing) (cluster.Status, string) {
	if q.Op == OpAppend && len(q.Data) > cluster.MaxAppend {
		return cluster.StatusTooLarge, fmt.Sprintf("%d bytes of data: one append carries at most %d", len(q.Data), cluster.MaxAppend)
	}
	err := validIdentity(q.Identity)
	if err == nil {
		err = q.validateRequester()
	}
	if err == nil {
		err = q.validateContent(t)
	}
	if err != nil {
		return cluster.StatusInvalidArgument, err.Error()
	}
	return cluster.StatusOK, ""
}

func (q *Request) validateRequester() error {
	if q.Op == OpOpenClient {
		if q.Nonce == 0 {
			return fmt.Errorf("nonce is 0: choose a random one")
		}
		return nil
	}
	if q.Op == OpForget {
		return q.Client.Validate()
	}
	id, name := q.ID, "request ID"
	if q.Op == OpCancel {
		id, name = q.Target, "target"
	}
	switch {
	case id == 0:
		return fmt.Errorf("%s is 0: request IDs start at 1", name)
	case id > MaxRequestID:
		return fmt.Errorf("%s %d is above %d", name, id, MaxRequestID)
	case q.LowWater > id:
		return fmt.Errorf("low-water mark %d is above %s %d", q.LowWater, name, id)
	}
	return q.Client.Validate()
}

func (q *Request) validateContent(t cluster.Timing) error {
	if q.Op == OpOpenClient || q.Op == OpCancel || q.Op == OpForget {
		return nil
	}
	if q.Op == OpMembers {
		if q.Members == nil {
			return fmt.Errorf("no change of the servers is given")
		}
		return q.Members.Change.Validate()
	}
	if err := q.Lock.Validate(); err != nil {
		return err
	}
	if !validText(q.Holder.Host) || !validText(q.Holder.Command) || !validText(q.Actor) || !validText(q.Reason) {
		return fmt.Errorf("host, command, actor and reason are UTF-8 of at most %d bytes each", cluster.MaxText)
	}
	if err := validMetadata(q.Metadata); err != nil {
		return err
	}
	switch q.Op {
	case OpAcquire:
		return q.validateAcquire(t)
	case OpBreak:
		if q.Grace < 0 || q.Grace > t.MaxTTL {
			return fmt.Errorf("grace %v: use 0 to %v", q.Grace, t.MaxTTL)
		}
		return nil
	case OpRelease, OpDowngrade, OpMetadata, OpExtend, OpAppend, OpBind, OpUnbind, OpRotate, OpSeal:
		if q.Token == 0 {
			return fmt.Errorf("token is missing")
		}
	default:
		return fmt.Errorf("unknown operation %d", q.Op)
	}
	switch q.Op {
	case OpRelease, OpDowngrade, OpMetadata:
		return nil
	case OpExtend:
		return q.validateTTL(t)
	}
	if err := q.File.Validate(); err != nil {
		return err
	}
	if q.Op != OpAppend {
		return nil
	}
	if len(q.Data) == 0 {
		return fmt.Errorf("no data to append")
	}
	if q.At != nil && *q.At < 0 {
		return fmt.Errorf("expected offset %d is negative", *q.At)
	}
	if got := crc32.Checksum(q.Data, crc32.MakeTable(crc32.Castagnoli)); got != q.CRC {
		return fmt.Errorf("the data has CRC-32C %08x, not %08x", got, q.CRC)
	}
	return nil
}

func (q *Request) validateTTL(t cluster.Timing) error {
	if q.TTL < t.MinTTL || q.TTL > t.MaxTTL {
		return fmt.Errorf("ttl %v: use %v to %v", q.TTL, t.MinTTL, t.MaxTTL)
	}
	return nil
}

func (q *Request) validateAcquire(t cluster.Timing) error {
	if q.Mode > ModeShared {
		return fmt.Errorf("unknown lock mode %d", q.Mode)
	}
	if err := errors.Join(q.validateTTL(t), q.validatePermit()); err != nil {
		return err
	}
	if q.Slot != "" {
		if err := q.Slot.Validate(); err != nil {
			return err
		}
	}
	switch {
	case q.Wait < 0 && q.Wait != WaitForever:
		return fmt.Errorf("wait %v is negative", q.Wait)
	case q.MaxHold < 0:
		return fmt.Errorf("max hold %v is negative: use 0 for no end", q.MaxHold)
	case q.MaxHold > 0 && q.MaxHold < q.TTL:
		return fmt.Errorf("max hold %v is shorter than ttl %v: use a shorter ttl", q.MaxHold, q.TTL)
	case !validPID(q.Holder.PID):
		return fmt.Errorf("holder has process ID %d", q.Holder.PID)
	case q.Slot != "" && q.Mode != ModeExclusive:
		return fmt.Errorf("slot %s in shared mode: what is done once is done by one holder", q.Slot)
	case q.After != 0 && q.Wait != 0:
		return fmt.Errorf("after token %d and a wait: leave out the wait, because whoever is waited for changes the last token", q.After)
	}
	return nil
}

// ContentHash returns a hash that distinguishes repeats from other requests under the same
// ID. Client, ID, LowWater, Holder and Identity are no part of it.
func (q *Request) ContentHash() uint64 {
	var buf [256]byte // on the stack; longer requests spill
	adopt := uint64(0)
	if q.AdoptExisting {
		adopt = 1
	}
	b := appendNumbers(buf[:0], uint64(q.Op), uint64(q.Token), uint64(q.TTL), uint64(q.Wait), uint64(q.Mode),
		uint64(len(q.Data)), uint64(q.CRC), adopt, uint64(q.Target), q.Nonce)
	b = appendText(b, q.Lock)
	b = appendText(b, q.File)
	b = appendText(b, q.Actor)
	b = appendText(b, q.Reason)
	// Fields that came later are left out where they are not used: older hashes stay valid.
	if q.Grace != 0 {
		b = appendNumbers(append(b, 'g'), uint64(q.Grace))
	}
	if q.Metadata != "" {
		b = appendText(append(b, 'm'), q.Metadata)
	}
	b = appendLimits(b, &grantParams{maxHold: q.MaxHold, heartbeat: q.Heartbeat, remember: q.Remember, permit: q.Permit})
	if q.After != 0 {
		b = appendNumbers(append(b, 'n'), uint64(q.After))
	}
	if q.Slot != "" {
		b = appendText(append(b, 'p'), q.Slot)
	}
	if q.Done {
		b = append(b, 'd')
	}
	if q.At != nil {
		b = appendNumbers(append(b, 'o'), uint64(*q.At))
	}
	if q.Members != nil && q.Members.Change.Kind != 0 {
		c := q.Members.Change
		b = appendNumbers(append(b, 'l'), uint64(c.Kind), uint64(c.Server.ID), c.IfVersion)
		b = appendText(appendText(appendText(b, c.Server.Client), c.Server.Peer), c.Server.OldHTTP)
	}
	return xxhash.Sum64(b)
}

// Outcome answers a request. Fields that do not concern the answer are zero.
type Outcome struct {
	Status  cluster.Status // StatusNone of a request that waits
	Client  cluster.ClientID
	Request cluster.RequestID
	LSN     cluster.LSN   // of the record that decided the request; 0 for refusals
	Epoch   cluster.Epoch // of that record

	Lock  cluster.LockName
	Token cluster.Token
	TTL   time.Duration // of a live grant. Of a repeat it is an upper bound, which the core loop replaces by what remains

	File       cluster.FileName
	Generation cluster.Generation
	Offset     int64
	Length     int64
	CRC        uint32

	Holder      *LockHolder    // with StatusHeld: the holder, nil if the lock is free but others wait
	HoldLeft    time.Duration  // of a renewal: what is left of MaxHold, 0 without one; set by the core loop
	QueueLength int            // with StatusHeld and Pending: the number of waiters
	Version     uint64         // of OpMembers: that of the list which it made, of a refusal that of the present list
	Cell        cluster.CellID // with StatusWrongCell: the cell that has the name, as far as this one knows
	Committed   bool           // with StatusFileQuarantined and StatusUnknown: the append is in the log
	Repeat      bool           // answered from a receipt
	Marked      bool           // of a live grant: it has a slot, or its lock remembers it
	Permit      Permit         // of a live grant; with StatusOtherLimit, only the limit of those who hold or wait
	Ask         *Ask           // of a renewal: the holder is asked to release; set by the core loop
	Message     string         // for people
}

// LockHolder is the holder of a lock, of several the one with the oldest grant.
type LockHolder struct {
	Client cluster.ClientID
	Token  cluster.Token
	Holder Holder
	Since  int64 // as in Grant
	Mode   Mode
	Count  int    // number of holders
	Permit Permit // of a lock with a limit
	Taken  uint32 // how many permits all holders have

	Identity string // of the client, "" for none
}

// OutcomeOf returns the outcome of r's request. Its Status is StatusNone if r answers no
// request: Enqueue, the Bind of a first append, and records without a request.
func OutcomeOf(r *Record) Outcome {
	switch {
	case r.Kind == KindOpenClient:
		return Outcome{Status: cluster.StatusOK, Client: cluster.OpenedClientID(r.LSN, r.Mark), LSN: r.LSN, Epoch: r.Epoch}
	case r.Request == 0 || r.Kind == KindEnqueue:
		return Outcome{}
	}
	rc := receiptOf(r)
	out := rc.outcome(r.Client)
	out.TTL, out.Marked, out.Permit = r.TTL, r.Kind == KindGrant && (r.Remember || r.Slot != ""), r.Permit
	return out
}

// outcome returns what the receipt holds, whatever has happened since.
func (rc *receipt) outcome(client cluster.ClientID) Outcome {
	out := Outcome{
		Status: rc.status(), Client: client, Request: rc.request, LSN: rc.lsn, Epoch: rc.epoch,
		Lock: rc.lock, Token: rc.token,
	}
	switch rc.kind {
	case KindMembers:
		out.Token, out.Version = 0, uint64(rc.token)
	case KindSkip:
		out.Message = "the slot was done while this request waited: nothing is left to do for it"
	case KindAlready:
		out.Message = "it was so already: the file is bound to this lock, or sealed"
	}
	if f := rc.file; f != nil {
		out.File, out.Generation, out.Offset, out.Length, out.CRC = f.name, f.generation, f.offset, f.length, f.crc
	}
	return out
}

func (rc *receipt) status() cluster.Status {
	switch rc.kind {
	case KindWaitTimeout:
		return cluster.StatusWaitTimeout
	case KindCancel:
		return cluster.StatusCancelled
	case KindSkip:
		return cluster.StatusAlreadyDone
	default:
		return cluster.StatusOK
	}
}

// Quarantined returns out as StatusFileQuarantined and Committed: the append is in the log,
// and its file cannot be trusted.
func (out Outcome) Quarantined(reason string) Outcome {
	out.Status, out.Committed, out.Message = cluster.StatusFileQuarantined, true, reason
	return out
}

// Unwritten returns out as StatusUnknown and Committed: the append is in the log and not in
// its file yet. It is written without a further request when the file can be written.
func (out Outcome) Unwritten(reason string) Outcome {
	out.Status, out.Committed = cluster.StatusUnknown, true
	out.Message = fmt.Sprintf("the append is committed (LSN %d, offset %d) and not in the file yet: it is written when the file works, so do not append it again, ask for it under the same request ID; %s", out.LSN, out.Offset, reason)
	return out
}

// repeat answers a request that has a receipt. An Acquire or Extend is answered from the present
// state: a grant that has ended must not look alive. Nor must an append look done whose
// bytes may not have reached the file when that was quarantined.
func (t *Table) repeat(c *client, rc *receipt) Outcome {
	out := rc.outcome(c.id)
	out.Repeat = true
	if rc.kind == KindAppend {
		if why := t.lost(rc); why != "" {
			return out.Quarantined(why)
		}
		return out
	}
	if rc.kind != KindGrant && rc.kind != KindExtend {
		return out
	}
	if g := t.live(rc.lock, rc.token); g != nil {
		out.TTL, out.Marked, out.Permit = g.ttl, rc.kind == KindGrant && (g.remember || g.slotOf() != ""), g.permit
		return out
	}
	out.Status = cluster.StatusLeaseExpired
	out.Message = "the grant of this request has ended"
	return out
}

// RequestState is the state of one request, as Lookup returns it.
type RequestState uint8

// The states of a request.
const (
	// RequestNotSeen: it was never executed and would be if it came now.
	RequestNotSeen RequestState = 0
	// RequestPending: it waits in a queue.
	RequestPending RequestState = 1
	// RequestExecuted: it was executed; the outcome is known.
	RequestExecuted RequestState = 2
	// RequestCancelled: it was cancelled and will never execute.
	RequestCancelled RequestState = 3
	// RequestStale: it is below a mark of its client, or its client is not
	// known: it will not be executed, and whether it was is forgotten.
	RequestStale RequestState = 4
)

// Lookup returns the state of a request. The Outcome is that of its receipt if it was
// executed or cancelled; otherwise it names the request and, if it waits, the lock.
func (t *Table) Lookup(id cluster.ClientID, request cluster.RequestID) (RequestState, Outcome) {
	out := Outcome{Client: id, Request: request}
	c := t.clients.get(id)
	if c == nil {
		if id.Opened() {
			return RequestStale, out
		}
		return RequestNotSeen, out
	}
	if rc := c.receipt(request); rc != nil {
		if rc.kind == KindCancel {
			return RequestCancelled, t.repeat(c, rc)
		}
		return RequestExecuted, t.repeat(c, rc)
	}
	if w := c.waiter(request); w != nil {
		return RequestPending, w.pending()
	}
	if c.stale(request) {
		return RequestStale, out
	}
	return RequestNotSeen, out
}

func (w *waiter) pending() Outcome {
	return Outcome{
		Client: w.client.id, Request: w.request, LSN: w.lsn, Epoch: w.epoch,
		Lock: w.lock.name, QueueLength: int(w.lock.queued),
	}
}
