// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// KeptName is the name under which KeepGeneration keeps a generation.
func KeptName(name cluster.FileName, generation cluster.Generation) cluster.FileName {
	return cluster.FileName(fmt.Sprintf("%s.g%d", name, generation))
}

// KeepGeneration moves the present generation of a protected file to its kept name, so
// that the file can be rotated. It is for whoever wants the rotation and holds the lock
// meanwhile, never for a server: one that slept could move a later generation away. That
// one is told of then, and lies under a name of its own: no generation is overwritten. The
// file is synced first, because a takeover writes nothing to what was moved. Done again
// it finds what it did, half of it too.
func KeepGeneration(fsys vfs.FS, name cluster.FileName, generation cluster.Generation, inode uint64) (cluster.FileName, error) {
	kept := KeptName(name, generation)
	if err := errors.Join(name.Validate(), kept.Validate()); err != nil {
		return "", err
	}
	from, to := ProtectedPath(name), ProtectedPath(kept)
	there, err := fsys.Lstat(to)
	switch {
	case err == nil && there.Inode == inode:
		return kept, nil
	case err == nil:
		return "", fmt.Errorf("%s is taken by another file: move it away, or move %s away yourself", to, from)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	f, err := fsys.Open(from, vfs.FlagWrite)
	if errors.Is(err, fs.ErrNotExist) {
		aside, err := lookAside(fsys, to, inode)
		if err != nil {
			return "", fmt.Errorf("%s was moved away already: rotate without keeping it: %w", from, err)
		}
		return kept, moveOn(fsys, aside, to)
	}
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err == nil && info.Inode != inode {
		err = fmt.Errorf("%s has inode %d, the service says %d: it was replaced. Nothing was moved: move away yourself what is not to stay", from, info.Inode, inode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	// A rename replaces what is there, and may come after a rotation by somebody else, who has
	// kept this generation. So it goes to a name that nobody else has, and on when it is known
	// what was moved.
	aside := to + "." + rand.Text()[:6]
	if err := fsys.Rename(from, aside); err != nil {
		return "", err
	}
	if moved, err := fsys.Lstat(aside); err != nil || moved.Inode != inode {
		return "", errors.Join(fmt.Errorf("%s was rotated meanwhile, and a later generation was moved to %s: move it back, if nothing new is at %s", from, aside, from), err)
	}
	return kept, moveOn(fsys, aside, to)
}

// moveOn gives a generation that was moved aside its kept name. That of a generation has no
// other owner; a file that somebody put there by hand stays.
func moveOn(fsys vfs.FS, aside, to string) error {
	if _, err := fsys.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s was taken meanwhile: the generation is kept as %s", to, aside), err)
	}
	if err := fsys.Rename(aside, to); err != nil {
		return fmt.Errorf("the generation is kept as %s: %w", aside, err)
	}
	return fsys.SyncDir(path.Dir(to))
}

// lookAside finds the generation where who died had moved it aside.
func lookAside(fsys vfs.FS, to string, inode uint64) (string, error) {
	entries, err := fsys.ReadDir(path.Dir(to))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := path.Join(path.Dir(to), e.Name)
		if !strings.HasPrefix(name, to+".") {
			continue
		}
		if info, err := fsys.Lstat(name); err == nil && info.Inode == inode {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: %w", to, fs.ErrNotExist)
}
