// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Entry is one record as the log sees it: opaque bytes in two parts.
type Entry struct {
	// Header is the record without its append data.
	Header []byte
	// Data is the append data, usually nil, and always nil in an elided frame.
	Data []byte
	// DataLen is the length of the data, also where Data was elided.
	DataLen int
}

// Chain is a rolling value over the records of the volume's life. It is 0 before the first.
type Chain uint64

// Next returns the value after one more record with this header.
func (c Chain) Next(header []byte) Chain {
	var buf [256]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(c))
	if len(header) <= len(buf)-8 {
		n := copy(buf[8:], header)
		return Chain(xxhash.Sum64(buf[:8+n]))
	}
	var d xxhash.Digest
	d.Reset()
	// A hash cannot fail to be written to.
	_, _ = d.Write(buf[:8])
	_, _ = d.Write(header)
	return Chain(d.Sum64())
}

// VerifyChain returns the value after entries that follow prev. The caller compares it with
// the Chain of the frame that carried them.
func VerifyChain(prev Chain, entries []Entry) Chain {
	for i := range entries {
		prev = prev.Next(entries[i].Header)
	}
	return prev
}

// Position is the state of a log after a record. The zero value is the beginning.
type Position struct {
	LSN   cluster.LSN
	Chain Chain
}
