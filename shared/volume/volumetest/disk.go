// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Disk is the shared server and its disk: what all hosts see, and what would
// be left after a power loss. All methods may be called from several goroutines.
type Disk struct {
	seed uint64

	mu sync.Mutex

	// guarded by mu
	rng       *rand.Rand
	nextInode uint64 // numbers are never used twice
	root      *inode
	pending   []*change // un-synced changes of names, oldest first
	used      int64
	capacity  int64 // 0 is endless
	readOnly  bool
	hosts     []*Host // the living ones

	delegations Delegations
	dark        map[int]bool // machines that lost their power, and were not started again
}

// New makes an empty disk. The seed feeds the disk's own random source (Rand).
func New(seed uint64) *Disk {
	d := &Disk{seed: seed, dark: make(map[int]bool), rng: rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))}
	d.root = d.newInode(vfs.TypeDir)
	return d
}

// Rand is the disk's own random source, for Crash and DurableClone. Use it
// from one goroutine at a time.
func (d *Disk) Rand() *rand.Rand { return d.rng }

// Host attaches a machine or process with cold caches. After a crash or kill,
// a new Host with the same id is the restarted one.
func (d *Disk) Host(id int, profile Profile) *Host {
	h := &Host{
		disk:    d,
		id:      id,
		profile: profile,
		files:   make(map[*file]struct{}),
		locks:   make(map[*flock]struct{}),
	}
	if profile.Kind.Network {
		h.cache = newCache(profile.Stale)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = append(d.hosts, h)
	delete(d.dark, id)
	return h
}

// SetCapacity bounds the space for files, counted in whole pages up to each
// file's size; 0 lifts the bound. Beyond it writes and creations get ENOSPC.
func (d *Disk) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// Used is the space that SetCapacity bounds.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// SetReadOnly makes every change fail with EROFS, as after a remount.
func (d *Disk) SetReadOnly(readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readOnly = readOnly
}

// Crash is a power loss of everything: hosts die, locks and caches are gone,
// and what was not synced survives as rng has it (nil: nothing of it survives).
func (d *Disk) Crash(rng *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.hosts) > 0 {
		d.hosts[0].die(dropCaches)
	}
	d.adopt(d.afterPowerLoss(rng))
}

// DurableClone is the disk as a power loss at this instant would leave it
// (rng as for Crash). The original is not changed and no host notices.
func (d *Disk) DurableClone(rng *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sibling(d.afterPowerLoss(rng))
}

// Clone is a copy of the visible state, all of it durable, without hosts.
// Inode numbers are kept.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &copier{
		copies: make(map[*inode]*inode),
		names:  func(dir *inode) map[string]*inode { return dir.entries },
		data: func(n *inode) content {
			return content{size: n.data.size, pages: maps.Clone(n.data.pages)}
		},
	}
	root := c.copy(d.root)
	return d.sibling(root, c.used)
}

// adopt makes a copied tree the disk's own.
func (d *Disk) adopt(root *inode, used int64) {
	d.root, d.used, d.pending = root, used, nil
}

func (d *Disk) sibling(root *inode, used int64) *Disk {
	s := New(d.seed + 1)
	s.nextInode, s.capacity, s.readOnly = d.nextInode, d.capacity, d.readOnly
	s.adopt(root, used)
	return s
}

// afterPowerLoss copies what survives one.
func (d *Disk) afterPowerLoss(rng *rand.Rand) (*inode, int64) {
	luck := newLuck(rng)
	names := d.survivingNames(luck)
	c := &copier{
		copies: make(map[*inode]*inode),
		names:  names,
		data:   func(n *inode) content { return n.survive(luck) },
	}
	root := c.copy(d.root)
	return root, c.used
}

// survivingNames plays a random choice of the un-synced changes over the
// durable entries. A rename that survives brings along the change that made
// the name it takes away: else a file would have both its old and its new name.
func (d *Disk) survivingNames(luck *luck) func(*inode) map[string]*inode {
	kept := make([]bool, len(d.pending))
	needed := make(map[place]*inode)
	for i := len(d.pending) - 1; i >= 0; i-- {
		c := d.pending[i]
		kept[i] = luck.keepsName()
		if needed[c.adds] == c.addsNode && c.addsNode != nil {
			kept[i] = true
			delete(needed, c.adds)
		}
		if kept[i] && c.adds.dir != nil && c.removes.dir != nil {
			needed[c.removes] = c.removedNode
		}
	}
	changed := make(map[*inode]map[string]*inode)
	for i, c := range d.pending {
		if !kept[i] {
			continue
		}
		c.apply(func(dir *inode) map[string]*inode {
			if changed[dir] == nil {
				changed[dir] = maps.Clone(dir.stableEntries)
			}
			return changed[dir]
		})
	}
	return func(dir *inode) map[string]*inode {
		if entries := changed[dir]; entries != nil {
			return entries
		}
		return dir.stableEntries
	}
}

// survive picks what a power loss leaves of a file's content.
func (n *inode) survive(luck *luck) content {
	out := content{size: n.data.size, pages: maps.Clone(n.data.pages)}
	for _, i := range slices.Sorted(maps.Keys(n.history)) {
		out.put(i, n.history[i].survive(n.data.pages[i], luck))
	}
	out.truncate(luck.size(n.stableSize, n.data.size))
	return out
}

// copier copies a tree in order of names, so that random choices are repeatable.
type copier struct {
	copies map[*inode]*inode
	names  func(dir *inode) map[string]*inode
	data   func(file *inode) content
	used   int64
}

func (c *copier) copy(n *inode) *inode {
	if done := c.copies[n]; done != nil {
		done.nlink++
		return done
	}
	fresh := &inode{number: n.number, kind: n.kind, nlink: 1, changed: n.changed, private: n.private}
	c.copies[n] = fresh
	if n.kind != vfs.TypeDir {
		fresh.data = c.data(n)
		fresh.stableSize = fresh.data.size
		c.used += blocks(fresh.data.size)
		return fresh
	}
	entries := c.names(n)
	fresh.entries = make(map[string]*inode, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		fresh.entries[name] = c.copy(entries[name])
	}
	fresh.stableEntries = maps.Clone(fresh.entries)
	return fresh
}
