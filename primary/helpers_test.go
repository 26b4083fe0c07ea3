// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// together queues the requests in this order for one round of the core loop.
func (x *term) together(qs ...*locktable.Request) []locktable.Outcome {
	x.t.Helper()
	release, in := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { x.p.Read(context.Background(), func(serving.View) { close(in); <-release }) }) //nolint:errcheck // it only holds the loop
	<-in
	outs := make([]locktable.Outcome, len(qs))
	for i, q := range qs {
		wg.Go(func() { outs[i] = x.do(q) })
		synctest.Wait()
	}
	close(release)
	wg.Wait()
	return outs
}

// later asks in a goroutine of its own, for as long as it takes.
func (x *term) later(q *locktable.Request) <-chan locktable.Outcome {
	answer := make(chan locktable.Outcome, 1)
	go func() {
		out, _ := x.p.Do(context.Background(), q)
		answer <- out
	}()
	synctest.Wait()
	return answer
}

// unanswered fails the test when there is an answer already.
func (x *term) unanswered(answer <-chan locktable.Outcome, why string) {
	x.t.Helper()
	synctest.Wait()
	select {
	case out := <-answer:
		x.t.Fatalf("answered %v %s %s", out.Status, out.Message, why)
	default:
	}
}

// sees fails the test unless the answer has this status.
func (x *term) sees(q *locktable.Request, want cluster.Status) locktable.Outcome {
	x.t.Helper()
	out := x.do(q)
	if out.Status != want {
		x.t.Errorf("%v by %s/%d: %v %s, want %v", q.Op, q.Client, q.ID, out.Status, out.Message, want)
	}
	return out
}

// file is what the table knows of a protected file.
func (x *term) file(name cluster.FileName) (state locktable.FileState, bound bool) {
	x.t.Helper()
	x.read(func(v serving.View) { state, bound = v.Table.File(name) })
	return state, bound
}

func (x *term) read(f func(serving.View)) {
	x.t.Helper()
	if out, err := x.p.Read(x.t.Context(), f); err != nil || out.Status != cluster.StatusOK {
		x.t.Fatalf("read: %v %v", out.Status, err)
	}
}

// queue lists who waits for a lock.
func (x *term) queue(lock cluster.LockName) (ids []cluster.ClientID) {
	x.t.Helper()
	x.read(func(v serving.View) {
		for w := range v.Table.Waiters(lock) {
			ids = append(ids, w.Client)
		}
	})
	return ids
}

func (x *term) keepAlive(client cluster.ClientID, held int) []locktable.Grant {
	x.t.Helper()
	grants, _, out, err := x.p.KeepAlive(context.Background(), client, serving.Belief{Held: held})
	if err != nil || out.Status != cluster.StatusOK {
		x.t.Fatalf("keep-alive of %s: %v %v", client, out.Status, err)
	}
	return grants
}

// keepPlaces keeps alive what the client waits for, and nothing else.
func (x *term) keepPlaces(client cluster.ClientID) {
	x.t.Helper()
	grants, _, out, err := x.p.KeepAlive(context.Background(), client, serving.Belief{PlacesOnly: true})
	if err != nil || out.Status != cluster.StatusOK || grants != nil {
		x.t.Fatalf("keep-alive of the places of %s: %v, %v %v", client, grants, out.Status, err)
	}
}

// content is the visible content of a protected file.
func content(d *volumetest.Disk, name cluster.FileName) string {
	return string(d.Files("files/")["files/"+string(name)])
}

// on acts on calls of one operation and name; the others proceed.
func on(op, prefix string, action volumetest.Action) volumetest.Hook {
	return func(c volumetest.Call) volumetest.Action {
		if c.Op == op && strings.HasPrefix(c.Name, prefix) {
			return action
		}
		return volumetest.Proceed()
	}
}

// powerLosses are what n power losses at this instant could leave.
func powerLosses(d *volumetest.Disk, n int) (all []*volumetest.Disk) {
	for i := range n {
		all = append(all, d.DurableClone(rand.New(rand.NewPCG(uint64(i), 1))))
	}
	return all
}

// eventually waits, in virtual time, until ok says so.
func (x *term) eventually(what string, ok func() bool) {
	x.t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	x.t.Fatalf("after a minute there is still no %s", what)
}

// slow makes each write of a file take this long.
func (x *term) slow(name string, d time.Duration) {
	x.host.SetHook(func(c volumetest.Call) volumetest.Action {
		if c.Op == volumetest.OpWriteAt && c.Name == name {
			time.Sleep(d)
		}
		return volumetest.Proceed()
	})
}

// fence ends the term as a later claimant does. It does not know before its next check.
func (x *term) fence(d *volumetest.Disk) {
	x.t.Helper()
	if err := d.Write(fmt.Sprintf("epochs/%010d/fence", x.p.Epoch()), 0, []byte("HFFENCE1")); err != nil {
		x.t.Fatal(err)
	}
}

// holdLoop keeps the core loop in one call until release is called. What is asked meanwhile
// is taken together.
func (x *term) holdLoop() (release func()) {
	in, out := make(chan struct{}), make(chan struct{})
	go x.p.Read(context.Background(), func(serving.View) { close(in); <-out }) //nolint:errcheck // it only holds the loop
	<-in
	return func() { close(out) }
}
