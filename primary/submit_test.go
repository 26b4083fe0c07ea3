// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// outlet notes what it is told, in order.
type outlet struct {
	mu struct {
		sync.Mutex
		words []string // "1:OK" for an answer, "flush"
	}
}

// Answer implements serving.ResultSink.
func (o *outlet) Answer(x *serving.AsyncRequest, out locktable.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.words = append(o.mu.words, fmt.Sprintf("%d:%v", x.Correlation, out.Status))
}

// Flush implements serving.ResultSink.
func (o *outlet) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.words = append(o.mu.words, "flush")
}

// told is what the outlet was told since the last time.
func (o *outlet) told() []string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	words := o.mu.words
	o.mu.words = nil
	return words
}

// answers are the words without the flushes.
func answers(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "flush" })
}

// orders makes orders of requests, which are correlated with 1, 2 and so on.
func (o *outlet) orders(qs ...*locktable.Request) (all []*serving.AsyncRequest) {
	for i, q := range qs {
		all = append(all, &serving.AsyncRequest{Request: *q, To: o, Correlation: uint64(i + 1), Abandoned: &atomic.Bool{}})
	}
	return all
}

func TestOrdersAreAnsweredOnceInTurnAndFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{})
		defer x.end()
		o, other := &outlet{}, &outlet{}
		tooShort := acquire("c1", 9, "m", 0)
		tooShort.TTL = 1
		orders := o.orders(
			acquire("c1", 1, "l", 0), acquire("c2", 1, "l", 0), tooShort, acquire("c3", 1, "l", time.Minute), acquire("c1", 2, "m", 0),
			acquire("c2", 2, "m", 0),
		)
		x.p.Submit(slices.Concat(orders[:2], other.orders(acquire("c4", 1, "n", 0)), orders[2:]))
		want := []string{"3:INVALID_ARGUMENT", "flush", "1:OK", "2:HELD", "flush", "5:OK", "6:HELD", "flush"}
		if got := o.told(); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if got := other.told(); !slices.Equal(got, []string{"1:OK", "flush"}) {
			t.Errorf("the other outlet: %v", got)
		}
		x.ok(release("c1", 3, "l", x.ok(acquire("c1", 1, "l", 0)).Token))
		if got := o.told(); !slices.Equal(got, []string{"4:OK", "flush"}) {
			t.Errorf("the one who waited: %v", got)
		}
	})
}

// Nothing of a batch leaves to anybody, flushed or not, before it is durable and checked.
func TestNoOrderIsAnsweredBeforeTheCheck(t *testing.T) {
	for _, op := range []string{volumetest.OpDatasync, volumetest.OpReadAt} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := serve(t, newDisk(t), 1, primary.Options{})
				defer x.end()
				x.ok(acquire("c0", 1, "held", 0))
				gate := volumetest.NewGate()
				x.host.SetHook(on(op, "epochs/", volumetest.Pause(gate)))
				o := &outlet{}
				x.p.Submit(o.orders(acquire("c1", 1, "l", 0), acquire("c2", 1, "held", 0), acquire("c0", 1, "held", 0)))
				if got := o.told(); len(got) > 0 {
					t.Errorf("told %v while %s hangs", got, op)
				}
				x.host.SetHook(nil)
				gate.Resume()
				if got := answers(o.told()); !slices.Equal(got, []string{"1:OK", "2:HELD", "3:OK"}) {
					t.Errorf("answered %v", got)
				}
			})
		})
	}
}

// What is in flight when the term is fenced is UNKNOWN, once, whatever it would have been.
func TestOrdersOfAFencedTermAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		held := x.ok(acquire("c1", 1, "l", 0))
		o := &outlet{}
		x.p.Submit(o.orders(acquire("c2", 1, "l", time.Hour)))
		if got := o.told(); len(got) > 0 {
			t.Errorf("who waits was told %v", got)
		}
		if err := d.Write("epochs/0000000001/fence", 0, []byte("HFFENCE1")); err != nil {
			t.Fatal(err)
		}
		x.p.Submit(o.orders(
			acquire("c2", 1, "l", time.Hour), acquire("c2", 2, "free", 0), acquire("c2", 3, "l", 0),
			acquire("c1", 1, "l", 0), release("c1", 2, "l", held.Token), acquire("c4", 1, "m", time.Hour),
		))
		got := answers(o.told())
		slices.Sort(got)
		if want := []string{"1:UNKNOWN", "1:UNKNOWN", "2:UNKNOWN", "3:UNKNOWN", "4:UNKNOWN", "5:UNKNOWN", "6:UNKNOWN"}; !slices.Equal(got, want) {
			t.Errorf("answered %v, want %v", got, want)
		}
		x.p.Submit(o.orders(acquire("c5", 1, "late", 0)))
		if got := answers(o.told()); len(got) != 1 || strings.Contains(got[0], "OK") {
			t.Errorf("handed in behind the end: %v", got)
		}
		x.end() //nolint:errcheck // it was fenced
	})
}
