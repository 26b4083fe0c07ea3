// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// The canary of a server is one block at servers/<id>.canary, written in place:
// magic 8, value 8, epoch 8, LSN 8, chain 8, zeros, CRC-32C in the last 4 bytes of the first sector.
// A primary raises the value every second and sends it to its replicas. They read the canary and so find out
// whether this filesystem shows them old data, and how far the log on the volume is, which a message over the
// network cannot prove. No state is restored from it: a late write only raises an alarm. But its
// epoch has started, so it is a witness (witness.go).
// Init creates the canaries of all servers, empty; a volume made by an older version has none before its first term.
const canaryMagic = "HFBEAT01"

// Canary is the content of a server's canary.
type Canary struct {
	Epoch cluster.Epoch // of the term that wrote it
	Value uint64
	// At is a position of the log that was committed, durable and checked, before the canary was written. It is zero
	// if an older binary wrote the canary.
	At wal.Position
}

// ErrNoCanary means that a server has no canary that can be read now: none was
// written yet, or the read met a write.
var ErrNoCanary = errors.New("no canary")

// ErrEmptyCanary wraps ErrNoCanary: the file is as Init created it.
var ErrEmptyCanary = fmt.Errorf("%w yet: the block is empty", ErrNoCanary)

func canaryPath(id cluster.ServerID) string {
	return layout.ServersDir + "/" + layout.ServerPrefix(id) + layout.CanarySuffix
}

// WriteCanary writes this server's canary past the caches, and creates the file if Init did not.
func (v *Volume) WriteCanary(c Canary) error {
	b := vfs.AlignedBuffer(vfs.BlockSize)
	copy(b, canaryMagic)
	for i, x := range []uint64{c.Value, uint64(c.Epoch), uint64(c.At.LSN), uint64(c.At.Chain)} {
		binary.LittleEndian.PutUint64(b[8+8*i:], x)
	}
	epochdir.SealSector(b)
	if err := v.own.canary.write(b); err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	return nil
}

// CreateCanary creates this server's canary, empty, if it is missing, and makes its name durable: a server that joins has none from Init.
// Done late, it replaces no file.
func (v *Volume) CreateCanary() error {
	if err := v.own.canary.create(); err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	return v.fs.SyncDir(layout.ServersDir)
}

// ReadCanary reads a server's canary: with FlagDirect past the caches, as fences and logs are read, with FlagRead
// through the caches, as ordinary programs read. It returns an error that wraps ErrNoCanary if there is none or it
// cannot be read, and one that wraps ErrEmptyCanary if it was never written.
func (v *Volume) ReadCanary(id cluster.ServerID, flag vfs.Flag) (c Canary, err error) {
	b, err := vfs.ReadBlockFile(v.fs, canaryPath(id), flag)
	if err != nil {
		return c, fmt.Errorf("%w of server %d: %w", ErrNoCanary, id, err)
	}
	if vfs.AllZero(b) {
		return c, fmt.Errorf("server %d: %w", id, ErrEmptyCanary)
	}
	if string(b[:8]) != canaryMagic || !epochdir.Sealed(b) {
		return c, fmt.Errorf("%w of server %d: the block is half written", ErrNoCanary, id)
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	return Canary{
		Value: number(0), Epoch: cluster.Epoch(number(1)),
		At: wal.Position{LSN: cluster.LSN(number(2)), Chain: wal.Chain(number(3))},
	}, nil
}
