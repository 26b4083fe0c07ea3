// SPDX-License-Identifier: Apache-2.0

package protected

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// graceLocal and graceNetwork are how long evidence must last before the file
// counts as changed from outside. Names may be stale by a cache, on a network filesystem
// for as long as its attribute cache lives; there sizes and contents may be stale, too: a
// GlusterFS brick that comes back answers before it is healed.
const (
	graceLocal   = 300 * time.Millisecond
	graceNetwork = 65 * time.Second
)

// Verification is what a writer found of its file before an operation was admitted. It is not
// changed when the host has it.
type Verification struct {
	Writer *Writer
	Op     locktable.Op
	Facts  locktable.FileFacts
	Err    error // nil if the operation may be admitted

	state locktable.FileState // of the file in the table, zero if it is not bound
	bound bool
}

// Answers reports whether the result is good for this operation: an Unbind, a Seal and a Rotate
// have the file made durable first, so they need a verification of their own.
func (v *Verification) Answers(op locktable.Op) bool {
	own := func(op locktable.Op) locktable.Op {
		if op == locktable.OpBind {
			return locktable.OpAppend
		}
		return op
	}
	return own(v.Op) == own(op)
}

// Foreign reports whether the file was changed from outside, or is none that could be bound.
func (v *Verification) Foreign() bool { return errors.Is(v.Err, volume.ErrForeign) }

// Refusal returns the status of a request whose file, bound or not, failed the verification.
func (v *Verification) Refusal(bound bool) cluster.Status {
	switch {
	case v.Foreign() && bound:
		return cluster.StatusFileQuarantined
	case v.Foreign(), errors.Is(v.Err, errStillThere):
		return cluster.StatusInvalidArgument
	default:
		return cluster.StatusStorageUnavailable
	}
}

// classifyMismatch classifies evidence that the file was changed from outside. What may be a stale
// read is at first an ordinary failure of the file, which is tried again; only when it lasts is
// the error ErrForeign.
func (w *Writer) classifyMismatch(err error) error {
	network := w.files.term.Kind().Network
	moved, foreign := errors.Is(err, volume.ErrMoved), errors.Is(err, volume.ErrForeign)
	if !moved && (!foreign || !network) {
		return err
	}
	now := time.Now()
	if now.Sub(w.doubtedLast) > graceNetwork {
		w.doubted = now // evidence seen once, or long after the last, proves nothing
	}
	w.doubtedLast = now
	grace := graceLocal
	if network {
		grace = graceNetwork
	}
	switch {
	case now.Sub(w.doubted) >= grace && foreign:
		return err
	case now.Sub(w.doubted) >= grace:
		return fmt.Errorf("%w: %w", volume.ErrForeign, err)
	case foreign:
		return fmt.Errorf("%w: %s", errDoubted, err.Error())
	}
	return err
}

// errDoubted means that a file looks foreign, which is not certain yet.
var errDoubted = errors.New("this may be a stale read of the filesystem; the file is verified again")

// readFacts verifies the file before something is admitted: a bound one must be the
// file that the log knows, an unbound one is opened or made. What is to be
// unbound, sealed or rotated is made durable first, so that it needs no redo.
func (w *Writer) readFacts(v *Verification) (locktable.FileFacts, error) {
	if v.Op == locktable.OpRotate {
		if w.foreign == nil {
			if err := w.datasync(); err != nil {
				return locktable.FileFacts{}, err
			}
		}
		return w.openNext(v.state)
	}
	if w.foreign != nil {
		return locktable.FileFacts{}, w.foreign
	}
	facts, err := w.readOnce(v)
	if err == nil {
		w.doubtedLast = time.Time{}
	}
	if err == nil && (v.Op == locktable.OpUnbind || v.Op == locktable.OpSeal) {
		err = w.datasync()
	}
	if err = w.classifyMismatch(err); err != nil {
		w.closeFile()
	}
	return facts, err
}

func (w *Writer) readOnce(v *Verification) (locktable.FileFacts, error) {
	w.state = v.state
	if !v.bound {
		return w.openUnbound()
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return locktable.FileFacts{}, err
		}
	}
	if err := w.file.Verify(); err != nil {
		return locktable.FileFacts{}, err
	}
	size, err := w.file.Size()
	if err != nil {
		return locktable.FileFacts{}, err
	}
	if size != v.state.End {
		return locktable.FileFacts{}, fmt.Errorf("%w: %s has %d bytes, the log says %d", volume.ErrForeign, w.name, size, v.state.End)
	}
	return locktable.FileFacts{Inode: w.file.Inode(), Size: size}, w.compareLast()
}

// compareLast compares the last append with its logged checksum.
func (w *Writer) compareLast() error {
	if w.state.LastLength == 0 {
		return nil
	}
	crc, err := w.file.CRC(w.state.LastOffset, w.state.LastLength)
	if err != nil {
		return err
	}
	if crc != w.state.LastCRC {
		return fmt.Errorf("%w: the last append to %s reads with CRC-32C %08x, the log says %08x", volume.ErrForeign, w.name, crc, w.state.LastCRC)
	}
	return nil
}

// openUnbound opens the file, or makes it. Either way its names are made durable, because a
// process that made them before may have died too early.
func (w *Writer) openUnbound() (locktable.FileFacts, error) {
	w.closeFile()
	file, err := w.files.term.AdoptProtected(w.name)
	if err != nil {
		return locktable.FileFacts{}, err
	}
	w.file = file
	size, err := file.Size()
	w.state.Inode = file.Inode()
	return factsOf(file, size), err
}

// factsOf returns the facts of a file that is not bound, as they are needed to bind it.
func factsOf(file *volume.ProtectedFile, size int64) locktable.FileFacts {
	return locktable.FileFacts{Inode: file.Inode(), Size: size, Made: file.Made(), Unchanged: size == 0 && file.Unchanged()}
}

// errStillThere means that a rotation came before the old file was moved away.
var errStillThere = errors.New("the file is still there")

// openNext opens or makes the file's next inode, which must be empty and new. The client
// that wants the rotation has moved the old one away: a server that renamed it could be paused
// and do so an hour late.
func (w *Writer) openNext(state locktable.FileState) (locktable.FileFacts, error) {
	file, err := w.files.term.AdoptProtected(w.name)
	if errors.Is(err, volume.ErrForeign) {
		err = fmt.Errorf("%w: %w", errStillThere, errors.New(err.Error())) // of the next file, not the bound one
	}
	if err != nil {
		return locktable.FileFacts{}, err
	}
	size, err := file.Size()
	if err == nil && (file.Inode() == state.Inode || size != 0) {
		err = fmt.Errorf("%w: move %s away first, the new generation begins with a new empty file", errStillThere, w.name)
	}
	facts := factsOf(file, size)
	facts.Generation = state.Generation + 1
	return facts, errors.Join(err, file.Close())
}

// open opens the bound file and compares its identity.
func (w *Writer) open() error {
	file, err := w.files.term.OpenProtected(w.name)
	if err != nil {
		return err
	}
	w.file, w.written, w.unsynced = file, 0, 0
	if file.Inode() != w.state.Inode {
		w.closeFile()
		return fmt.Errorf("%w: %s is another file (inode %d) than the bound one (inode %d)", volume.ErrMoved, w.name, file.Inode(), w.state.Inode)
	}
	return nil
}

// reopen prepares to write everything kept again, through a new descriptor.
func (w *Writer) reopen() error {
	if err := w.open(); err != nil {
		return err
	}
	// The descriptor was opened before this check: if it passes, this term was not fenced
	// when the file was the one that was verified.
	return w.files.host.Check()
}

// matchesAppends checks that the file may be written with this data from an offset on: it ends
// there, or among the bytes that the log has for it, up to top. After the offset may be what a
// write before an error left, what a crash left of it, or what a primary that was paused since
// before this term writes now: in each case the log's bytes or zeros. They are read in one
// piece, because after a takeover there may be thousands of appends.
func (w *Writer) matchesAppends(data []byte, offset, top int64) error {
	size, err := w.file.Size()
	if err != nil {
		return err
	}
	if size < offset || size > top {
		return fmt.Errorf("%w: %s has %d bytes, the log says %d to %d", volume.ErrForeign, w.name, size, offset, top)
	}
	there := make([]byte, min(int64(len(data)), size-offset))
	if len(there) == 0 {
		return nil
	}
	if _, err := w.file.ReadAt(there, offset); err != nil {
		return fmt.Errorf("read protected file %s: %w", w.name, err)
	}
	for i, b := range there {
		if b != 0 && b != data[i] {
			return fmt.Errorf("%w: %s holds foreign bytes at offset %d", volume.ErrForeign, w.name, offset+int64(i))
		}
	}
	return nil
}
