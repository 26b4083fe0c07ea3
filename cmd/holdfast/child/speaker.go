// SPDX-License-Identifier: Apache-2.0

package child

import "time"

const (
	// maxUnsaid is how many lines wait until they are read; further ones are dropped.
	maxUnsaid = 64
	// sayLimit is how long the end of a run waits until they are.
	sayLimit = time.Second
)

// speaker tells the user what happens. Standard error may be a pipe or a terminal that is
// not read for a while: the lease, the guard and the command's signals do not wait for that.
type speaker struct {
	lines chan string
	ended chan struct{}
}

// newSpeaker starts a speaker, which must be ended. With nil it says nothing.
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

// say says a line as soon as the ones before it were read, or drops it.
func (s *speaker) say(text string) {
	select {
	case s.lines <- text:
	default:
	}
}

// end waits a moment until all was read.
func (s *speaker) end() {
	close(s.lines)
	select {
	case <-s.ended:
	case <-time.After(sayLimit):
	}
}
