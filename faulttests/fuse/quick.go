// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"maps"
	"sync"
	"syscall"
	"time"
)

// quickRead answers reads from what was read before, whatever the caller
// wants, as the translator of that name in GlusterFS does.
type quickRead struct {
	fresh time.Duration

	mu    sync.Mutex
	pages map[quickKey]quickPage // guarded by mu
}

type quickKey struct {
	node *node
	page int64
}

type quickPage struct {
	data  []byte // shorter than a page at the end of the file
	until time.Time
}

// quickPages bounds what is kept.
const quickPages = 4096

func newQuickRead(fresh time.Duration) *quickRead {
	return &quickRead{fresh: fresh, pages: make(map[quickKey]quickPage)}
}

// readAt is fileData.readAt from pages that may be old.
func (q *quickRead) readAt(n *node, p []byte, off int64) (total int, errno syscall.Errno) {
	for total < len(p) {
		i, at := (off+int64(total))/pageSize, (off+int64(total))%pageSize
		page, errno := q.page(n, i)
		if errno != 0 {
			return total, errno
		}
		total += copy(p[total:], page[min(at, int64(len(page))):])
		if len(page) < pageSize {
			break
		}
	}
	return total, 0
}

func (q *quickRead) page(n *node, i int64) ([]byte, syscall.Errno) {
	key, now := quickKey{n, i}, time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if old, has := q.pages[key]; has && now.Before(old.until) {
		return old.data, 0
	}
	data := make([]byte, pageSize)
	got, errno := n.data.readAt(data, i*pageSize)
	if errno != 0 {
		return nil, errno
	}
	if len(q.pages) >= quickPages {
		clear(q.pages)
	}
	q.pages[key] = quickPage{data: data[:got], until: now.Add(q.fresh)}
	return data[:got], 0
}

// forget drops what a write of this host changes.
func (q *quickRead) forget(n *node, off, length int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := off / pageSize; i*pageSize < off+length; i++ {
		delete(q.pages, quickKey{n, i})
	}
}

// forgetFile drops what is kept of a file.
func (q *quickRead) forgetFile(n *node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.pages, func(k quickKey, _ quickPage) bool { return k.node == n })
}
