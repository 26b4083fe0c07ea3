// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"iter"
	"math/rand/v2"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	pageSize   = 4096
	sectorSize = 512
	// maxVersions bounds what is remembered of a page that is rewritten without a sync.
	maxVersions = 6
)

// page is immutable once it is in a content, so contents share pages freely.
type page [pageSize]byte

// content is the bytes of a file. A missing page is zero and costs nothing.
type content struct {
	size  int64
	pages map[int64]*page
}

// span is the part of one page that a read or write touches.
type span struct {
	page     int64 // index of the page
	at       int   // where in the page it begins
	from, to int   // which bytes of the caller's buffer
}

// spans cuts n bytes from off into pages.
func spans(off int64, n int) iter.Seq[span] {
	return func(yield func(span) bool) {
		for from := 0; from < n; {
			pos := off + int64(from)
			s := span{page: pos / pageSize, at: int(pos % pageSize), from: from}
			s.to = min(n, from+pageSize-s.at)
			if !yield(s) {
				return
			}
			from = s.to
		}
	}
}

// readPages fills p from the pages that get returns and says how many bytes
// there were before size.
func readPages(p []byte, off, size int64, get func(int64) *page) int {
	n := int(max(0, min(int64(len(p)), size-off)))
	for s := range spans(off, n) {
		if pg := get(s.page); pg != nil {
			copy(p[s.from:s.to], pg[s.at:])
		} else {
			clear(p[s.from:s.to])
		}
	}
	return n
}

func (c *content) readAt(p []byte, off int64) int {
	return readPages(p, off, c.size, func(i int64) *page { return c.pages[i] })
}

func (c *content) bytes() []byte {
	p := make([]byte, c.size)
	c.readAt(p, 0)
	return p
}

// put stores a page; nil is the zero page.
func (c *content) put(i int64, pg *page) {
	if pg == nil {
		delete(c.pages, i)
		return
	}
	if c.pages == nil {
		c.pages = make(map[int64]*page)
	}
	c.pages[i] = pg
}

// truncate cuts or extends the file; what is cut reads as zero if it grows again.
func (c *content) truncate(size int64) {
	if size < c.size {
		first := size / pageSize
		for i := range c.pages {
			if i > first || i == first && size%pageSize == 0 {
				delete(c.pages, i)
			}
		}
		if old := c.pages[first]; old != nil {
			var tail [pageSize]byte
			c.put(first, overlay(old, tail[size%pageSize:], int(size%pageSize)))
		}
	}
	c.size = size
}

// overlay returns old with p written at the offset at. Zeros over zeros stay nil.
func overlay(old *page, p []byte, at int) *page {
	if len(p) == pageSize {
		if *(*page)(p) == (page{}) {
			return nil
		}
		fresh := page(p)
		return &fresh
	}
	if old == nil {
		var zero page
		if bytes.Equal(p, zero[:len(p)]) {
			return nil
		}
		old = &zero
	}
	fresh := *old
	copy(fresh[at:], p)
	return &fresh
}

// history remembers what a page held since it was last durable, oldest first:
// versions[0] is on the disk, the others may have reached it.
type history struct {
	versions []*page
	// lost says that a sync failed on this page: the kernel calls it clean and
	// will not write it again unless it changes.
	lost bool
}

// inode is a file, directory or other thing on the server.
type inode struct {
	number uint64
	kind   vfs.Type
	nlink  uint64 // of files: names that lead here
	opens  int    // handles and locks
	gone   bool   // of directories: removed
	lock   *flock // the holder, if any

	delegations []delegation

	changed bool // written, cut or moved since it was made
	private bool // made for its owner only

	// Of files. What is not in history is durable.
	data       content
	stableSize int64
	history    map[int64]*history

	// Of directories.
	entries       map[string]*inode
	stableEntries map[string]*inode
}

// deleted reports whether neither a name nor an open handle leads here.
func (n *inode) deleted() bool {
	if n.entries != nil {
		return n.gone
	}
	return n.nlink == 0 && n.opens == 0
}

func (n *inode) write(p []byte, off int64) {
	for s := range spans(off, len(p)) {
		n.setPage(s.page, overlay(n.data.pages[s.page], p[s.from:s.to], s.at))
	}
	n.data.size = max(n.data.size, off+int64(len(p)))
}

// setPage changes a page and remembers what it was.
func (n *inode) setPage(i int64, fresh *page) {
	old := n.data.pages[i]
	h := n.history[i]
	if old == nil && fresh == nil && h == nil {
		return
	}
	if h == nil {
		h = &history{}
		if n.history == nil {
			n.history = make(map[int64]*history)
		}
		n.history[i] = h
	}
	if len(h.versions) == maxVersions {
		h.versions = append(h.versions[:1], h.versions[2:]...) // the first is the durable one
	}
	h.versions = append(h.versions, old)
	h.lost = false
	n.data.put(i, fresh)
}

// sync makes the content durable, except pages that an earlier sync lost.
func (n *inode) sync() {
	for i, h := range n.history {
		if !h.lost {
			delete(n.history, i)
		}
	}
	n.stableSize = n.data.size
}

// syncRange makes one write durable, as O_DSYNC does.
func (n *inode) syncRange(off int64, size int) {
	for s := range spans(off, size) {
		delete(n.history, s.page)
	}
	n.stableSize = n.data.size
}

// loseSync is a sync that failed.
func (n *inode) loseSync() {
	for _, h := range n.history {
		h.lost = true
	}
}

// survive picks what a power loss leaves of one page: of each sector the
// newest or an older version.
func (h *history) survive(newest *page, luck *luck) *page {
	if luck.rng == nil || luck.data == 0 {
		return h.versions[0]
	}
	if luck.data == 1 && !h.lost {
		return newest
	}
	var out page
	for at := 0; at < pageSize; at += sectorSize {
		if from := h.pick(newest, luck); from != nil {
			copy(out[at:at+sectorSize], from[at:])
		}
	}
	return overlay(nil, out[:], 0)
}

func (h *history) pick(newest *page, luck *luck) *page {
	switch {
	case luck.rng.Float64() >= luck.data:
		return h.versions[0]
	case luck.rng.IntN(4) == 0:
		return h.versions[luck.rng.IntN(len(h.versions))]
	default:
		return newest
	}
}

// luck decides what survives a power loss. Without rng nothing un-synced does.
type luck struct {
	rng         *rand.Rand
	data, names float64
}

// newLuck draws how kind this power loss is, so that the extremes (all kept,
// all lost) come up as often as mixtures.
func newLuck(rng *rand.Rand) *luck {
	if rng == nil {
		return &luck{}
	}
	return &luck{rng: rng, data: float64(rng.IntN(5)) / 4, names: float64(rng.IntN(5)) / 4}
}

func (l *luck) keepsName() bool { return l.rng != nil && l.rng.Float64() < l.names }

// size picks what a power loss leaves of a file's size.
func (l *luck) size(stable, visible int64) int64 {
	switch {
	case stable == visible || l.rng == nil || l.data == 0:
		return stable
	case l.data == 1 || l.rng.Float64() < l.data:
		return visible
	case visible > stable && l.rng.IntN(2) == 0:
		between := stable + l.rng.Int64N(visible-stable)
		return max(stable, between/sectorSize*sectorSize)
	default:
		return stable
	}
}
