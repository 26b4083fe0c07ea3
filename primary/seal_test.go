// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// TestSealIsDurable: what was sealed is whole in the file after a power loss, without
// any redo, and the next term refuses appends to it.
func TestSealIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		g := x.ok(acquire("c1", 1, "l", 0))
		seal := &locktable.Request{Op: locktable.OpSeal, Client: "c2", ID: 1, Lock: "l", Token: g.Token, File: "f"}
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		last := appendTo("c1", 3, "l", g.Token, "f", "two\n")
		for i, out := range x.together(last, seal) {
			if out.Status != cluster.StatusOK {
				t.Errorf("request %d: %v %s", i, out.Status, out.Message)
			}
		}
		for i, lost := range powerLosses(d, 20) {
			if got := content(lost, "f"); got != "one\ntwo\n" {
				t.Errorf("power loss %d left %q of a sealed file", i, got)
			}
		}
		if out := x.sees(appendTo("c1", 4, "l", g.Token, "f", "more\n"), cluster.StatusFileSealed); out.Offset != 8 {
			t.Errorf("refused at %+v", out)
		}
		x.kill()

		y := serve(t, d, 2, primary.Options{})
		defer y.end()
		y.sees(appendTo("c1", 4, "l", g.Token, "f", "more\n"), cluster.StatusFileSealed)
		if out := y.ok(seal); !out.Repeat || out.Offset != 8 {
			t.Errorf("repeat in the next term: %+v", out)
		}
		if out := y.ok(last); !out.Repeat {
			t.Errorf("the append is answered anew: %+v", out)
		}
	})
}

// TestExpectedOffsetIsDecidedInOrder: of two appends that expect the same offset one goes
// there, also when both are in flight at once.
func TestExpectedOffsetIsDecidedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end()
		g := x.ok(acquire("c1", 1, "l", 0))
		x.ok(appendTo("c1", 2, "l", g.Token, "f", "one\n"))
		a, b := appendTo("c1", 3, "l", g.Token, "f", "two\n"), appendTo("c2", 1, "l", g.Token, "f", "owt\n")
		a.At, b.At = new(int64(4)), new(int64(4))
		outs := x.together(a, b)
		if outs[0].Status != cluster.StatusOK || outs[1].Status != cluster.StatusOffsetMismatch || outs[1].Offset != 8 {
			t.Errorf("got %+v", outs)
		}
		if got := content(d, "f"); got != "one\ntwo\n" {
			t.Errorf("file holds %q", got)
		}
	})
}
