// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// DecodeBase decodes and restores a checkpoint from its two files.
func DecodeBase(state, requests []byte) (*locktable.Table, []locktable.Record, error) {
	b, err := decodeBase(state, requests)
	if err != nil {
		return nil, nil, err
	}
	t, err := b.restore()
	return t, b.pending, err
}

// EncodeSnapshot is a checkpoint's two files in memory.
func EncodeSnapshot(s Snapshot) (state, requests []byte, err error) {
	files := map[string]*bytes.Buffer{}
	err = s.Export().write(func(name string, write func(io.Writer) error) error {
		files[name] = &bytes.Buffer{}
		return write(files[name])
	})
	if err != nil {
		return nil, nil, err
	}
	return files[stateName].Bytes(), files[requestsName].Bytes(), nil
}

// StartBlock is a START block.
func StartBlock(e cluster.Epoch, end wal.Position) []byte {
	return encodeStart(start{epoch: e, nonce: Nonce{1, 2, 3}, end: end})
}

// DecodeStart decodes a START block; ok is false for an absent one.
func DecodeStart(b []byte) (e cluster.Epoch, end wal.Position, again []byte, ok bool, err error) {
	s, err := decodeStart(b)
	if err != nil || s == nil {
		return 0, wal.Position{}, nil, false, err
	}
	return s.epoch, s.end, encodeStart(*s), true, nil
}

// Path is where a prepared claim waits.
func (p *Prepared) Path() string { return p.path }

// The places of the blocks in a fence.
const (
	StartOffset = fenceSpacing
	FenceSize   = fenceSize
)

// AppendIndexBlock appends a block of an index.
func AppendIndexBlock(b []byte, entries []IndexEntry) []byte { return appendIndexBlock(b, entries) }

// InOrder is what of the entries of a generation counts.
func InOrder(entries []IndexEntry) []IndexEntry { return inOrder(entries) }

// FixIndexSum makes the length and the sum of a block right, so that its payload is decoded.
func FixIndexSum(b []byte) []byte {
	if len(b) < indexHeader {
		return b
	}
	b = bytes.Clone(b)
	copy(b, indexMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-indexHeader))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[indexHeader:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
