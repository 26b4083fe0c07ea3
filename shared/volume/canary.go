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
// A primary raises the value every second and tells its replicas. They read it and see
// whether this filesystem shows old data, and how far the volume's log was: what the network says
// of that proves nothing. No state is made from it: a late write of it costs an alarm. But its
// epoch began, which is a witness (witness.go).
// Init makes the canaries of all servers, empty; an older volume has none before the first term.
const canaryMagic = "HFBEAT01"

// Canary is what a primary wrote last into its server's canary.
type Canary struct {
	Epoch cluster.Epoch
	Value uint64
	// At was committed before it was written: durable, and checked. It is zero where the
	// binary of the server knew nothing of it.
	At wal.Position
}

// ErrNoCanary says that a server has no canary that can be read now: none was
// written yet, or the read met a write.
var ErrNoCanary = errors.New("no canary")

// ErrEmptyCanary is the ErrNoCanary of a file that is as Init made it.
var ErrEmptyCanary = fmt.Errorf("%w yet: the block is empty", ErrNoCanary)

func canaryPath(id cluster.ServerID) string {
	return layout.ServersDir + "/" + layout.ServerPrefix(id) + layout.CanarySuffix
}

// WriteCanary writes this server's canary past the caches. It is one small write;
// the first one makes the file where Init did not.
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

// ReadCanary reads a server's canary: with FlagDirect as fences and logs are read, with FlagRead
// as people's programs read, through the caches.
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
