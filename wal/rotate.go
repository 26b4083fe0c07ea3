// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// prepareChunk is how much PrepareNext writes and syncs at once, in bytes. It
// bounds how long a commit waits for it in the disk's queue.
const prepareChunk = 1 << 20

// nextState is the state of the file NextName.
type nextState uint8

const (
	nextNone    nextState = iota
	nextMaking            // PrepareNext is at work
	nextPartial           // PrepareNext failed and what it made may still be there
	nextReady             // full of zeros and durable, its name too
)

// rotate closes the open segment and makes the prepared one its successor.
//
// The comment after each step is what a scan finds if everything stops there, or if
// the step failed and was done nevertheless.
func (l *Log) rotate() error {
	name := SegmentName(l.pos.LSN + 1)
	// The state stays nextReady until the name is taken, so that a PrepareNext
	// on another goroutine keeps its hands off NextName.
	if err := l.opt.Dir.Rename(NextName, name); err != nil {
		return fmt.Errorf("name successor %s: %w", name, err)
	}
	// Here: a segment without CLOSE and perhaps a file without header after it
	// that begins at its end. The former is the open one, the latter is ignored.
	if err := l.opt.Dir.Sync(); err != nil {
		return fmt.Errorf("name successor %s: sync directory: %w", name, err)
	}
	next, err := l.prepared(name, l.takeNext())
	if err != nil {
		return err
	}

	// From here on the name survives: a durable CLOSE without a successor's file
	// can only mean that a file was lost, and a scan refuses it.
	if err := l.writeEmpty(FrameClose); err != nil {
		return errors.Join(err, next.file.Close())
	}
	// Here: CLOSE, or a torn one, and a file without header. Either way nothing
	// was acknowledged after this point. CLOSE may be visible and never durable,
	// so the old segment does not count as closed yet.
	old := l.seg
	if err := l.begin(next); err != nil {
		return errors.Join(err, next.file.Close())
	}
	// Here: CLOSE was durable before the header was written, so the header
	// proves it: the old segment is closed, the new one is empty and open.
	l.mu.Lock()
	l.mu.closed = append(l.mu.closed, SegmentInfo{
		Name: old.name, First: old.header.First, Last: l.pos.LSN, Header: old.header,
		Closed: true, Size: old.header.Size,
	})
	l.mu.Unlock()
	if err := old.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", old.name, err)
	}
	return nil
}

// NextReady reports whether a prepared segment waits for the next rotation.
func (l *Log) NextReady() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.next == nextReady
}

func (l *Log) setNext(s nextState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.next = s
}

// takeNext returns the prepared segment, which the caller has to close; nil if none is ready.
func (l *Log) takeNext() File {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.mu.nextFile
	l.mu.next, l.mu.nextFile = nextNone, nil
	return f
}

// PrepareNext makes the next segment: SegmentSize zeros under NextName, written
// and synced piece by piece, then the directory. It runs on the caller's
// background goroutine beside Append, and does nothing if one is ready.
//
// When the disk is full (ENOSPC, EDQUOT) the piece is removed, the log stays
// usable and the caller tries again later; likewise when an old piece cannot be
// removed. Any other error poisons the log.
// When ctx ends, which is when the term ends, nothing more is written, the
// piece stays where it is, and the cause is returned.
//
// A crash in here leaves a NextName that no scan reads.
func (l *Log) PrepareNext(ctx context.Context) error {
	leftover, err := l.beginPrepare()
	if err != nil || l.NextReady() {
		return err
	}
	dir := l.opt.Dir
	if leftover {
		if err := dir.Remove(NextName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.setNext(nextPartial)
			return fmt.Errorf("remove failed %s: %w", NextName, err)
		}
	}
	file, err := l.fillNext(ctx)
	if err != nil {
		err = fmt.Errorf("prepare %s: %w", NextName, err)
		l.setNext(nextPartial)
		switch {
		case ctx.Err() != nil:
			return err
		case !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT):
			return l.poison("prepare", err)
		}
		// What is left of it would keep others from getting space. If this fails
		// too, the next attempt begins with it.
		if dir.Remove(NextName) == nil {
			l.setNext(nextNone)
		}
		return err
	}
	// The sync in rotate would do, but a commit waits for that one: let it find
	// little to do. If this one fails, a second success would prove nothing.
	if err := dir.Sync(); err != nil {
		l.setNext(nextPartial)
		return l.poison("prepare", errors.Join(fmt.Errorf("sync directory: %w", err), file.Close()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.poison != nil { // closed meanwhile: it is not needed any more
		return errors.Join(l.mu.poison, file.Close())
	}
	l.mu.next, l.mu.nextFile = nextReady, file
	return nil
}

// beginPrepare reserves the preparation for this goroutine unless a segment is ready.
// leftover reports whether a failed preparation is left under NextName.
func (l *Log) beginPrepare() (leftover bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.poison != nil:
		return false, l.mu.poison
	case l.mu.next == nextReady:
		return false, nil
	case l.mu.next == nextMaking:
		return false, errors.New("prepare next segment: already under way")
	}
	leftover = l.mu.next == nextPartial
	l.mu.next = nextMaking
	return leftover, nil
}

// fillNext makes NextName and fills it with durable zeros. It stays open until it is used: an NFS
// server then gives no other machine a delegation of it, for which rotate would have to wait if
// that machine dies.
func (l *Log) fillNext(ctx context.Context) (_ File, err error) {
	file, err := l.opt.Dir.Create(NextName, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	zeros := alignedBuffer(int(min(prepareChunk, l.opt.SegmentSize)))
	clear(zeros) // or its pages are one page of the kernel's, of which the NFS client joins no writes
	for off := int64(0); off < l.opt.SegmentSize; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := l.Err(); err != nil {
			return nil, err
		}
		n := min(int64(len(zeros)), l.opt.SegmentSize-off)
		if _, err := file.WriteAt(zeros[:n], off); err != nil {
			return nil, err
		}
		if err := file.Datasync(); err != nil {
			return nil, err
		}
		off += n
	}
	return file, file.Sync()
}

// Removable returns, oldest first, the names of the closed segments that are wholly at or
// below upto and may be removed: after the checkpoint that makes them needless
// is durable, and after a check. The newest closed segment is never among them:
// its successor's successor has no header yet, so a scan may still need it as
// the closed predecessor of a segment whose header was lost.
func (l *Log) Removable(upto cluster.LSN) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for i, s := range l.mu.closed {
		// A prefix only, or a crash between two removals would leave a gap.
		if s.Last > upto || i == len(l.mu.closed)-1 {
			break
		}
		names = append(names, s.Name)
	}
	return names
}

// Drop removes the oldest segment, which name must be, as listed by Removable.
// After an error the caller may try again: removing twice is harmless.
func (l *Log) Drop(name string) error {
	l.mu.Lock()
	oldest := len(l.mu.closed) > 1 && l.mu.closed[0].Name == name
	poison := l.mu.poison
	l.mu.Unlock()
	switch {
	case poison != nil:
		return poison
	case !oldest:
		return fmt.Errorf("drop segment %s: not the oldest removable one", name)
	}
	if err := l.opt.Dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop segment: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = slices.DeleteFunc(l.mu.closed, func(s SegmentInfo) bool { return s.Name == name })
	return nil
}
