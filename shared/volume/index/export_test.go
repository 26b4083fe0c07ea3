// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// AppendBlock appends a block of an index.
func AppendBlock(b []byte, entries []Entry) []byte { return appendBlock(b, entries) }

// InOrder is what of the entries of a generation counts.
func InOrder(entries []Entry) []Entry { return inOrder(entries) }

// FixSum makes the length and the sum of a block right, so that its payload is decoded.
func FixSum(b []byte) []byte {
	if len(b) < indexHeader {
		return b
	}
	b = bytes.Clone(b)
	if string(b[:4]) != ownedMagic {
		copy(b, plainMagic)
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-indexHeader))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[indexHeader:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
