// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

// Kind is the kind of the helper that runs Help.
const Kind = "clients"

const (
	// reportEvery is how often a helper says how far it is.
	reportEvery = time.Second
	// confirmLook is how often it is looked whether leases were renewed, after the primary was killed.
	confirmLook = 50 * time.Millisecond
	// confirmStep is by how much a renewal moves the end of a lease at least: the one before may have
	// been sent just before the kill, so it may be little.
	confirmStep = time.Millisecond
	// baselineLooks is how often the end of a lease is read before. Lock.Expires reads two clocks, so a
	// process that is interrupted between them sees an end that is too early, never one too late.
	baselineLooks = 3
	// retryPause is how long a client that could not connect rests.
	retryPause = 100 * time.Millisecond
	// observeLooks is how often the leases are looked at within one, and observeLeast the shortest pause.
	observeLooks = 100
	observeLeast = 50 * time.Millisecond
)

// lease is what is looked at of a lock that is held: a clientlib.Lock.
type lease interface {
	Expires() time.Time
	State() clientlib.State
	Context() context.Context
}

// member is one client with the lock that it holds.
type member struct {
	name clientlib.LockName
	lock lease         // nil = it has none yet, or no more
	took time.Duration // until it got its lock
	// expires is the end of the lease when it was last looked at, and phase the phase then.
	expires time.Time
	phase   clientlib.Phase
}

// held reports whether the lock is still held.
func (m *member) held() bool { return m.lock.Context().Err() == nil }

// renewed reports whether the lease was renewed since the last call, or since expires was set.
func (m *member) renewed(step time.Duration) bool {
	end := m.lock.Expires()
	if end.Sub(m.expires) < step {
		return false
	}
	m.expires = end
	return true
}

// baseline reads the end of the lease as it is now.
func (m *member) baseline() {
	m.expires = m.lock.Expires()
	for range baselineLooks - 1 {
		if again := m.lock.Expires(); again.After(m.expires) {
			m.expires = again
		}
	}
}

// members are the clients of one process. One goroutine uses them, but while they connect.
type members struct {
	out   *json.Encoder
	lease time.Duration
	fleet *Fleet
	all   []member
}

// Help is a number of clients as a helper. It does what it is told until in ends.
func Help(ctx context.Context, _ []string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := make(chan order)
	go func() { // it ends with the process
		defer cancel()
		for d := json.NewDecoder(in); ; {
			var o order
			if d.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	m := &members{out: json.NewEncoder(out)}
	for {
		select {
		case o := <-orders:
			if err := m.obey(ctx, o); err != nil {
				if ctx.Err() != nil {
					return nil // the end was asked for
				}
				return err
			}
		case <-ctx.Done():
			return nil // without Close: the clients end like their process
		}
	}
}

// obey carries out an order and reports its result.
func (m *members) obey(ctx context.Context, o order) error {
	var result any
	var err error
	switch {
	case o.Hold != nil:
		result, err = m.hold(ctx, o.Hold)
	case o.Regain != nil:
		result, err = m.regain(ctx, o.Regain)
	case o.Observe != nil:
		result, err = m.observe(ctx, o.Observe)
	case o.Confirm != nil:
		result, err = m.confirm(ctx, o.Confirm)
	default:
		err = errors.New("an order of another version: start clients only from the program itself")
	}
	if err != nil {
		return err
	}
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return m.out.Encode(report{Done: int64(len(m.all)), Result: b})
}

// hold connects the clients and acquires a lock with each.
func (m *members) hold(ctx context.Context, o *holdOrder) (h Held, err error) {
	if m.fleet, err = New(o.N, func(int) []string { return o.Endpoints }); err != nil {
		return h, err
	}
	m.lease, m.all = o.Lease, make([]member, o.N)
	for i := range m.all {
		m.all[i].name = clientlib.LockName(fmt.Sprintf("%s/%d", o.Prefix, o.First+i))
	}
	err = m.acquire(ctx, o.Limit, o.Parallel, &h.Retried)
	for i := range m.all {
		h.Times = append(h.Times, m.all[i].took)
	}
	return h, err
}

// regain acquires again what was lost.
func (m *members) regain(ctx context.Context, o *regainOrder) (r Regained, err error) {
	r.Lost = map[string]int64{}
	for i := range m.all {
		x := &m.all[i]
		if x.held() {
			continue
		}
		why := "unknown"
		if lost, ok := errors.AsType[*clientlib.LostError](context.Cause(x.lock.Context())); ok {
			why = string(lost.Reason)
		}
		r.Lost[why]++
		x.lock = nil
	}
	var retried int64
	return r, m.acquire(ctx, o.Limit, o.Parallel, &retried)
}

// acquire acquires the locks of all members that have none, and reports how far it is. It adds to retried
// how many calls failed.
func (m *members) acquire(ctx context.Context, limit time.Duration, parallel int, retried *int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not all %d clients were served within %v", len(m.all), limit))
	defer cancel()
	var done, failed atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- bench.Each(len(m.all), parallel, func(i int) error {
			if m.all[i].lock != nil {
				return nil
			}
			again, err := m.all[i].connect(ctx, m.fleet.Client(i), m.lease)
			failed.Add(again)
			done.Add(1)
			return err
		})
	}()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := m.out.Encode(report{Done: done.Load()}); err != nil {
				return err
			}
		case err := <-ended:
			*retried = failed.Load()
			return err
		}
	}
}

// connect acquires the lock, as often as it takes, and returns how often it failed.
func (x *member) connect(ctx context.Context, c *clientlib.Client, lease time.Duration) (retried int64, err error) {
	began := time.Now()
	for {
		lock, err := c.Acquire(ctx, x.name, clientlib.AcquireOptions{TTL: lease, Wait: time.Minute})
		if err == nil {
			x.lock, x.took = lock, time.Since(began)
			return retried, nil
		}
		retried++
		if rest := bench.Rest(ctx, retryPause); rest != nil {
			return retried, fmt.Errorf("%w: the last error: %w", rest, err)
		}
	}
}

// observe watches the leases.
func (m *members) observe(ctx context.Context, o *observeOrder) (x Observed, err error) {
	for i := range m.all {
		m.all[i].expires, m.all[i].phase = m.all[i].lock.Expires(), m.all[i].lock.State().Phase
	}
	look := max(observeLeast, m.lease/observeLooks)
	said := time.Now()
	for end := said.Add(o.For); ; {
		left := time.Until(end)
		if left <= 0 {
			return x, nil
		}
		if err := bench.Rest(ctx, min(left, look)); err != nil {
			return x, err
		}
		for i := range m.all {
			m.all[i].observe(&x, m.lease/(observeLooks/2))
		}
		if time.Since(said) >= reportEvery {
			said = time.Now()
			if err := m.out.Encode(report{Done: x.Renewals}); err != nil {
				return x, err
			}
		}
	}
}

// observe counts what happened to the lease since the last look.
func (x *member) observe(o *Observed, step time.Duration) {
	now := x.lock.State().Phase
	switch {
	case now == x.phase:
	case now == clientlib.PhaseJeopardy:
		o.Late++
	case now == clientlib.PhaseLost:
		o.Lost++
	}
	x.phase = now
	if now != clientlib.PhaseLost && x.renewed(step) {
		o.Renewals++
	}
}

// confirm waits until each lock was confirmed or lost.
func (m *members) confirm(ctx context.Context, o *confirmOrder) (x Confirmed, err error) {
	var open []*member
	for i := range m.all {
		if m.all[i].held() {
			m.all[i].baseline()
			open = append(open, &m.all[i])
		}
	}
	said := time.Now()
	for end := said.Add(o.Limit); len(open) > 0 && time.Now().Before(end); {
		if err := bench.Rest(ctx, confirmLook); err != nil {
			return x, err
		}
		now, err := Monotonic()
		if err != nil {
			return x, err
		}
		left := open[:0]
		for _, h := range open {
			switch {
			case !h.held():
				x.Lost++
			case h.renewed(confirmStep):
				x.Times = append(x.Times, now-o.Since)
			default:
				left = append(left, h)
			}
		}
		open = left
		if time.Since(said) >= reportEvery {
			said = time.Now()
			if err := m.out.Encode(report{Done: int64(len(x.Times))}); err != nil {
				return x, err
			}
		}
	}
	x.Open = int64(len(open))
	return x, nil
}
