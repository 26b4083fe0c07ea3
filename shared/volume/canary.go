// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The canary of a server is one block at servers/<id>.canary, written in place:
// magic 8, value 8, epoch 8, zeros, CRC-32C in the last 4 bytes of the first sector.
// A primary raises the value every second and tells its replicas. They read it and see
// whether this filesystem shows old data. No state is made from it: a late write of it
// costs an alarm. But its epoch began, which is a witness (witness.go).
const (
	canaryMagic  = "HFBEAT01"
	canarySuffix = "canary"
)

// ErrNoCanary says that a server has no canary that can be read now: none was
// written yet, or the read met a write.
var ErrNoCanary = errors.New("no canary")

func canaryPath(id cluster.ServerID) string {
	return serversDir + "/" + serverPrefix(id) + canarySuffix
}

// WriteCanary writes this server's canary past the caches. It is one small write;
// the first one makes the file.
func (v *Volume) WriteCanary(e cluster.Epoch, value uint64) error {
	b := AlignedBuffer(BlockSize)
	copy(b, canaryMagic)
	binary.LittleEndian.PutUint64(b[8:], value)
	binary.LittleEndian.PutUint64(b[16:], uint64(e))
	sealSector(b)
	if err := writeBlockFile(v.fs, canaryPath(v.opt.Server), b); err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	return nil
}

// ReadCanary reads the value of a server's canary: with FlagDirect as fences and
// logs are read, with FlagRead as people's programs read, through the caches.
func (v *Volume) ReadCanary(id cluster.ServerID, flag Flag) (value uint64, err error) {
	value, _, err = v.readCanary(id, flag)
	return value, err
}

// readCanary is ReadCanary, and says which epoch's primary wrote it.
func (v *Volume) readCanary(id cluster.ServerID, flag Flag) (value uint64, e cluster.Epoch, err error) {
	f, err := v.fs.Open(canaryPath(id), flag&FlagDirect)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fmt.Errorf("%w of server %d: %w", ErrNoCanary, id, err)
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := AlignedBuffer(BlockSize)
	if err := readBlock(f, b, 0); err != nil {
		return 0, 0, fmt.Errorf("%w of server %d: %w", ErrNoCanary, id, err)
	}
	if string(b[:8]) != canaryMagic || !sealed(b) {
		return 0, 0, fmt.Errorf("%w of server %d: the block is empty or half written", ErrNoCanary, id)
	}
	return binary.LittleEndian.Uint64(b[8:]), cluster.Epoch(binary.LittleEndian.Uint64(b[16:])), nil
}
