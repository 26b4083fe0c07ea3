// SPDX-License-Identifier: Apache-2.0

package mutants

const textConn = "shared/frontend/text/conn.go"

// holdMutants break whom a request that is held may delay, and what becomes of it when its caller is gone.
var holdMutants = []Mutant{
	{
		Name: "one-too-fast-delays-all",
		Rule: "who has no limits takes no mutex of who is too fast (package service, Boundless)",
		Edits: []Edit{
			{usageFile, `	return known && x.(*usage).held.Load()`, `	return known || x == nil`},
		},
		By: unit(servicePkg, "^TestOthersPayNothing$"), Dies: `user:free `,
	},
	{
		Name: "within-its-rate-allocates",
		Rule: "who is within its rate waits for no other identity, and allocates nothing (package service, TakeAll)",
		Edits: []Edit{
			{usageFile, `	return !x.line.busy() && x.takeAll(l, requests, bytes, now) // nothing overtakes the line`, `	return x == nil`},
		},
		By: unit(servicePkg, "^TestOthersPayNothing$"), Dies: `user:within `,
	},
	{
		Name: "held-is-overtaken-by-all",
		Rule: "a message that fits into the rate does not overtake what is held (package service, takeAll)",
		Edits: []Edit{
			{usageFile, `	return !x.line.busy() && x.takeAll(`, `	return x.takeAll(`},
		},
		By: unit(servicePkg, "^TestNothingOvertakesWhatIsHeld$"), Dies: `went on`,
	},
	{
		Name: "gone-in-its-turn",
		Rule: "a request whose caller is gone when its turn comes is not executed (package service, turn)",
		Edits: []Edit{
			{holdFile, `	if err == nil && ctx.Err() != nil { //`, `	if err == nil && ctx == nil { //`},
		},
		By: unit(servicePkg, "^TestCallThatEndsInItsTurnIsNotExecuted$"), Dies: `<nil>`,
	},
	{
		Name: "bound-of-each-door",
		Rule: "what is held of a connection has one bound (package service, Take)",
		Edits: []Edit{
			{usageFile, `	h.most, h.conn = s.opt.MaxHold, p.from`, `	h.most, h.conn = s.opt.MaxHold, h`},
		},
		By: unit(servicePkg, "^TestConnectionHasOneBound$"), Dies: `by the same connection`,
	},
	{
		Name: "held-while-others-wait",
		Rule: "a line is not held while others of its connection wait (package text, holdUntil)",
		Edits: []Edit{
			{textConn, `	if c.mu.pending > 1 || errors.Is(`, `	if errors.Is(`},
		},
		By: unit(frontendPkg, "^TestRenewalsDoNotWaitForHeldLines$"), Dies: `want LIMITED`,
	},
	{
		Name: "held-when-another-comes",
		Rule: "a line that is held goes when another one comes (package text, hurry)",
		Edits: []Edit{
			{textConn, `	c.mu.pending++
	c.mu.Unlock()
	c.hurry()`, `	c.mu.pending++
	c.mu.Unlock()`},
		},
		By: unit("shared/frontend/text", "^TestHeldUntilAnotherLine$"), Dies: `another line waits for it`,
	},
	{
		Name: "held-for-one-that-is-gone",
		Rule: "a line is not held for a client that is gone (package text, read)",
		Edits: []Edit{
			{textConn, `		leave(errCut)
		c.hurry()`, `		leave(errCut)`},
		},
		By: unit("shared/frontend/text", "^TestHeldUntilAnotherLine$"), Dies: `its client is gone`,
	},
	{
		Name: "new-rules-miss-a-waiter",
		Rule: "an acquire that is handed in while the rules change is looked at again (package session, handIn)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `	if some && allowed.Rules() != by {`, `	if some && by == nil {`},
		},
		By: unit("shared/frontend/session", "^TestRulesChangeWhileAnAcquireIsHandedIn$"), Dies: `its place is kept`,
	},
	{
		Name: "failed-cancel-is-forgotten",
		Rule: "a session's cancel that was not executed is handed in again (package session, leaving)",
		Edits: []Edit{
			{"shared/frontend/session/waiting.go", `	if pause, ok := l.x.waiting.stays(l.of); ok {`, `	if pause, ok := l.x.waiting.stays(l.of); ok && pause < 0 {`},
		},
		By: unit("shared/frontend/session", "^TestCancelThatFailsIsHandedInAgain$"), Dies: `failures: 1 cancels`,
	},
	{
		Name: "failed-cancels-without-end",
		Rule: "a session's cancel that fails is handed in again a few times (package session, stays)",
		Edits: []Edit{
			{"shared/frontend/session/waiting.go", `	return pause, p.failed <= maxLeaves`, `	return pause, p.failed > 0`},
		},
		By: unit("shared/frontend/session", "^TestCancelThatFailsIsHandedInAgain$"), Dies: `failures: 7 cancels`,
	},
	{
		Name: "rules-of-a-moment-later",
		Rule: "a wait ends with the reason that ended it (package service, Execute)",
		Edits: []Edit{
			{servicePkg + "/service.go", `errors.AsType[*wire.Error](context.Cause(ctx))`, `errors.AsType[*wire.Error](s.permission(asked).Withdrawn(access.Acquire, string(q.Lock), ""))`},
		},
		By: unit(servicePkg, "^TestWaitEndsForItsOwnReason$"), Dies: `withdrawn for a moment`,
	},
	{
		Name: "queue-is-left-by-one-try",
		Rule: "a cancel that was not executed is tried again for a second (package service, leaveQueue)",
		Edits: []Edit{
			{servicePkg + "/leave.go", `	for ctx.Err() == nil {`, `	for first := true; first && ctx.Err() == nil; first = false {`},
		},
		By: unit(servicePkg, "^TestQueueIsLeftByOneOfSomeTries$"), Dies: `1 cancels in`,
	},
}
