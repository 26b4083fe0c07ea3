// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// ErrForeign means that a protected file differs from what the log says: it was
// removed, replaced, linked, truncated or written from outside. Such a file
// is quarantined.
var ErrForeign = errors.New("the protected file was changed from outside")

// ErrMoved means that the name of a protected file does not lead to the bound file
// now. This alone proves nothing, because caches may show old names.
var ErrMoved = errors.New("the name does not lead to the protected file")

// ProtectedFile is a protected file opened in the name of a term. It belongs to
// one goroutine, the file's writer.
type ProtectedFile struct {
	r    *Term
	f    vfs.File
	name cluster.FileName
	info vfs.Info
	made bool // see Made
	// reader reads past every cache, because what is read may put the file into quarantine.
	// On a local filesystem it is f.
	reader vfs.File
}

// OpenProtected opens an existing protected file for writing. It returns an error that wraps
// ErrMoved if no file has the name, and ErrForeign if the name leads to
// anything but a regular file with one link.
func (r *Term) OpenProtected(name cluster.FileName) (*ProtectedFile, error) {
	f, err := r.openExisting(name)
	if err != nil {
		return nil, err
	}
	return r.opened(name, f)
}

func (r *Term) openExisting(name cluster.FileName) (vfs.File, error) {
	if err := name.Validate(); err != nil {
		return nil, err
	}
	p := ProtectedPath(name)
	info, err := r.v.fs.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("protected file %s: %w: %w", name, ErrMoved, err)
	}
	if err != nil {
		return nil, fmt.Errorf("protected file %s: %w", name, err)
	}
	if info.Type != vfs.TypeFile {
		return nil, fmt.Errorf("protected file %s: %w: it is not a regular file", name, ErrForeign)
	}
	f, err := r.v.fs.Open(p, vfs.FlagWrite|vfs.FlagDsync)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("protected file %s: %w: a part of its path is a symbolic link", name, ErrForeign)
	}
	if err != nil {
		return nil, fmt.Errorf("protected file %s: %w", name, err)
	}
	return f, nil
}

// AdoptProtected opens a file that is not bound yet, or creates it, empty,
// with the directories above it. All names on its path are durable when it
// returns. If the term has ended meanwhile, it leaves an empty file that no lock is bound to. Its errors are those of
// OpenProtected.
func (r *Term) AdoptProtected(name cluster.FileName) (*ProtectedFile, error) {
	if err := name.Validate(); err != nil {
		return nil, err
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	p := ProtectedPath(name)
	if err := r.makeParents(path.Dir(p)); err != nil {
		return nil, fmt.Errorf("protected file %s: %w", name, err)
	}
	f, err := r.v.fs.Open(p, vfs.FlagCreate|vfs.FlagDsync)
	if errors.Is(err, fs.ErrExist) {
		return r.adoptExisting(name)
	}
	if err != nil {
		return nil, fmt.Errorf("protected file %s: %w", name, err)
	}
	if info, err := f.Stat(); err == nil {
		r.made.add(info.Inode)
	}
	return r.durable(name, f)
}

func (r *Term) adoptExisting(name cluster.FileName) (*ProtectedFile, error) {
	f, err := r.openExisting(name)
	if err != nil {
		return nil, err
	}
	return r.durable(name, f)
}

// durable syncs a file that is not bound yet, and its directory.
func (r *Term) durable(name cluster.FileName, f vfs.File) (*ProtectedFile, error) {
	if err := errors.Join(f.Sync(), r.v.fs.SyncDir(path.Dir(ProtectedPath(name)))); err != nil {
		return nil, errors.Join(fmt.Errorf("protected file %s: %w", name, err), f.Close())
	}
	p, err := r.opened(name, f)
	if err == nil {
		p.made = p.info.Size == 0 && r.made.has(p.info.Inode)
	}
	return p, err
}

// madeMany bounds the number of inodes in a madeInodes.
const madeMany = 4096

// madeInodes are the inodes that AdoptProtected created in this term and that were not bound since.
type madeInodes struct {
	mu  sync.Mutex
	all map[uint64]bool
}

func (m *madeInodes) add(inode uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil || len(m.all) >= madeMany { // a forgotten inode is refused, never used wrongly
		m.all = map[uint64]bool{}
	}
	m.all[inode] = true
}

func (m *madeInodes) has(inode uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[inode]
}

// Bound records that an inode was bound: Made is false for it from now on, because a paused server may still
// write to it.
func (r *Term) Bound(inode uint64) {
	r.made.mu.Lock()
	defer r.made.mu.Unlock()
	delete(r.made.all, inode)
}

// makeParents creates the missing directories from files/ down to dir, and makes
// all their names durable: the process that created an existing one may have
// ended before its sync.
func (r *Term) makeParents(dir string) error {
	if dir == layout.FilesDir {
		return nil
	}
	done := layout.FilesDir
	for part := range strings.SplitSeq(strings.TrimPrefix(dir, layout.FilesDir+"/"), "/") {
		parent := done
		done += "/" + part
		info, err := r.v.fs.Lstat(done)
		switch {
		case err == nil && info.Type == vfs.TypeDir:
		case err == nil:
			return fmt.Errorf("%w: %s is not a directory", ErrForeign, done)
		case errors.Is(err, fs.ErrNotExist):
			if err := r.v.fs.Mkdir(done); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		default:
			return err
		}
		if err := r.v.fs.SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

func (r *Term) opened(name cluster.FileName, f vfs.File) (*ProtectedFile, error) {
	p := &ProtectedFile{r: r, f: f, name: name, reader: f}
	info, err := f.Stat()
	if err == nil {
		p.info = info
		err = p.Verify()
	}
	if err == nil && r.Kind().Network {
		err = p.openReader()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// openReader opens the file once more, for reads past every cache.
func (p *ProtectedFile) openReader() error {
	f, err := p.r.v.fs.Open(ProtectedPath(p.name), vfs.FlagRead|vfs.FlagDirect)
	if err != nil {
		return fmt.Errorf("protected file %s: %w", p.name, err)
	}
	info, err := f.Stat()
	if err == nil && info.Inode != p.info.Inode {
		err = ErrMoved
	}
	if err != nil {
		return errors.Join(fmt.Errorf("protected file %s: %w", p.name, err), f.Close())
	}
	p.reader = f
	return nil
}

// Inode returns the inode number of the open file.
func (p *ProtectedFile) Inode() uint64 { return p.info.Inode }

// Made reports whether AdoptProtected created the file in this term, it was empty when it was opened, and its
// inode was not bound since. Then no older file with this inode number exists any more.
func (p *ProtectedFile) Made() bool { return p.made }

// Unchanged is vfs.Info.Unchanged of the file at the time when it was opened.
func (p *ProtectedFile) Unchanged() bool { return p.info.Unchanged }

// Verify checks that the name still leads to the open file, and that this is its only link. It returns an error that
// wraps ErrMoved or ErrForeign if not.
func (p *ProtectedFile) Verify() error {
	named, err := p.r.v.fs.Lstat(ProtectedPath(p.name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("protected file %s: %w: it was removed", p.name, ErrMoved)
	}
	if err != nil {
		return fmt.Errorf("protected file %s: %w", p.name, err)
	}
	open, err := p.f.Stat()
	if err != nil {
		return fmt.Errorf("protected file %s: %w", p.name, err)
	}
	switch {
	case named.Inode != open.Inode:
		return fmt.Errorf("protected file %s: %w: it leads to another inode", p.name, ErrMoved)
	case open.Nlink != 1:
		return fmt.Errorf("protected file %s: %w: it has %d hard links", p.name, ErrForeign, open.Nlink)
	}
	return nil
}

// Size asks the filesystem for the size of the file, in bytes.
func (p *ProtectedFile) Size() (int64, error) {
	info, err := p.f.Stat()
	if err != nil {
		return 0, fmt.Errorf("protected file %s: %w", p.name, err)
	}
	return info.Size, nil
}

// CRC returns the CRC-32C of the n bytes at off. It returns an error that wraps ErrForeign if the file ends before.
func (p *ProtectedFile) CRC(off, n int64) (uint32, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	got, err := io.Copy(h, io.NewSectionReader(p, off, n))
	if err != nil {
		return 0, fmt.Errorf("protected file %s: read: %w", p.name, err)
	}
	if got != n {
		return 0, fmt.Errorf("protected file %s: %w: it ends at %d, before %d", p.name, ErrForeign, off+got, off+n)
	}
	return h.Sum32(), nil
}

// ReadAt implements io.ReaderAt. It reads past every cache.
func (p *ProtectedFile) ReadAt(b []byte, off int64) (int, error) {
	if p.reader == p.f {
		return p.f.ReadAt(b, off)
	}
	return vfs.DirectReader{File: p.reader}.ReadAt(b, off)
}

// WriteAt writes committed bytes at their logged offset. If this process was paused meanwhile, it
// repeats bytes that are already there, because the log never gives an offset
// of an inode to two appends. It returns an error that wraps ErrDeposed if the term has ended.
func (p *ProtectedFile) WriteAt(b []byte, off int64) error {
	if err := p.r.Err(); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(b, off); err != nil {
		return fmt.Errorf("protected file %s: write at %d: %w", p.name, off, err)
	}
	return nil
}

// Datasync makes the content of the file durable.
func (p *ProtectedFile) Datasync() error {
	if err := p.f.Datasync(); err != nil {
		return fmt.Errorf("protected file %s: %w", p.name, err)
	}
	return nil
}

// Close closes the descriptors.
func (p *ProtectedFile) Close() error {
	if p.reader == p.f {
		return p.f.Close()
	}
	return errors.Join(p.reader.Close(), p.f.Close())
}

// ProtectedPath returns the path of a protected file on the volume.
func ProtectedPath(n cluster.FileName) string { return path.Join(layout.FilesDir, string(n)) }

// FileReader is a protected file opened for reading only, which any process may do at any time. It
// reads past every cache. It is safe for concurrent use.
type FileReader struct {
	f     vfs.File
	inode uint64
}

// OpenReader opens a protected file for reading. The name may lead to another file than
// the bound one: compare the inode. Its errors are those of the function OpenReader.
func (v *Volume) OpenReader(name cluster.FileName) (*FileReader, error) {
	return OpenReader(v.fs, name)
}

// OpenReader opens a protected file of a volume whose servers need not run. It returns an error
// that wraps ErrMoved if no file has the name.
func OpenReader(fsys vfs.FS, name cluster.FileName) (*FileReader, error) {
	if err := name.Validate(); err != nil {
		return nil, err
	}
	f, err := fsys.Open(ProtectedPath(name), vfs.FlagRead|vfs.FlagDirect)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("protected file %s: %w", name, ErrMoved)
	}
	if err != nil {
		return nil, fmt.Errorf("protected file %s: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("protected file %s: %w", name, err), f.Close())
	}
	return &FileReader{f: f, inode: info.Inode}, nil
}

// Inode returns the inode number of the open file.
func (r *FileReader) Inode() uint64 { return r.inode }

// ReadAt implements io.ReaderAt.
func (r *FileReader) ReadAt(b []byte, off int64) (int, error) {
	return vfs.DirectReader{File: r.f}.ReadAt(b, off)
}

// Close closes the file.
func (r *FileReader) Close() error { return r.f.Close() }
