// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	segmentMagic   = 0x47534648 // "HFSG"
	segmentVersion = 1
	// SegmentHeaderSize is the one sector that holds a segment header, in bytes.
	SegmentHeaderSize = 512

	segmentCRCOffset = SegmentHeaderSize - 4
)

// NextName is the prepared segment: full of zeros, named once at its first use.
const NextName = "wal-next.log"

// SegmentHeader is the first sector of a segment. The package doc has the meaning of the fields.
type SegmentHeader struct {
	FeatureLevel uint32
	Cluster      [16]byte
	Epoch        cluster.Epoch
	First        cluster.LSN
	Base         cluster.LSN
	Chain        Chain // before First
	Size         int64 // of the file, in bytes
}

// AppendSegmentHeader appends the SegmentHeaderSize bytes of h.
func AppendSegmentHeader(b []byte, h SegmentHeader) []byte {
	start := len(b)
	b = append(b, make([]byte, SegmentHeaderSize)...)
	putSegmentHeader(b[start:], h)
	return b
}

// putSegmentHeader writes h over the zeros at the start of b.
func putSegmentHeader(b []byte, h SegmentHeader) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], segmentMagic)
	le.PutUint16(b[4:], segmentVersion)
	le.PutUint32(b[8:], h.FeatureLevel)
	copy(b[16:32], h.Cluster[:])
	le.PutUint64(b[32:], uint64(h.Epoch))
	le.PutUint64(b[40:], uint64(h.First))
	le.PutUint64(b[48:], uint64(h.Base))
	le.PutUint64(b[56:], uint64(h.Chain))
	le.PutUint64(b[64:], uint64(h.Size))
	le.PutUint32(b[segmentCRCOffset:], crc32.Checksum(b[:segmentCRCOffset], castagnoli))
}

// DecodeSegmentHeader reads the header at the start of b. It returns ErrZero if
// none was written yet, ErrFeatureLevel for an intact header of another format
// version, ErrCorrupt for anything else. The caller compares FeatureLevel.
func DecodeSegmentHeader(b []byte) (SegmentHeader, error) {
	if len(b) < SegmentHeaderSize {
		return SegmentHeader{}, fmt.Errorf("segment header has %d of %d bytes: %w", len(b), SegmentHeaderSize, ErrCorrupt)
	}
	b = b[:SegmentHeaderSize]
	if allZero(b) {
		return SegmentHeader{}, ErrZero
	}
	le := binary.LittleEndian
	if magic := le.Uint32(b); magic != segmentMagic {
		return SegmentHeader{}, fmt.Errorf("segment magic is %#x: %w", magic, ErrCorrupt)
	}
	if crc32.Checksum(b[:segmentCRCOffset], castagnoli) != le.Uint32(b[segmentCRCOffset:]) {
		return SegmentHeader{}, fmt.Errorf("segment header CRC: %w", ErrCorrupt)
	}
	if v := le.Uint16(b[4:]); v != segmentVersion {
		return SegmentHeader{}, fmt.Errorf("segment format version %d: %w", v, ErrFeatureLevel)
	}
	h := SegmentHeader{
		FeatureLevel: le.Uint32(b[8:]),
		Cluster:      [16]byte(b[16:32]),
		Epoch:        cluster.Epoch(le.Uint64(b[32:])),
		First:        cluster.LSN(le.Uint64(b[40:])),
		Base:         cluster.LSN(le.Uint64(b[48:])),
		Chain:        Chain(le.Uint64(b[56:])),
		Size:         int64(le.Uint64(b[64:])),
	}
	if h.First == 0 || h.Size < minSegmentSize || h.Size%BlockSize != 0 {
		return SegmentHeader{}, fmt.Errorf("segment header: first LSN %d, size %d: %w", h.First, h.Size, ErrCorrupt)
	}
	return h, nil
}

// bindingOf ties frames to the segment whose header is at the start of b.
func bindingOf(b []byte) uint64 { return xxhash.Sum64(b[:SegmentHeaderSize]) }

const (
	segmentPrefix = "wal-"
	segmentSuffix = ".log"
	segmentDigits = 20
)

// SegmentName returns the file name of the segment whose first record has LSN first.
func SegmentName(first cluster.LSN) string {
	return fmt.Sprintf("%s%0*d%s", segmentPrefix, segmentDigits, uint64(first), segmentSuffix)
}

// ParseSegmentName is the inverse of SegmentName. It returns false for every other
// name: NextName, temporaries, an NFS client's .nfsXXXX.
func ParseSegmentName(name string) (cluster.LSN, bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, segmentSuffix)
	if !ok || len(digits) != segmentDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || SegmentName(cluster.LSN(n)) != name {
		return 0, false
	}
	return cluster.LSN(n), true
}
