// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/shared/access"
)

// The kinds of events that Tallies counts, and what the words of a Tally are.
const (
	TallyAuth    = "auth"    // a credential was shown: by which method, with which result
	TallyDenied  = "denied"  // the rules did not permit a call: its verb
	TallyLimited = "limited" // a limit refused a connection or a call: which
	TallyReset   = "reset"   // a watch began with the state and not with events: why
)

// Tally is one kind of events. Its words are of this program, and never what clients sent.
type Tally struct{ Kind, First, Second string }

// Tallies counts events for metrics. The zero value is ready for use by several goroutines; nil counts nothing.
type Tallies struct {
	mu sync.Mutex
	of map[Tally]uint64
}

// Count counts one more.
func (t *Tallies) Count(kind, first, second string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[Tally]uint64{}
	}
	t.of[Tally{kind, first, second}]++
}

// All returns what was counted.
func (t *Tallies) All() map[Tally]uint64 {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.of)
}

// methodOf returns by what a caller shows who he is: that of a connection that is known, or the form of the credential.
func methodOf(credential string, c *access.Caller) string {
	switch {
	case strings.HasPrefix(credential, access.KeyPrefix):
		return "key"
	case credential != "":
		return "ticket"
	case c != nil:
		return "connection"
	}
	return "none"
}
