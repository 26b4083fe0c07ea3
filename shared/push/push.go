// SPDX-License-Identifier: Apache-2.0

// Package push is what a primary and its replicas agree on: committed frames,
// or a whole table in chunks, on their way from one to the other.
//
// A push names the position that it follows. A replica that stands elsewhere
// says so, and the primary finds the frames from there or sends a snapshot. A
// position is an LSN with the chain value of the records up to it, so two logs that
// parted are never mixed.
package push

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/wal"
)

// ChunkSize is how much of a snapshot one push carries, in bytes.
const ChunkSize = 256 << 10

// Push is one message to a replica. With neither Frames nor Chunk it only asks
// where the replica stands and tells it that the primary lives.
type Push struct {
	Epoch cluster.Epoch
	// Before is the position that Frames follow.
	Before wal.Position
	// Frames are encoded frames without append data, one behind the other.
	Frames []byte
	// Chunk is a piece of a snapshot.
	Chunk *Chunk
}

// Chunk is a piece of a snapshot.
type Chunk struct {
	At wal.Position // of the table
	// Offset of Bytes; a first chunk has 0.
	Offset int
	Bytes  []byte
	Last   bool
}

// Ack is a replica's answer.
type Ack struct {
	// Epoch is the highest that the replica has heard of.
	Epoch cluster.Epoch
	// At is where the replica stands now.
	At wal.Position
	// Chunk is how much of the snapshot under way it has, in bytes.
	Chunk int
}

// ErrMismatch says that a push does not connect to where the replica stands.
var ErrMismatch = errors.New("the push does not follow the replica's position")

// EncodeSnapshot turns a table into bytes for chunks: the two files of a
// checkpoint, the length of the first in front.
func EncodeSnapshot(s volume.Snapshot) ([]byte, error) {
	state, requests, err := volume.EncodeSnapshot(s)
	if err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(state)+len(requests)), uint64(len(state)))
	b = append(b, state...)
	return append(b, requests...), nil
}

// DecodeSnapshot is the inverse of EncodeSnapshot. It verifies sums, hash and invariants.
func DecodeSnapshot(b []byte) (volume.Snapshot, error) {
	if len(b) < 8 {
		return volume.Snapshot{}, fmt.Errorf("snapshot of %d bytes is too short", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if b = b[8:]; n > uint64(len(b)) {
		return volume.Snapshot{}, fmt.Errorf("snapshot is cut off: %d of %d bytes of state", len(b), n)
	}
	return volume.DecodeSnapshot(b[:n], b[n:])
}
