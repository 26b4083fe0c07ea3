// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// askForForeign asks for locks of another cell, from the first moment on and of whichever term there is: none may grant one, nor
// answer anything else than that it is another cell's.
func (s *Scenario) askForForeign(ctx context.Context, seed uint64) {
	w := &wanderer{scenario: s, rng: rand.New(rand.NewPCG(seed, 41)), id: "stranger"}
	for n := cluster.RequestID(1); n <= 40 && ctx.Err() == nil; n++ {
		q := locktable.Request{
			Op: locktable.OpAcquire, Client: w.id, ID: n, Lock: cluster.LockName(fmt.Sprint("foreign/", w.rng.IntN(3))), TTL: 3 * time.Second,
			Wait: time.Duration(w.rng.IntN(2)) * time.Second,
		}
		out := w.until(ctx, func(ctx context.Context, r *Term) (locktable.Outcome, error) { return r.Do(ctx, new(q)) })
		if out.Status != cluster.StatusWrongCell && out.Status != cluster.StatusNone {
			s.Ledger.violation("I3: a request for lock %q of another cell is answered %v: %s", q.Lock, out.Status, out.Message)
		}
		time.Sleep(time.Duration(w.rng.IntN(200)) * time.Millisecond)
	}
}

// verifyCell checks that the last term owns what the volume was made to own, and has nothing else.
func (s *Scenario) verifyCell(t *locktable.Table) (bad []string) {
	own := t.Own()
	if (own == nil) != (s.Cell == nil) || own != nil && own.Text() != s.Cell.Text() {
		bad = append(bad, fmt.Sprintf("I3: the table owns %+v, and was made to own %+v", own, s.Cell))
	}
	for l := range t.Locks("", "") {
		if !s.Cell.Owns(string(l.Name)) {
			bad = append(bad, fmt.Sprintf("I3: lock %q of another cell is in the table", l.Name))
		}
	}
	return bad
}
