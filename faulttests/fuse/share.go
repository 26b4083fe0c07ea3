// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Share is a file server with its disk: a backing directory, which always
// has what the server's clients see, including un-synced changes. Tests may read
// it, but must not change it while the share is open.
//
// All methods are safe for use by several goroutines.
type Share struct {
	backing string
	stash   string // directory beside it, for what a power loss can bring back
	nodes   *nodes
	tree    *tree
	luck    *luck
	rules   rules

	power sync.RWMutex // each call holds it for reading while it has its effect
	boots atomic.Int64 // power losses; handles of an earlier boot are stale

	mu     sync.Mutex // for what follows
	mounts []*Mount
	closed bool
}

// Loss counts what a power loss took.
type Loss struct {
	Names int // changes of names that were undone
	Pages int // pages of 4 KiB that hold their durable content again
	Torn  int // pages that hold both, by sectors of 512 bytes
}

// NewShare serves an existing directory. Everything in it counts as durable.
// The seed decides what a power loss takes, and which calls faults with a Chance select.
// The data that a power loss brings back is kept in a directory beside the backing one.
func NewShare(backing string, seed uint64) (*Share, error) {
	backing, err := filepath.Abs(backing)
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", backing, err)
	}
	nodes, err := newNodes(backing)
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", backing, err)
	}
	s := &Share{backing: backing, nodes: nodes, tree: &tree{nodes: nodes}, luck: newLuck(seed)}
	s.rules.luck = s.luck
	if err := s.makeStash(); err != nil {
		return nil, errors.Join(fmt.Errorf("share %s: %w", backing, err), unix.Close(nodes.root.fd))
	}
	return s, nil
}

// makeStash makes the directory for what was removed.
func (s *Share) makeStash() (err error) {
	if s.stash, err = os.MkdirTemp(filepath.Dir(s.backing), "."+filepath.Base(s.backing)+"-removed-"); err != nil {
		return err
	}
	s.tree.stash, err = unix.Open(s.stash, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, os.Remove(s.stash))
	}
	one, err := statFD(s.tree.stash)
	two, err2 := statFD(s.nodes.root.fd)
	if err = errors.Join(err, err2); err == nil && one.Dev != two.Dev {
		err = errors.New("it is a mount point: share a directory inside it")
	}
	if err != nil {
		return errors.Join(err, unix.Close(s.tree.stash), os.Remove(s.stash))
	}
	return nil
}

// Inject injects a fault into calls of all mounts, also later ones, until Release.
func (s *Share) Inject(f Fault) *Rule { return s.rules.inject(f) }

// ReadFile returns the content of a file as clients see it, including un-synced writes.
func (s *Share) ReadFile(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.backing, filepath.FromSlash(name)))
}

// Dir returns the backing directory.
func (s *Share) Dir() string { return s.backing }

// Unsynced returns how many changes of names, and how many files' data, a power loss could take now.
func (s *Share) Unsynced() (names, files int) {
	s.tree.mu.RLock()
	names = len(s.tree.pending)
	s.tree.mu.RUnlock()
	for _, n := range s.nodes.all() {
		if n.data.unsynced(n) {
			files++
		}
	}
	return names, files
}

// Sync makes everything durable, even what a failed sync had lost.
func (s *Share) Sync() error {
	s.power.Lock()
	defer s.power.Unlock()
	failed := s.tree.syncAll()
	for _, n := range s.nodes.all() {
		failed = errors.Join(failed, n.data.settle(n))
	}
	s.nodes.sweep()
	return failed
}

// PowerLoss restarts the file server as after a power loss: each un-synced page
// and each un-synced change of names survives with probability keep (0 =
// none); of the other pages some are torn, unless keep is 0. The mounts live on.
// Their open files are stale then (ESTALE), their flocks are gone.
//
// Hanging calls are not lost: they reach the restarted server.
func (s *Share) PowerLoss(keep float64) (Loss, error) {
	s.power.Lock()
	defer s.power.Unlock()
	s.boots.Add(1)
	var loss Loss
	failed := s.tree.powerLoss(keep, s.luck, &loss)
	for _, n := range s.nodes.all() {
		n.lock.clear()
		if err := n.data.powerLoss(n, keep, s.luck, &loss); err != nil {
			failed = errors.Join(failed, fmt.Errorf("power loss of inode %d: %w", n.ino, err))
		}
	}
	s.nodes.sweep()
	return loss, failed
}

// Close ends all faults and mounts, and makes everything durable. Processes
// that still use a mount get errors. A second call does nothing.
func (s *Share) Close() error {
	s.mu.Lock()
	mounts, closed := s.mounts, s.closed
	s.mounts, s.closed = nil, true
	s.mu.Unlock()
	if closed {
		return nil
	}
	var failed error
	for _, m := range mounts {
		failed = errors.Join(failed, m.Unmount())
	}
	s.rules.releaseAll()
	failed = errors.Join(failed, s.Sync(), unix.Close(s.tree.stash), os.RemoveAll(s.stash))
	s.nodes.release(s.nodes.root)
	return failed
}
