// SPDX-License-Identifier: Apache-2.0

// Package throttle limits background work to a quarter of one core: after each piece of work it
// rests three times as long as that took.
package throttle

import "time"

// restMost bounds one rest. What took longer waited for storage.
const restMost = 20 * time.Millisecond

// Throttle is the limit of one piece of background work. It belongs to the goroutine that does
// the work. A nil Throttle never rests.
type Throttle struct {
	done   <-chan struct{}
	hurry  func() bool
	since  time.Time     // the piece under way began
	idle   time.Duration // since then, spent waiting for others
	rested time.Duration // in all
}

// New returns a throttle of work that begins now. A rest ends early when done is closed. hurry
// reports whether to skip the rest that is due; nil for never.
func New(done <-chan struct{}, hurry func() bool) *Throttle {
	return &Throttle{done: done, hurry: hurry, since: time.Now()}
}

// Waited takes the time that the work has waited for others out of the count.
func (t *Throttle) Waited(d time.Duration) {
	if t != nil {
		t.idle += d
	}
}

// Rest ends a piece of the work and rests for it. The next piece begins when it returns.
func (t *Throttle) Rest() {
	if t == nil {
		return
	}
	ended := time.Now()
	if worked := ended.Sub(t.since) - t.idle; worked > 0 && (t.hurry == nil || !t.hurry()) {
		select {
		case <-t.done:
		case <-time.After(min(3*worked, restMost)):
		}
	}
	t.since, t.idle = time.Now(), 0
	t.rested += t.since.Sub(ended)
}

// Rested returns how long the work has rested in all; t must not be nil.
func (t *Throttle) Rested() time.Duration { return t.rested }
