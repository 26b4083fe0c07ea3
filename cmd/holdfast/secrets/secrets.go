// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package secrets opens the directory that a volume's secrets are in where they are not on the volume: one of each server's
// host, such as /etc/holdfast/secrets, of which all have the same files. Holdfast makes such a directory, and the files in it,
// where an operator names it for a new volume, and nowhere else; between hosts, the operator copies it.
package secrets

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// ErrNoSecrets means that a directory cannot be that of secrets. The wrapping error says why, and what to do.
var ErrNoSecrets = errors.New("the directory of secrets cannot be used")

// ErrOnVolume means that a directory was named for the secrets of a volume that has them itself.
var ErrOnVolume = errors.New("the secrets of this volume are on it, in secrets/: leave --secrets, HOLDFAST_SECRETS, or the setting secrets out")

// Open opens a volume with a directory of secrets, "" = none is named: then what needs secrets that are not on the volume
// returns volume.ErrSecretsElsewhere.
func Open(path, dir string) (*osfs.FS, error) {
	f, err := osfs.Open(path)
	if err != nil || dir == "" {
		return f, err
	}
	c, err := volume.ReadCluster(f)
	if err == nil {
		err = Attach(f, c.ID, dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Attach has the secrets of a cluster's volume, which is open, be those in a directory. It returns an error that wraps ErrNoSecrets,
// ErrOnVolume or volume.ErrOtherSecrets if it cannot.
func Attach(f *osfs.FS, id cluster.ID, dir string) error {
	elsewhere, err := volume.SecretsElsewhere(f)
	if err != nil {
		return err
	}
	if !elsewhere {
		return ErrOnVolume
	}
	return attach(f, dir, func(found *osfs.FS) error { return volume.CheckSecrets(found, id) })
}

// Begin gives a new volume, which has no secrets yet, a directory for them, which is made unless it is there and empty. It can be repeated.
func Begin(f *osfs.FS, id cluster.ID, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the directory of secrets: %w", err)
	}
	return attach(f, dir, func(found *osfs.FS) error { return volume.KeepSecretsElsewhere(f, found, id, rand.Reader) })
}

func attach(f *osfs.FS, dir string, check func(*osfs.FS) error) error {
	if err := private(dir); err != nil {
		return err
	}
	found, err := osfs.OpenPrivate(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSecrets, err)
	}
	if err := allPrivate(found); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrNoSecrets, err), found.Close())
	}
	if err := check(found); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", dir, err), found.Close())
	}
	f.Attach(volume.SecretsDir, found)
	return nil
}

// allPrivate returns an error that wraps osfs.ErrNotPrivate unless all files of a directory are for its owner only. What is put
// there later is looked at when it is read.
func allPrivate(found *osfs.FS) error {
	all, err := found.ReadDir(".")
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.Type != vfs.TypeFile {
			continue
		}
		f, err := found.Open(x.Name, vfs.FlagRead)
		if err == nil {
			err = f.Close()
		}
		if err := vfs.IgnoreMissing(err); err != nil { // what was unfinished may have gone
			return err
		}
	}
	return nil
}

// private returns an error unless a path is of a directory that is for its owner only, who is the user of this process, or root.
func private(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%w: %s: name it by its absolute path", ErrNoSecrets, dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is not there on this host: copy it from a host of another server, with its modes, as the user that the servers run as", ErrNoSecrets, dir)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoSecrets, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no directory", ErrNoSecrets, dir)
	case info.Mode()&0o077 != 0:
		return fmt.Errorf("%w: %s has mode %o, so others than its owner may look into it; type: chmod -R go= %s   (and if somebody may have read it, see docs/security.md on what has leaked)", ErrNoSecrets, dir, info.Mode().Perm(), dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d and you are %d: it has to belong to the user that the servers run as", ErrNoSecrets, dir, st.Uid, os.Geteuid())
	}
	return nil
}
