// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// BlockSize is the unit of direct I/O: frames begin at multiples of it, and
// every write is a multiple of it from a buffer aligned to it.
const BlockSize = 4096

const (
	frameMagic   = 0x52464648 // "HFFR"
	frameVersion = 1
	// FrameHeaderSize is what a frame has before its payload, in bytes.
	FrameHeaderSize = 64
	flagElided      = 1

	crcOffset  = 16
	maxDataLen = math.MaxInt32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FrameKind is the kind of a frame. Kinds are numbered for ever.
type FrameKind uint8

// The frame kinds.
const (
	// FrameRecords carries records.
	FrameRecords FrameKind = 1
	// FrameMark carries nothing: it proves that what is before it was durable.
	FrameMark FrameKind = 2
	// FrameClose is the last frame of a segment.
	FrameClose FrameKind = 3
)

// FrameHeader is the header of a frame. The package doc has the meaning of the fields.
type FrameHeader struct {
	Kind        FrameKind
	Elided      bool
	Length      int // bytes of payload
	Count       int // records
	Ordinal     uint32
	Epoch       cluster.Epoch
	First       cluster.LSN
	DurableUpto cluster.LSN
	Chain       Chain
	Binding     uint64
}

// Last returns the LSN of the last record, First-1 if there is none.
func (f FrameHeader) Last() cluster.LSN { return f.First + cluster.LSN(f.Count) - 1 }

// AppendFrame appends a frame without padding. Length and Count are taken from
// the entries, everything else from f; with f.Elided the data is left out.
func AppendFrame(b []byte, f FrameHeader, entries []Entry) []byte {
	start := len(b)
	b = append(b, make([]byte, FrameHeaderSize)...)
	for _, e := range entries {
		b = binary.AppendUvarint(b, uint64(len(e.Header)))
		b = binary.AppendUvarint(b, uint64(e.DataLen))
		b = append(b, e.Header...)
		if !f.Elided {
			b = append(b, e.Data...)
		}
	}
	f.Count = len(entries)
	putFrameHeader(b[start:], f)
	return b
}

// putFrameHeader completes the frame that fills b: header, length and CRC.
func putFrameHeader(b []byte, f FrameHeader) {
	var flags byte
	if f.Elided {
		flags = flagElided
	}
	le := binary.LittleEndian
	le.PutUint32(b[0:], frameMagic)
	b[4], b[5] = byte(f.Kind), flags
	le.PutUint16(b[6:], frameVersion)
	le.PutUint32(b[8:], uint32(len(b)-FrameHeaderSize))
	le.PutUint32(b[12:], uint32(f.Count))
	le.PutUint32(b[crcOffset:], 0)
	le.PutUint32(b[20:], f.Ordinal)
	le.PutUint64(b[24:], uint64(f.Epoch))
	le.PutUint64(b[32:], uint64(f.First))
	le.PutUint64(b[40:], uint64(f.DurableUpto))
	le.PutUint64(b[48:], uint64(f.Chain))
	le.PutUint64(b[56:], f.Binding)
	le.PutUint32(b[crcOffset:], crc32.Checksum(b, castagnoli))
}

// DecodeFrame reads the frame at the start of b and returns its size without
// padding. The entries alias b. It verifies everything but the chain, which
// needs the value before: see VerifyChain.
//
// ErrZero means that the header is all zero. ErrFeatureLevel means that the
// frame is intact but made by a newer binary. Everything else is ErrCorrupt; a
// torn write looks like that, and only a scan can tell the difference.
func DecodeFrame(b []byte) (f FrameHeader, entries []Entry, size int, err error) {
	return decodeFrame(b, nil)
}

// decodeFrame is DecodeFrame with a slice to reuse.
func decodeFrame(b []byte, into []Entry) (FrameHeader, []Entry, int, error) {
	f, size, err := decodeFrameHeader(b)
	if err != nil {
		return FrameHeader{}, into[:0], 0, err
	}
	entries, err := decodePayload(b[FrameHeaderSize:size], f, into[:0])
	if err != nil {
		return FrameHeader{}, into[:0], 0, err
	}
	return f, entries, size, nil
}

// decodeFrameHeader verifies header and CRC and returns the size of the frame.
func decodeFrameHeader(b []byte) (FrameHeader, int, error) {
	if len(b) < FrameHeaderSize {
		return FrameHeader{}, 0, fmt.Errorf("frame header has %d of %d bytes: %w", len(b), FrameHeaderSize, ErrCorrupt)
	}
	le := binary.LittleEndian
	if magic := le.Uint32(b); magic != frameMagic {
		if allZero(b[:FrameHeaderSize]) {
			return FrameHeader{}, 0, ErrZero
		}
		return FrameHeader{}, 0, fmt.Errorf("frame magic is %#x: %w", magic, ErrCorrupt)
	}
	length := le.Uint32(b[8:])
	if uint64(length) > uint64(len(b)-FrameHeaderSize) {
		return FrameHeader{}, 0, fmt.Errorf("frame payload of %d bytes passes the end: %w", length, ErrCorrupt)
	}
	size := FrameHeaderSize + int(length)
	if frameCRC(b[:size]) != le.Uint32(b[crcOffset:]) {
		return FrameHeader{}, 0, fmt.Errorf("frame CRC: %w", ErrCorrupt)
	}
	// From here on the bytes are intact, as a writer encoded them.
	f := FrameHeader{
		Kind:        FrameKind(b[4]),
		Elided:      b[5]&flagElided != 0,
		Length:      int(length),
		Count:       int(le.Uint32(b[12:])),
		Ordinal:     le.Uint32(b[20:]),
		Epoch:       cluster.Epoch(le.Uint64(b[24:])),
		First:       cluster.LSN(le.Uint64(b[32:])),
		DurableUpto: cluster.LSN(le.Uint64(b[40:])),
		Chain:       Chain(le.Uint64(b[48:])),
		Binding:     le.Uint64(b[56:]),
	}
	if v := le.Uint16(b[6:]); v != frameVersion || f.Kind < FrameRecords || f.Kind > FrameClose || b[5]&^flagElided != 0 {
		return FrameHeader{}, 0, fmt.Errorf("frame version %d, kind %d, flags %#x: %w", v, f.Kind, b[5], ErrFeatureLevel)
	}
	return f, size, nil
}

// decodePayload splits the payload p of f into entries and accepts only what AppendFrame writes.
func decodePayload(p []byte, f FrameHeader, entries []Entry) ([]Entry, error) {
	if f.Kind == FrameRecords && f.Count == 0 || f.Kind != FrameRecords && f.Count != 0 {
		return nil, fmt.Errorf("frame of kind %d with %d records: %w", f.Kind, f.Count, ErrCorrupt)
	}
	// Each record takes two bytes at least: a count beyond that must not make us allocate.
	if f.Count > len(p)/2 {
		return nil, fmt.Errorf("frame payload of %d bytes cannot hold %d records: %w", len(p), f.Count, ErrCorrupt)
	}
	if cap(entries) < f.Count {
		entries = make([]Entry, 0, f.Count)
	}
	for i := range f.Count {
		headerLen, n := uvarint(p)
		dataLen, m := uvarint(p[n:])
		p = p[n+m:]
		inline := dataLen
		if f.Elided {
			inline = 0
		}
		// Compared one by one, so that no sum can overflow.
		if n == 0 || m == 0 || dataLen > maxDataLen || headerLen > uint64(len(p)) || inline > uint64(len(p))-headerLen {
			return nil, fmt.Errorf("record %d of the frame: lengths: %w", i, ErrCorrupt)
		}
		e := Entry{Header: p[:headerLen:headerLen], DataLen: int(dataLen)}
		p = p[headerLen:]
		if inline > 0 {
			e.Data = p[:inline:inline]
			p = p[inline:]
		}
		entries = append(entries, e)
	}
	if len(p) != 0 {
		return nil, fmt.Errorf("frame has %d bytes behind its last record: %w", len(p), ErrCorrupt)
	}
	return entries, nil
}

// uvarint reads a number in its shortest form; 0 bytes means that there is none.
func uvarint(p []byte) (uint64, int) {
	v, n := binary.Uvarint(p)
	if n <= 0 || n > 1 && p[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

// frameCRC is the CRC of a whole frame, its CRC field taken as zero.
func frameCRC(frame []byte) uint32 {
	crc := crc32.Update(0, castagnoli, frame[:crcOffset])
	// Four zero bytes by hand: a slice of them would have to be allocated each time.
	crc = ^crc
	for range 4 {
		crc = castagnoli[byte(crc)] ^ crc>>8
	}
	crc = ^crc
	return crc32.Update(crc, castagnoli, frame[crcOffset+4:])
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// padded rounds a size up to whole blocks.
func padded(n int) int { return (n + BlockSize - 1) &^ (BlockSize - 1) }
