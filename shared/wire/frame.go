// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Reflection would cost more than all other work for an operation, so the few kinds of messages of a
// session that come by the hundred thousand, acquires, releases, appends and their answers, are
// encoded and decoded without it, here and in package convert. The format is protobuf's; any client
// may use the generated code.

// Tags of the messages that are encoded and decoded here: field number and wire type, which
// is 0 for a number and 2 for a text.
const (
	TagOperations  = 2<<3 | 2 // of SessionRequest
	tagAnswers     = 2<<3 | 2 // of SessionResponse
	tagCorrelation = 1 << 3   // of Operation
	tagAcquire     = 2<<3 | 2
	tagRelease     = 3<<3 | 2
	tagAppend      = 5<<3 | 2
	tagClientID    = 1<<3 | 2 // of AcquireRequest, ReleaseRequest and FileAppendRequest
	tagRequestID   = 2 << 3
	tagLowWater    = 3 << 3
	tagLock        = 4<<3 | 2
	tagTTLOrToken  = 5 << 3
	tagWait        = 6 << 3   // of AcquireRequest
	tagFile        = 6<<3 | 2 // of FileAppendRequest
	tagData        = 7<<3 | 2
	tagDataCRC     = 8 << 3
	tagAdopt       = 9 << 3
	tagStatus      = 1 << 3 // of Answer
	tagMessage     = 2<<3 | 2
	tagAnswerOf    = 3 << 3
	tagProtected   = 6 << 3
	tagRepeat      = 7 << 3
	tagEpoch       = 8 << 3
	tagLSN         = 9 << 3
	tagAnswerToken = 11 << 3
	tagAnswerTTL   = 12 << 3
	tagQueueLength = 14 << 3
	tagReceipt     = 15<<3 | 2
	tagOfFile      = 1<<3 | 2 // of Receipt
	tagOffset      = 2 << 3
	tagLength      = 3 << 3
	tagCRC         = 4 << 3
	tagOfLSN       = 5 << 3
	tagOfToken     = 6 << 3
	tagOfEpoch     = 7 << 3
	tagGeneration  = 8 << 3
)

// AppendOperation appends op to an encoded SessionRequest.
func AppendOperation(b []byte, op *pb.Operation) ([]byte, error) {
	if op.Traceparent != "" { // few have one
		return AppendRequest(b, &pb.SessionRequest{Operations: []*pb.Operation{op}})
	}
	var q []byte
	tag := uint64(tagAcquire)
	var room [160]byte
	switch x := op.GetRequest().(type) {
	case *pb.Operation_Acquire:
		if x.Acquire.Mode != 0 || x.Acquire.Holder != nil || x.Acquire.Metadata != "" ||
			x.Acquire.MaxHoldMs != 0 || x.Acquire.Heartbeat || x.Acquire.AfterToken != 0 || x.Acquire.Remember || x.Acquire.Once != "" || x.Acquire.Limit != 0 || x.Acquire.Weight != 0 {
			return AppendRequest(b, &pb.SessionRequest{Operations: []*pb.Operation{op}})
		}
		q = appendAcquire(room[:0], x.Acquire)
	case *pb.Operation_Release:
		if x.Release.Done {
			return AppendRequest(b, &pb.SessionRequest{Operations: []*pb.Operation{op}})
		}
		tag, q = tagRelease, appendRelease(room[:0], x.Release)
	case *pb.Operation_Append:
		if x.Append.ExpectedOffset != nil {
			return AppendRequest(b, &pb.SessionRequest{Operations: []*pb.Operation{op}})
		}
		tag, q = tagAppend, appendAppend(room[:0], x.Append)
	default:
		return AppendRequest(b, &pb.SessionRequest{Operations: []*pb.Operation{op}})
	}
	size := protowire.SizeVarint(tagCorrelation) + protowire.SizeVarint(op.Correlation) + protowire.SizeVarint(tag) + protowire.SizeBytes(len(q))
	b = protowire.AppendVarint(b, TagOperations)
	b = protowire.AppendVarint(b, uint64(size))
	b = protowire.AppendVarint(b, tagCorrelation)
	b = protowire.AppendVarint(b, op.Correlation)
	b = protowire.AppendVarint(b, tag)
	return protowire.AppendBytes(b, q), nil
}

func appendAcquire(b []byte, q *pb.AcquireRequest) []byte {
	b = appendRequester(b, q.ClientId, q.RequestId, q.LowWater, q.Lock)
	b = appendNumber(b, tagTTLOrToken, uint64(q.TtlMs))
	if q.WaitMs != nil { // present, 0 or not
		b = protowire.AppendVarint(protowire.AppendVarint(b, tagWait), uint64(*q.WaitMs))
	}
	return b
}

func appendRelease(b []byte, q *pb.ReleaseRequest) []byte {
	return appendNumber(appendRequester(b, q.ClientId, q.RequestId, q.LowWater, q.Lock), tagTTLOrToken, q.Token)
}

func appendAppend(b []byte, q *pb.FileAppendRequest) []byte {
	b = appendNumber(appendRequester(b, q.ClientId, q.RequestId, q.LowWater, q.Lock), tagTTLOrToken, q.Token)
	b = appendText(b, tagFile, q.File)
	if len(q.Data) > 0 {
		b = protowire.AppendBytes(protowire.AppendVarint(b, tagData), q.Data)
	}
	if q.Crc32C != nil { // present, 0 or not
		b = protowire.AppendVarint(protowire.AppendVarint(b, tagDataCRC), uint64(*q.Crc32C))
	}
	return appendNumber(b, tagAdopt, protowire.EncodeBool(q.AdoptExisting))
}

func appendRequester(b []byte, client string, id, lowWater uint64, lock string) []byte {
	b = appendText(b, tagClientID, client)
	b = appendNumber(b, tagRequestID, id)
	b = appendNumber(b, tagLowWater, lowWater)
	return appendText(b, tagLock, lock)
}

// AppendRequest appends everything in m to an encoded SessionRequest. It returns an error and b
// as it was if a text is not UTF-8.
func AppendRequest(b []byte, m *pb.SessionRequest) ([]byte, error) { return appendAll(b, m) }

func appendAll(b []byte, m proto.Message) ([]byte, error) {
	out, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return b, err
	}
	return out, nil
}

// appendNumber appends a field that is left out when it is 0.
func appendNumber(b []byte, tag, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendVarint(b, tag), v)
}

// appendText appends a field that is left out when it is empty.
func appendText(b []byte, tag uint64, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendVarint(b, tag), s)
}

// NextField splits the first field off an encoded message: its tag and its value, which
// is v or text.
func NextField(b []byte) (tag, v uint64, text, rest []byte, err error) {
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, 0, nil, nil, badMessage(n)
	}
	b = b[n:]
	switch field, kind := protowire.DecodeTag(tag); {
	case field < protowire.MinValidNumber:
		return 0, 0, nil, nil, badMessage(-1)
	case kind == protowire.VarintType:
		v, n = protowire.ConsumeVarint(b)
	case kind == protowire.BytesType:
		text, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(field, kind, b)
	}
	if n < 0 {
		return 0, 0, nil, nil, badMessage(n)
	}
	return tag, v, text, b[n:], nil
}

func badMessage(n int) error {
	return fmt.Errorf("message is not protobuf: %w", protowire.ParseError(n))
}

// CountOnly counts the fields of an encoded message. only reports whether all of them have this
// tag.
func CountOnly(b []byte, tag uint64) (n int, only bool, err error) {
	for only = true; len(b) > 0; n++ {
		got, _, _, rest, err := NextField(b)
		if err != nil {
			return 0, false, err
		}
		only = only && got == tag
		b = rest
	}
	return n, only, nil
}

// EachAnswer calls f with each answer of an encoded SessionResponse that has nothing but answers.
// It returns false if it has more: then use the generated code.
func EachAnswer(b []byte, f func(*pb.Answer)) (bool, error) {
	if _, only, err := CountOnly(b, tagAnswers); !only {
		return false, err
	}
	for len(b) > 0 {
		_, _, text, rest, err := NextField(b)
		if err != nil {
			return true, err
		}
		a := &pb.Answer{}
		if err := decodeAnswer(text, a); err != nil {
			return true, err
		}
		f(a)
		b = rest
	}
	return true, nil
}

// decodeAnswer decodes the usual fields itself, and answers with others by the generated code.
func decodeAnswer(b []byte, a *pb.Answer) error {
	for rest := b; len(rest) > 0; {
		tag, v, text, r, err := NextField(rest)
		if err != nil {
			return err
		}
		switch tag {
		case tagStatus:
			a.Status = pb.Status(v)
		case tagMessage:
			a.Message = string(text)
		case tagAnswerOf:
			a.Correlation = v
		case tagProtected:
			a.Protected = v != 0
		case tagRepeat:
			a.Repeat = v != 0
		case tagEpoch:
			a.Epoch = v
		case tagLSN:
			a.Lsn = v
		case tagAnswerToken:
			a.Token = v
		case tagAnswerTTL:
			a.TtlMs = int64(v)
		case tagQueueLength:
			a.QueueLength = uint32(v)
		case tagReceipt:
			if a.Receipt == nil {
				a.Receipt = &pb.Receipt{}
			}
			if plain, err := decodeReceipt(text, a.Receipt); err != nil {
				return err
			} else if !plain {
				proto.Reset(a)
				return proto.Unmarshal(b, a)
			}
		default:
			proto.Reset(a)
			return proto.Unmarshal(b, a)
		}
		rest = r
	}
	return nil
}

// decodeReceipt decodes a receipt that has the usual fields only; plain is false if it has others.
func decodeReceipt(b []byte, r *pb.Receipt) (plain bool, err error) {
	for len(b) > 0 {
		tag, v, text, rest, err := NextField(b)
		if err != nil {
			return false, err
		}
		switch tag {
		case tagOfFile:
			r.File = string(text)
		case tagOffset:
			r.Offset = int64(v)
		case tagLength:
			r.Length = int64(v)
		case tagCRC:
			r.Crc32C = uint32(v)
		case tagOfLSN:
			r.Lsn = v
		case tagOfToken:
			r.Token = v
		case tagOfEpoch:
			r.Epoch = v
		case tagGeneration:
			r.Generation = v
		default:
			return false, nil
		}
		b = rest
	}
	return true, nil
}

// AnswerFrame encodes an answer that has these fields only, as most have.
type AnswerFrame struct {
	Status                         pb.Status
	Message                        string
	Correlation, Epoch, LSN, Token uint64
	Protected, Repeat              bool
	TTLMillis                      int64
	QueueLength                    uint32
	// Receipt is that of an append; without a file there is none. Its LSN, token
	// and epoch are those of the answer.
	Receipt ReceiptFrame
}

// ReceiptFrame is the fields of a receipt that its answer does not have.
type ReceiptFrame struct {
	File           string
	Offset, Length int64
	CRC32C         uint32
	Generation     uint64
}

// AppendTo appends the answer to an encoded SessionResponse.
func (a *AnswerFrame) AppendTo(b []byte) []byte {
	var room [96]byte
	q := appendNumber(room[:0], tagStatus, uint64(a.Status))
	q = appendText(q, tagMessage, a.Message)
	q = appendNumber(q, tagAnswerOf, a.Correlation)
	q = appendNumber(q, tagProtected, protowire.EncodeBool(a.Protected))
	q = appendNumber(q, tagRepeat, protowire.EncodeBool(a.Repeat))
	q = appendNumber(q, tagEpoch, a.Epoch)
	q = appendNumber(q, tagLSN, a.LSN)
	q = appendNumber(q, tagAnswerToken, a.Token)
	q = appendNumber(q, tagAnswerTTL, uint64(a.TTLMillis))
	q = appendNumber(q, tagQueueLength, uint64(a.QueueLength))
	if r := &a.Receipt; r.File != "" {
		var room [96]byte
		x := appendText(room[:0], tagOfFile, r.File)
		x = appendNumber(x, tagOffset, uint64(r.Offset))
		x = appendNumber(x, tagLength, uint64(r.Length))
		x = appendNumber(x, tagCRC, uint64(r.CRC32C))
		x = appendNumber(x, tagOfLSN, a.LSN)
		x = appendNumber(x, tagOfToken, a.Token)
		x = appendNumber(x, tagOfEpoch, a.Epoch)
		x = appendNumber(x, tagGeneration, r.Generation)
		q = protowire.AppendBytes(protowire.AppendVarint(q, tagReceipt), x)
	}
	return protowire.AppendBytes(protowire.AppendVarint(b, tagAnswers), q)
}

// AppendResponse appends everything in m to an encoded SessionResponse. It returns an error and b
// as it was if a text is not UTF-8.
func AppendResponse(b []byte, m *pb.SessionResponse) ([]byte, error) { return appendAll(b, m) }

// OperationFrame is an acquire, a release or an append as Decode decodes it. Its texts and data
// alias the message.
type OperationFrame struct {
	Correlation           uint64
	Kind                  OperationKind
	Client, Lock, File    []byte
	RequestID, LowWater   uint64
	TTLMillis, WaitMillis int64
	Token                 uint64
	Data                  []byte
	CRC32C                uint32
	HasCRC, Adopt         bool
}

// OperationKind is the operation of an OperationFrame.
type OperationKind uint8

// The kinds of an OperationFrame.
const (
	OperationNone OperationKind = iota
	OperationAcquire
	OperationRelease
	OperationAppend
)

// Decode decodes an encoded Operation. It returns false if it is another one, or has an unusual
// field: then use the generated code.
func (o *OperationFrame) Decode(b []byte) (bool, error) {
	*o = OperationFrame{}
	for len(b) > 0 {
		tag, v, text, rest, err := NextField(b)
		if err != nil {
			return false, err
		}
		kind := OperationNone
		switch tag {
		case tagCorrelation:
			o.Correlation = v
		case tagAcquire:
			kind = OperationAcquire
		case tagRelease:
			kind = OperationRelease
		case tagAppend:
			kind = OperationAppend
		default:
			return false, nil
		}
		if kind != OperationNone {
			if o.Kind != OperationNone {
				return false, nil
			}
			o.Kind = kind
			if plain, err := o.decodeRequest(text); !plain || err != nil {
				return false, err
			}
		}
		b = rest
	}
	return o.Kind != OperationNone, nil
}

func (o *OperationFrame) decodeRequest(b []byte) (bool, error) {
	appends := o.Kind == OperationAppend
	for len(b) > 0 {
		tag, v, text, rest, err := NextField(b)
		switch {
		case err != nil:
			return false, err
		case tag == tagClientID:
			o.Client = text
		case tag == tagRequestID:
			o.RequestID = v
		case tag == tagLowWater:
			o.LowWater = v
		case tag == tagLock:
			o.Lock = text
		case tag == tagTTLOrToken && o.Kind == OperationAcquire:
			o.TTLMillis = int64(v)
		case tag == tagTTLOrToken:
			o.Token = v
		case tag == tagWait && o.Kind == OperationAcquire:
			o.WaitMillis = int64(v)
		case tag == tagFile && appends:
			o.File = text
		case tag == tagData && appends:
			o.Data = text
		case tag == tagDataCRC && appends:
			o.CRC32C, o.HasCRC = uint32(v), true
		case tag == tagAdopt && appends:
			o.Adopt = v != 0
		default:
			return false, nil
		}
		b = rest
	}
	return true, nil
}
