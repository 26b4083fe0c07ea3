// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// awake reports whether Run has nothing to hand out, or was woken for it.
func (h *Hub) awake() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.in.Lock()
	defer h.in.Unlock()
	return h.mu.next == h.in.first+uint64(len(h.in.ring)) || len(h.wake) > 0
}

// What is committed while the first watch begins is told, though no more comes behind it.
func TestWhatComesWhileAWatchBeginsIsHandedOut(t *testing.T) {
	h, s := fed(t, false)
	for range 2000 { // what a resume reads takes its time
		s.commit(grant("a"))
	}
	for range 200 {
		h.Flush()
		select {
		case <-h.wake:
		default:
		}
		var beginning sync.WaitGroup
		beginning.Go(func() { s.commit(grant("b")) })
		w, end := h.Watch(Options{Resume: true, Kinds: KindsOf()})
		beginning.Wait()
		if end != nil {
			t.Fatal(end)
		}
		if !h.awake() {
			t.Fatal("there is an event to hand out, and nobody was woken for it")
		}
		w.Close()
	}
}

// The same holds for losses.
func TestWhatIsLostWhileALossWatchBeginsIsHandedOut(t *testing.T) {
	h, s := fed(t, false)
	for range ringBytes / 200 {
		s.commit(grant("a"))
	}
	told := 0
	stop := h.Losses("c", 1, func(all []Loss) {
		if told += len(all); len(all) > 0 {
			return
		}
		// That some may be missing is told before anybody listens.
		x := expire("a", s.at.LSN.Token())
		before, frame := s.encode(x)
		x.LSN = s.at.LSN
		s.feed.Frames(before, s.at, 1, frame, []Loss{LossOf(&locktable.Grant{Lock: "a", Token: x.Token, Client: "c"}, &x)})
	})
	defer stop()
	if !h.awake() {
		t.Error("there is a loss to tell, and nobody was woken for it")
	}
	if h.Flush(); told != 1 {
		t.Errorf("%d losses were told", told)
	}
}
