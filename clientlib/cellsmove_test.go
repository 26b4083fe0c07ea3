// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"slices"
	"testing"
)

// TestAttachedInTwoPlaces: the second handle of a token is refused for good. It would be renewed, and its lease counted by nobody.
func TestAttachedInTwoPlaces(t *testing.T) {
	s := newFakeSite(t, 2)
	other := s.cells[1]
	other.fakeCluster.mu.Lock()
	token := Token(other.grant(fakeKey{"other", 1}, "p1/a", 10_000).Token)
	other.fakeCluster.mu.Unlock()
	c := s.client(Options{})
	l := c.Attach("p1/a", token) // nobody knows yet which cell that is
	one, err := c.Cell(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	first := one.Attach("p1/a", token)
	for try := range 2 {
		if err := l.Renew(t.Context()); err == nil && !slices.Contains(one.renewer.held("p1/a", token), l) {
			t.Errorf("try %d: it was renewed, and nobody counts its lease", try)
		}
	}
	if err := first.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}
