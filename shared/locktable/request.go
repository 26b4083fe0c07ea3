// SPDX-License-Identifier: Apache-2.0

package locktable

import (
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
	// OpAcquire asks for Lock: TTL, Wait, Mode, Holder, Metadata, MaxHold, Heartbeat.
	OpAcquire Op = 1
	// OpRelease ends the grant Token of Lock.
	OpRelease Op = 2
	// OpAppend appends Data to File under Token of Lock: CRC, AdoptExisting, At.
	OpAppend Op = 3
	// OpBind binds File to Lock under Token: AdoptExisting.
	OpBind Op = 4
	// OpUnbind ends the binding of File to Lock under Token.
	OpUnbind Op = 5
	// OpRotate gives File, bound to Lock, a new inode under Token.
	OpRotate Op = 6
	// OpCancel sees to it that request Target of Client ends now or never runs.
	// It has no ID of its own.
	OpCancel Op = 7
	// OpBreak ends the grant of Lock, of Token if that is set: Actor, Reason. With a
	// Grace its holder is asked first, and has that long to let go.
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
)

var opWords = [...]string{
	OpAcquire: "acquire", OpRelease: "release", OpAppend: "append", OpBind: "bind", OpUnbind: "unbind",
	OpRotate: "rotate", OpCancel: "cancel", OpBreak: "break", OpOpenClient: "open_client", OpMetadata: "metadata",
	OpSeal: "seal", OpDowngrade: "downgrade", OpForget: "forget",
}

// String is the word of the operation.
func (op Op) String() string {
	if int(op) < len(opWords) && opWords[op] != "" {
		return opWords[op]
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// Request asks the table for something. A repeat of a request has the same
// content, the Wait included; only LowWater and Holder may differ.
type Request struct {
	Op       Op
	Client   cluster.ClientID
	ID       cluster.RequestID
	LowWater cluster.RequestID // the lowest ID that the client still cares about, at most ID; 0 says nothing

	Lock   cluster.LockName
	Token  cluster.Token
	TTL    time.Duration
	Wait   time.Duration // 0 = try, WaitForever = no deadline
	Mode   Mode
	Holder Holder

	File          cluster.FileName
	Data          []byte
	CRC           uint32 // CRC-32C of Data
	AdoptExisting bool   // bind a file that is not empty
	// At, if not nil, is the only offset that the append may go to. Nobody changes it.
	At *int64

	// Own refuses a token of a client that is known by name and is not this one.
	Own bool

	Target cluster.RequestID
	Actor  string
	Reason string
	Grace  time.Duration // of OpBreak
	Nonce  uint64
	Mark   cluster.Mark // of OpOpenClient; the primary says it, and not who asks
	Level  uint32       // the feature level that its records may need, 0 = this binary's; the primary says it

	Metadata  string // of OpAcquire and OpMetadata
	MaxHold   time.Duration
	Heartbeat bool
}

// Validate checks what can be known without the table: StatusOK, or
// StatusInvalidArgument or StatusTooLarge with a message that says what to change.
func (q *Request) Validate(t cluster.Timing) (cluster.Status, string) {
	if q.Op == OpAppend && len(q.Data) > cluster.MaxAppend {
		return cluster.StatusTooLarge, fmt.Sprintf("%d bytes of data: one append carries at most %d", len(q.Data), cluster.MaxAppend)
	}
	err := q.validateRequester()
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
	case OpRelease, OpDowngrade, OpMetadata, OpAppend, OpBind, OpUnbind, OpRotate, OpSeal:
		if q.Token == 0 {
			return fmt.Errorf("token is missing")
		}
	default:
		return fmt.Errorf("unknown operation %d", q.Op)
	}
	if q.Op == OpRelease || q.Op == OpDowngrade || q.Op == OpMetadata {
		return nil
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

func (q *Request) validateAcquire(t cluster.Timing) error {
	switch {
	case q.Mode > ModeShared:
		return fmt.Errorf("unknown lock mode %d", q.Mode)
	case q.TTL < t.MinTTL || q.TTL > t.MaxTTL:
		return fmt.Errorf("ttl %v: use %v to %v", q.TTL, t.MinTTL, t.MaxTTL)
	case q.Wait < 0 && q.Wait != WaitForever:
		return fmt.Errorf("wait %v is negative", q.Wait)
	case q.MaxHold < 0:
		return fmt.Errorf("max hold %v is negative: use 0 for no end", q.MaxHold)
	case q.MaxHold > 0 && q.MaxHold < q.TTL:
		return fmt.Errorf("max hold %v is shorter than ttl %v: use a shorter ttl", q.MaxHold, q.TTL)
	case !validPID(q.Holder.PID):
		return fmt.Errorf("holder has process ID %d", q.Holder.PID)
	}
	return nil
}

// ContentHash tells repeats from other requests under the same ID. Who asks is
// no part of it: neither Client, ID and LowWater nor Holder.
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
	// What came later is left out where it is not used: hashes of older requests stay.
	if q.Grace != 0 {
		b = appendNumbers(append(b, 'g'), uint64(q.Grace))
	}
	if q.Metadata != "" {
		b = appendText(append(b, 'm'), q.Metadata)
	}
	b = appendLimits(b, q.MaxHold, q.Heartbeat)
	if q.At != nil {
		b = appendNumbers(append(b, 'o'), uint64(*q.At))
	}
	return xxhash.Sum64(b)
}
