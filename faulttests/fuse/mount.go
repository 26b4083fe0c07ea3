// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Profile is what a client host caches.
type Profile struct {
	// Cache is how long names, missing names, attributes, listings and data may
	// be answered without asking the share. Calls that change something, reads
	// with O_DIRECT and statx with AT_STATX_FORCE_SYNC always ask.
	Cache time.Duration
	// DirectStale answers O_DIRECT reads, too, from what was read within Cache,
	// as GlusterFS does by default. No lock service can work with that.
	DirectStale bool
}

// Strict returns a profile that caches nothing.
func Strict() Profile { return Profile{} }

// Stale returns a profile that caches like NFS and GlusterFS with their default options.
func Stale(d time.Duration) Profile { return Profile{Cache: d} }

// StaleDirect returns Stale with old data for O_DIRECT reads, too.
func StaleDirect(d time.Duration) Profile { return Profile{Cache: d, DirectStale: true} }

// Available returns why nothing can be mounted here, nil if it can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("no FUSE here: %w", err)
	}
	return f.Close()
}

// Mount is one client host of a share. Its methods are safe for use by several goroutines.
type Mount struct {
	share   *Share
	dir     string
	profile Profile
	rules   rules
	counts  [len(opNames)]atomic.Int64
	quick   *quickRead // nil unless the profile lies to direct reads
	server  *gofuse.Server

	ended  chan struct{} // closed at Unmount: nothing hangs any more
	served chan struct{} // closed when the kernel is done with us
	once   sync.Once

	mu      sync.Mutex         // for what follows
	lookups map[uint64]uint64  // how often the kernel was given a node, by number
	handles map[uint64]*handle // open files and directories
	fresh   int                // nodes that were new to the kernel, since it pruned
	last    uint64             // handle given
}

// limits of what the kernel sends at once.
const (
	maxWrite      = 1 << 20
	maxBackground = 512 // far more than ever hang at a time
)

// Mount attaches a client host at an empty directory, which needs root.
func (s *Share) Mount(dir string, profile Profile) (*Mount, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("mount at %s: %w", dir, err)
	}
	m := &Mount{
		share: s, dir: dir, profile: profile,
		ended: make(chan struct{}), served: make(chan struct{}),
		lookups: make(map[uint64]uint64), handles: make(map[uint64]*handle),
	}
	m.rules.luck = s.luck
	if profile.DirectStale {
		m.quick = newQuickRead(profile.Cache)
	}
	m.server, err = gofuse.NewServer(newHost(m), dir, &gofuse.MountOptions{
		AllowOther: true, DirectMountStrict: true, EnableLocks: true, DisableXAttrs: true, DisableReadDirPlus: true,
		MaxWrite: maxWrite, MaxBackground: maxBackground,
		FsName: "holdfast-test", Name: "holdfast-test",
		Logger: log.New(io.Discard, "", 0), // errors are returned to the callers
	})
	if err != nil {
		return nil, fmt.Errorf("mount at %s: %w", dir, err)
	}
	go func() {
		defer close(m.served)
		m.server.Serve()
	}()
	// It makes the kernel believe that polling these files is no use, else a
	// Go process that opens one might wait for itself.
	if err := m.server.WaitMount(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount at %s: %w", dir, err), m.Unmount())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mounts = append(s.mounts, m)
	return m, nil
}

// Dir returns the mount point.
func (m *Mount) Dir() string { return m.dir }

// Inject injects a fault into calls of this mount, until Release.
func (m *Mount) Inject(f Fault) *Rule { return m.rules.inject(f) }

// Cut cuts the network between this host and the share, until Release:
// every call hangs, as on a hard mount.
func (m *Mount) Cut() *Rule { return m.Inject(Fault{Hang: true}) }

// CutSoft cuts the network of a soft mount: every call fails with EIO.
func (m *Mount) CutSoft() *Rule { return m.Inject(Fault{Err: unix.EIO}) }

// Calls returns how many calls of some kinds the kernel made on this mount.
func (m *Mount) Calls(ops Op) (n int64) {
	for i := range m.counts {
		if ops&(1<<i) != 0 {
			n += m.counts[i].Load()
		}
	}
	return n
}

// DropLocks ends all flocks of this host without notice, as a file server
// does with a client that was silent for long.
func (m *Mount) DropLocks() {
	for _, n := range m.share.nodes.all() {
		n.lock.dropMount(m)
	}
}

// unmountPatience is how long a mount may take to end once it is aborted.
const unmountPatience = 10 * time.Second

// Unmount ends the mount and its faults. Calls that hang fail and late effects
// never happen; processes that still have files open get ENOTCONN from then on.
// A second call does nothing.
func (m *Mount) Unmount() (err error) {
	m.once.Do(func() {
		close(m.ended)
		m.rules.releaseAll()
		err = m.detach()
		m.forgetAll()
	})
	return err
}

func (m *Mount) detach() error {
	// Force ends the connection even if the mount is in use, or if
	// another mount namespace has a copy of it; detach hides the rest.
	if err := unix.Unmount(m.dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", m.dir, err)
	}
	select {
	case <-m.served:
		return nil
	case <-time.After(unmountPatience):
		return fmt.Errorf("unmount %s: the kernel still holds it after %v", m.dir, unmountPatience)
	}
}

// forgetAll lets go of what the kernel and its processes had.
func (m *Mount) forgetAll() {
	m.DropLocks()
	m.mu.Lock()
	handles, lookups := m.handles, m.lookups
	m.handles, m.lookups = make(map[uint64]*handle), make(map[uint64]uint64)
	m.mu.Unlock()
	for _, x := range handles {
		x.letGo(m.share.nodes)
	}
	for ino := range lookups {
		m.share.nodes.releaseNumber(ino)
	}
}
