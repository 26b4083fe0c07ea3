// SPDX-License-Identifier: Apache-2.0

// Package wake has the signal by which one goroutine wakes another that may be awake, and the moments at which regular looks meet.
package wake

// Signal is a channel on which one goroutine waits for something to do. One signal may be pending;
// further ones are dropped, for the receiver will look anyway. Make it with NewSignal.
type Signal chan struct{}

// NewSignal returns a signal that is not pending.
func NewSignal() Signal { return make(Signal, 1) }

// Notify wakes the receiver, or has it look again when it comes back. It never waits.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}
