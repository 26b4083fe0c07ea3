// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// MaxRequestID is the largest request ID: one that every JSON and protobuf
// integer can carry and whose successor exists.
const MaxRequestID cluster.RequestID = 1<<63 - 1

// ErrUnknownKind means that a newer binary wrote the record. An older binary
// cannot know what the record does, so it must refuse to lead.
var ErrUnknownKind = errors.New("unknown record kind")

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
	KindResigned:     "resigned",
	KindReign:        "reign",
	KindMetadata:     "metadata",
	KindAsk:          "ask",
	KindDowngrade:    "downgrade",
	KindSeal:         "seal",
	KindAlready:      "already",
}

// Known says that this binary knows the kind.
func (k Kind) Known() bool { return int(k) < len(kindWords) && kindWords[k] != "" }

// String is the word of the kind, as it stands in JSON and history.
func (k Kind) String() string {
	if k.Known() {
		return kindWords[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind is the inverse of String.
func ParseKind(word string) (Kind, bool) {
	i := slices.Index(kindWords[:], word)
	if i < int(KindGrant) {
		return 0, false
	}
	return Kind(i), true
}

// A fieldSet says which optional fields of a record are in use.
type fieldSet uint32

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

	mayLease = hasMode | hasHolder | hasMetadata | hasMaxHold | hasHeartbeat

	mustRequest = hasClient | hasRequest
	mayRequest  = mustRequest | hasLowWater | hasHash
)

// kindFields is the field list of record.go in a form that Validate can use.
var kindFields = [...]struct{ must, may fieldSet }{
	KindGrant:        {mustRequest | hasLock | hasTTL, mayRequest | mayLease},
	KindEnqueue:      {mustRequest | hasLock | hasTTL | hasWait, mayRequest | mayLease},
	KindRelease:      {mustRequest | hasLock | hasToken, mayRequest},
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
	KindResigned:     {0, hasReason},
	KindReign:        {hasServer, 0},
	KindMetadata:     {mustRequest | hasLock | hasToken, mayRequest | hasMetadata},
	KindAsk:          {mustRequest | hasLock | hasToken | hasWait, mayRequest | hasActor | hasReason},
	KindDowngrade:    {mustRequest | hasLock | hasToken, mayRequest},
	KindSeal:         {mustRequest | hasLock | hasToken | hasFile | hasGeneration, mayRequest | hasOffset},
	KindAlready:      {mustRequest | hasLock | hasToken | hasFile | hasGeneration, mayRequest | hasOffset},
}

// fields returns which optional fields are in use.
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
	return set
}

// Validate checks that the record has exactly the fields of its kind and that
// each is within its limits. It knows nothing of the table.
func (r *Record) Validate() error {
	if !r.Kind.Known() {
		return fmt.Errorf("%w %d", ErrUnknownKind, uint8(r.Kind))
	}
	if r.LSN == 0 || r.Epoch == 0 {
		return fmt.Errorf("record has LSN %d and epoch %d: both start at 1", r.LSN, r.Epoch)
	}
	set, list := r.fields(), kindFields[r.Kind]
	if set&list.must != list.must {
		return fmt.Errorf("%v record lacks a field: has %#x, needs %#x", r.Kind, uint32(set), uint32(list.must))
	}
	if extra := set &^ (list.must | list.may); extra != 0 {
		return fmt.Errorf("%v record has fields %#x that its kind does not use", r.Kind, uint32(extra))
	}
	if err := r.validateNames(set); err != nil {
		return err
	}
	return r.validateNumbers()
}

func (r *Record) validateNames(set fieldSet) error {
	var errs [3]error
	if set&hasClient != 0 {
		errs[0] = r.Client.Validate()
	}
	if set&hasLock != 0 {
		errs[1] = r.Lock.Validate()
	}
	if set&hasFile != 0 {
		errs[2] = r.File.Validate()
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, s := range [...]string{r.Holder.Host, r.Holder.Command, r.Actor, r.Reason} {
		if !validText(s) {
			return fmt.Errorf("text %.40q… has %d bytes or is not UTF-8: at most %d are allowed", s, len(s), cluster.MaxText)
		}
	}
	return validMetadata(r.Metadata)
}

func (r *Record) validateNumbers() error {
	switch {
	case r.Request > MaxRequestID:
		return fmt.Errorf("request ID %d is above %d", r.Request, MaxRequestID)
	case r.LowWater > r.Request:
		return fmt.Errorf("low-water mark %d is above request ID %d", r.LowWater, r.Request)
	case r.Kind == KindBreak && (r.Client == "") != (r.Request == 0):
		return fmt.Errorf("break with half a request: client %q, request ID %d", r.Client, r.Request)
	case r.Time < 0:
		return fmt.Errorf("time %d is before 1970", r.Time)
	case r.Request == 0 && r.Hash != 0:
		return fmt.Errorf("request hash without a request ID")
	case uint64(r.Token) >= uint64(r.LSN) && r.Token != 0:
		return fmt.Errorf("token %d is not older than the record %d", r.Token, r.LSN)
	case r.MaxHold < 0:
		return fmt.Errorf("most time to hold %v is negative", r.MaxHold)
	case r.TTL < 0:
		return fmt.Errorf("TTL %v is negative", r.TTL)
	case r.Wait < 0 && r.Wait != WaitForever:
		return fmt.Errorf("wait %v is negative", r.Wait)
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

func validMetadata(s string) error {
	if len(s) > cluster.MaxMetadata || !utf8.ValidString(s) {
		return fmt.Errorf("the metadata has %d bytes or is not UTF-8: at most %d are allowed", len(s), cluster.MaxMetadata)
	}
	return nil
}

func validPID(pid int) bool { return pid >= 0 && pid <= 1<<31-1 }
