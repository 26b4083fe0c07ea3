// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
)

// What exceeds a rate is held back for a moment before it is refused: most callers exceed their rate for a moment only, and a
// refusal that comes again costs both sides more than a short wait.
//
// What is held of one identity is a line, first come first served: its next request goes on as soon as the rate leaves room
// for it, and nothing that counts overtakes it. A request is held only if its wait will be short, and if the line has room for
// it; else it is refused at once, as LIMITED. What never counts against a rate (see Counts) is never held.

const (
	// holdTick is how often the lines are looked at, and so about how late a request goes on.
	holdTick = 50 * time.Millisecond
	// maxHold is how long a request is held at most, where Options do not say.
	maxHold = time.Second
	// maxHeld and maxHeldBytes bound the line of an identity: requests, and bytes of their appends. maxHeldOfConn are the
	// requests in it that came by one connection.
	maxHeld       = 1024
	maxHeldBytes  = 16 << 20
	maxHeldOfConn = 256
)

// Held says what becomes of requests of one message that may not go on yet: by their places in it.
type Held struct {
	// Proceed is called when those from one place up to another may go on, in order. It must not block.
	Proceed func(from, to int)
	// Refuse is called for one that may not, with LIMITED. It must not block.
	Refuse func(i int, err error)
	// refused returns the error for one that may come again after a while; most is how long one is held.
	refused func(after time.Duration) error
	most    time.Duration
	// conn tells their connection from others.
	conn any
}

// heldRequest is one request in a line.
type heldRequest struct {
	of    *Held
	place int
	size  int // in bytes, of its append
	since time.Time
}

// line is what is held of one identity. All its fields are guarded by the mutex of the usage; only the goroutine of Usage.serveLines,
// of which there is one while any line has a request, takes requests from its front, and it alone calls the functions of Held for
// them, without the mutex.
type line struct {
	requests []heldRequest
	bytes    int64
	ofConn   map[any]int // how many of the requests came by a connection
	limits   access.Limits
	// moving is set while requests that were taken from the line are not handed on yet: what comes now is behind them.
	moving bool
}

// busy reports whether something is before a request that comes now.
func (l *line) busy() bool { return l.moving || len(l.requests) > 0 }

// enqueue adds those of a message's requests from a place on that need to wait for a short time, and for which there is room. It
// returns at which place that ends. After returns when as many requests as that, with as many bytes, may have gone on.
func (l *line) enqueue(h *Held, sizes []int, from int, after func(requests int, bytes int64) time.Duration, now time.Time) (to int) {
	for to = from; to < len(sizes); to++ {
		n, bytes := len(l.requests)+1, l.bytes+int64(sizes[to])
		if n > maxHeld || bytes > maxHeldBytes || l.ofConn[h.conn] >= maxHeldOfConn || after(n, bytes) > h.most-holdTick {
			return to
		}
		if l.ofConn == nil {
			l.ofConn = map[any]int{}
		}
		l.requests, l.bytes = append(l.requests, heldRequest{h, to, sizes[to], now}), bytes
		l.ofConn[h.conn]++
	}
	return to
}

// remove forgets a request that is taken out of the line.
func (l *line) remove(r *heldRequest) {
	l.bytes -= int64(r.size)
	if l.ofConn[r.of.conn]--; l.ofConn[r.of.conn] == 0 {
		delete(l.ofConn, r.of.conn)
	}
}

// handOn is what the goroutine of serveLines does with requests of one message, from a place up to another, after it has taken them from
// their line: they proceed, or the one is refused.
type handOn struct {
	to       *Held
	from, up int
	refused  error
}

func (x *handOn) do() {
	if x.refused != nil {
		x.to.Refuse(x.from, x.refused)
	} else {
		x.to.Proceed(x.from, x.up)
	}
}

// advance takes from the line what may go on now, and what was held for too long, since the rate is lower than it was.
func (x *usage) advance(now time.Time) (all []handOn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &x.line
	sizes := make([]int, len(l.requests))
	for i := range l.requests {
		sizes[i] = l.requests[i].size
	}
	n, after := x.take(&l.limits, sizes, now)
	ended := n
	for ended < len(l.requests) && now.Sub(l.requests[ended].since) >= l.requests[ended].of.most {
		ended++
	}
	bytes := int64(0)
	for i := range l.requests[:ended] {
		r := &l.requests[i]
		l.remove(r)
		if last := len(all) - 1; i < n && last >= 0 && all[last].to == r.of {
			all[last].up++
			continue
		}
		next := handOn{to: r.of, from: r.place, up: r.place + 1}
		if i >= n {
			bytes += int64(r.size)
			next.refused = r.of.refused(advised(after(i-n+1, bytes)))
		}
		all = append(all, next)
	}
	if l.requests = l.requests[ended:]; len(l.requests) == 0 {
		l.requests = nil
	}
	l.moving = len(all) > 0
	return all
}

// hold puts those of a message's requests into the line of their identity that may wait there, from a place on, and returns at
// which place that ends. It is called with the mutex of x held.
func (u *Usage) hold(x *usage, h *Held, sizes []int, from int, after func(int, int64) time.Duration, now time.Time) (to int) {
	if to = x.line.enqueue(h, sizes, from, after, now); to == from || x.held.Load() {
		return to
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	x.held.Store(true)
	if u.mu.lines == nil {
		u.mu.lines = map[*usage]struct{}{}
	}
	u.mu.lines[x] = struct{}{}
	u.holds.Store(true)
	if !u.mu.serving {
		u.mu.serving = true
		go u.serveLines()
	}
	return to
}

// withdraw takes a message's requests out of the line of their identity: the caller has gone. It reports whether any was there.
func (u *Usage) withdraw(identity string, h *Held) (found bool) {
	x := u.lock(identity, time.Now())
	defer x.mu.Unlock()
	kept := x.line.requests[:0]
	for i := range x.line.requests {
		if r := x.line.requests[i]; r.of == h {
			x.line.remove(&r)
			found = true
		} else {
			kept = append(kept, r)
		}
	}
	clear(x.line.requests[len(kept):])
	x.line.requests = kept
	return found
}

// serveLines hands on what is held, while there is anything.
func (u *Usage) serveLines() {
	t := time.NewTicker(holdTick)
	defer t.Stop()
	for more := true; more; {
		<-t.C
		lines := u.heldLines()
		for _, x := range lines {
			for _, next := range x.advance(time.Now()) {
				next.do()
			}
		}
		more = u.handedOn(lines)
	}
}

// heldLines returns those whose line has something.
func (u *Usage) heldLines() []*usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.mu.lines))
}

// handedOn ends those lines in which nothing is left, after what was taken from them was handed on, and reports whether there are others.
func (u *Usage) handedOn(lines []*usage) (more bool) {
	for _, x := range lines {
		u.endLine(x)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.serving = len(u.mu.lines) > 0
	u.holds.Store(u.mu.serving)
	return u.mu.serving
}

// endLine ends a line, if nothing is left in it, after what was taken from it was handed on.
func (u *Usage) endLine(x *usage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.line.moving = false; x.line.busy() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	x.held.Store(false)
	delete(u.mu.lines, x)
}

// onceKey is the key of OneRequest.
type onceKey struct{}

// OneRequest returns a context for all that is asked on behalf of one request of a user: however often that is tried, and however
// much is read for it, it counts once against the rate of its caller.
func OneRequest(ctx context.Context) context.Context {
	if ctx.Value(onceKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, onceKey{}, new(atomic.Bool))
}

// SameRequest returns a context for what is asked on behalf of the same request as another one, which OneRequest made.
func SameRequest(ctx, as context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, as.Value(onceKey{}))
}

// holdKey is the key of HoldUntil.
type holdKey struct{}

// HoldUntil returns a context whose requests are held until enough is closed at most: what exceeds a rate then, or is held, is
// refused. A front end that executes one request after the other gives it, so that no renewal or release waits for one that is held.
func HoldUntil(ctx context.Context, enough <-chan struct{}) context.Context {
	return context.WithValue(ctx, holdKey{}, enough)
}

// await counts one request, for which it waits until the rate of the caller leaves room, for a moment at most. It reports whether it has waited:
// then the rules may be others. The error is LIMITED, also when ctx ended meanwhile: nothing was done.
func (p *Permission) await(ctx context.Context, size int) (waited bool, err error) {
	counted, _ := ctx.Value(onceKey{}).(*atomic.Bool)
	if counted != nil && counted.Load() {
		return false, nil
	}
	if !p.TakeAll(1, size) {
		waited, err = true, p.turn(ctx, size)
	}
	if counted != nil && err == nil {
		counted.Store(true)
	}
	return waited, err
}

// turn is await for a request that may not go on at once.
func (p *Permission) turn(ctx context.Context, size int) error {
	turn := make(chan error, 1)
	h := &Held{Proceed: func(int, int) { turn <- nil }, Refuse: func(_ int, err error) { turn <- err }}
	if p.Take([]int{size}, h) > 0 { // there is room by now
		return nil
	}
	enough, _ := ctx.Value(holdKey{}).(<-chan struct{})
	var err error
	select {
	case err = <-turn:
	case <-ctx.Done():
		err = p.leaveLine(h, turn)
	case <-enough:
		err = p.leaveLine(h, turn)
	}
	if err == nil && ctx.Err() != nil { // nobody is left to do it for
		err = h.refused(ReadRetry)
	}
	return err
}

// leaveLine refuses a request that is held, unless it has just left the line: then it returns what was sent to turn.
func (p *Permission) leaveLine(h *Held, turn <-chan error) error {
	if p.s.opt.Usage.withdraw(p.caller.Name(), h) {
		return h.refused(ReadRetry)
	}
	return <-turn
}
