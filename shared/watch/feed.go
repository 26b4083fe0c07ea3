// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
	"github.com/holdfast-lock/holdfast/wal"
)

const (
	// ringBytes is how many bytes of frames are kept for watches that resume: seconds of a busy
	// log. The events made of them take several times as much.
	ringBytes = 8 << 20
	// chunkOverhead is about what a chunk takes besides its frames, in bytes.
	chunkOverhead = 192
)

// chunk is what a feed gives at once: frames, or the end of all watches.
type chunk struct {
	before, end wal.Position
	epoch       cluster.Epoch
	at          time.Time
	frames      []byte
	losses      []Loss
	// stop, if not nil, ends all watches; there are no frames then.
	stop *End

	// Owned by Hub.mu.
	events    []event // nil until they were needed
	succeeded bool    // the losses know their successors
}

func (c *chunk) size() int { return len(c.frames) + chunkOverhead }

// End is why a watch ended.
type End struct {
	Status  cluster.Status
	Message string
	// Gap reports whether only events are missing: a new watch may begin here, with a reset.
	Gap bool
	// Why is one word for the reason of a gap, for counts: skipped, slow_server, unreadable, ahead, forgotten or raced.
	Why string
}

// Feed gives a hub what was committed. Of several feeds only the one that began last counts.
// Its methods never block.
type Feed struct {
	h      *Hub
	pushed bool
}

// Feed returns a feed that does nothing before its Begin. Pushed reports whether its frames come
// from another server, so that they may be missing while it is silent.
func (h *Hub) Feed(pushed bool) *Feed { return &Feed{h: h, pushed: pushed} }

// Begin makes this the feed of the hub. The table is at this position, and frames from there on
// follow.
func (f *Feed) Begin(at wal.Position, epoch cluster.Epoch) {
	h := f.h
	h.in.Lock()
	defer h.in.Unlock()
	h.in.feed, h.in.live = f, true
	h.in.epoch = max(h.in.epoch, epoch)
	if at != h.in.end {
		h.skipTo(at)
	}
}

// skipTo goes on at a position that no frame led to. Called with in held, like put.
func (h *Hub) skipTo(at wal.Position) {
	why := fmt.Sprintf("the events between LSN %d and LSN %d did not come to this server one by one", h.in.end.LSN, at.LSN)
	h.in.leapt = h.in.first + uint64(len(h.in.ring))
	h.put(&chunk{before: at, end: at, stop: &End{Gap: true, Why: "skipped", Message: why}})
}

// Frames gives committed frames, one after the other, without append data, and the losses in
// them. The caller must not change them any more.
func (f *Feed) Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, losses []Loss) {
	h := f.h
	now := time.Now()
	h.in.Lock()
	defer h.in.Unlock()
	if h.in.feed != f || !h.in.live {
		return
	}
	if before != h.in.end {
		h.skipTo(before)
	}
	h.in.epoch, h.in.fed = max(h.in.epoch, epoch), now
	h.put(&chunk{before: before, end: end, at: now, frames: frames, losses: losses})
}

// Alive notes that everything committed up to now has been given to the feed.
func (f *Feed) Alive() {
	f.h.in.Lock()
	defer f.h.in.Unlock()
	if f.h.in.feed == f {
		f.h.in.fed = time.Now()
	}
}

// Watched reports whether there are watchers, or subscribers of losses.
func (f *Feed) Watched() bool {
	f.h.in.Lock()
	defer f.h.in.Unlock()
	return f.h.in.watched || f.h.in.losing
}

// End ends the feed, and all watches with SECONDARY_MODE and this message: their clients have to
// watch at another server.
func (f *Feed) End(message string) {
	h := f.h
	h.in.Lock()
	defer h.in.Unlock()
	if h.in.feed != f || !h.in.live {
		return
	}
	h.in.live = false
	h.put(&chunk{before: h.in.end, end: h.in.end, stop: secondary(message)})
}

func secondary(message string) *End {
	return &End{Status: cluster.StatusSecondaryMode, Message: message}
}

func (h *Hub) put(c *chunk) {
	c.epoch = h.in.epoch
	h.in.end = c.end
	h.in.ring = append(h.in.ring, c)
	h.in.bytes += c.size()
	for h.in.bytes > ringBytes && len(h.in.ring) > 1 {
		h.in.bytes -= h.in.ring[0].size()
		h.in.ring[0] = nil
		h.in.ring = h.in.ring[1:]
		h.in.first++
	}
	if h.in.watched || h.in.losing && (len(c.losses) > 0 || c.stop != nil) {
		h.wake.Notify()
	}
}

// Loss is a grant that ended otherwise than by its holder's own release, or one whose holder is
// asked to release it.
type Loss struct {
	// Client held the grant, or does; "" for a loss of all clients.
	Client cluster.ClientID
	// Identity is whom the grant belongs to, "" for nobody.
	Identity string
	// Ended is the message about a grant that ended, Ask about a release request: one of them
	// is nil. They are not changed once they were delivered.
	Ended *pb.Loss
	Ask   *pb.AskToRelease
}

func (l *Loss) concerns(client cluster.ClientID) bool { return l.Client == client || l.Client == "" }

func (l *Loss) lsn() uint64 {
	if l.Ended == nil {
		return l.Ask.GetLsn()
	}
	return l.Ended.GetLsn()
}
