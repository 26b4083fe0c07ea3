// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Kind is what a record does. Kinds are numbered for ever: append only.
type Kind uint8

// The record kinds and the fields each one carries. This list, with the field
// numbers in codec.go, is the format of a record. Every record has LSN, Epoch
// and Kind; "request" stands for Client, Request, LowWater and Hash. Time and Identity,
// which older binaries skip, may be in any.
const (
	// KindGrant gives Lock to Client: request, Lock, TTL, Mode, Holder, Metadata,
	// MaxHold, Heartbeat, Remember, After, Slot, Permit. Token = LSN.
	// If the request waits in the queue of Lock, its place is taken out.
	KindGrant Kind = 1
	// KindEnqueue puts a request at the end of a queue: request, Lock, TTL, Wait,
	// Mode, Holder, Metadata, MaxHold, Heartbeat, Remember, Slot, Permit.
	KindEnqueue Kind = 2
	// KindRelease ends the grant Token of Lock: request, Lock, Token, Slot. With a Slot, which is that of the grant, that
	// is done from now on.
	KindRelease Kind = 3
	// KindExpire ends the grant Token of Lock because its lease ran out, or its MaxHold: Lock, Token, Reason.
	KindExpire Kind = 4
	// KindWaitTimeout removes a waiter whose deadline passed or whose client was silent: Lock, Client, Request.
	KindWaitTimeout Kind = 5
	// KindCancel removes a waiter, or leaves a tombstone so that the request
	// never executes: Client, Request (the cancelled one), LowWater, Lock (if it waited).
	KindCancel Kind = 6
	// KindAppend appends Data to File at Offset: request, Lock, Token, File,
	// Generation, Offset, Length, CRC, Data.
	KindAppend Kind = 7
	// KindBind binds File to Lock: request, Lock, Token, File, Inode,
	// Generation, Offset (= size of the file when it was bound). The Bind of a
	// first append has Client but no Request: the Append after it has.
	KindBind Kind = 8
	// KindUnbind ends a binding: request, Lock, Token, File, Remember.
	KindUnbind Kind = 9
	// KindQuarantine stops a file: File, Generation, Reason.
	KindQuarantine Kind = 10
	// KindRotate gives a file a new, empty inode: request, Lock, Token, File, Inode, Generation (the new one), Remember.
	KindRotate Kind = 11
	// KindForceClear drops all holders and waiters; receipts, bindings and token order stay.
	KindForceClear Kind = 12
	// KindBreak ends the grant Token of Lock by an operator's decision: request, Lock,
	// Token, Actor, Reason. At the end of an Ask's grace it has no request.
	KindBreak Kind = 13
	// KindOpenClient creates the client @<LSN>-<Mark> for Nonce: Nonce, Mark. Without a Mark,
	// as it was once, it creates @<LSN>.
	KindOpenClient Kind = 14
	// KindForgetClient drops a client and its receipts: Client. It holds nothing and waits for nothing.
	KindForgetClient Kind = 15
	// KindHandedOver is the last record of a term that ended on purpose: Reason.
	KindHandedOver Kind = 16
	// KindTerm is the first record of a term: Server.
	KindTerm Kind = 17
	// KindMetadata replaces the metadata of a grant: request, Lock, Token, Metadata.
	KindMetadata Kind = 18
	// KindAsk asks the holder to release the lock within Wait, after which the grant is
	// broken: request, Lock, Token, Wait, Actor, Reason.
	KindAsk Kind = 19
	// KindSeal ends a generation of File: nothing is appended to it after Offset, where
	// it ends: request, Lock, Token, File, Generation, Offset.
	KindSeal Kind = 20
	// KindDowngrade makes the exclusive grant Token of Lock a shared one: request, Lock, Token.
	KindDowngrade Kind = 24

	// KindAlready answers a request that changes nothing, because File was bound to Lock, or
	// sealed, already: request, Lock, Token, File, Generation, Offset. It changes nothing but
	// leaves a receipt, so that a late duplicate of the request does nothing either.
	KindAlready Kind = 25
	// KindExtend gives the grant Token of Lock a TTL that is not shorter than its own: request,
	// Lock, Token, TTL.
	KindExtend Kind = 26
	// KindLevel raises the feature level of the cluster to Level; Version is that of the binary which
	// raised it.
	KindLevel Kind = 27
	// KindMembers makes Members the list of servers: request, Members. Of a server that has become able to be primary it
	// has no request.
	KindMembers Kind = 28
	// KindForgetMark drops what is remembered of Lock while nobody holds it: Lock.
	KindForgetMark Kind = 29
	// KindSkip removes a waiter whose Slot is done: Lock, Client, Request.
	KindSkip Kind = 30
	// KindOwn says once which names this cell of a site owns: Own.
	KindOwn Kind = 32

	// MaxKind is the highest kind.
	MaxKind = KindOwn
)

// The feature levels of the package documentation.
const (
	// BaseLevel is that of a table without a KindLevel, unless the cluster began with a higher one.
	BaseLevel = 3
	// MaxLevel is the highest level whose records this binary knows.
	MaxLevel = 8
	// MembersLevel is the lowest level at which the list of servers changes.
	MembersLevel = 5
	// MarksLevel is the lowest level at which anything is remembered of a lock that nobody holds.
	MarksLevel = 6
	// SemaphoresLevel is the lowest level at which a lock has a limit.
	SemaphoresLevel = 7
	// CellsLevel is the lowest level at which a volume is a cell of a site.
	CellsLevel = 8
)

// Mode is how a lock is held: by one holder alone, or by any number together.
type Mode uint8

// The lock modes.
const (
	ModeExclusive Mode = 0
	ModeShared    Mode = 1
)

// Holder describes the process that holds or waits, for people. Nothing is decided by it.
type Holder struct {
	// Host is the name of the machine, of a process whose user is known user@machine: see HostOf.
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// HostOf returns the text for Holder.Host of a user's process on a host. The user is no field of its own, so that
// every binary that knows the log knows it, too. An @ in the host becomes a _, so that it is told from the user.
func HostOf(user, host string) string {
	host = strings.ReplaceAll(host, "@", "_")
	if user == "" {
		return host
	}
	return user + "@" + host
}

// UserAndHost takes Holder.Host apart. The user is "" if it is not known. A host has no @ (see HostOf), a user may have some.
func (h *Holder) UserAndHost() (user, host string) {
	i := strings.LastIndexByte(h.Host, '@')
	if i < 0 {
		return "", h.Host
	}
	return h.Host[:i], h.Host[i+1:]
}

// Record is one entry of the log: one change of the table. The zero value of a
// field means that the kind does not use it.
type Record struct {
	LSN   cluster.LSN
	Epoch cluster.Epoch
	Kind  Kind

	Client   cluster.ClientID
	Request  cluster.RequestID
	LowWater cluster.RequestID // requests of Client below it are forgotten
	Hash     uint64            // of the request's content

	Lock   cluster.LockName
	Token  cluster.Token
	TTL    time.Duration
	Wait   time.Duration // WaitForever or positive; of an Ask its grace
	Mode   Mode
	Holder Holder

	File       cluster.FileName
	Generation cluster.Generation
	Inode      uint64
	Offset     int64
	Length     int64
	CRC        uint32 // CRC-32C of Data
	// Data of an append. It is kept apart from the other fields in frames and
	// left out of pushes, history and the chain value, which see Length and CRC.
	Data []byte

	Actor  string
	Reason string
	Nonce  uint64
	Server cluster.ServerID
	Mark   cluster.Mark // of the cluster

	// Metadata is a text of the holder's choice, shown with its grant.
	Metadata string
	// MaxHold ends a grant however often it is renewed; 0 = no end.
	MaxHold time.Duration
	// Heartbeat is set if only the use of its own token renews the lease, and not its
	// client's keep-alives.
	Heartbeat bool
	// Level is the feature level of the cluster from this record on.
	Level uint32
	// Version is the version of the binary that raised the level, for people.
	Version string
	// Members is the list of servers from this record on: the text of a cluster.Membership.
	Members string
	// Own is which names this cell owns: the text of a cluster.Own.
	Own string
	// Remember is set if the table remembers what the binding that ends here used. It is not
	// set in records of older binaries, which are applied as they always were. Of a grant it is set if the
	// table remembers the lock's last token when nobody holds it any more.
	Remember bool
	// After is the token under which the lock was granted last before this grant, if the grant was asked for
	// on that condition only.
	After cluster.Token
	// Slot is what a grant, or a place, is for, and what a release has done.
	Slot cluster.Slot
	// Permit is what a grant, or a place, takes of a lock with a limit.
	Permit Permit
	// Time is when the primary decided the record, in milliseconds since 1970 by its
	// clock. It is for people: nothing is decided by it.
	Time int64
	// Identity is the identity of the caller whose request made the record, "" for none; of a
	// Grant from the queue, that of its client. A client without an identity gets it.
	Identity string
}

// WaitForever as a Wait means no deadline.
const WaitForever time.Duration = -1

// MaxRequestID is the largest request ID: one that every JSON and protobuf
// integer can carry and whose successor exists.
const MaxRequestID cluster.RequestID = 1<<63 - 1

// ErrUnknownKind means that a newer binary wrote the record. An older binary
// cannot know what the record does, so it must refuse to lead.
var ErrUnknownKind = errors.New("unknown record kind")

// ErrUnknownLevel means that the cluster was raised to a feature level which this binary does not
// know: what follows in the log may be of any kind. It must refuse to lead, and to follow.
var ErrUnknownLevel = errors.New("this binary is too old for the cluster")

// Newer reports whether an error is that this binary is too old for what it read.
func Newer(err error) bool {
	return errors.Is(err, ErrUnknownKind) || errors.Is(err, ErrUnknownField) || errors.Is(err, ErrUnknownLevel)
}

var kindWords = [...]string{
	KindGrant:        "grant",
	KindEnqueue:      "enqueue",
	KindRelease:      "release",
	KindExpire:       "expire",
	KindWaitTimeout:  "wait_timeout",
	KindCancel:       "cancel",
	KindAppend:       "append",
	KindBind:         "bind",
	KindUnbind:       "unbind",
	KindQuarantine:   "quarantine",
	KindRotate:       "rotate",
	KindForceClear:   "force_clear",
	KindBreak:        "break",
	KindOpenClient:   "open_client",
	KindForgetClient: "forget_client",
	KindHandedOver:   "handed_over",
	KindTerm:         "term",
	KindMetadata:     "metadata",
	KindAsk:          "ask",
	KindDowngrade:    "downgrade",
	KindSeal:         "seal",
	KindAlready:      "already",
	KindExtend:       "extend",
	KindLevel:        "level",
	KindMembers:      "members",
	KindForgetMark:   "forget_mark",
	KindSkip:         "skip",
	KindOwn:          "own",
}

// Known reports whether this binary knows the kind.
func (k Kind) Known() bool { return int(k) < len(kindWords) && kindWords[k] != "" }

// String returns the name of the kind, as in JSON and in the history.
func (k Kind) String() string {
	if k.Known() {
		return kindWords[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind returns the kind of a word that String returned; false if there is none.
func ParseKind(word string) (Kind, bool) {
	i := slices.Index(kindWords[:], word)
	if i < int(KindGrant) {
		return 0, false
	}
	return Kind(i), true
}

// A fieldSet is a set of optional fields of a record.
type fieldSet uint64

const (
	hasClient fieldSet = 1 << iota
	hasRequest
	hasLowWater
	hasHash
	hasLock
	hasToken
	hasTTL
	hasWait
	hasMode
	hasHolder
	hasFile
	hasGeneration
	hasInode
	hasOffset
	hasLength
	hasCRC
	hasData
	hasActor
	hasReason
	hasNonce
	hasServer
	hasMetadata
	hasMaxHold
	hasHeartbeat
	hasMark
	hasRemember
	hasLevel
	hasVersion
	hasMembers
	hasAfter
	hasSlot
	hasPermit
	hasOwn

	mayLease = hasMode | hasHolder | hasMetadata | hasMaxHold | hasHeartbeat | hasRemember | hasSlot | hasPermit

	mustRequest = hasClient | hasRequest
	mayRequest  = mustRequest | hasLowWater | hasHash
)

// kindFields is the field list of record.go in a form that Validate can use.
var kindFields = [...]struct{ must, may fieldSet }{
	KindGrant:        {mustRequest | hasLock | hasTTL, mayRequest | mayLease | hasAfter},
	KindEnqueue:      {mustRequest | hasLock | hasTTL | hasWait, mayRequest | mayLease},
	KindRelease:      {mustRequest | hasLock | hasToken, mayRequest | hasSlot},
	KindExpire:       {hasLock | hasToken, hasReason},
	KindWaitTimeout:  {mustRequest | hasLock, 0},
	KindCancel:       {mustRequest, hasLowWater | hasLock},
	KindAppend:       {mustRequest | hasLock | hasToken | hasFile | hasGeneration | hasLength, mayRequest | hasOffset | hasCRC | hasData},
	KindBind:         {hasClient | hasLock | hasToken | hasFile | hasInode | hasGeneration, mayRequest | hasOffset},
	KindUnbind:       {mustRequest | hasLock | hasToken | hasFile, mayRequest | hasRemember},
	KindQuarantine:   {hasFile | hasGeneration, hasReason},
	KindRotate:       {mustRequest | hasLock | hasToken | hasFile | hasInode | hasGeneration, mayRequest | hasRemember},
	KindForceClear:   {0, 0},
	KindBreak:        {hasLock | hasToken, mayRequest | hasActor | hasReason},
	KindOpenClient:   {hasNonce, hasMark},
	KindForgetClient: {hasClient, 0},
	KindHandedOver:   {0, hasReason},
	KindTerm:         {hasServer, 0},
	KindMetadata:     {mustRequest | hasLock | hasToken, mayRequest | hasMetadata},
	KindAsk:          {mustRequest | hasLock | hasToken | hasWait, mayRequest | hasActor | hasReason},
	KindDowngrade:    {mustRequest | hasLock | hasToken, mayRequest},
	KindSeal:         {mustRequest | hasLock | hasToken | hasFile | hasGeneration, mayRequest | hasOffset},
	KindAlready:      {mustRequest | hasLock | hasToken | hasFile | hasGeneration, mayRequest | hasOffset},
	KindExtend:       {mustRequest | hasLock | hasToken | hasTTL, mayRequest},
	KindLevel:        {hasLevel, hasVersion},
	KindMembers:      {hasMembers, mayRequest},
	KindForgetMark:   {hasLock, 0},
	KindSkip:         {mustRequest | hasLock, 0},
	KindOwn:          {hasOwn, 0},
}

// fields returns the optional fields that are in use.
func (r *Record) fields() fieldSet {
	var set fieldSet
	mark := func(used bool, f fieldSet) {
		if used {
			set |= f
		}
	}
	mark(r.Client != "", hasClient)
	mark(r.Request != 0, hasRequest)
	mark(r.LowWater != 0, hasLowWater)
	mark(r.Hash != 0, hasHash)
	mark(r.Lock != "", hasLock)
	mark(r.Token != 0, hasToken)
	mark(r.TTL != 0, hasTTL)
	mark(r.Wait != 0, hasWait)
	mark(r.Mode != 0, hasMode)
	mark(r.Holder != Holder{}, hasHolder)
	mark(r.File != "", hasFile)
	mark(r.Generation != 0, hasGeneration)
	mark(r.Inode != 0, hasInode)
	mark(r.Offset != 0, hasOffset)
	mark(r.Length != 0, hasLength)
	mark(r.CRC != 0, hasCRC)
	mark(r.Data != nil, hasData)
	mark(r.Actor != "", hasActor)
	mark(r.Reason != "", hasReason)
	mark(r.Nonce != 0, hasNonce)
	mark(r.Server != 0, hasServer)
	mark(r.Metadata != "", hasMetadata)
	mark(r.MaxHold != 0, hasMaxHold)
	mark(r.Heartbeat, hasHeartbeat)
	mark(r.Mark != 0, hasMark)
	mark(r.Remember, hasRemember)
	mark(r.Level != 0, hasLevel)
	mark(r.Version != "", hasVersion)
	mark(r.Members != "", hasMembers)
	mark(r.After != 0, hasAfter)
	mark(r.Slot != "", hasSlot)
	mark(r.Permit != Permit{}, hasPermit)
	mark(r.Own != "", hasOwn)
	return set
}

// Validate checks that the record has exactly the fields of its kind and that each is
// within its limits, without a table. It returns an error that wraps ErrUnknownKind for a
// kind of a newer binary, ErrUnknownLevel for a level of one.
func (r *Record) Validate() error {
	if !r.Kind.Known() {
		return fmt.Errorf("%w %d: a newer version of holdfast wrote it, run that one", ErrUnknownKind, uint8(r.Kind))
	}
	if r.LSN == 0 || r.Epoch == 0 {
		return fmt.Errorf("record has LSN %d and epoch %d: both start at 1", r.LSN, r.Epoch)
	}
	set, list := r.fields(), kindFields[r.Kind]
	if set&list.must != list.must {
		return fmt.Errorf("%v record lacks a field: has %#x, needs %#x", r.Kind, uint64(set), uint64(list.must))
	}
	if extra := set &^ (list.must | list.may); extra != 0 {
		return fmt.Errorf("%v record has fields %#x that its kind does not use", r.Kind, uint64(extra))
	}
	if err := r.validateNames(set); err != nil {
		return err
	}
	if err := errors.Join(r.validateNumbers(), r.Permit.check(r.Mode)); err != nil {
		return err
	}
	switch r.Kind {
	case KindMembers:
		if _, err := cluster.ParseMembership(r.Members); err != nil {
			return err
		}
	case KindOwn:
		if _, err := cluster.ParseOwn(r.Own); err != nil {
			return err
		}
	}
	return knownLevel(r.Level, r.Version)
}

// knownLevel returns an error that wraps ErrUnknownLevel, and says which binary is needed, if this one does not know
// the level.
func knownLevel(level uint32, version string) error {
	if level <= MaxLevel {
		return nil
	}
	return fmt.Errorf("%w: it was raised to feature level %d by holdfast %s, and this binary knows levels up to %d: run holdfast %s or a newer one",
		ErrUnknownLevel, level, cmp.Or(version, "(version not told)"), MaxLevel, cmp.Or(version, "of that level"))
}

func (r *Record) validateNames(set fieldSet) error {
	var errs [4]error
	if set&hasClient != 0 {
		errs[0] = r.Client.Validate()
	}
	if set&hasLock != 0 {
		errs[1] = r.Lock.Validate()
	}
	if set&hasFile != 0 {
		errs[2] = r.File.Validate()
	}
	if set&hasSlot != 0 {
		errs[3] = r.Slot.Validate()
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, s := range [...]string{r.Holder.Host, r.Holder.Command, r.Actor, r.Reason, r.Version} {
		if !validText(s) {
			return fmt.Errorf("text %.40q… has %d bytes or is not UTF-8: at most %d are allowed", s, len(s), cluster.MaxText)
		}
	}
	if err := validIdentity(r.Identity); err != nil {
		return err
	}
	return validMetadata(r.Metadata)
}

func (r *Record) validateNumbers() error {
	switch {
	case r.Request > MaxRequestID:
		return fmt.Errorf("request ID %d is above %d", r.Request, MaxRequestID)
	case r.LowWater > r.Request:
		return fmt.Errorf("low-water mark %d is above request ID %d", r.LowWater, r.Request)
	case (r.Kind == KindBreak || r.Kind == KindMembers) && (r.Client == "") != (r.Request == 0):
		return fmt.Errorf("%v with half a request: client %q, request ID %d", r.Kind, r.Client, r.Request)
	case r.Time < 0:
		return fmt.Errorf("time %d is before 1970", r.Time)
	case r.Request == 0 && r.Hash != 0:
		return fmt.Errorf("request hash without a request ID")
	case uint64(r.Token) >= uint64(r.LSN) && r.Token != 0:
		return fmt.Errorf("token %d is not older than the record %d", r.Token, r.LSN)
	case uint64(r.After) >= uint64(r.LSN) && r.After != 0:
		return fmt.Errorf("token %d is not older than the record %d", r.After, r.LSN)
	case r.MaxHold < 0:
		return fmt.Errorf("most time to hold %v is negative", r.MaxHold)
	case r.TTL < 0:
		return fmt.Errorf("TTL %v is negative", r.TTL)
	case r.Wait < 0 && r.Wait != WaitForever:
		return fmt.Errorf("wait %v is negative", r.Wait)
	case r.Slot != "" && r.Mode != ModeExclusive:
		return fmt.Errorf("slot %s in shared mode", r.Slot)
	case r.Mode > ModeShared:
		return fmt.Errorf("unknown lock mode %d", r.Mode)
	case !validPID(r.Holder.PID):
		return fmt.Errorf("holder has process ID %d", r.Holder.PID)
	case r.Offset < 0 || r.Length < 0 || r.Length > cluster.MaxAppend || r.Offset+r.Length < 0:
		return fmt.Errorf("offset %d, length %d: out of range", r.Offset, r.Length)
	case r.Data != nil && int64(len(r.Data)) != r.Length:
		return fmt.Errorf("length is %d but there are %d bytes of data", r.Length, len(r.Data))
	}
	return nil
}

func validText(s string) bool { return len(s) <= cluster.MaxText && utf8.ValidString(s) }

// validIdentity wants a text that can be shown, such as user:alice.
func validIdentity(s string) error {
	for _, c := range s {
		if c == utf8.RuneError || unicode.IsControl(c) || len(s) > cluster.MaxText {
			return fmt.Errorf("identity %.40q… has %d bytes or holds control characters, or is not UTF-8: at most %d bytes are allowed", s, len(s), cluster.MaxText)
		}
	}
	return nil
}

func validMetadata(s string) error {
	if len(s) > cluster.MaxMetadata || !utf8.ValidString(s) {
		return fmt.Errorf("the metadata has %d bytes or is not UTF-8: at most %d are allowed", len(s), cluster.MaxMetadata)
	}
	return nil
}

func validPID(pid int) bool { return pid >= 0 && pid <= 1<<31-1 }
