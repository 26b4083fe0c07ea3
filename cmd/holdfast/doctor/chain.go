// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
)

// appendsPerTerm is how many records each term of the trial logs.
const appendsPerTerm = 3

// takeovers lets the two mounts take over from each other, round by round, with the
// product's own claim, fence, scan, adoption and START. Before each takeover, everything that the
// next primary will read is put into its caches in its old state.
func (t *trial) takeovers(ctx context.Context) error {
	fence, log := &counters{check: "fence"}, &counters{check: "log"}
	err := t.takeTurns(ctx, fence, log)
	guilty, other := fence, log
	if s, ok := errors.AsType[*surprise](err); ok {
		if s.call.Op == opAdopt || s.call.Op == opAppend {
			guilty, other = log, fence
		}
		other.note = fmt.Sprintf("stopped after %d rounds by the %s", other.rounds, guilty.check)
	}
	return errors.Join(t.conclude(guilty, err), t.conclude(other, nil))
}

func (t *trial) takeTurns(ctx context.Context, fence, log *counters) error {
	owner, other := t.a, t.b
	if _, err := t.askAll(ctx, owner, opClaim, opFence, opAdopt); err != nil {
		return err
	}
	for i := range max(t.rounds, 2) {
		t.progress(Progress{"fence and log", i, max(t.rounds, 2)})
		fence.rounds++
		log.rounds++
		if err := t.takeOver(ctx, fence, log, owner, other); err != nil {
			return fmt.Errorf("takeover %d: %w", i+1, err)
		}
		owner, other = other, owner
	}
	_, err := t.askAll(ctx, owner, opEnd)
	return err
}

// askAll makes one call after the other and returns the last reply.
func (t *trial) askAll(ctx context.Context, h mountAgent, all ...op) (r reply, err error) {
	for _, o := range all {
		if r, err = t.ask(ctx, h, call{Op: o}); err != nil {
			return r, err
		}
	}
	return r, nil
}

// takeOver ends the term of one agent and begins one of the other.
func (t *trial) takeOver(ctx context.Context, fence, log *counters, owner, other mountAgent) error {
	// The term is alive, and both mounts have read everything that it wrote.
	for range appendsPerTerm - 1 {
		if _, err := t.logged(ctx, owner); err != nil {
			return err
		}
	}
	for _, h := range []mountAgent{other, owner} {
		if _, err := t.askAll(ctx, h, opWarmCaches); err != nil {
			return err
		}
	}
	// The next record is in no cache. It is durable and checked, so a client could have its answer.
	last, err := t.logged(ctx, owner)
	if err != nil {
		return err
	}
	if _, err := t.askAll(ctx, other, opClaim, opFence); err != nil {
		return err
	}
	check := func() (bool, error) {
		r, err := t.ask(ctx, owner, call{Op: opCheck}, fenced)
		return r.Outcome == fenced, err
	}
	ended, err := check()
	if err != nil {
		return err
	}
	if !ended {
		fence.fail("%s did not see in its check that %s had set the fence: it would have acknowledged records that the next term lacks", owner, other)
		if err := t.settles(ctx, fence, check); err != nil {
			return err
		}
	}
	adopted, err := t.askAll(ctx, other, opAdopt)
	if err != nil {
		return err
	}
	if adopted.Number != last {
		log.fail("the scan on %s ended at record %d, when record %d was durable on %s", other, adopted.Number, last, owner)
	}
	_, err = t.askAll(ctx, owner, opEnd)
	return err
}

// logged appends a record and checks, as every commit does.
func (t *trial) logged(ctx context.Context, owner mountAgent) (lsn uint64, err error) {
	r, err := t.askAll(ctx, owner, opAppend)
	if err != nil {
		return 0, err
	}
	c, err := t.askAll(ctx, owner, opCheck)
	if err != nil {
		return 0, err
	}
	t.appends, t.checks = append(t.appends, r.took()), append(t.checks, c.took())
	return r.Number, nil
}
