// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"encoding/binary"
	"unsafe"
)

// Batch collects the records of one frame in the buffer that goes to the disk.
// It is reused without allocation: Reset, Add …, Log.Append, Elided, Reset ….
// The zero value is ready for Reset. A Batch belongs to one goroutine at a time.
type Batch struct {
	buf     []byte // aligned; frame header, then payload
	at, end Position
	count   int
	data    int // bytes of append data in the payload
	sealed  bool
	head    FrameHeader // once sealed
	elided  []byte
}

// Reset empties the batch. Its records will follow the position at.
func (b *Batch) Reset(at Position) {
	b.grow(FrameHeaderSize)
	b.buf = b.buf[:FrameHeaderSize]
	b.at, b.end = at, at
	b.count, b.data = 0, 0
	b.sealed = false
	b.elided = b.elided[:0]
}

// Add appends one record, whose LSN is End().LSN afterwards. It copies both parts.
func (b *Batch) Add(header, data []byte) {
	b.grow(2*binary.MaxVarintLen64 + len(header) + len(data))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(header)))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(data)))
	b.buf = append(b.buf, header...)
	b.buf = append(b.buf, data...)
	b.count++
	b.data += len(data)
	b.end.LSN++
	b.end.Chain = b.end.Chain.Next(header)
	b.sealed = false
}

// Len returns the number of records.
func (b *Batch) Len() int { return b.count }

// Size returns the size of the frame on disk in bytes: whole blocks.
func (b *Batch) Size() int { return padded(max(len(b.buf), FrameHeaderSize)) }

// SizeWith returns what Size would return after Add(header, data), for a caller that has to
// stay within Log.Room. It may be a block too high.
func (b *Batch) SizeWith(header, data []byte) int {
	return padded(max(len(b.buf), FrameHeaderSize) + 2*binary.MaxVarintLen32 + len(header) + len(data))
}

// Start returns the position before the first record, as given to Reset.
func (b *Batch) Start() Position { return b.at }

// End returns the position after the last record.
func (b *Batch) End() Position { return b.end }

// seal completes the frame with what only the log knows.
func (b *Batch) seal(f FrameHeader) {
	f.Count = b.count
	f.Length = len(b.buf) - FrameHeaderSize
	f.Chain = b.end.Chain
	putFrameHeader(b.buf, f)
	// The buffer is reused: what an earlier batch left must not become padding.
	clear(b.buf[len(b.buf):padded(len(b.buf))])
	b.head, b.sealed = f, true
	b.elided = b.elided[:0]
}

// Bytes returns the frame as Append wrote it: whole blocks in an aligned buffer,
// valid until the next Reset. It returns nil before Append.
func (b *Batch) Bytes() []byte {
	if !b.sealed {
		return nil
	}
	return b.buf[:padded(len(b.buf))]
}

// Elided returns the frame for pushes: without padding and append data. It is encoded at
// the first call and valid until the next Reset; nil before Append.
func (b *Batch) Elided() []byte {
	switch {
	case !b.sealed:
		return nil
	case b.data == 0:
		return b.buf // there is nothing to leave out
	case len(b.elided) > 0:
		return b.elided
	}
	e := append(b.elided[:0], b.buf[:FrameHeaderSize]...)
	for p := b.buf[FrameHeaderSize:]; len(p) > 0; {
		headerLen, n := binary.Uvarint(p)
		dataLen, m := binary.Uvarint(p[n:])
		keep := n + m + int(headerLen)
		e = append(e, p[:keep]...)
		p = p[keep+int(dataLen):]
	}
	f := b.head
	f.Elided = true
	putFrameHeader(e, f)
	b.elided = e
	return e
}

// grow makes room for n more bytes and the padding after them.
func (b *Batch) grow(n int) {
	need := padded(len(b.buf) + n)
	if need <= cap(b.buf) {
		return
	}
	bigger := alignedBuffer(max(need, 2*cap(b.buf), 16*BlockSize))
	b.buf = bigger[:copy(bigger, b.buf)]
}

// alignedBuffer returns a zeroed buffer of n bytes whose address is a multiple of BlockSize.
func alignedBuffer(n int) []byte {
	raw := make([]byte, n+BlockSize)
	skip := 0
	if rest := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % BlockSize); rest != 0 {
		skip = BlockSize - rest
	}
	return raw[skip : skip+n : skip+n]
}
