// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// pendingCalls tracks the calls into the filesystem that have not returned. The zero value is ready to use.
type pendingCalls struct {
	mu struct {
		sync.Mutex
		slots []pendingCall
	}
}

// pendingCall is a call that has not returned; the zero value is a free slot.
type pendingCall struct {
	began time.Time
	name  string
}

// begin records the begin of a call on the file with this name, and returns its slot for end.
func (c *pendingCalls) begin(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.mu.slots, func(x pendingCall) bool { return x.began.IsZero() })
	if i < 0 {
		i = len(c.mu.slots)
		c.mu.slots = append(c.mu.slots, pendingCall{})
	}
	c.mu.slots[i] = pendingCall{time.Now(), name}
	return i
}

func (c *pendingCalls) end(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.slots[i] = pendingCall{}
}

// oldest returns the age of the oldest pending call, 0 if there is none.
func (c *pendingCalls) oldest(now time.Time) time.Duration {
	return c.oldestOf(now, func(string) bool { return true })
}

// oldestOf is oldest for the calls on files whose name about accepts.
func (c *pendingCalls) oldestOf(now time.Time, about func(name string) bool) (age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.mu.slots {
		if !x.began.IsZero() && about(x.name) {
			age = max(age, now.Sub(x.began))
		}
	}
	return age
}

// trackedFS tracks its pending calls, and those of the files and locks that it opens.
type trackedFS struct {
	vfs.FS
	calls *pendingCalls
}

// Open is FS.Open.
func (w trackedFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	defer w.calls.end(w.calls.begin(name))
	f, err := w.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return trackedFile{f, w.calls, name}, nil
}

// Mkdir is FS.Mkdir.
func (w trackedFS) Mkdir(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Mkdir(name)
}

// MkdirPrivate is FS.MkdirPrivate.
func (w trackedFS) MkdirPrivate(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.MkdirPrivate(name)
}

// Rename is FS.Rename.
func (w trackedFS) Rename(oldName, newName string) error {
	defer w.calls.end(w.calls.begin(oldName))
	return w.FS.Rename(oldName, newName)
}

// Link is FS.Link.
func (w trackedFS) Link(oldName, newName string) error {
	defer w.calls.end(w.calls.begin(oldName))
	return w.FS.Link(oldName, newName)
}

// Remove is FS.Remove.
func (w trackedFS) Remove(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Remove(name)
}

// ReadDir is FS.ReadDir.
func (w trackedFS) ReadDir(name string) ([]vfs.Entry, error) {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.ReadDir(name)
}

// Lstat is FS.Lstat.
func (w trackedFS) Lstat(name string) (vfs.Info, error) {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Lstat(name)
}

// SyncDir is FS.SyncDir.
func (w trackedFS) SyncDir(name string) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.SyncDir(name)
}

// TryLock is FS.TryLock.
func (w trackedFS) TryLock(name string) (vfs.Lock, error) {
	defer w.calls.end(w.calls.begin(name))
	l, err := w.FS.TryLock(name)
	if err != nil {
		return nil, err
	}
	return trackedLock{l, w.calls, name}, nil
}

// Replace is FS.Replace.
func (w trackedFS) Replace(name string, write func(io.Writer) error) error {
	defer w.calls.end(w.calls.begin(name))
	return w.FS.Replace(name, write)
}

type trackedFile struct {
	vfs.File
	calls *pendingCalls
	name  string
}

// ReadAt is File.ReadAt.
func (w trackedFile) ReadAt(b []byte, off int64) (int, error) {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.ReadAt(b, off)
}

// WriteAt is File.WriteAt.
func (w trackedFile) WriteAt(b []byte, off int64) (int, error) {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.WriteAt(b, off)
}

// Sync is File.Sync.
func (w trackedFile) Sync() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Sync()
}

// Datasync is File.Datasync.
func (w trackedFile) Datasync() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Datasync()
}

// Stat is File.Stat.
func (w trackedFile) Stat() (vfs.Info, error) {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Stat()
}

// Close is File.Close.
func (w trackedFile) Close() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.File.Close()
}

type trackedLock struct {
	vfs.Lock
	calls *pendingCalls
	name  string
}

// Unlock is Lock.Unlock.
func (w trackedLock) Unlock() error {
	defer w.calls.end(w.calls.begin(w.name))
	return w.Lock.Unlock()
}
