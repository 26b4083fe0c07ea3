// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Output writes one file at a time, each from its beginning to its end. It belongs to one goroutine.
type Output struct {
	fs       vfs.FS
	flag     vfs.Flag
	may      func() error
	name     string   // of the last file that was created
	f        vfs.File // nil if none is open
	size     int64    // of f, in bytes
	unsynced int      // of size
}

// NewOutput returns an Output without a file. flag is how files are created. may is asked before each change, which its error
// refuses.
func NewOutput(fsys vfs.FS, flag vfs.Flag, may func() error) *Output {
	return &Output{fs: fsys, flag: flag, may: may}
}

// MakeDir makes a directory on the volume with mkdir, unless it is there, and its name durable.
func MakeDir(mkdir func(string) error, fsys vfs.FS, name string) error {
	if err := mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// Open reports whether a file is open.
func (o *Output) Open() bool { return o.f != nil }

// Create creates a file with a durable name, which must not exist, after none is open any more.
func (o *Output) Create(name string) error {
	o.name = name
	err := o.may()
	if err == nil {
		o.f, err = o.fs.Open(name, vfs.FlagCreate|o.flag)
	}
	if err == nil {
		err = o.fs.SyncDir(path.Dir(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create %s: %w", name, err), o.Close())
	}
	return nil
}

// Size returns how many bytes the open file has.
func (o *Output) Size() int64 { return o.size }

// Append writes at the end of the open file. After an error the same bytes may be written again, to the same place.
// Large files are synced in pieces, since one sync of all of it would hold up those of the log.
func (o *Output) Append(b []byte) error {
	if err := o.may(); err != nil {
		return err
	}
	if _, err := o.f.WriteAt(b, o.size); err != nil {
		return fmt.Errorf("write %s: %w", o.name, err)
	}
	o.size += int64(len(b))
	if o.unsynced += len(b); o.unsynced < vfs.PieceSize {
		return nil
	}
	return o.Sync()
}

// Sync makes what was written durable.
func (o *Output) Sync() error {
	if o.unsynced == 0 {
		return nil
	}
	o.unsynced = 0
	if err := o.f.Datasync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.name, err)
	}
	return nil
}

// Close closes the file that is open, if any. What was written before changes were refused is not synced then.
func (o *Output) Close() (err error) {
	if o.f == nil {
		return nil
	}
	if o.may() == nil {
		err = o.Sync()
	}
	err = errors.Join(err, o.f.Close())
	o.f, o.size, o.unsynced = nil, 0, 0
	return err
}
