// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"io"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/wal"
)

// DecodeBase decodes and restores a checkpoint from its two files.
func DecodeBase(state, requests []byte) (*locktable.Table, []locktable.Record, error) {
	b, err := checkpoint.DecodeBase(state, requests)
	if err != nil {
		return nil, nil, err
	}
	t, err := b.Restore()
	return t, b.Pending, err
}

// EncodeSnapshot is a checkpoint's two files in memory.
func EncodeSnapshot(s checkpoint.Snapshot) (state, requests []byte, err error) {
	files := map[string]*bytes.Buffer{}
	err = s.Export().Files(func(name string, write func(io.Writer) error) error {
		files[name] = &bytes.Buffer{}
		return write(files[name])
	})
	if err != nil {
		return nil, nil, err
	}
	return files[layout.StateName].Bytes(), files[layout.RequestsName].Bytes(), nil
}

// StartBlock is a START block.
func StartBlock(e cluster.Epoch, end wal.Position) []byte {
	return epochdir.EncodeStart(epochdir.Start{Epoch: e, Nonce: epochdir.Nonce{1, 2, 3}, End: end})
}

// DecodeStart decodes a START block; ok is false for an absent one.
func DecodeStart(b []byte) (e cluster.Epoch, end wal.Position, again []byte, ok bool, err error) {
	s, err := epochdir.DecodeStart(b)
	if err != nil || s == nil {
		return 0, wal.Position{}, nil, false, err
	}
	return s.Epoch, s.End, epochdir.EncodeStart(*s), true, nil
}

// Path is where a prepared claim waits.
func (p *Prepared) Path() string { return p.path }

// The places of the blocks in a fence.
const (
	StartOffset = layout.FenceSpacing
	FenceSize   = layout.FenceSize
)
