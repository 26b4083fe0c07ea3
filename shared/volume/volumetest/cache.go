// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// cache is what one machine believes about a network filesystem. Everything
// in it may be wrong until it expires.
type cache struct {
	stale time.Duration
	names map[place]cachedName
	lists map[*inode]cachedList
	infos map[*inode]cachedInfo
	views map[*inode]*view
}

// cachedName is a lookup; node is nil where the name was missing.
type cachedName struct {
	node  *inode
	until time.Time
}

type cachedList struct {
	entries map[string]*inode
	until   time.Time
}

type cachedInfo struct {
	info  vfs.Info
	until time.Time
}

// view is the page cache of one file.
type view struct {
	until time.Time // looked at when the file is opened
	size  int64
	pages map[int64]*page // a nil page is a cached page of zeros
	dirty map[int64]struct{}
}

func newCache(stale time.Duration) *cache {
	c := &cache{stale: stale, views: make(map[*inode]*view)}
	c.drop()
	return c
}

// drop forgets everything but unflushed writes.
func (c *cache) drop() {
	c.names = make(map[place]cachedName)
	c.lists = make(map[*inode]cachedList)
	c.infos = make(map[*inode]cachedInfo)
	for n, v := range c.views {
		if len(v.dirty) == 0 {
			delete(c.views, n)
		}
	}
}

// child looks a name up, in the cache where it has not expired.
func (h *Host) child(at place) *inode {
	if h.cache == nil {
		return at.dir.entries[at.name]
	}
	now := time.Now()
	known, ok := h.cache.names[at]
	// The server answers ESTALE for a handle that leads nowhere any more, and
	// the kernel then looks the name up again.
	dangling := known.node != nil && known.node.deleted()
	if ok && now.Before(known.until) && !dangling {
		return known.node
	}
	n := at.dir.entries[at.name]
	h.cache.names[at] = cachedName{node: n, until: now.Add(h.cache.stale)}
	return n
}

// learn notes the host's own change of a name (n is nil where it was removed),
// without learning anything about others' changes.
func (h *Host) learn(at place, n *inode) {
	if h.cache == nil {
		return
	}
	h.cache.names[at] = cachedName{node: n, until: time.Now().Add(h.cache.stale)}
	if list, ok := h.cache.lists[at.dir]; ok {
		if n == nil {
			delete(list.entries, at.name)
		} else {
			list.entries[at.name] = n
		}
	}
	delete(h.cache.infos, at.dir)
	if n != nil {
		delete(h.cache.infos, n)
	}
}

// unlearn drops a name about which the server has just objected.
func (h *Host) unlearn(at place) {
	if h.cache != nil {
		delete(h.cache.names, at)
	}
}

// list returns a directory's entries as the host believes them to be.
func (h *Host) list(dir *inode) map[string]*inode {
	if h.cache == nil {
		return dir.entries
	}
	now := time.Now()
	if known, ok := h.cache.lists[dir]; ok && now.Before(known.until) && !dir.gone {
		return known.entries
	}
	entries := maps.Clone(dir.entries)
	h.cache.lists[dir] = cachedList{entries: entries, until: now.Add(h.cache.stale)}
	return entries
}

// info returns a name's attributes as the host believes them to be.
func (h *Host) info(n *inode) vfs.Info {
	if h.cache == nil {
		return n.info()
	}
	now := time.Now()
	known, ok := h.cache.infos[n]
	if !ok || !now.Before(known.until) {
		known = cachedInfo{info: n.info(), until: now.Add(h.cache.stale)}
		h.cache.infos[n] = known
	}
	return h.withOwnSize(n, known.info)
}

// withOwnSize adds what the host has written and not flushed.
func (h *Host) withOwnSize(n *inode, info vfs.Info) vfs.Info {
	if v := h.dirtyView(n); v != nil {
		info.Size = max(info.Size, v.size)
	}
	return info
}

func (h *Host) dirtyView(n *inode) *view {
	if h.cache == nil {
		return nil
	}
	if v := h.cache.views[n]; v != nil && len(v.dirty) > 0 {
		return v
	}
	return nil
}

// openView begins to believe the page cache of a file anew if it has expired.
func (h *Host) openView(n *inode) {
	if h.cache == nil {
		return
	}
	v := h.cache.views[n]
	if v == nil || len(v.dirty) == 0 && !time.Now().Before(v.until) {
		delete(h.cache.views, n)
		h.viewOf(n)
	}
}

// viewOf returns the page cache of a file.
func (h *Host) viewOf(n *inode) *view {
	v := h.cache.views[n]
	if v == nil {
		v = &view{
			until: time.Now().Add(h.cache.stale),
			size:  n.data.size,
			pages: make(map[int64]*page),
			dirty: make(map[int64]struct{}),
		}
		h.cache.views[n] = v
	}
	return v
}

// page returns a cached page, fetching it from the server where it is missing.
func (v *view) page(n *inode, i int64) *page {
	pg, ok := v.pages[i]
	if !ok {
		pg = n.data.pages[i]
		v.pages[i] = pg
	}
	return pg
}

func (v *view) readAt(n *inode, p []byte, off int64) int {
	return readPages(p, off, v.size, func(i int64) *page { return v.page(n, i) })
}

// write puts bytes into the page cache.
func (v *view) write(n *inode, p []byte, off int64) {
	for s := range spans(off, len(p)) {
		v.pages[s.page] = overlay(v.page(n, s.page), p[s.from:s.to], s.at)
	}
	v.size = max(v.size, off+int64(len(p)))
}

// writeBack puts bytes into the page cache for a later flush.
func (v *view) writeBack(n *inode, p []byte, off int64) {
	v.write(n, p, off)
	for s := range spans(off, len(p)) {
		v.dirty[s.page] = struct{}{}
	}
}

// flush sends a file's unflushed pages to the server, whole, as NFS clients
// do: bytes beside the written ones are overwritten with what the cache held.
// After an error they are lost.
func (h *Host) flush(n *inode) error {
	v := h.dirtyView(n)
	if v == nil {
		return nil
	}
	dirty := slices.Sorted(maps.Keys(v.dirty))
	clear(v.dirty)
	delete(h.cache.infos, n)
	var zero page
	for _, i := range dirty {
		pg := v.pages[i]
		if pg == nil {
			pg = &zero
		}
		end := min(pageSize, v.size-i*pageSize)
		if _, err := h.disk.write(n, pg[:end], i*pageSize); err != nil {
			delete(h.cache.views, n)
			return err
		}
	}
	return nil
}
