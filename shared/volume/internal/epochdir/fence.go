// SPDX-License-Identifier: Apache-2.0

// Package epochdir reads and writes the files of one epoch's directory: the fence with its flag
// and START, claim.json, and the log's files as package wal sees them.
//
// It has the formats and the single steps. Package volume has the order of the steps, which makes them safe.
// Package fsck and package recovery read the files through it as servers do.
package epochdir

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	flagMagic  = "HFFENCE1"
	startMagic = "HFSTART1"
	// SectorSize is the size of a flag or START at the beginning of its block, in bytes.
	SectorSize = 512
)

// Start is the content of START: the term of Epoch, claimed with Nonce, adopted the log up to End.
type Start struct {
	Epoch cluster.Epoch
	Nonce Nonce
	End   wal.Position
}

// EncodeStart returns the block of START. Its first sector has:
// magic 8, epoch 8, nonce 16, adopted end 8, chain 8, zeros, CRC-32C in the last 4 bytes of the sector.
func EncodeStart(s Start) []byte {
	b := vfs.AlignedBuffer(vfs.BlockSize)
	copy(b, startMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(s.Epoch))
	copy(b[16:32], s.Nonce[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(s.End.LSN))
	binary.LittleEndian.PutUint64(b[40:], uint64(s.End.Chain))
	SealSector(b)
	return b
}

// EncodeFlag returns the block of a fence flag: magic 8, the claimant's epoch 8, its nonce 16, zeros, CRC-32C in the
// last 4 bytes of the sector. Any block that is not zero is a set fence. Its content is only used to refuse a
// claimant: see package volume, fenceTerm.
func EncodeFlag(by cluster.Epoch, nonce Nonce) []byte {
	b := vfs.AlignedBuffer(vfs.BlockSize)
	copy(b, flagMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(by))
	copy(b[16:32], nonce[:])
	SealSector(b)
	return b
}

// Flag is the content of a set fence: the claim that set it. The zero Flag means that the claim is not known.
type Flag struct {
	By    cluster.Epoch
	Nonce Nonce
}

// DecodeFlag decodes the block of a fence flag. ok reports whether it is a valid flag, which a block of zeros is not.
func DecodeFlag(b []byte) (x Flag, ok bool) {
	if len(b) < SectorSize || string(b[:8]) != flagMagic || !Sealed(b) {
		return Flag{}, false
	}
	return Flag{cluster.Epoch(binary.LittleEndian.Uint64(b[8:])), Nonce(b[16:32])}, true
}

// SealSector writes the checksum of the first sector of b into its last 4 bytes.
func SealSector(b []byte) {
	crc := crc32.Checksum(b[:SectorSize-4], crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(b[SectorSize-4:], crc)
}

// Sealed reports whether the first sector of b has the checksum that SealSector writes.
func Sealed(b []byte) bool {
	crc := crc32.Checksum(b[:SectorSize-4], crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.Uint32(b[SectorSize-4:]) == crc
}

// DecodeStart decodes the block of START. It returns nil and no error for a block of zeros: START is absent.
func DecodeStart(b []byte) (*Start, error) {
	if vfs.AllZero(b) {
		return nil, nil
	}
	if len(b) < SectorSize || string(b[:8]) != startMagic || !Sealed(b) || !vfs.AllZero(b[SectorSize:]) {
		return nil, fmt.Errorf("START is neither absent nor valid")
	}
	s := &Start{
		Epoch: cluster.Epoch(binary.LittleEndian.Uint64(b[8:])),
		End: wal.Position{
			LSN:   cluster.LSN(binary.LittleEndian.Uint64(b[32:])),
			Chain: wal.Chain(binary.LittleEndian.Uint64(b[40:])),
		},
	}
	copy(s.Nonce[:], b[16:32])
	return s, nil
}

// OpenFence opens the fence of epoch e with FlagDirect. It returns an error that wraps fs.ErrNotExist if it is
// missing, and ErrDamaged if it has a wrong size.
func OpenFence(fsys vfs.FS, e cluster.Epoch, flag vfs.Flag) (vfs.File, vfs.Info, error) {
	name := layout.EpochDir(e) + "/" + layout.FenceName
	f, err := fsys.Open(name, flag|vfs.FlagDirect)
	if err != nil {
		return nil, vfs.Info{}, fmt.Errorf("open %s: %w", name, err)
	}
	info, err := f.Stat()
	if err == nil && info.Size != layout.FenceSize {
		err = fmt.Errorf("%w: it has %d bytes instead of %d", layout.ErrDamaged, info.Size, layout.FenceSize)
	}
	if err != nil {
		return nil, vfs.Info{}, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, info, nil
}

// ReadStart reads START through an open descriptor; nil means that it is absent. A block that is neither
// zero nor valid may be in the middle of being written: ReadStart reads it again,
// and then returns an error that wraps ErrDamaged. It never takes such a block for absent.
func ReadStart(ctx context.Context, f vfs.File, e cluster.Epoch) (*Start, error) {
	b := vfs.AlignedBuffer(vfs.BlockSize)
	for try := 1; ; try++ {
		err := vfs.ReadBlock(f, b, layout.FenceSpacing)
		if err != nil {
			return nil, fmt.Errorf("read START of epoch %d: %w", e, err)
		}
		s, err := DecodeStart(b)
		if err == nil && s != nil && s.Epoch != e {
			err = fmt.Errorf("START names epoch %d", s.Epoch)
		}
		if err == nil {
			return s, nil
		}
		if try == vfs.Retries {
			return nil, fmt.Errorf("%w: epoch %d: %w", layout.ErrDamaged, e, err)
		}
		if err := vfs.Pause(ctx, vfs.RetryPause); err != nil {
			return nil, err
		}
	}
}

// ReadProvenStart is ReadStart, but takes START for absent only if the term's own log has no record
// of the term. Otherwise it reads again, and then returns an error that wraps ErrDamaged and
// ErrStartLost.
func ReadProvenStart(ctx context.Context, fsys vfs.FS, f vfs.File, e cluster.Epoch) (*Start, error) {
	for try := 1; ; try++ {
		s, err := ReadStart(ctx, f, e)
		if s != nil || err != nil {
			return s, err
		}
		name, lsn, err := ownRecord(fsys, e)
		if err != nil {
			return nil, fmt.Errorf("epoch %d has no START, and its log cannot be read: %w", e, err)
		}
		if name == "" {
			return nil, nil
		}
		if try == vfs.Retries {
			return nil, fmt.Errorf("%w: epoch %d: %w: it reads as zeros, but %s has LSN %d of that epoch", layout.ErrDamaged, e, ErrStartLost, name, lsn)
		}
		if err := vfs.Pause(ctx, vfs.RetryPause); err != nil {
			return nil, err
		}
	}
}

// ErrStartLost means that a term must have had a START and has none any more.
var ErrStartLost = errors.New("START is lost")

// ownRecord finds a record of epoch e in that epoch's own log, and returns its segment and
// LSN; name is "" if there is none. A term logs such a record only after START is durable
// and a check has passed, so a term whose fence was set earlier logs none. Without START the log has
// only copies of older records, in frames of this epoch.
func ownRecord(fsys vfs.FS, e cluster.Epoch) (name string, lsn cluster.LSN, err error) {
	entries, err := fsys.ReadDir(layout.EpochDir(e))
	if err != nil {
		return "", 0, err
	}
	for _, x := range entries {
		if _, ok := wal.ParseSegmentName(x.Name); !ok {
			continue
		}
		name := layout.EpochDir(e) + "/" + x.Name
		lsn, err := recordOf(fsys, name, e)
		if err = vfs.IgnoreMissing(err); err != nil || lsn != 0 { // a listing may be old
			return name, lsn, err
		}
	}
	return "", 0, nil
}

// recordOf returns the LSN of a record of epoch e in a segment that e wrote, or 0.
func recordOf(fsys vfs.FS, name string, e cluster.Epoch) (lsn cluster.LSN, err error) {
	f, err := fsys.Open(name, vfs.FlagDirect)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size < vfs.BlockSize {
		return 0, err
	}
	content := vfs.AlignedBuffer(int(info.Size / vfs.BlockSize * vfs.BlockSize))
	if err := vfs.ReadBlock(f, content[:vfs.BlockSize], 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	if h, err := wal.DecodeSegmentHeader(content); err != nil || h.Epoch != e {
		return 0, nil // linked, or not in use
	}
	if err := vfs.ReadBlock(f, content, 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	var decoder locktable.Decoder
	for off := wal.BlockSize; off < len(content); {
		_, entries, size, err := wal.DecodeFrame(content[off:])
		if err != nil {
			break
		}
		for _, x := range entries {
			if rec, err := decoder.DecodeHeader(x.Header); err == nil && rec.Epoch == e {
				return rec.LSN, nil
			}
		}
		off += (size + wal.BlockSize - 1) / wal.BlockSize * wal.BlockSize
	}
	return 0, nil
}

// olderRecovery is the other possible cause of a flag whose claim does not exist. Nothing on the volume distinguishes
// the two for certain, because the next claimant overwrites the flag.
const olderRecovery = "or an older version of holdfast recover was interrupted: if you know of one, repeat it with that version"

// CheckFlag returns an error that wraps ErrDamaged if the claim that set the flag does not exist any more. It returns
// nil if that claim cannot be read.
func CheckFlag(fsys vfs.FS, x Flag) error {
	var c Claim
	name := layout.EpochDir(x.By) + "/" + layout.ClaimName
	b, err := vfs.ReadFile(fsys, name, vfs.FlagRead)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && c.Nonce != hex.EncodeToString(x.Nonce[:]) {
		return fmt.Errorf("%w: %s is of another claim: the directory of that epoch was removed, and its number taken again; %s", layout.ErrDamaged, name, olderRecovery)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = fsys.Lstat(layout.EpochDir(x.By)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s is not there any more", layout.ErrDamaged, layout.EpochDir(x.By))
		}
	}
	return nil
}

// SetFlag writes the flag of a claim into an open fence, durably.
func SetFlag(f vfs.File, by cluster.Epoch, nonce Nonce) error {
	return WriteFlag(f, EncodeFlag(by, nonce))
}

// WriteFlag writes the encoded block of a flag into an open fence, durably.
func WriteFlag(f vfs.File, flag []byte) error {
	if _, err := f.WriteAt(flag, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// CreateFence creates the fence in dir with the given blocks; nil means zeros. It writes the two blocks, so
// that they have their space on a full disk, and the last block of the file. The rest
// is a hole, because fences are never removed and would take space for ever.
func CreateFence(fsys vfs.FS, dir string, startBlock, flagBlock []byte) (vfs.File, error) {
	f, err := fsys.Open(dir+"/"+layout.FenceName, vfs.FlagCreate|vfs.FlagDirect)
	if err != nil {
		return nil, err
	}
	zeros := vfs.AlignedBuffer(vfs.BlockSize)
	for _, x := range []struct {
		block []byte
		off   int64
	}{{flagBlock, 0}, {startBlock, layout.FenceSpacing}, {nil, layout.FenceSize - vfs.BlockSize}} {
		if x.block == nil {
			x.block = zeros
		}
		if err == nil {
			_, err = f.WriteAt(x.block, x.off)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
