// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrDamaged says that the volume contradicts itself: nobody may begin a reign
// until an operator has looked. The wrapping error names the file.
var ErrDamaged = errors.New("the volume is damaged")

// ErrFenced says that a later claimant has ended this reign.
var ErrFenced = errors.New("fenced by a later reign")

const (
	flagMagic  = "HFFENCE1"
	startMagic = "HFSTART1"
	sectorSize = 512

	// retries and retryPause bound how long an odd reading may be a reading in
	// the middle of somebody's write.
	retries    = 3
	retryPause = 100 * time.Millisecond
)

// Nonce tells one prepared claim from every other.
type Nonce [16]byte

// start is the content of START: this reign adopted the log up to end.
type start struct {
	epoch cluster.Epoch
	nonce Nonce
	end   wal.Position
}

// encodeStart lays START out in one sector of one block:
// magic 8, epoch 8, nonce 16, adopted end 8, chain 8, zeros, CRC-32C in the last 4 bytes of the sector.
func encodeStart(s start) []byte {
	b := AlignedBuffer(BlockSize)
	copy(b, startMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(s.epoch))
	copy(b[16:32], s.nonce[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(s.end.LSN))
	binary.LittleEndian.PutUint64(b[40:], uint64(s.end.Chain))
	sealSector(b)
	return b
}

// encodeFlag lays a fence flag out: magic 8, claimant's epoch 8, its nonce 16.
// Whatever is not zero is a set fence. Beyond that its content can only stop a
// claimant: see fenceReign.
func encodeFlag(by cluster.Epoch, nonce Nonce) []byte {
	b := AlignedBuffer(BlockSize)
	copy(b, flagMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(by))
	copy(b[16:32], nonce[:])
	sealSector(b)
	return b
}

// flag is the content of a set fence: the claim that set it. The zero flag is none.
type flag struct {
	by    cluster.Epoch
	nonce Nonce
}

// decodeFlag says who set a fence; ok is false where it is not set, or by something else than a flag.
func decodeFlag(b []byte) (x flag, ok bool) {
	if len(b) < sectorSize || string(b[:8]) != flagMagic || !sealed(b) {
		return flag{}, false
	}
	return flag{cluster.Epoch(binary.LittleEndian.Uint64(b[8:])), Nonce(b[16:32])}, true
}

func sealSector(b []byte) {
	crc := crc32.Checksum(b[:sectorSize-4], crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(b[sectorSize-4:], crc)
}

func sealed(b []byte) bool {
	crc := crc32.Checksum(b[:sectorSize-4], crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.Uint32(b[sectorSize-4:]) == crc
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// decodeStart returns nil, nil for an absent START.
func decodeStart(b []byte) (*start, error) {
	if allZero(b) {
		return nil, nil
	}
	if len(b) < sectorSize || string(b[:8]) != startMagic || !sealed(b) || !allZero(b[sectorSize:]) {
		return nil, fmt.Errorf("START is neither absent nor valid")
	}
	s := &start{
		epoch: cluster.Epoch(binary.LittleEndian.Uint64(b[8:])),
		end: wal.Position{
			LSN:   cluster.LSN(binary.LittleEndian.Uint64(b[32:])),
			Chain: wal.Chain(binary.LittleEndian.Uint64(b[40:])),
		},
	}
	copy(s.nonce[:], b[16:32])
	return s, nil
}

// openFence opens the fence of a reign and refuses one that is missing or short.
func openFence(fsys FS, e cluster.Epoch, flag Flag) (File, Info, error) {
	name := epochDir(e) + "/" + fenceName
	f, err := fsys.Open(name, flag|FlagDirect)
	if err != nil {
		return nil, Info{}, fmt.Errorf("open %s: %w", name, err)
	}
	info, err := f.Stat()
	if err == nil && info.Size != fenceSize {
		err = fmt.Errorf("%w: it has %d bytes instead of %d", ErrDamaged, info.Size, fenceSize)
	}
	if err != nil {
		return nil, Info{}, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, info, nil
}

// readBlock fills b from off and refuses a short read.
func readBlock(f File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readStart reads START through an open descriptor. A block that is neither
// absent nor valid may be in the middle of being written: it is read again,
// then refused, never taken for absent.
func readStart(ctx context.Context, f File, e cluster.Epoch) (*start, error) {
	b := AlignedBuffer(BlockSize)
	for try := 1; ; try++ {
		err := readBlock(f, b, fenceSpacing)
		if err != nil {
			return nil, fmt.Errorf("read START of epoch %d: %w", e, err)
		}
		s, err := decodeStart(b)
		if err == nil && s != nil && s.epoch != e {
			err = fmt.Errorf("START names epoch %d", s.epoch)
		}
		if err == nil {
			return s, nil
		}
		if try == retries {
			return nil, fmt.Errorf("%w: epoch %d: %w", ErrDamaged, e, err)
		}
		if err := pause(ctx, retryPause); err != nil {
			return nil, err
		}
	}
}

// readProvenStart is readStart, and takes START for absent only where the reign's own log
// says nothing else. A START that reads as zeros although the log has records of the reign
// is read again, then refused: it is lost.
func readProvenStart(ctx context.Context, fsys FS, f File, e cluster.Epoch) (*start, error) {
	for try := 1; ; try++ {
		s, err := readStart(ctx, f, e)
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
		if try == retries {
			return nil, fmt.Errorf("%w: epoch %d: %w: it reads as zeros, but %s has LSN %d of that epoch", ErrDamaged, e, errStartLost, name, lsn)
		}
		if err := pause(ctx, retryPause); err != nil {
			return nil, err
		}
	}
}

// errStartLost says that a reign has no START and must have had one.
var errStartLost = errors.New("START is lost")

// ownRecord finds a record of epoch e in that epoch's own log and returns its segment and
// LSN; name is "" where there is none. A reign logs such a record only after START is durable
// and a check has passed: one whose fence was set before cannot log any. Without START there
// are at most copies of older records, in frames of this epoch.
func ownRecord(fsys FS, e cluster.Epoch) (name string, lsn cluster.LSN, err error) {
	entries, err := fsys.ReadDir(epochDir(e))
	if err != nil {
		return "", 0, err
	}
	for _, x := range entries {
		if _, ok := wal.ParseSegmentName(x.Name); !ok {
			continue
		}
		name := epochDir(e) + "/" + x.Name
		lsn, err := recordOf(fsys, name, e)
		if err = ignoreMissing(err); err != nil || lsn != 0 { // a listing may be old
			return name, lsn, err
		}
	}
	return "", 0, nil
}

// recordOf returns the LSN of a record of epoch e in a segment that e wrote, or 0.
func recordOf(fsys FS, name string, e cluster.Epoch) (lsn cluster.LSN, err error) {
	f, err := fsys.Open(name, FlagDirect)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size < BlockSize {
		return 0, err
	}
	content := AlignedBuffer(int(info.Size / BlockSize * BlockSize))
	if err := readBlock(f, content[:BlockSize], 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	if h, err := wal.DecodeSegmentHeader(content); err != nil || h.Epoch != e {
		return 0, nil // linked, or not in use
	}
	if err := readBlock(f, content, 0); err != nil {
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

// fenceReign sets the fence of reign d and then, through the same descriptor,
// reads whether it had started. The order is what makes it safe: a reign whose
// START is durable only after its fence was set finds the fence in its first check.
//
// The flag is written even where it is set already, because the flag of another
// claimant may be visible without being durable. A flag that a higher epoch has
// set says that this claimant slept through a recovery, which leaves numbers
// free below its own: what it would adopt has ended. A flag that another claim has set has
// to be of an epoch that is there, and of the claim that is there: else that epoch, which
// may have served, is gone, and its number is free or was taken a second time.
func fenceReign(ctx context.Context, fsys FS, d, by cluster.Epoch, nonce Nonce) (s *start, err error) {
	f, _, err := openFence(fsys, d, FlagWrite)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	block := AlignedBuffer(BlockSize)
	if err := readBlock(f, block, 0); err != nil {
		return nil, fmt.Errorf("fence epoch %d: read its flag: %w", d, err)
	}
	other, _ := decodeFlag(block)
	if other.by > by {
		return nil, fmt.Errorf("%w: epoch %d was fenced by epoch %d", ErrOvertaken, d, other.by)
	}
	if other.by > d && other.nonce != nonce {
		if err := claimedBy(fsys, other); err != nil {
			return nil, fmt.Errorf("epoch %d was fenced by epoch %d: %w", d, other.by, err)
		}
	}
	if err := setFlag(f, by, nonce); err != nil {
		return nil, fmt.Errorf("fence epoch %d: %w", d, err)
	}
	return readProvenStart(ctx, fsys, f, d)
}

// olderRecovery is the other way to a flag of no claim that is there. Which of the two it was cannot
// be told for certain: what tells it is lost with the next fence that is set.
const olderRecovery = "or an older version of holdfast recover was interrupted: if you know of one, repeat it with that version"

// claimedBy refuses a flag whose claim is not there any more. What cannot be read of it is
// not known, and no reason.
func claimedBy(fsys FS, x flag) error {
	var c claimFile
	name := epochDir(x.by) + "/" + claimName
	b, err := readFile(fsys, name, FlagRead)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && c.Nonce != hex.EncodeToString(x.nonce[:]) {
		return fmt.Errorf("%w: %s is of another claim: the directory of that epoch was removed, and its number taken again; %s", ErrDamaged, name, olderRecovery)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = fsys.Lstat(epochDir(x.by)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s is not there any more", ErrDamaged, epochDir(x.by))
		}
	}
	return nil
}

// setFlag sets the flag of an open fence, durably.
func setFlag(f File, by cluster.Epoch, nonce Nonce) error {
	return writeFlag(f, encodeFlag(by, nonce))
}

func writeFlag(f File, flag []byte) error {
	if _, err := f.WriteAt(flag, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// pause waits, or returns the context's cause.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
