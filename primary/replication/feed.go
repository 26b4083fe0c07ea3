// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wake"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// feedBytes of committed frames are kept for replicas that lag.
	feedBytes = 4 << 20
	// feedBytesMost of them are kept while a snapshot, and what follows it, is on its way.
	feedBytesMost = 64 << 20
	// pushBytes bounds one push.
	pushBytes = 1 << 20
)

// feed keeps the newest committed frames, without append data, for the pushers. It is filled by
// the committer.
type feed struct {
	mu struct {
		sync.Mutex
		frames []fedFrame
		bytes  int
		end    wal.Position
		// snapshots under way: what is committed meanwhile is needed after them.
		snapshots int
		wakes     []wake.Signal // one for each pusher; the slice is replaced, never changed
	}
}

// fedFrame is one frame and where it begins. Its bytes are never changed.
type fedFrame struct {
	before wal.Position
	bytes  []byte
}

// Add adds a committed and checked frame, without append data, that leads from one position to
// another. Its bytes must not be changed any more. Frames come in the order of the log.
func (f *feed) Add(before, end wal.Position, elided []byte) {
	f.mu.Lock()
	f.mu.frames = append(f.mu.frames, fedFrame{before: before, bytes: elided})
	f.mu.bytes += len(elided)
	f.mu.end = end
	limit := feedBytes
	if f.mu.snapshots > 0 {
		limit = feedBytesMost
	}
	for f.mu.bytes > limit && len(f.mu.frames) > 1 {
		f.mu.bytes -= len(f.mu.frames[0].bytes)
		f.mu.frames[0] = fedFrame{}
		f.mu.frames = f.mu.frames[1:]
	}
	wakes := f.mu.wakes
	f.mu.Unlock()
	for _, w := range wakes {
		w.Notify()
	}
}

// rouse has a signal notified of each frame from now on, or not any more.
func (f *feed) rouse(w wake.Signal, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.wakes = slices.DeleteFunc(slices.Clone(f.mu.wakes), func(x wake.Signal) bool { return x == w })
	if on {
		f.mu.wakes = append(f.mu.wakes, w)
	}
}

// begin sets where the feed begins: at the end of the adopted log, with its last frames. Most
// replicas have those, or lack one.
func (f *feed) begin(end wal.Position, tail []volume.TailFrame) {
	f.mu.Lock()
	f.mu.end = end
	f.mu.Unlock()
	for i := range tail {
		f.Add(tail[i].Before, end, tail[i].Bytes)
	}
}

// find returns where the frames begin that follow a position; -1 if it is not one of those kept.
// It is called with mu held.
func (f *feed) find(at wal.Position) int {
	if at == f.mu.end {
		return len(f.mu.frames)
	}
	i, found := slices.BinarySearchFunc(f.mu.frames, at.LSN, func(x fedFrame, lsn cluster.LSN) int { return cmp.Compare(x.before.LSN, lsn) })
	if !found || f.mu.frames[i].before != at {
		return -1
	}
	return i
}

// after returns the frames that follow a position, about pushBytes at most, joined. The caller
// must not change them. It returns false if the position is not one of those kept: then the replica needs a snapshot.
func (f *feed) after(at wal.Position) (frames []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.find(at)
	if i < 0 {
		return nil, false
	}
	n, size := i, 0
	for ; n < len(f.mu.frames) && size < pushBytes; n++ {
		size += len(f.mu.frames[n].bytes)
	}
	if n == i+1 {
		return f.mu.frames[i].bytes, true
	}
	frames = make([]byte, 0, size)
	for _, x := range f.mu.frames[i:n] {
		frames = append(frames, x.bytes...)
	}
	return frames, true
}

// keeps reports whether after would find the position.
func (f *feed) keeps(at wal.Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(at) >= 0
}

// position returns the end of what was committed.
func (f *feed) position() wal.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.end
}

// hold has more of what is committed from now on kept (1), or ends that (-1).
func (f *feed) hold(by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.snapshots += by
}

// crowded reports whether a snapshot under way should end soon: once frames that follow it are
// dropped, it is useless.
func (f *feed) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.bytes > feedBytesMost/4
}
