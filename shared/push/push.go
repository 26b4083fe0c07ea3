// SPDX-License-Identifier: Apache-2.0

// Package push is the messages between a primary and its replicas: committed frames,
// or a whole table in chunks.
//
// A push names the position that it follows. A replica at another position answers
// with it, and the primary sends the frames from there or a snapshot. A position is
// an LSN with the chain value of the records up to it, so logs that diverged are
// never mixed.
package push

import (
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/wal"
)

// ChunkSize is how much of a snapshot one push carries, in bytes.
const ChunkSize = 256 << 10

// Push is one message to a replica. With neither Frames nor Chunk it only asks for
// the replica's position and shows that the primary lives.
type Push struct {
	Epoch cluster.Epoch
	// Before is the position that Frames follow.
	Before wal.Position
	// Frames are encoded frames without append data, one after the other.
	Frames []byte
	// Chunk is a piece of a snapshot.
	Chunk *Chunk
	// Stamp is that of the replica's last Ack, and Since how long before this push it
	// came: so the replica knows by its own clock how old a push is that was long on its
	// way. Without a Stamp, Asks is set if no Ack came yet; a primary that sets neither is
	// of an older version without stamps.
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
	// Epoch is the highest that the replica knows.
	Epoch cluster.Epoch
	// At is the replica's position after the push.
	At wal.Position
	// Chunk is how much of the snapshot under way it has, in bytes.
	Chunk int
	// Stamp is when the replica answered, by a clock of its own; 0 if it has none.
	Stamp uint64
	// Unread reports that no client has read or watched at the replica lately, so that it need
	// not be fed so often. An older version never sets it.
	Unread bool
}

// ErrMismatch means that a push does not follow the replica's position.
var ErrMismatch = errors.New("the push does not follow the replica's position")
