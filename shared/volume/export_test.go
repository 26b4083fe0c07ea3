// SPDX-License-Identifier: Apache-2.0

package volume

import (
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

// The places of the blocks in a fence.
const (
	StartOffset = fenceSpacing
	FenceSize   = fenceSize
)
