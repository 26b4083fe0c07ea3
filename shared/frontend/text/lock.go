// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// lock acquires the lock for the line's client, or finds that it has it.
func (c *caller) lock(ctx, left context.Context, l *line) string {
	for range rounds {
		a := c.acquire(ctx, l, 0)
		token, mine := l.holds(&a)
		switch {
		case a.status == cluster.StatusOK && !a.Repeat:
			return success
		case mine:
			if reply, ended := c.keep(ctx, l, token); !ended {
				return reply
			} // it ended by itself, this moment: try again
		case a.status == cluster.StatusHeld && l.wait > 0:
			return c.waitInLine(ctx, left, l)
		case a.status == cluster.StatusHeld:
			return fail
		default:
			return a.refused()
		}
	}
	return failed
}

// acquire acquires the lock for the line's client.
func (c *caller) acquire(ctx context.Context, l *line, wait time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, wait+callWait)
	defer cancel()
	ttl := cmp.Or(l.ttl, defaultTTL)
	return c.call(ctx, "acquire", map[string]any{
		"lock": l.lock, "ttl": ttl.String(), "wait": wait.String(),
		"client_id": clientID(l.client, l.lock), "request_id": acquireID(l.lock, ttl, wait),
		"holder": map[string]any{"host": c.from, "command": "text"},
	})
}

// holds reports whether an answer to an acquire shows that the line's client held the lock before,
// and returns its token.
func (l *line) holds(a *answer) (cluster.Token, bool) {
	switch {
	case a.status == cluster.StatusOK && a.Repeat:
		return cluster.Token(a.Token), true
	case a.status == cluster.StatusHeld && a.Holder != nil && a.Holder.Client == clientID(l.client, l.lock):
		return a.Holder.Token, true
	}
	return 0, false
}

// waitInLine waits for the lock, in a place that the same line shares on every connection. A client
// that leaves cancels it for all of them: the others wait anew, after those that came meanwhile.
func (c *caller) waitInLine(ctx, left context.Context, l *line) string {
	over := time.Now().Add(l.wait)
	for wait := l.wait; wait > 0 && left.Err() == nil; wait = time.Until(over).Truncate(time.Millisecond) {
		a := c.acquire(left, l, wait)
		switch {
		case a.status == cluster.StatusOK && a.Repeat:
			reply, _ := c.keep(ctx, l, cluster.Token(a.Token))
			return reply
		case a.status == cluster.StatusOK:
			return success
		case a.status == cluster.StatusWaitTimeout:
			return c.late(ctx, l)
		case a.status == cluster.StatusCancelled:
			// The same line waited on another connection, and its client left.
		case left.Err() != nil && ctx.Err() == nil:
			return c.giveUp(ctx, l, wait)
		default:
			return a.refused()
		}
	}
	return timeout
}

// late returns the answer to a line whose wait ran out. The client may have the lock by another line.
func (c *caller) late(ctx context.Context, l *line) string {
	token, refusal := c.held(ctx, l)
	if refusal != "" || token == 0 {
		return timeout
	}
	reply, _ := c.keep(ctx, l, token)
	return reply
}

// giveUp cancels the place of a client that left. A grant that came before is not released: the
// repeat of the line may have been answered with it.
func (c *caller) giveUp(ctx context.Context, l *line, wait time.Duration) string {
	a := c.quick(ctx, "cancel", map[string]any{
		"client_id": clientID(l.client, l.lock), "request_id": acquireID(l.lock, cmp.Or(l.ttl, defaultTTL), wait),
	})
	switch a.status {
	case cluster.StatusOK:
		return success
	case cluster.StatusCancelled:
		return timeout
	default:
		return failed
	}
}
