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
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
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
	// Stamp is that of the replica's last Ack, and Since how long before this push that
	// came: so the replica knows by its own clock how old a push is that was long on its
	// way. Without a Stamp, Asks says that no Ack came yet; a primary that sets neither
	// knows nothing of stamps.
	Stamp uint64
	Since time.Duration
	Asks  bool
}

// Chunk is a piece of a snapshot, which is what volume.Export.Stream writes.
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
	// Stamp says when the replica answered, by a clock of its own; 0 where it has none.
	Stamp uint64
}

// ErrMismatch says that a push does not connect to where the replica stands.
var ErrMismatch = errors.New("the push does not follow the replica's position")
