// SPDX-License-Identifier: Apache-2.0

// Package osfs implements vfs.FS on the operating system's filesystem (Linux).
//
// An FS keeps the directory it was opened on, whatever happens to its path.
// Every name is walked component by component from there, each opened without
// following symbolic links and relative to the one before, so that nobody who
// changes the tree meanwhile can lead a call out of it.
//
// On single-host filesystems plain calls are coherent and are used. On all
// others (Kind().Network; what is not known counts as one) FlagDirect means
// O_DIRECT|O_DSYNC, FlagDsync means O_DSYNC, and attributes are asked of the
// server (AT_STATX_FORCE_SYNC).
//
// The calls made, by method: Open: openat, fstat. Stat: fstat or statx,
// of an empty file both.
// Replace: a temporary written, fsync, renameat, fsync of the directory.
// SyncDir: fsync. Datasync: fdatasync. An interrupted call (EINTR) is made again.
package osfs

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// The modes of what is made, less the umask: views are for people to read.
const (
	fileMode = 0o644
	dirMode  = 0o755
	// Those of secrets.
	privateFileMode = 0o600
	privateDirMode  = 0o700
)

var _ vfs.FS = (*FS)(nil)

// FS is a directory of the operating system's filesystem.
type FS struct {
	root *os.Root
	dir  *os.File // the same directory, for its descriptor
	path string   // absolute; where the directory was when it was opened
	kind vfs.Kind
	// attached has the directories that are elsewhere, by name. It does not change after Attach.
	attached map[string]*FS
	// private is true if it opens only files of this user, or root, that nobody else may read.
	private bool
}

// ErrNotPrivate means that a file is not for the user of this process alone. The wrapping error says what to type.
var ErrNotPrivate = errors.New("a secret has to belong to the user that the servers run as, or to root, and nobody else may read it")

// OpenPrivate opens a directory as Open does, and then opens only files there that belong to the user of this process, or to root, and
// that nobody else may read. For others it returns an error that wraps ErrNotPrivate.
func OpenPrivate(root string) (*FS, error) {
	f, err := Open(root)
	if err == nil {
		f.private = true
	}
	return f, err
}

// Open opens an existing directory as the root of a volume.
func Open(root string) (*FS, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open volume %s: %w", root, err)
	}
	r, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open volume: %w", err)
	}
	dir, err := r.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open volume: %w", err), r.Close())
	}
	f := &FS{root: r, dir: dir, path: abs}
	if f.kind, err = kindOf(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open volume %s: %w", abs, err), f.Close())
	}
	return f, nil
}

// Kind says which filesystem this is.
func (f *FS) Kind() vfs.Kind { return f.kind }

// Space asks statfs.
func (f *FS) Space() (vfs.Space, error) {
	var st unix.Statfs_t
	if err := f.inRoot(func(root int) error { return retry(func() error { return unix.Fstatfs(root, &st) }) }); err != nil {
		return vfs.Space{}, fmt.Errorf("statfs: %w", err)
	}
	if st.Blocks == 0 {
		return vfs.Space{}, fmt.Errorf("statfs: %w", errors.ErrUnsupported)
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	left := bytesOf(st.Bfree, unit)
	return vfs.Space{Free: min(bytesOf(st.Bavail, unit), left), Left: left}, nil // some count what is kept for root below zero
}

// bytesOf is how many bytes so many blocks have, at most what fits: a filesystem that has no bound
// may say the most that there is.
func bytesOf(blocks uint64, unit int64) int64 {
	if unit <= 0 {
		return 0
	}
	return int64(min(blocks, math.MaxInt64/uint64(unit)) * uint64(unit))
}

// Same reports whether both are open on one directory, which is still there.
func (f *FS) Same(other *FS) bool {
	a, err := f.dir.Stat()
	if err != nil {
		return false
	}
	b, err := other.dir.Stat()
	return err == nil && os.SameFile(a, b)
}

// Attach has a name, and all names below it, lead to another directory, whatever is there. It is called before f is used by
// several goroutines. From then on, f closes that directory with itself. Owner and SomeNames go on seeing what is there.
func (f *FS) Attach(name string, other *FS) {
	if f.attached == nil {
		f.attached = map[string]*FS{}
	}
	f.attached[name] = other
}

// elsewhere returns the directory to which a name leads, and the name in it.
func (f *FS) elsewhere(name string) (*FS, string) {
	top, rest, below := strings.Cut(name, "/")
	switch other := f.attached[top]; {
	case other == nil:
		return f, name
	case below:
		return other, rest
	default:
		return other, "."
	}
}

// Close lets go of the root. Open files and locks live on, and so does the root for the calls that are under way: the
// last of them closes it, however long it hangs. Later calls return an error that wraps fs.ErrClosed.
func (f *FS) Close() error {
	err := errors.Join(f.dir.Close(), f.root.Close())
	for _, other := range f.attached {
		err = errors.Join(err, other.Close())
	}
	return err
}

// Mkdir makes a directory.
func (f *FS) Mkdir(name string) error { return f.mkdir(name, dirMode) }

// MkdirPrivate makes a directory for its owner only.
func (f *FS) MkdirPrivate(name string) error { return f.mkdir(name, privateDirMode) }

func (f *FS) mkdir(name string, mode uint32) error {
	switch other, rest := f.elsewhere(name); {
	case other != f && rest == ".":
		return pathError("mkdir", name, unix.EEXIST)
	case other != f:
		return other.mkdir(rest, mode)
	}
	return f.inParent("mkdir", name, func(dir int, base string) error {
		return unix.Mkdirat(dir, base, mode)
	})
}

// Rename moves a file or directory. It is not os.Root's Rename, which refuses
// even an empty directory as the target.
func (f *FS) Rename(oldName, newName string) error {
	return f.inParents("rename", oldName, newName, unix.Renameat)
}

// Link makes a hard link.
func (f *FS) Link(oldName, newName string) error {
	return f.inParents("link", oldName, newName, func(oldDir int, oldBase string, newDir int, newBase string) error {
		return unix.Linkat(oldDir, oldBase, newDir, newBase, 0)
	})
}

// Remove unlinks a file or removes an empty directory.
func (f *FS) Remove(name string) error {
	if other, rest := f.elsewhere(name); other != f {
		return other.Remove(rest)
	}
	return f.inParent("remove", name, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		return err
	})
}

// ReadDir lists a directory.
func (f *FS) ReadDir(name string) ([]vfs.Entry, error) {
	if other, rest := f.elsewhere(name); other != f {
		return other.ReadDir(rest)
	}
	dir, err := f.openDir("readdir", name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	found, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	out := make([]vfs.Entry, 0, len(found))
	for _, entry := range found {
		out = append(out, vfs.Entry{Name: entry.Name(), Type: typeOf(entry.Type())})
	}
	slices.SortFunc(out, func(a, b vfs.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func typeOf(mode fs.FileMode) vfs.Type {
	switch {
	case mode.IsRegular():
		return vfs.TypeFile
	case mode.IsDir():
		return vfs.TypeDir
	default:
		return vfs.TypeOther
	}
}

// Lstat describes a name. On network filesystems it asks the server for the
// attributes; the name itself may still come from a cache.
func (f *FS) Lstat(name string) (vfs.Info, error) {
	if other, rest := f.elsewhere(name); other != f {
		return other.Lstat(rest)
	}
	var out vfs.Info
	stat := func(dir int, base string) (err error) {
		out, err = describe(dir, base, unix.AT_SYMLINK_NOFOLLOW, f.kind)
		return err
	}
	if name == "." {
		err := f.inRoot(func(root int) error { return retry(func() error { return stat(root, name) }) })
		return out, pathError("lstat", name, err)
	}
	err := f.inParent("lstat", name, stat)
	return out, err
}

// SyncDir makes the names in a directory durable.
func (f *FS) SyncDir(name string) error {
	if other, rest := f.elsewhere(name); other != f {
		return other.SyncDir(rest)
	}
	dir, err := f.openDir("syncdir", name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Replace writes a file atomically. The view or nothing is there afterwards,
// and a temporary ".NAME*" where the process died meanwhile.
func (f *FS) Replace(name string, write func(io.Writer) error) error {
	if other, rest := f.elsewhere(name); other != f {
		return other.Replace(rest, write)
	}
	// The walk refuses symbolic links, which os.Root would follow.
	if err := f.inParent("replace", name, func(int, string) error { return nil }); err != nil {
		return err
	}
	dir, err := f.root.OpenRoot(path.Dir(name))
	if err != nil {
		return pathError("replace", name, err)
	}
	defer dir.Close()
	if err := replaceIn(dir, path.Base(name), write); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// replaceIn needs the destination's own directory as root: there is where
// renameio puts its temporary.
func replaceIn(dir *os.Root, base string, write func(io.Writer) error) error {
	temp, err := renameio.NewPendingFile(base, renameio.WithRoot(dir), renameio.WithPermissions(fileMode))
	if err != nil {
		return err
	}
	buffer := bufio.NewWriterSize(vfs.InPieces(temp.File, temp.Sync), 1<<16)
	err = write(buffer)
	if err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		err = temp.CloseAtomicallyReplace()
	}
	if err != nil {
		return errors.Join(err, temp.Cleanup())
	}
	// renameio does not sync the directory: the name would not survive a power loss.
	names, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer names.Close()
	return names.Sync()
}
