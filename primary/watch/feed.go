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
	// ringBytes of frames are kept for those who resume: seconds of a busy log.
	// What was made of them for watchers takes several times as much.
	ringBytes = 8 << 20
	// chunkOverhead is what a chunk takes beside its frames, about.
	chunkOverhead = 192
)

// chunk is what a feed hands over at once: frames, or word that something else happened.
type chunk struct {
	before, end wal.Position
	epoch       cluster.Epoch
	at          time.Time
	frames      []byte
	losses      []Loss
	// stop, if there is one, is told to all who watch; there are no frames then.
	stop *End

	// Owned by Hub.mu.
	events    []event // nil until somebody wanted them
	succeeded bool    // the losses know their successors
}

func (c *chunk) size() int { return len(c.frames) + chunkOverhead }

// End is why a watch ended.
type End struct {
	Status  cluster.Status
	Message string
	// Gap says that events are missing, and nothing else is wrong: begin anew here.
	Gap bool
}

// Feed is who tells the hub what was committed. Of several feeds the one that
// began last is listened to. Its methods never block.
type Feed struct {
	h      *Hub
	pushed bool
}

// Feed makes a feed that is not listened to before its Begin. Pushed says that its
// frames come from another server, so that silence means they may be missing.
func (h *Hub) Feed(pushed bool) *Feed { return &Feed{h: h, pushed: pushed} }

// Begin says that the table is at this position, and that frames from there on follow.
func (f *Feed) Begin(at wal.Position, epoch cluster.Epoch) {
	h := f.h
	h.in.Lock()
	defer h.in.Unlock()
	h.in.feed, h.in.live = f, true
	h.in.epoch = max(h.in.epoch, epoch)
	if at != h.in.end {
		h.leap(at)
	}
}

// leap goes on at a position that no frame led to. Called with in held, like put.
func (h *Hub) leap(at wal.Position) {
	why := fmt.Sprintf("the events between LSN %d and LSN %d did not come to this server one by one", h.in.end.LSN, at.LSN)
	h.in.leapt = h.in.first + uint64(len(h.in.ring))
	h.put(&chunk{before: at, end: at, stop: &End{Gap: true, Message: why}})
}

// Frames hands over committed frames, one behind the other, without append data.
// The feed must not change them any more, nor the losses in them.
func (f *Feed) Frames(before, end wal.Position, epoch cluster.Epoch, frames []byte, losses []Loss) {
	h := f.h
	now := time.Now()
	h.in.Lock()
	defer h.in.Unlock()
	if h.in.feed != f || !h.in.live {
		return
	}
	if before != h.in.end {
		h.leap(before)
	}
	h.in.epoch, h.in.fed = max(h.in.epoch, epoch), now
	h.put(&chunk{before: before, end: end, at: now, frames: frames, losses: losses})
}

// Alive says that nothing was committed that this feed has not told.
func (f *Feed) Alive() {
	f.h.in.Lock()
	defer f.h.in.Unlock()
	if f.h.in.feed == f {
		f.h.in.fed = time.Now()
	}
}

// End says that nothing more comes from this feed: all who watch have to go elsewhere.
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
		poke(h.wake)
	}
}

// Loss is a grant that ended otherwise than by its holder's own release, or one
// whose holder is asked to let go.
type Loss struct {
	// Client held the grant, or does; "" for a loss of everybody's.
	Client cluster.ClientID
	// Told is what the client is told of a loss, Ask of an ask: one of them is nil.
	// They are not changed once they were told.
	Told *pb.Loss
	Ask  *pb.AskToRelease
}

func (l *Loss) concerns(client cluster.ClientID) bool { return l.Client == client || l.Client == "" }

func (l *Loss) lsn() uint64 {
	if l.Told == nil {
		return l.Ask.GetLsn()
	}
	return l.Told.GetLsn()
}

// poke wakes a goroutine that may be awake.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
