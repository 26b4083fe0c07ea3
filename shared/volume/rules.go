// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// The access rules are numbered versions in access/, which only the owner may read. The highest number counts. A version
// is linked onto its number once, complete and durable, and neither replaced nor removed, so a writer that slept cannot
// bring an older one back: the number after the one that it knew is taken. This package does not look into them.

var (
	// ErrRulesChanged means that another version of the rules was published meanwhile.
	ErrRulesChanged = errors.New("the access rules were changed meanwhile: look at the newest version, and repeat")
	// ErrBadRules means that a version of the rules cannot be used as it is on the volume, however often one asks.
	ErrBadRules = errors.New("this version of the access rules cannot be used")
)

// MaxRules is the size of the largest version of the rules, in bytes.
const MaxRules = 1 << 20

// RulesPath returns the name of a version of the rules, relative to the volume.
func RulesPath(version uint64) string { return layout.AccessDir + "/" + layout.RulesName(version) }

// RulesVersions returns the numbers of the versions of the rules, in rising order. A volume without access/ has none.
func RulesVersions(fsys vfs.FS) (all []uint64, err error) {
	entries, err := fsys.ReadDir(layout.AccessDir)
	if err := vfs.IgnoreMissing(err); err != nil {
		return nil, fmt.Errorf("the versions of the access rules: %w", err)
	}
	for _, x := range entries {
		if n, ok := layout.ParseRules(x.Name); ok {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// HasRules reports whether there is a version with this number. On some filesystems, a cache may say no for a while.
func HasRules(fsys vfs.FS, version uint64) (bool, error) {
	_, err := fsys.Lstat(RulesPath(version))
	return err == nil, vfs.IgnoreMissing(err)
}

// ReadRules reads a version of the rules, which is durable then: what a server went by does not vanish. It returns an error
// that wraps fs.ErrNotExist if there is none with this number; ErrExposed and ErrBadRules, with the command that mends it,
// if others than the owner may read or write it; ErrBadRules if it is no file or too large.
func ReadRules(fsys vfs.FS, version uint64) ([]byte, error) {
	name := RulesPath(version)
	for _, x := range []string{layout.AccessDir, name} {
		info, err := fsys.Lstat(x)
		switch {
		case err != nil:
			return nil, fmt.Errorf("access version %d: %w", version, err)
		case info.Mode&0o077 != 0:
			return nil, fmt.Errorf("%w: %w: %s has mode %o; type: chmod -R go= DIR/%s   (and look at what is in it)", ErrBadRules, ErrExposed, x, info.Mode&0o777, layout.AccessDir)
		case x == name && (info.Type != vfs.TypeFile || info.Size > MaxRules):
			return nil, fmt.Errorf("%w: %s is no file of at most %d bytes", ErrBadRules, x, MaxRules)
		}
	}
	b, err := vfs.ReadFile(fsys, name, vfs.FlagRead)
	if err == nil {
		err = fsys.SyncDir(layout.AccessDir)
	}
	if err != nil {
		return nil, fmt.Errorf("access version %d: %w", version, err)
	}
	return b, nil
}

// PublishRules makes this content the version that follows after, 0 for the first one, and returns when it is durable. It
// returns an error that wraps ErrRulesChanged, and changes nothing, if after is not the newest version any more. After
// another error the version may be there or not.
func PublishRules(fsys vfs.FS, random io.Reader, after uint64, content []byte) error {
	if len(content) > MaxRules {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrBadRules, len(content), MaxRules)
	}
	if err := fsys.MkdirPrivate(layout.AccessDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", layout.AccessDir, err)
	}
	if err := fsys.SyncDir("."); err != nil {
		return err
	}
	all, err := RulesVersions(fsys)
	if err != nil {
		return err
	}
	if n := len(all); n > 0 && all[n-1] != after || n == 0 && after != 0 {
		return ErrRulesChanged
	}
	nonce := make([]byte, 16)
	if _, err := io.ReadFull(random, nonce); err != nil {
		return err
	}
	tmp, name := layout.AccessDir+"/"+hex.EncodeToString(nonce)+layout.TmpSuffix, RulesPath(after+1)
	if err = vfs.WriteFile(fsys, tmp, vfs.FlagCreate|vfs.FlagPrivate, content); err == nil {
		err = linkRules(fsys, tmp, name)
	}
	_ = fsys.Remove(tmp) // what stays only takes space
	if err != nil {
		return fmt.Errorf("publish access version %d: %w", after+1, err)
	}
	return fsys.SyncDir(layout.AccessDir)
}

// linkRules gives a version its name. A link that failed may have been made after all: then both names are of one file.
func linkRules(fsys vfs.FS, tmp, name string) error {
	err := fsys.Link(tmp, name)
	if err == nil {
		return nil
	}
	there, thereErr := fsys.Lstat(name)
	own, ownErr := fsys.Lstat(tmp)
	switch {
	case thereErr != nil:
		return err
	case ownErr == nil && there.Inode == own.Inode:
		return nil
	}
	return ErrRulesChanged
}
