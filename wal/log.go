// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// DefaultSegmentSize is the size of all segments of a term but the first, in bytes.
	DefaultSegmentSize = 64 << 20
	// DefaultMaxFrame is the largest payload of one frame, in bytes.
	DefaultMaxFrame = 4 << 20

	// reserve is kept free after every records frame: a block for a mark and a
	// block for CLOSE, so that neither can ever fail for want of room.
	reserve = 2 * BlockSize
	// minSegmentSize has room for the header, one small frame and the reserve.
	minSegmentSize = BlockSize + BlockSize + reserve
)

// Options configure a Log.
type Options struct {
	Dir     Dir
	Cluster [16]byte
	Epoch   cluster.Epoch
	// FeatureLevel is that of the cluster, which the headers of segments name.
	FeatureLevel uint32
	// SegmentSize of all segments that PrepareNext makes, in bytes; 0 means DefaultSegmentSize.
	SegmentSize int64
	// MaxFrame is the largest payload that Append takes, in bytes; 0 means DefaultMaxFrame.
	MaxFrame int
	// Adopted are the linked segments before the first own one, in order.
	Adopted []SegmentInfo
}

// withDefaults fills in defaults and validates.
func (o Options) withDefaults() (Options, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = DefaultMaxFrame
	}
	if o.SegmentSize < minSegmentSize || o.SegmentSize%BlockSize != 0 {
		return o, fmt.Errorf("segment size is %d: it must be a multiple of %d and at least %d", o.SegmentSize, BlockSize, minSegmentSize)
	}
	if o.MaxFrame < 0 || o.MaxFrame > maxDataLen {
		return o, fmt.Errorf("largest frame is %d bytes: it must be positive and at most %d", o.MaxFrame, maxDataLen)
	}
	return o, nil
}

// Log writes the log of one term. The package doc names which goroutine may call what.
type Log struct {
	opt  Options
	base cluster.LSN
	// level is the feature level that the headers of further segments name.
	level Level

	// owned by the goroutine that calls Append and Mark
	seg   segment
	pos   Position
	block []byte // one aligned block for marks, CLOSE frames and headers
	// proven is set if what is on disk proves the durability of everything up to pos.
	proven bool

	mu struct {
		sync.Mutex
		poison error
		next   nextState
		// nextFile is open where next is nextReady. It was written past the caches and synced.
		nextFile File
		// closed segments, oldest first, adopted ones included.
		closed []SegmentInfo
		// room and empty describe the open segment after the last write, for Room.
		room  int64
		empty bool
	}
}

// segment is the open segment.
type segment struct {
	name    string
	file    File
	header  SegmentHeader
	binding uint64
	off     int64 // where the next frame goes
	ordinal uint32
}

// Start begins the log of a term after the position at: it makes the prepared
// NextName its first segment. The term's records start from the checkpoint at base.
//
// Nothing relies on the directory before the term's START is written, which is
// after Start returned and everything was re-logged. So a crash or an error in
// here wastes the epoch and loses nothing.
func Start(o Options, at Position, base cluster.LSN) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start log: %w", err)
	}
	if n := len(o.Adopted); n > 0 && o.Adopted[n-1].Last != at.LSN {
		return nil, fmt.Errorf("start log behind LSN %d: the last adopted segment ends at %d: %w", at.LSN, o.Adopted[n-1].Last, ErrGap)
	}
	l := &Log{opt: o, base: base, pos: at, block: alignedBuffer(BlockSize)}
	l.level.Raise(o.FeatureLevel)
	l.mu.closed = append(l.mu.closed, o.Adopted...)
	name := SegmentName(at.LSN + 1)
	if err := o.Dir.Rename(NextName, name); err != nil {
		return nil, fmt.Errorf("start log: %w", err)
	}
	if err := o.Dir.Sync(); err != nil {
		return nil, fmt.Errorf("start log: sync directory: %w", err)
	}
	file, err := o.Dir.OpenWrite(name)
	if err != nil {
		return nil, fmt.Errorf("start log: %w", err)
	}
	seg, err := l.prepared(name, file)
	if err != nil {
		return nil, fmt.Errorf("start log: %w", err)
	}
	if err := l.begin(seg); err != nil {
		return nil, fmt.Errorf("start log: %w", errors.Join(err, seg.file.Close()))
	}
	return l, nil
}

// Raise has the headers of further segments name a higher feature level: the log has a record that says so. It may be
// called from any goroutine.
func (l *Log) Raise(level uint32) { l.level.Raise(level) }

// Level is a feature level, which only rises. Any goroutine may use it. The zero value is no level.
type Level struct{ n atomic.Uint32 }

// Load returns the highest level that it was raised to.
func (l *Level) Load() uint32 { return l.n.Load() }

// Raise makes it at least n, whoever else raises it at the same time.
func (l *Level) Raise(n uint32) {
	for old := l.n.Load(); n > old && !l.n.CompareAndSwap(old, n); old = l.n.Load() {
	}
}

// prepared is a segment that has its name but no header yet.
func (l *Log) prepared(name string, file File) (segment, error) {
	size, err := l.inspectPrepared(file)
	if err != nil {
		return segment{}, errors.Join(fmt.Errorf("prepared segment %s: %w", name, err), file.Close())
	}
	return segment{name: name, file: file, header: SegmentHeader{
		FeatureLevel: l.level.Load(),
		Cluster:      l.opt.Cluster,
		Epoch:        l.opt.Epoch,
		First:        l.pos.LSN + 1,
		Base:         l.base,
		Chain:        l.pos.Chain,
		Size:         size,
	}}, nil
}

// inspectPrepared returns the size of a prepared segment. A file that was
// written before must never become a segment, so its first block has to be zero.
func (l *Log) inspectPrepared(file File) (int64, error) {
	size, err := file.Size()
	if err != nil {
		return 0, err
	}
	if size < minSegmentSize || size%BlockSize != 0 {
		return 0, fmt.Errorf("size is %d: it must be a multiple of %d and at least %d", size, BlockSize, minSegmentSize)
	}
	if _, err := file.ReadAt(l.block, 0); err != nil {
		return 0, err
	}
	if !allZero(l.block) {
		return 0, fmt.Errorf("not filled with zeros: %w", ErrCorrupt)
	}
	return size, nil
}

// begin makes the header of seg durable and seg the open segment.
func (l *Log) begin(seg segment) error {
	clear(l.block)
	putSegmentHeader(l.block, seg.header)
	seg.binding = bindingOf(l.block)
	if _, err := seg.file.WriteAt(l.block, 0); err != nil {
		return fmt.Errorf("write header of %s: %w", seg.name, err)
	}
	if err := seg.file.Sync(); err != nil {
		return fmt.Errorf("sync header of %s: %w", seg.name, err)
	}
	seg.off = BlockSize
	l.seg = seg
	l.proven = true // by the CLOSE before the header, or by START
	l.noteRoom()
	return nil
}

// Append makes a batch durable as one frame: when it returns nil, everything in
// it is. The batch must follow Position. An empty batch is done at once.
//
// ErrFull and ErrTooLarge mean that nothing was written and that the log is as
// before. After any other error the log is poisoned: nothing is retried, the
// file is never written again, and the batch may be durable or not.
func (l *Log) Append(b *Batch) error {
	if err := l.Err(); err != nil {
		return err
	}
	if b.Len() == 0 {
		return nil
	}
	if b.Start() != l.pos {
		return l.poison("append", fmt.Errorf("batch follows LSN %d (chain %#x), the log ends at %d (chain %#x)",
			b.Start().LSN, b.Start().Chain, l.pos.LSN, l.pos.Chain))
	}
	if err := l.makeRoom(b); err != nil {
		return err
	}
	b.seal(l.frameHeader(FrameRecords))
	if err := l.write(b.Bytes()); err != nil {
		return l.poison("append", err)
	}
	// From here on a scan finds the batch, whatever happens to this process.
	l.pos = b.End()
	l.proven = false
	l.noteRoom()
	return nil
}

// makeRoom rotates if the frame of b does not fit into the open segment.
func (l *Log) makeRoom(b *Batch) error {
	size := int64(b.Size())
	if payload := len(b.buf) - FrameHeaderSize; payload > l.opt.MaxFrame || size > l.opt.SegmentSize-BlockSize-reserve {
		return fmt.Errorf("append %d bytes: %w", payload, ErrTooLarge)
	}
	if size <= l.seg.room() {
		return nil
	}
	// The successor of an empty segment would need its name.
	if l.empty() {
		return fmt.Errorf("append %d bytes to the empty segment %s of %d: %w", size, l.seg.name, l.seg.header.Size, ErrTooLarge)
	}
	if !l.NextReady() {
		return fmt.Errorf("append %d bytes: %w", size, ErrFull)
	}
	if err := l.rotate(); err != nil {
		return l.poison("rotate", err)
	}
	return nil
}

// Mark writes a mark frame if what is on disk does not yet prove the durability
// of everything up to Position. It is meant for idle moments and always finds
// room. Its errors poison the log as those of Append do.
func (l *Log) Mark() error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.proven {
		return nil
	}
	if err := l.writeEmpty(FrameMark); err != nil {
		return l.poison("mark", err)
	}
	l.proven = true
	l.noteRoom()
	return nil
}

// Position returns the state after the last durable record.
func (l *Log) Position() Position { return l.pos }

// Room returns the size of the largest batch (Batch.Size) that Append would take
// now, in bytes. It may be called from any goroutine.
func (l *Log) Room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := l.mu.room
	if l.mu.next == nextReady && !l.mu.empty {
		room = max(room, l.opt.SegmentSize-BlockSize-reserve)
	}
	return int(min(room, int64(padded(l.opt.MaxFrame+FrameHeaderSize))))
}

// Err returns nil until the log is poisoned or closed, and an error that wraps ErrPoisoned
// afterwards.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.poison
}

// Close closes the open file and writes nothing: a log has no proper end,
// and what was acknowledged is durable already. The log is poisoned afterwards.
// It must not run beside Append or Mark.
func (l *Log) Close() error {
	var err error
	if file := l.seg.file; file != nil {
		l.seg.file = nil
		_ = l.poison("use", errors.New("closed"))
		err = file.Close()
	}
	if next := l.takeNext(); next != nil {
		err = errors.Join(err, next.Close())
	}
	return err
}

// poison makes err the log's final error, unless it has one.
func (l *Log) poison(op string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.poison == nil {
		l.mu.poison = fmt.Errorf("%s: %w: %w", op, ErrPoisoned, err)
	}
	return l.mu.poison
}

// frameHeader returns the header of the next frame without what depends on its records.
func (l *Log) frameHeader(kind FrameKind) FrameHeader {
	return FrameHeader{
		Kind:        kind,
		Ordinal:     l.seg.ordinal,
		Epoch:       l.opt.Epoch,
		First:       l.pos.LSN + 1,
		DurableUpto: l.pos.LSN, // one frame in flight: all before it was synced
		Chain:       l.pos.Chain,
		Binding:     l.seg.binding,
	}
}

// writeEmpty writes a frame without records.
func (l *Log) writeEmpty(kind FrameKind) error {
	clear(l.block)
	putFrameHeader(l.block[:FrameHeaderSize], l.frameHeader(kind))
	return l.write(l.block)
}

// write makes whole blocks durable after the last frame.
func (l *Log) write(frame []byte) error {
	if _, err := l.seg.file.WriteAt(frame, l.seg.off); err != nil {
		return fmt.Errorf("write %s at offset %d: %w", l.seg.name, l.seg.off, err)
	}
	if err := l.seg.file.Datasync(); err != nil {
		return fmt.Errorf("sync %s: %w", l.seg.name, err)
	}
	l.seg.off += int64(len(frame))
	l.seg.ordinal++
	return nil
}

// empty reports whether the open segment holds no record yet.
func (l *Log) empty() bool { return l.pos.LSN < l.seg.header.First }

// noteRoom updates what Room returns.
func (l *Log) noteRoom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.room, l.mu.empty = l.seg.room(), l.empty()
}

// room returns the largest records frame that leaves the reserve free.
func (s *segment) room() int64 { return s.header.Size - reserve - s.off }
