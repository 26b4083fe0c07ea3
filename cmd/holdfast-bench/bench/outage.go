// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// outageLead is how long the light load runs before the stroke.
	outageLead = 500 * time.Millisecond
	// outageTail is how long it runs after all workers were served again.
	outageTail = 500 * time.Millisecond
	// outageLimit is how long a service may take to come back.
	outageLimit = time.Minute
	// outagePoll is how often it checks whether all workers were served again.
	outagePoll = 5 * time.Millisecond
)

// Outage is the effect of a stroke, such as a killed primary, on the clients of a light load.
type Outage struct {
	// Next is the time from the stroke to the next grant: the end of the longest gap between
	// grants. A grant whose answer was on its way before the stroke does not count.
	Next time.Duration
	// Every is the time from the stroke until each worker got a lock that it requested after it.
	Every time.Duration
	// Gap is the longest time without a grant.
	Gap time.Duration
	// Errors counts calls that failed in between; they were made again.
	Errors int
}

// Strike injects a fault into a service and returns when it began to do so.
type Strike func(ctx context.Context) (time.Time, error)

// grant is an acquire that succeeded.
type grant struct{ asked, at time.Time }

// sufferer is one worker of the light load.
type sufferer struct {
	Locker
	key    string
	pause  time.Duration
	grants []grant
	errors int
	// served is when the request was made that was granted last, since the base.
	served atomic.Int64
}

// MeasureOutage runs workers that take locks of their own, with pauses, calls strike, and returns
// the outage. It returns an error if the service does not come back within a minute.
func MeasureOutage(ctx context.Context, t Target, prefix string, workers int, pause time.Duration, strike Strike) (o Outage, err error) {
	var all []*sufferer
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
	}()
	for i := range workers {
		l, err := t.Locker(ctx, i, Alone)
		if err != nil {
			return Outage{}, err
		}
		all = append(all, &sufferer{Locker: l, key: fmt.Sprintf("%s/%d", prefix, i), pause: pause})
	}
	base := time.Now()
	ctx, cancel := context.WithTimeout(ctx, outageLimit)
	defer cancel()
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, s := range all {
		running.Go(func() { s.run(ctx, base, stop) })
	}
	struck, err := provoke(ctx, all, base, strike)
	close(stop)
	running.Wait()
	if err != nil {
		return Outage{}, err
	}
	var grants []grant
	for _, s := range all {
		grants = append(grants, s.grants...)
		o.Errors += s.errors
	}
	errs := o.Errors
	o = outageOf(grants, struck)
	o.Errors = errs
	for _, s := range all {
		o.Every = max(o.Every, s.firstAfter(struck))
	}
	return o, nil
}

// provoke strikes and waits until all workers were served again.
func provoke(ctx context.Context, all []*sufferer, base time.Time, strike Strike) (time.Time, error) {
	if err := Rest(ctx, outageLead); err != nil {
		return time.Time{}, err
	}
	struck, err := strike(ctx)
	if err != nil {
		return struck, err
	}
	since := int64(struck.Sub(base))
	for slices.ContainsFunc(all, func(s *sufferer) bool { return s.served.Load() <= since }) {
		if err := Rest(ctx, outagePoll); err != nil {
			return struck, fmt.Errorf("not everybody was served again %v after the stroke: %w", time.Since(struck).Round(time.Millisecond), err)
		}
	}
	return struck, Rest(ctx, outageTail)
}

func (s *sufferer) run(ctx context.Context, base time.Time, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		asked := time.Now()
		err := s.Acquire(ctx, s.key)
		if err == nil {
			s.grants = append(s.grants, grant{asked, time.Now()})
			s.served.Store(int64(asked.Sub(base)))
			err = s.Release(ctx)
		}
		if err != nil {
			s.errors++
		}
		if Rest(ctx, s.pause) != nil {
			return
		}
	}
}

// firstAfter is from the stroke to the first grant of a request made after it.
func (s *sufferer) firstAfter(struck time.Time) time.Duration {
	for _, g := range s.grants {
		if g.asked.After(struck) {
			return g.at.Sub(struck)
		}
	}
	return 0
}

// outageOf finds the longest gap between grants that ended after the stroke. One that lies
// mostly before it is not its doing, and ends no outage.
func outageOf(grants []grant, struck time.Time) (o Outage) {
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	longest := time.Duration(0)
	for i := 1; i < len(grants); i++ {
		before, after := grants[i-1].at, grants[i].at
		gap, behind := after.Sub(before), after.Sub(struck)
		if behind <= 0 {
			continue
		}
		o.Gap = max(o.Gap, gap)
		if gap > longest && behind >= gap/2 {
			longest, o.Next = gap, behind
		}
	}
	return o
}
