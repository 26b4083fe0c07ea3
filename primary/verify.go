// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// look verifies the file before something is admitted: a bound one must be the
// file that the log knows, an unbound one is opened or made.
func (w *fileWriter) look(v verifyJob) (locktable.FileFacts, error) {
	if w.foreign != nil {
		return locktable.FileFacts{}, w.foreign
	}
	facts, err := w.lookOnce(v)
	if err == nil && v.sync {
		err = w.datasync()
	}
	if err != nil {
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

// lookUnbound opens the file, or makes it with the directories above it.
func (w *fileWriter) lookUnbound() (locktable.FileFacts, error) {
	w.closeFile()
	file, err := w.p.reign.OpenProtected(w.name)
	if isMissing(err) {
		file, err = w.p.reign.CreateProtected(w.name)
	}
	if err != nil {
		return locktable.FileFacts{}, err
	}
	w.file = file
	size, err := file.Size()
	w.end = size
	w.state.Inode = file.Inode()
	return locktable.FileFacts{Inode: file.Inode(), Size: size}, err
}

// open opens the bound file and compares its identity.
func (w *fileWriter) open() error {
	file, err := w.p.reign.OpenProtected(w.name)
	if isMissing(err) {
		return fmt.Errorf("%w: %s was removed", volume.ErrForeign, w.name)
	}
	if err != nil {
		return err
	}
	if file.Inode() != w.state.Inode {
		w.file = file
		w.closeFile()
		return fmt.Errorf("%w: %s is another file (inode %d) than the bound one (inode %d)", volume.ErrForeign, w.name, file.Inode(), w.state.Inode)
	}
	w.file = file
	return nil
}

// reopen prepares to write everything kept again, through a new descriptor.
func (w *fileWriter) reopen(kept []keptAppend) error {
	w.written = 0
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
