// SPDX-License-Identifier: Apache-2.0

package child

import "time"

const (
	// maxUnsaid is how many lines may be queued; further ones are dropped.
	maxUnsaid = 64
	// sayLimit is how long the end of a run waits until the queue is written.
	sayLimit = time.Second
)

// speaker prints messages for the user from a goroutine of its own. Standard error may be a pipe
// or a terminal that is not read for a while: the lease, the guard and the command's signals must
// not wait for that.
type speaker struct {
	lines chan string
	ended chan struct{}
}

// newSpeaker starts a speaker; the caller must call end. With a nil say it prints nothing.
func newSpeaker(say func(text string)) *speaker {
	s := &speaker{lines: make(chan string, maxUnsaid), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for text := range s.lines {
			if say != nil {
				say(text)
			}
		}
	}()
	return s
}

// say queues a line, or drops it if the queue is full. It never blocks.
func (s *speaker) say(text string) {
	select {
	case s.lines <- text:
	default:
	}
}

// end stops the speaker. It waits at most sayLimit until the queue is written.
func (s *speaker) end() {
	close(s.lines)
	select {
	case <-s.ended:
	case <-time.After(sayLimit):
	}
}
