// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// graceLocal and graceNetwork are how long evidence must last before the file
// counts as changed from outside. Caches lie about names, on a network filesystem
// for as long as its attribute cache lives; and there sizes and contents may be old,
// too: a GlusterFS brick that comes back answers before it is healed.
const (
	graceLocal   = 300 * time.Millisecond
	graceNetwork = 65 * time.Second
)

// suspect judges evidence that the file was changed from outside. What may be a
// lie of the filesystem is at first an ordinary failure of the file, which is tried
// again; only when it stays is the file foreign.
func (w *fileWriter) suspect(err error) error {
	network := w.p.reign.Kind().Network
	moved, foreign := errors.Is(err, volume.ErrMoved), errors.Is(err, volume.ErrForeign)
	if !moved && (!foreign || !network) {
		return err
	}
	now := time.Now()
	if now.Sub(w.doubtedLast) > graceNetwork {
		w.doubted = now // a first time, or one long after another proves nothing
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

// errDoubted says that a file looks foreign, and that it is not certain yet.
var errDoubted = errors.New("this may be a lie of the filesystem and is looked at again")

// look verifies the file before something is admitted: a bound one must be the
// file that the log knows, an unbound one is opened or made. What is to be
// unbound, sealed or rotated is made durable first, so that it needs no redo.
func (w *fileWriter) look(v verifyJob) (locktable.FileFacts, error) {
	if v.op == locktable.OpRotate {
		if w.foreign == nil {
			if err := w.datasync(); err != nil {
				return locktable.FileFacts{}, err
			}
		}
		return w.lookRotated(v.state)
	}
	if w.foreign != nil {
		return locktable.FileFacts{}, w.foreign
	}
	facts, err := w.lookOnce(v)
	if err == nil {
		w.doubtedLast = time.Time{}
	}
	if err == nil && (v.op == locktable.OpUnbind || v.op == locktable.OpSeal) {
		err = w.datasync()
	}
	if err = w.suspect(err); err != nil {
		w.closeFile()
	}
	return facts, err
}

func (w *fileWriter) lookOnce(v verifyJob) (locktable.FileFacts, error) {
	w.state = v.state
	if !v.bound {
		return w.lookUnbound()
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return locktable.FileFacts{}, err
		}
		w.end = v.state.End
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
	return locktable.FileFacts{Inode: w.file.Inode(), Size: size}, w.lookAtLast()
}

// lookAtLast compares the last append with its logged sum.
func (w *fileWriter) lookAtLast() error {
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

// lookUnbound opens the file, or makes it. Either way its names are made durable,
// because whoever made them may have died before.
func (w *fileWriter) lookUnbound() (locktable.FileFacts, error) {
	w.closeFile()
	file, err := w.p.reign.AdoptProtected(w.name)
	if err != nil {
		return locktable.FileFacts{}, err
	}
	w.file = file
	size, err := file.Size()
	w.end = size
	w.state.Inode = file.Inode()
	return factsOf(file, size), err
}

// factsOf says of a file that is not bound what has to be known to bind it.
func factsOf(file *volume.ProtectedFile, size int64) locktable.FileFacts {
	return locktable.FileFacts{Inode: file.Inode(), Size: size, Made: file.Made(), Unchanged: size == 0 && file.Unchanged()}
}

// errStillThere says that a rotation came before the old file was moved away.
var errStillThere = errors.New("the file is still there")

// lookRotated looks for the file's next inode, which must be empty and new. The
// old one is moved away by whoever wants the rotation: a server that renamed it could do so an hour late.
func (w *fileWriter) lookRotated(state locktable.FileState) (locktable.FileFacts, error) {
	file, err := w.p.reign.AdoptProtected(w.name)
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
func (w *fileWriter) open() error {
	file, err := w.p.reign.OpenProtected(w.name)
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
func (w *fileWriter) reopen(kept []keptAppend) error {
	w.written, w.unsynced = 0, 0
	if err := w.open(); err != nil {
		return err
	}
	w.end = kept[0].rec.Offset
	// The descriptor was opened before this check: if it passes, nobody had
	// fenced this reign when the file was the one that was verified.
	return w.p.check()
}

// fits proves that the file may be written from w.end on: it ends there, or
// among the bytes that the log has for it. Behind w.end stands what a write
// before an error left, what a crash left of it, or what a primary that was
// asleep since before this reign writes now: in each case the log's bytes or zeros.
func (w *fileWriter) fits(run []keptAppend, top int64) error {
	size, err := w.file.Size()
	if err != nil {
		return err
	}
	if size < w.end || size > top {
		return fmt.Errorf("%w: %s has %d bytes, the log says %d to %d", volume.ErrForeign, w.name, size, w.end, top)
	}
	for i := range run {
		if err := w.compare(&run[i].rec, size); err != nil {
			return err
		}
	}
	return nil
}

// compare refuses bytes below size that are neither the append's nor zero.
func (w *fileWriter) compare(rec *locktable.Record, size int64) error {
	n := min(int64(len(rec.Data)), size-rec.Offset)
	if n <= 0 {
		return nil
	}
	there := make([]byte, n)
	if _, err := w.file.ReadAt(there, rec.Offset); err != nil {
		return fmt.Errorf("read protected file %s: %w", w.name, err)
	}
	for i, b := range there {
		if b != 0 && b != rec.Data[i] {
			return fmt.Errorf("%w: %s holds foreign bytes at offset %d", volume.ErrForeign, w.name, rec.Offset+int64(i))
		}
	}
	return nil
}
