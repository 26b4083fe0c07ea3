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

// ErrForeign says that a protected file is not what the log says it is: it was
// removed, replaced, linked, truncated or written by somebody else. Such a file
// is quarantined.
var ErrForeign = errors.New("the protected file was changed from outside")

// ErrMoved says that the name of a protected file does not lead to the bound file
// now. Caches lie about names, so this alone proves nothing yet.
var ErrMoved = errors.New("the name does not lead to the protected file")

// ProtectedFile is a protected file opened in the name of a term. It belongs to
// one goroutine, the file's writer.
type ProtectedFile struct {
	r    *Term
	f    vfs.File
	name cluster.FileName
	info vfs.Info
	made bool // in this term, see Made
	// reader reads past every cache, since what is read may quarantine the file.
	// Where nothing is cached it is f.
	reader vfs.File
}

// OpenProtected opens an existing protected file for writing. It fails with
// ErrMoved where the name is free and with ErrForeign where it leads to
// anything but a regular file with one name.
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

// AdoptProtected opens a protected file that is not bound yet, or makes it, empty,
// with the directories above it. All names on the way are durable when it
// returns. Done an hour late it leaves an empty file that nobody is bound to.
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

// durable syncs a file that is not bound, and its name.
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

// madeMany bounds how many inodes are remembered that were made and not bound.
const madeMany = 4096

// madeInodes are those that AdoptProtected made in this term and that were not bound since.
type madeInodes struct {
	mu  sync.Mutex
	all map[uint64]bool
}

func (m *madeInodes) add(inode uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil || len(m.all) >= madeMany { // with too many, such a file is refused, not used wrongly
		m.all = map[uint64]bool{}
	}
	m.all[inode] = true
}

func (m *madeInodes) has(inode uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[inode]
}

// Bound notes that an inode was bound: from now on a server may be paused before a write to it.
func (r *Term) Bound(inode uint64) {
	r.made.mu.Lock()
	defer r.made.mu.Unlock()
	delete(r.made.all, inode)
}

// makeParents makes the directories on the way from files/ to dir, and makes
// their names durable, also of those that are there: whoever made them may have
// died before its sync.
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

// openReader opens the file once more, for reads that no cache answers.
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

// Inode is the identity of the open file.
func (p *ProtectedFile) Inode() uint64 { return p.info.Inode }

// Made reports whether AdoptProtected made the file in this term, empty, and its inode was not bound
// since: whatever had the number before is gone.
func (p *ProtectedFile) Made() bool { return p.made }

// Unchanged reports whether the file was empty when it was opened, and as it was made.
func (p *ProtectedFile) Unchanged() bool { return p.info.Unchanged }

// Verify proves that the name still leads to the open file and that it has no
// other name.
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

// Size is the file's length in bytes, asked anew.
func (p *ProtectedFile) Size() (int64, error) {
	info, err := p.f.Stat()
	if err != nil {
		return 0, fmt.Errorf("protected file %s: %w", p.name, err)
	}
	return info.Size, nil
}

// CRC is the CRC-32C of n bytes at off. Fewer bytes are ErrForeign.
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

// ReadAt reads what is there, and not what a cache remembers.
func (p *ProtectedFile) ReadAt(b []byte, off int64) (int, error) {
	if p.reader == p.f {
		return p.f.ReadAt(b, off)
	}
	return vfs.DirectReader{File: p.reader}.ReadAt(b, off)
}

// WriteAt writes committed bytes at their logged offset. Done an hour late it
// repeats bytes that are already there, because the log has given this offset
// of this inode to nobody else.
func (p *ProtectedFile) WriteAt(b []byte, off int64) error {
	if err := p.r.Err(); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(b, off); err != nil {
		return fmt.Errorf("protected file %s: write at %d: %w", p.name, off, err)
	}
	return nil
}

// Datasync makes what was written durable.
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

// ProtectedPath is where a protected file lies on the volume.
func ProtectedPath(n cluster.FileName) string { return path.Join(layout.FilesDir, string(n)) }

// FileReader is a protected file opened for reading only, by anybody at any time. What
// is read comes past every cache. Several goroutines may read.
type FileReader struct {
	f     vfs.File
	inode uint64
}

// OpenReader opens a protected file for reading. Its name may lead to another file than
// the bound one: compare the inode.
func (v *Volume) OpenReader(name cluster.FileName) (*FileReader, error) {
	return OpenReader(v.fs, name)
}

// OpenReader opens a protected file of a volume whose servers need not run. It fails
// with ErrMoved where nothing has the name.
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

// Inode is the identity of the open file.
func (r *FileReader) Inode() uint64 { return r.inode }

// ReadAt implements io.ReaderAt.
func (r *FileReader) ReadAt(b []byte, off int64) (int, error) {
	return vfs.DirectReader{File: r.f}.ReadAt(b, off)
}

// Close closes the descriptor.
func (r *FileReader) Close() error { return r.f.Close() }
