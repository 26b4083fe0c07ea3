// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Check is only worth calling if it fails when it should.
func TestCheckFindsDamage(t *testing.T) {
	seen := map[int]bool{}
	for _, d := range locktable.Damages() {
		h := busy(t)
		d.Do(h.table)
		err := h.table.Check()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("invariant %d:", d.Invariant)) {
			t.Errorf("%s: got %v, want a breach of invariant %d", d.What, err, d.Invariant)
		}
		seen[d.Invariant] = true
	}
	for i := 1; i <= 11; i++ {
		if !seen[i] {
			t.Errorf("invariant %d is not tried", i)
		}
	}
}

// The hash sees every part of the state and nothing of its history.
func TestHashIsOfTheState(t *testing.T) {
	play := func(first, second cluster.ClientID) *harness {
		h := newHarness(t)
		h.want(ok, acquire("a", 1, "db", 0))
		h.want(pending, acquire(first, 1, "db", forever))
		h.want(pending, acquire(second, 1, "db", forever))
		return h
	}
	if play("b", "c").table.Hash() == play("c", "b").table.Hash() {
		t.Error("two orders of a queue have one hash")
	}
	idle, busy := newHarness(t), newHarness(t)
	idle.apply(idle.table.DecideForceClear(1, nil))
	idle.apply(idle.table.DecideTerm(1, 1, nil))
	busy.want(ok, acquire("~x", 1, "db", 0))
	busy.apply(busy.table.DecideExpire("db", 1, "", 1, nil))
	for _, h := range []*harness{idle, busy} {
		h.want(ok, acquire("a", 1, "other", 0))
	}
	if idle.table.Hash() != busy.table.Hash() {
		t.Error("one state has two hashes")
	}
}
