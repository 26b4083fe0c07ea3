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

// KeptName returns the name under which KeepGeneration keeps a generation.
func KeptName(name cluster.FileName, generation cluster.Generation) cluster.FileName {
	return cluster.FileName(fmt.Sprintf("%s.g%d", name, generation))
}

// KeepGeneration moves the present generation of a protected file to its kept name, so
// that the file can be rotated, and returns that name. The client that asks for the rotation calls it, and holds
// the lock meanwhile. No server calls it: a server that was paused could move a later generation away. If a
// later generation is moved, it gets a name of its own, which the error tells: no generation is ever overwritten.
// The file is synced first, because a takeover does not write to a file that was moved. A repeated call
// finishes what an interrupted one began.
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
		aside, err := findAside(fsys, to, inode)
		if err != nil {
			return "", fmt.Errorf("%s was moved away already: rotate without keeping it: %w", from, err)
		}
		return kept, moveToKept(fsys, aside, to)
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
	// A rename replaces an existing file, and may come after another client's rotation, which has
	// kept this generation. So the file first gets a name that no other process uses, and the kept name only
	// when it is known which file was moved.
	aside := to + "." + rand.Text()[:6]
	if err := fsys.Rename(from, aside); err != nil {
		return "", err
	}
	if moved, err := fsys.Lstat(aside); err != nil || moved.Inode != inode {
		return "", errors.Join(fmt.Errorf("%s was rotated meanwhile, and a later generation was moved to %s: move it back, if nothing new is at %s", from, aside, from), err)
	}
	return kept, moveToKept(fsys, aside, to)
}

// moveToKept renames a generation that was moved aside to its kept name. No other generation has this
// name; a file that was put there by hand stays.
func moveToKept(fsys vfs.FS, aside, to string) error {
	if _, err := fsys.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s was taken meanwhile: the generation is kept as %s", to, aside), err)
	}
	if err := fsys.Rename(aside, to); err != nil {
		return fmt.Errorf("the generation is kept as %s: %w", aside, err)
	}
	return fsys.SyncDir(path.Dir(to))
}

// findAside returns the name to which an interrupted call had moved the generation.
func findAside(fsys vfs.FS, to string, inode uint64) (string, error) {
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
