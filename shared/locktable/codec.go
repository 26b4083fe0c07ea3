// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A record is encoded as a protobuf message with these field numbers, ascending,
// each at most once, zero values left out, varints as short as possible: one
// record has one encoding. Numbers are for ever. A number below 64 changes what
// the record does, so a binary that does not know it must refuse the record; a
// number from 64 on may be skipped: the state hash and what is legal do not depend on it. Data is not a field: frames
// carry it after the header.
const (
	fieldLSN           protowire.Number = 1  // varint
	fieldEpoch         protowire.Number = 2  // varint
	fieldKind          protowire.Number = 3  // varint
	fieldClient        protowire.Number = 4  // string
	fieldRequest       protowire.Number = 5  // varint
	fieldLowWater      protowire.Number = 6  // varint
	fieldHash          protowire.Number = 7  // fixed64
	fieldLock          protowire.Number = 8  // string
	fieldToken         protowire.Number = 9  // varint
	fieldTTL           protowire.Number = 10 // zigzag varint, nanoseconds
	fieldWait          protowire.Number = 11 // zigzag varint, nanoseconds; -1 = for ever
	fieldMode          protowire.Number = 12 // varint
	fieldHolderHost    protowire.Number = 13 // string
	fieldHolderPID     protowire.Number = 14 // varint
	fieldHolderCommand protowire.Number = 15 // string
	fieldFile          protowire.Number = 16 // string
	fieldGeneration    protowire.Number = 17 // varint
	fieldInode         protowire.Number = 18 // varint
	fieldOffset        protowire.Number = 19 // varint
	fieldLength        protowire.Number = 20 // varint
	fieldCRC           protowire.Number = 21 // fixed32
	fieldActor         protowire.Number = 22 // string
	fieldReason        protowire.Number = 23 // string
	fieldNonce         protowire.Number = 24 // fixed64
	fieldServer        protowire.Number = 25 // varint
	fieldMetadata      protowire.Number = 26 // string
	fieldMaxHold       protowire.Number = 27 // zigzag varint, nanoseconds
	fieldHeartbeat     protowire.Number = 28 // varint, 1
	fieldMark          protowire.Number = 29 // fixed32
	fieldRemember      protowire.Number = 30 // varint, 1
	fieldLevel         protowire.Number = 31 // varint
	fieldVersion       protowire.Number = 32 // string
	fieldMembers       protowire.Number = 33 // string, JSON
	fieldAfter         protowire.Number = 34 // varint
	fieldSlot          protowire.Number = 35 // string
	fieldLimit         protowire.Number = 36 // varint
	fieldWeight        protowire.Number = 37 // varint
	fieldOwn           protowire.Number = 40 // string, JSON

	// fieldSkippable is the first number that an older binary may skip.
	fieldSkippable protowire.Number = 64
	fieldTime      protowire.Number = 64 // varint, milliseconds since 1970
	fieldIdentity  protowire.Number = 65 // string
)

// ErrUnknownField means that a newer binary wrote the record, with a field that
// this one must not ignore.
var ErrUnknownField = errors.New("unknown record field")

// ErrMalformed means that the bytes are no encoding of a record.
var ErrMalformed = errors.New("malformed record")

// AppendHeader appends the encoding of all fields except Data to b.
func (r *Record) AppendHeader(b []byte) []byte {
	b = appendVarint(b, fieldLSN, uint64(r.LSN))
	b = appendVarint(b, fieldEpoch, uint64(r.Epoch))
	b = appendVarint(b, fieldKind, uint64(r.Kind))
	b = appendString(b, fieldClient, string(r.Client))
	b = appendVarint(b, fieldRequest, uint64(r.Request))
	b = appendVarint(b, fieldLowWater, uint64(r.LowWater))
	b = appendFixed64(b, fieldHash, r.Hash)
	b = appendString(b, fieldLock, string(r.Lock))
	b = appendVarint(b, fieldToken, uint64(r.Token))
	b = appendVarint(b, fieldTTL, protowire.EncodeZigZag(int64(r.TTL)))
	b = appendVarint(b, fieldWait, protowire.EncodeZigZag(int64(r.Wait)))
	b = appendVarint(b, fieldMode, uint64(r.Mode))
	b = appendString(b, fieldHolderHost, r.Holder.Host)
	b = appendVarint(b, fieldHolderPID, uint64(r.Holder.PID))
	b = appendString(b, fieldHolderCommand, r.Holder.Command)
	b = appendString(b, fieldFile, string(r.File))
	b = appendVarint(b, fieldGeneration, uint64(r.Generation))
	b = appendVarint(b, fieldInode, r.Inode)
	b = appendVarint(b, fieldOffset, uint64(r.Offset))
	b = appendVarint(b, fieldLength, uint64(r.Length))
	b = appendFixed32(b, fieldCRC, r.CRC)
	b = appendString(b, fieldActor, r.Actor)
	b = appendString(b, fieldReason, r.Reason)
	b = appendFixed64(b, fieldNonce, r.Nonce)
	b = appendVarint(b, fieldServer, uint64(r.Server))
	b = appendString(b, fieldMetadata, r.Metadata)
	b = appendVarint(b, fieldMaxHold, protowire.EncodeZigZag(int64(r.MaxHold)))
	b = appendVarint(b, fieldHeartbeat, protowire.EncodeBool(r.Heartbeat))
	b = appendFixed32(b, fieldMark, uint32(r.Mark))
	b = appendVarint(b, fieldRemember, protowire.EncodeBool(r.Remember))
	b = appendVarint(b, fieldLevel, uint64(r.Level))
	b = appendString(b, fieldVersion, r.Version)
	b = appendString(b, fieldMembers, r.Members)
	b = appendVarint(b, fieldAfter, uint64(r.After))
	b = appendString(b, fieldSlot, string(r.Slot))
	b = appendVarint(b, fieldLimit, uint64(r.Permit.Limit))
	b = appendVarint(b, fieldWeight, uint64(r.Permit.Weight))
	b = appendString(b, fieldOwn, r.Own)
	b = appendVarint(b, fieldTime, uint64(r.Time))
	return appendString(b, fieldIdentity, r.Identity)
}

func appendVarint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendFixed64(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}

func appendFixed32(b []byte, num protowire.Number, v uint32) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed32(protowire.AppendTag(b, num, protowire.Fixed32Type), v)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// DecodeHeader is the strict inverse of AppendHeader. It returns an error that wraps
// ErrMalformed for bytes that AppendHeader would not have written, ErrUnknownField,
// ErrUnknownKind or ErrUnknownLevel for those of a newer binary. Fields that may be skipped are no error. The
// record does not alias b.
func DecodeHeader(b []byte) (Record, error) {
	r, err := (*Decoder)(nil).DecodeHeader(b)
	if err != nil {
		return Record{}, err
	}
	if err := r.Validate(); err != nil {
		if errors.Is(err, ErrUnknownKind) || errors.Is(err, ErrUnknownLevel) {
			return Record{}, err
		}
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// maxTexts is how many texts a Decoder keeps, at most.
const maxTexts = 4096

// Decoder decodes one record after the other for a caller that applies them: it leaves
// Validate to Apply. Records that name the same clients, locks and holders share these
// texts, so most are decoded without an allocation. The zero Decoder is ready for use.
type Decoder struct{ texts map[string]string }

func (d *Decoder) text(b []byte) string {
	if d == nil {
		return string(b)
	}
	if s, ok := d.texts[string(b)]; ok {
		return s
	}
	if len(d.texts) == 0 || len(d.texts) >= maxTexts {
		d.texts = map[string]string{}
	}
	s := string(b)
	d.texts[s] = s
	return s
}

// DecodeHeader is like the function DecodeHeader, without Validate.
func (d *Decoder) DecodeHeader(b []byte) (Record, error) {
	var r Record
	for last := protowire.Number(0); len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return Record{}, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		if n != protowire.SizeTag(num) || num <= last {
			return Record{}, fmt.Errorf("%w: field %d after field %d or with an overlong tag", ErrMalformed, num, last)
		}
		last, b = num, b[n:]
		if num > fieldIdentity {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return Record{}, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		v, n, err := d.consumeValue(num, typ, b)
		if err != nil {
			return Record{}, err
		}
		if err := r.setField(num, v); err != nil {
			return Record{}, err
		}
		b = b[n:]
	}
	return r, nil
}

// value is one decoded field: a number or a string.
type value struct {
	n uint64
	s string
}

// fieldType is the wire type of a known field.
func fieldType(num protowire.Number) protowire.Type {
	switch num {
	case fieldClient, fieldLock, fieldHolderHost, fieldHolderCommand, fieldFile, fieldActor, fieldReason, fieldMetadata, fieldVersion, fieldMembers, fieldSlot, fieldOwn, fieldIdentity:
		return protowire.BytesType
	case fieldHash, fieldNonce:
		return protowire.Fixed64Type
	case fieldCRC, fieldMark:
		return protowire.Fixed32Type
	default:
		return protowire.VarintType
	}
}

func (d *Decoder) consumeValue(num protowire.Number, typ protowire.Type, b []byte) (v value, n int, err error) {
	if num > fieldWeight && num < fieldSkippable && num != fieldOwn {
		return v, 0, fmt.Errorf("%w %d", ErrUnknownField, num)
	}
	if typ != fieldType(num) {
		return v, 0, fmt.Errorf("%w: field %d has wire type %d", ErrMalformed, num, typ)
	}
	canonical := true
	switch typ {
	case protowire.BytesType:
		var raw []byte
		if raw, n = protowire.ConsumeBytes(b); n >= 0 {
			canonical = n == protowire.SizeBytes(len(raw)) && len(raw) > 0
			v.s = d.text(raw)
		}
	case protowire.Fixed64Type:
		v.n, n = protowire.ConsumeFixed64(b)
		canonical = v.n != 0
	case protowire.Fixed32Type:
		var x uint32
		x, n = protowire.ConsumeFixed32(b)
		v.n, canonical = uint64(x), x != 0
	default:
		v.n, n = protowire.ConsumeVarint(b)
		canonical = v.n != 0 && n == protowire.SizeVarint(v.n)
	}
	if n < 0 {
		return v, 0, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
	}
	if !canonical {
		return v, 0, fmt.Errorf("%w: field %d is zero or not in its shortest form", ErrMalformed, num)
	}
	return v, n, nil
}

// setField stores v; it refuses numbers that do not fit their field.
func (r *Record) setField(num protowire.Number, v value) error {
	limit := uint64(1<<64 - 1)
	switch num {
	case fieldLSN:
		r.LSN = cluster.LSN(v.n)
	case fieldEpoch:
		r.Epoch = cluster.Epoch(v.n)
	case fieldKind:
		r.Kind = Kind(min(v.n, 1<<8-1)) // 255 will never be a kind
	case fieldClient:
		r.Client = cluster.ClientID(v.s)
	case fieldRequest:
		r.Request = cluster.RequestID(v.n)
	case fieldLowWater:
		r.LowWater = cluster.RequestID(v.n)
	case fieldHash:
		r.Hash = v.n
	case fieldLock:
		r.Lock = cluster.LockName(v.s)
	case fieldToken:
		r.Token = cluster.Token(v.n)
	case fieldTTL:
		r.TTL = time.Duration(protowire.DecodeZigZag(v.n))
	case fieldWait:
		r.Wait = time.Duration(protowire.DecodeZigZag(v.n))
	case fieldMode:
		r.Mode, limit = Mode(v.n), 1<<8-1
	case fieldHolderHost:
		r.Holder.Host = v.s
	case fieldHolderPID:
		r.Holder.PID, limit = int(v.n), 1<<31-1
	case fieldHolderCommand:
		r.Holder.Command = v.s
	case fieldFile:
		r.File = cluster.FileName(v.s)
	default:
		return r.setFileField(num, v)
	}
	return checkLimit(num, v.n, limit)
}

func (r *Record) setFileField(num protowire.Number, v value) error {
	limit := uint64(1<<64 - 1)
	switch num {
	case fieldGeneration:
		r.Generation = cluster.Generation(v.n)
	case fieldInode:
		r.Inode = v.n
	case fieldOffset:
		r.Offset, limit = int64(v.n), 1<<63-1
	case fieldLength:
		r.Length, limit = int64(v.n), 1<<63-1
	case fieldCRC:
		r.CRC = uint32(v.n)
	case fieldActor:
		r.Actor = v.s
	case fieldReason:
		r.Reason = v.s
	case fieldNonce:
		r.Nonce = v.n
	case fieldServer:
		r.Server, limit = cluster.ServerID(v.n), 1<<32-1
	case fieldMetadata:
		r.Metadata = v.s
	case fieldMaxHold:
		r.MaxHold = time.Duration(protowire.DecodeZigZag(v.n))
	case fieldHeartbeat:
		r.Heartbeat, limit = true, 1
	case fieldMark:
		r.Mark = cluster.Mark(v.n)
	case fieldRemember:
		r.Remember, limit = true, 1
	case fieldLevel:
		r.Level, limit = uint32(v.n), 1<<32-1
	case fieldVersion:
		r.Version = v.s
	case fieldMembers:
		r.Members = v.s
	case fieldAfter:
		r.After = cluster.Token(v.n)
	case fieldSlot:
		r.Slot = cluster.Slot(v.s)
	case fieldLimit:
		r.Permit.Limit, limit = uint32(v.n), 1<<32-1
	case fieldWeight:
		r.Permit.Weight, limit = uint32(v.n), 1<<32-1
	case fieldOwn:
		r.Own = v.s
	case fieldTime:
		r.Time, limit = int64(v.n), 1<<63-1
	case fieldIdentity:
		r.Identity = v.s
	}
	return checkLimit(num, v.n, limit)
}

func checkLimit(num protowire.Number, got, limit uint64) error {
	if got > limit {
		return fmt.Errorf("%w: field %d is %d, at most %d is possible", ErrMalformed, num, got, limit)
	}
	return nil
}
