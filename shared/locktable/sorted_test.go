// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Thousands of names make the sorted index split and join its blocks.
func TestManyLocks(t *testing.T) {
	l := &loop{tb: t, table: locktable.New()}
	rng := rand.New(rand.NewPCG(1, 2))
	tokens := map[cluster.LockName]cluster.Token{}
	id := cluster.RequestID(0)
	check := func() {
		t.Helper()
		if err := l.table.Check(); err != nil {
			t.Fatal(err)
		}
		names := slices.Sorted(maps.Keys(tokens))
		for v := range l.table.Locks("", "") {
			if len(names) == 0 || v.Name != names[0] || v.Grant.Token != tokens[v.Name] {
				t.Fatalf("lock %+v out of order", v)
			}
			names = names[1:]
		}
		if len(names) != 0 {
			t.Fatalf("%d locks are missing", len(names))
		}
		names = slices.Sorted(maps.Keys(tokens))
		for n := range 50 { // pages begin anywhere in a block
			i, page := len(names)*n/50, names[len(names)*n/50+1:]
			for v := range l.table.Locks("", names[i]) {
				if len(page) == 0 || v.Name != page[0] {
					t.Fatalf("page after %q: %q out of order", names[i], v.Name)
				}
				page = page[1:]
			}
			if len(page) != 0 {
				t.Fatalf("page after %q: %d locks are missing", names[i], len(page))
			}
		}
	}
	for _, grow := range []bool{true, false, true, false} {
		for range 20_000 {
			id++
			name := cluster.LockName(fmt.Sprintf("n%04d", rng.IntN(8000)))
			if token := tokens[name]; token == 0 && (grow || rng.IntN(20) == 0) {
				q := acquire("c", id, name, 0)
				tokens[name] = l.do(&q, locktable.FileFacts{}).Token
			} else if token != 0 && (!grow || rng.IntN(20) == 0) {
				q := release("c", id, name, token)
				l.do(&q, locktable.FileFacts{})
				delete(tokens, name)
			}
		}
		check()
	}
	restored, err := overJSON(l.table)
	if err != nil || restored.Hash() != l.table.Hash() || l.table.Clone().Check() != nil {
		t.Fatalf("restore: %v", err)
	}
}
