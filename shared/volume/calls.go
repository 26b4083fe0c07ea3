// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// calls knows since when calls into the filesystem are under way. The zero value is ready.
type calls struct {
	mu struct {
		sync.Mutex
		under []underWay
	}
}

// underWay is a call that has not come back; the zero value is a free place.
type underWay struct {
	began time.Time
	name  string
}

// begin notes that a call begins, by the name that it is about, and returns its place for end.
func (c *calls) begin(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.mu.under, func(x underWay) bool { return x.began.IsZero() })
	if i < 0 {
		i = len(c.mu.under)
		c.mu.under = append(c.mu.under, underWay{})
	}
	c.mu.under[i] = underWay{time.Now(), name}
	return i
}

func (c *calls) end(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.under[i] = underWay{}
}

// oldest is how long ago the oldest call began that has not come back, 0 where there is none.
func (c *calls) oldest(now time.Time) time.Duration {
	return c.oldestOf(now, func(string) bool { return true })
}

// oldestOf is oldest of the calls that are about certain names.
func (c *calls) oldestOf(now time.Time, about func(name string) bool) (age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.mu.under {
		if !x.began.IsZero() && about(x.name) {
			age = max(age, now.Sub(x.began))
		}
	}
	return age
}

// watchedFS counts the calls that are under way.
type watchedFS struct {
	vfs.FS
	calls *calls
}

// Open opens a file whose calls are counted, too.
func (w watchedFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	defer w.calls.end(w.calls.begin(name))
	f, err := w.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return watchedFile{f, w.calls, name}, nil
}

// Mkdir is FS.Mkdir.
func (w watchedFS) Mkdir(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Mkdir(name)
}

// Rename is FS.Rename.
func (w watchedFS) Rename(oldName, newName string) error {
	defer w.calls.end(w.calls.begin(oldName))
	return w.FS.Rename(oldName, newName)
}

// Link is FS.Link.
func (w watchedFS) Link(oldName, newName string) error {
	defer w.calls.end(w.calls.begin(oldName))
	return w.FS.Link(oldName, newName)
}

// Remove is FS.Remove.
func (w watchedFS) Remove(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Remove(name)
}

// ReadDir is FS.ReadDir.
func (w watchedFS) ReadDir(name string) ([]vfs.Entry, error) {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.ReadDir(name)
}

// Lstat is FS.Lstat.
func (w watchedFS) Lstat(name string) (vfs.Info, error) {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Lstat(name)
}

// SyncDir is FS.SyncDir.
func (w watchedFS) SyncDir(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.SyncDir(name)
}

// TryLock is FS.TryLock.
func (w watchedFS) TryLock(name string) (vfs.Lock, error) {
	defer w.calls.end(w.calls.begin(name))
	l, err := w.FS.TryLock(name)
	if err != nil {
		return nil, err
	}
	return watchedLock{l, w.calls, name}, nil
}

// Replace is FS.Replace.
func (w watchedFS) Replace(name string, write func(io.Writer) error) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Replace(name, write)
}

type watchedFile struct {
	vfs.File
	calls *calls
	name  string
}

// ReadAt is File.ReadAt.
func (w watchedFile) ReadAt(b []byte, off int64) (int, error) {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.ReadAt(b, off)
}

// WriteAt is File.WriteAt.
func (w watchedFile) WriteAt(b []byte, off int64) (int, error) {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.WriteAt(b, off)
}

// Sync is File.Sync.
func (w watchedFile) Sync() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Sync()
}

// Datasync is File.Datasync.
func (w watchedFile) Datasync() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Datasync()
}

// Stat is File.Stat.
func (w watchedFile) Stat() (vfs.Info, error) {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Stat()
}

// Close is File.Close.
func (w watchedFile) Close() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Close()
}

type watchedLock struct {
	vfs.Lock
	calls *calls
	name  string
}

// Unlock is Lock.Unlock.
func (w watchedLock) Unlock() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.Lock.Unlock()
}
