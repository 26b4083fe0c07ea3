// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"maps"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// flock is the state of a file's flock: its holders of all mounts.
type flock struct {
	mu      sync.Mutex
	holders map[holder]uint32 // F_RDLCK or F_WRLCK
	changed chan struct{}     // closed at a release; nil while no call waits
}

// holder is an open file on a mount. The kernel's own number for it is no use:
// it is used again before we hear that the file was closed.
type holder struct {
	mount *Mount
	fh    uint64
}

// set takes or releases the lock; EAGAIN if another holder is in the way. The channel
// closes when it is worth another try.
func (l *flock) set(h holder, kind uint32) (errno syscall.Errno, again <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind == unix.F_UNLCK {
		l.drop(func(x holder) bool { return x == h })
		return 0, nil
	}
	for x, has := range l.holders {
		if x != h && (kind == unix.F_WRLCK || has == unix.F_WRLCK) {
			if l.changed == nil {
				l.changed = make(chan struct{})
			}
			return syscall.EAGAIN, l.changed
		}
	}
	if l.holders == nil {
		l.holders = make(map[holder]uint32)
	}
	l.holders[h] = kind
	return 0, nil
}

// drop takes the lock from holders. The caller holds mu.
func (l *flock) drop(whose func(holder) bool) {
	maps.DeleteFunc(l.holders, func(h holder, _ uint32) bool { return whose(h) })
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// dropMount takes the lock from all processes of a mount.
func (l *flock) dropMount(m *Mount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(func(h holder) bool { return h.mount == m })
}

// clear takes the lock from all holders.
func (l *flock) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(func(holder) bool { return true })
}
