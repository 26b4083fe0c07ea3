// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// queue is a backend at which every acquire waits until its context ends.
type queue struct {
	serving.Backend
	ended   func()           // is called then, before Do returns
	cancels int              // so many were asked for
	answers []cluster.Status // of the next cancels; then the last one again
}

func (q *queue) Primary() (cluster.Member, cluster.Epoch, bool) { return cluster.Member{}, 0, false }
func (q *queue) Timing() cluster.Timing                         { return cluster.DefaultTiming() }

func (q *queue) Do(ctx context.Context, r *locktable.Request) (locktable.Outcome, error) {
	if r.Op != locktable.OpCancel {
		<-ctx.Done()
		q.ended()
		return locktable.Outcome{}, context.Cause(ctx)
	}
	if r.Target != 1 || r.Client != "c" {
		return locktable.Outcome{Status: cluster.StatusInvalidArgument}, nil
	}
	q.cancels++
	out := locktable.Outcome{Status: q.answers[0]}
	if len(q.answers) > 1 {
		q.answers = q.answers[1:]
	}
	return out, nil
}

// waitFor has a caller wait for a lock until its permission is withdrawn, or it goes. It returns what it is told, and after which time.
func (x *holding) waitFor(q *queue, end func(gone context.CancelFunc)) (*pb.Answer, time.Duration, error) {
	x.s.b = q
	x.limits(nil)
	ctx, cancel := callOf(x.t, "a")
	defer cancel()
	x.allow(access.Acquire)
	go func() {
		time.Sleep(time.Minute)
		end(cancel)
	}()
	began := time.Now()
	a, err := x.s.Execute(ctx, &locktable.Request{Op: locktable.OpAcquire, Client: "c", ID: 1, Lock: "l", Wait: -1})
	return a, time.Since(began) - time.Minute, err
}

// allow has everybody do this.
func (x *holding) allow(verbs ...access.Verb) {
	f := &access.File{}
	if len(verbs) > 0 {
		f.Rules = []access.Rule{{Who: []string{"*"}, May: verbs, Locks: []string{"**"}}}
	}
	r, err := access.Compile(f, x.rules.Load().Version()+1)
	if err != nil {
		x.t.Error(err)
	}
	x.rules.Store(r)
	x.s.EndForbidden()
}

// TestWaitEndsForItsOwnReason: what ended it counts, and not what the rules say a moment later.
func TestWaitEndsForItsOwnReason(t *testing.T) {
	inHolding(t, nil, func(x *holding) {
		q := &queue{answers: []cluster.Status{cluster.StatusCancelled}, ended: func() { x.allow(access.Acquire) }}
		a, _, err := x.waitFor(q, func(context.CancelFunc) { x.allow() })
		if err != nil || a.GetStatus() != pb.Status_STATUS_PERMISSION_DENIED || q.cancels != 1 {
			t.Errorf("withdrawn for a moment: %v, %v, %d cancels", a, err, q.cancels)
		}
	})
	inHolding(t, nil, func(x *holding) {
		q := &queue{answers: []cluster.Status{cluster.StatusCancelled}, ended: func() { x.allow() }}
		a, _, err := x.waitFor(q, func(gone context.CancelFunc) { gone() })
		if !errors.Is(err, context.Canceled) || q.cancels != 0 {
			t.Errorf("gone, and withdrawn then: %v, %v, %d cancels", a, err, q.cancels)
		}
	})
}

// TestQueueIsLeftByOneOfSomeTries: a cancel that was not executed is tried again for a second.
func TestQueueIsLeftByOneOfSomeTries(t *testing.T) {
	failures := slices.Repeat([]cluster.Status{cluster.StatusStorageUnavailable}, 5)
	for _, c := range []struct {
		answers []cluster.Status
		want    cluster.Status
	}{
		{append(failures, cluster.StatusCancelled), cluster.StatusPermissionDenied},
		{append(failures, cluster.StatusOK), cluster.StatusOK}, // a grant of the last moment
		{failures, cluster.StatusUnknown},
	} {
		inHolding(t, nil, func(x *holding) {
			q := &queue{answers: c.answers, ended: func() {}}
			a, took, err := x.waitFor(q, func(context.CancelFunc) { x.allow() })
			if err != nil || wire.FromStatus(a.GetStatus()) != c.want {
				t.Errorf("%v: %v, %v", c.answers, a, err)
			}
			if took > leaveWait || c.want == cluster.StatusUnknown && took < leaveWait || q.cancels < 6 || q.cancels > 200 {
				t.Errorf("%v: %d cancels in %v", c.answers, q.cancels, took)
			}
		})
	}
}
