// SPDX-License-Identifier: Apache-2.0

package node

import "testing"

// TestWhatIsKnownDoesNotFall: an old canary, as a cache or another server's shows it, says less
// than was known before.
func TestWhatIsKnownDoesNotFall(t *testing.T) {
	n := &Node{}
	n.know(3, 9)
	n.know(2, 7)
	n.know(4, 0) // it says nothing
	if k := n.mu.known; k.LSN != 9 || k.Epoch != 3 {
		t.Errorf("knows LSN %d, knew 9; epoch %d, knew 3", k.LSN, k.Epoch)
	}
}
