// SPDX-License-Identifier: Apache-2.0

package mutants

// quotaMutants break what callers may have and how fast they may ask, and the look for newer rules.
var quotaMutants = []Mutant{
	{
		Name: "quota-of-one-more",
		Rule: "a quota is the most that there may be (package primary, refusesLock)",
		Edits: []Edit{
			{"primary/quota.go", `if most := asked.MostLocks; most > 0 && has.locks+has.waiters >= most {`, `if most := asked.MostLocks; most > 0 && has.locks+has.waiters > most {`},
		},
		By: unit("primary", "^TestQuotaOfLocks$"), Dies: `OK .* want LIMITED`,
	},
	{
		Name: "place-is-no-lock",
		Rule: "a place in a queue counts as a lock, since it becomes one (package primary, refusesLock)",
		Edits: []Edit{
			{"primary/quota.go", `if most := asked.MostLocks; most > 0 && has.locks+has.waiters >= most {`, `if most := asked.MostLocks; most > 0 && has.locks >= most {`},
		},
		By: unit("primary", "^TestQuotaOfLocks$"), Dies: `OK .* want LIMITED`,
	},
	{
		Name: "waiters-without-number",
		Rule: "quotas limit the places in queues (package primary, refusesLock)",
		Edits: []Edit{
			{"primary/quota.go", `if most := asked.MostWaits; waits && most > 0 && has.waiters >= most {`, `if most := asked.MostWaits; waits && most > 0 && has.waiters < 0 {`},
		},
		By: unit("primary", "^TestQuotaOf(Waiters|Locks)$"), Dies: `.`,
	},
	{
		Name: "limited-and-done",
		Rule: "what is LIMITED leaves no record (package primary, decide)",
		Edits: []Edit{
			{"primary/core.go", `			recs, d = recs[:0], locktable.Decision{Outcome: locktable.Outcome{
				Status: cluster.StatusLimited`, `			d = locktable.Decision{Outcome: locktable.Outcome{
				Status: cluster.StatusLimited`},
		},
		By: unit("primary", "^TestQuotaOfBytes$"), Dies: `.`,
	},
	{
		Name: "adopted-and-uncounted",
		Rule: "a term counts what it adopted (package primary, followRules)",
		Edits: []Edit{
			{"primary/quota.go", `		c.quotas.countSome(c.table, adoptStep)`, `		c.quotas.locks, c.quotas.counted = true, true`},
		},
		By: unit("primary", "^TestQuotasAfterAFailover$"), Dies: `.`,
	},
	{
		Name: "expiry-keeps-its-count",
		Rule: "a lease that expires is counted no more (package primary, before)",
		Edits: []Edit{
			{"primary/quota.go", `	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		if g, live := t.Live`, `	case locktable.KindRelease, locktable.KindBreak:
		if g, live := t.Live`},
		},
		By: unit("primary", "^TestCountsEqualTheTable$"), Dies: `after expire: `,
	},
	{
		Name: "place-counted-for-ever",
		Rule: "a place that ends is counted no more (package primary, before)",
		Edits: []Edit{
			{"primary/quota.go", `	case locktable.KindGrant, locktable.KindWaitTimeout, locktable.KindCancel, locktable.KindSkip:`, `	case locktable.KindGrant, locktable.KindCancel, locktable.KindSkip:`},
		},
		By: unit("primary", "^TestCountsEqualTheTable$"), Dies: `after wait_timeout: `,
	},
	{
		Name: "owner-counted-as-nobody",
		Rule: "what a client had before it had an identity moves to that (package primary, after)",
		Edits: []Edit{
			{"primary/quota.go", `	if x.adopts {
`, `	if x.adopts && q.rules == nil {
`},
		},
		By: unit("primary", "^TestCountsEqualTheTable$"), Dies: `the counts of quotas are`,
	},
	{
		Name: "counted-before-its-turn",
		Rule: "what was not counted yet is counted when its turn comes, and not twice (package primary, knowsLock)",
		Edits: []Edit{
			{"primary/quota.go", `func (q *quotaCounts) knowsLock(lock cluster.LockName) bool { return q.locks || lock <= q.lock }`, `func (q *quotaCounts) knowsLock(lock cluster.LockName) bool { return q.locks || lock != "" }`},
		},
		By: unit("primary", "^TestCountsEqualTheTable$"), Dies: `the counts of quotas are`,
	},
	{
		Name: "cleared-and-counted",
		Rule: "what is cleared by force is counted no more (package primary, after)",
		Edits: []Edit{
			{"primary/quota.go", `		clear(q.of)
`, ``},
		},
		By: unit("primary", "^TestCountsEqualTheTable$"), Dies: `after force_clear: `,
	},
	{
		Name: "unbound-and-long",
		Rule: "a file that is unbound or rotated takes no part of a quota (package primary, after)",
		Edits: []Edit{
			{"primary/quota.go", `		q.addFile(r.File, f.End-x.file)`, `		q.addFile(r.File, max(0, f.End-x.file))`},
		},
		By: unit("primary", "^TestCountsEqualTheTable$"), Dies: `after (unbind|rotate): `,
	},
	{
		Name: "bound-for-nothing",
		Rule: "a file that is bound with something in it counts (package primary, refuses)",
		Edits: []Edit{
			{"primary/quota.go", `			bytes += r.Offset
`, `			bytes += 0
`},
		},
		By: unit("primary", "^TestQuotaOfBytes$"), Dies: `want LIMITED`,
	},
	{
		Name: "quotas-of-the-first-rules",
		Rule: "quotas change with the rules (package primary, followRules)",
		Edits: []Edit{
			{"primary/quota.go", `	if r := c.p.opt.Rules(); r != c.rules {`, `	if r := c.p.opt.Rules(); c.rules == nil {`},
		},
		By: unit("primary", "^TestQuotasAfterAFailover$"), Dies: `want LIMITED`,
	},
	{
		Name: "release-is-limited",
		Rule: "what ends something is never limited (package session, withinQuotas)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `	return len(o.Request.Data), service.Counts(o.Request.Op)`, `	return len(o.Request.Data), o.Request.Op != 0`},
		},
		By: unit("shared/frontend", "^TestMessageBeyondTheRate$"), Dies: `release `,
	},
	{
		Name: "keepers-pay",
		Rule: "what keeps or ends something takes no part of a rate (package service, admitRequest)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `	if !Counts(q.Op) {`, `	if q.Op == 0 {`},
		},
		By: unit("shared/frontend", "^TestEveryDoorLimitsTheSame$"), Dies: `(release|cancel|forget) by alice: LIMITED, want OK`,
	},
	{
		Name: "whole-message-or-nothing",
		Rule: "of a message goes on what the rate leaves room for, and no more (package service, Filter)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `	if n == len(sizes) {
		return requests
	}
	i := -1`, `	if n > 0 {
		return requests
	}
	i := -1`},
		},
		By: unit("shared/frontend", "^TestMessageBeyondTheRate$"), Dies: `acquire `,
	},
	{
		Name: "reads-for-nothing",
		Rule: "reads count against the rate (package service, admit)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `	return p.count(ctx, 0, func() error { return p.Check(v, lock, file) })`, `	return p.Check(v, lock, file)`},
		},
		By: unit("shared/frontend", "^TestEveryDoorLimitsTheSame$"), Dies: `want LIMITED`,
	},
	{
		Name: "refused-bytes-cost-requests",
		Rule: "what the rate of bytes refuses is no request (package service, take)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `		ofRequests.AllowN(now, n)
		left`, `		ofRequests.AllowN(now, len(sizes))
		left`},
		},
		By: unit("shared/frontend/service", "^TestRateOfBytes$"), Dies: `usage_test.go`,
	},
	{
		Name: "one-rate-for-all",
		Rule: "each identity has a rate of its own (package service, Take)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `p.s.opt.Usage.take(p.caller.Name(), l, sizes, h, time.Now())`, `p.s.opt.Usage.take("", l, sizes, h, time.Now())`},
			{"shared/frontend/service/usage.go", `p.s.opt.Usage.takeAll(p.caller.Name(), l, requests,`, `p.s.opt.Usage.takeAll("", l, requests,`},
		},
		By: unit("shared/frontend", "^TestRetryAfter$"), Dies: `another identity: LIMITED`,
	},
	{
		Name: "crowd-acquires",
		Rule: "a session too many acquires nothing (package session, withinQuotas)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `		if x.enter(); x.entered == nil {`, `		if x.enter(); x.entered == nil && x.crowded == nil {`},
		},
		By: unit("shared/frontend", "^TestSessionsAreCounted$"), Dies: `a second session: STATUS_OK`,
	},
	{
		Name: "comes-back-as-another",
		Rule: "a client that comes back is no other session (package service, enterSession)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `	if most > 0 && x.sessions[session] == 0 && int64(len(x.sessions)) >= most {`, `	if most > 0 && int64(len(x.sessions)) >= most {`},
		},
		By: unit("shared/frontend", "^TestSessionsAreCounted$"), Dies: `the same client: STATUS_LIMITED`,
	},
	{
		Name: "watches-without-number",
		Rule: "quotas limit watches (package service, enterWatch)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `	if most > 0 && int64(x.watches) >= most {`, `	if most > 0 && int64(x.watches) < 0 {`},
		},
		By: unit("shared/frontend", "^TestWatchesAreCounted$"), Dies: `a third watch: STATUS_OK`,
	},
	{
		Name: "busy-is-forgotten",
		Rule: "who has used up a rate is remembered (package service, forget)",
		Edits: []Edit{
			{"shared/frontend/service/usage.go", `len(x.sessions) == 0 && x.watches == 0 && !x.held.Load() && full(x.requests) && full(x.bytes)`, `len(x.sessions) == 0 && x.watches == 0 && (full(x.requests) || x.requests != nil) && full(x.bytes)`},
		},
		By: unit("shared/frontend/service", "^TestUsageIsForgotten$"), Dies: `busy: 1 of 1 go on`,
	},
	{
		Name: "count-is-waited-for",
		Rule: "who has as much as he may is told so, and waits for nothing (package retry, OfError)",
		Edits: []Edit{
			{"shared/retry/retry.go", `		if e.Status == cluster.StatusLimited && e.RetryAfter > 0 {`, `		if e.Status == cluster.StatusLimited {`},
		},
		By: unit("shared/retry", "^TestVerdicts$"), Dies: `LIMITED`,
	},
	{
		Name: "too-fast-elsewhere",
		Rule: "who exceeds a rate asks the same server again (package clientlib, roundTrip)",
		Edits: []Edit{
			{"clientlib/call.go", `	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, true
	}
`, ``},
		},
		By: unit("clientlib", "^TestCallThatIsTooFastWaits$"), Dies: `servers were asked for a primary`,
	},
	{
		Name: "too-fast-is-no-primary",
		Rule: "who exceeds a rate waits for as long as the context lets him (package clientlib, do)",
		Edits: []Edit{
			{"clientlib/call.go", `		if v.Verdict == retry.TooFast { // the primary has answered`, `		if v.Verdict == retry.TooFast && left.left < 0 { // the primary has answered`},
		},
		By: unit("clientlib", "^TestCallThatIsTooFastWaits$"), Dies: `no primary answered`,
	},
	{
		Name: "highest-limit-counts",
		Rule: "of several quotas the lowest limit counts (package access, lower)",
		Edits: []Edit{
			{"shared/access/quota.go", `	if y != 0 && (*x == 0 || y < *x) {`, `	if y != 0 && (*x == 0 || y > *x) {`},
		},
		By: unit("shared/access", "^TestLimits$"), Dies: `of two quotas`,
	},
	{
		Name: "new-key-is-refused",
		Rule: "a server reads the rules before it refuses a key that is not in them (package auth, Authenticate)",
		Edits: []Edit{
			{"cmd/holdfast/auth/authenticator.go", `	g.refresh()
	return g.authenticate`, `	return g.authenticate`},
		},
		By: unit("cmd/holdfast/auth", "^TestKeyThatIsNewerThanTheRules$"), Dies: `after 0 looks`,
	},
	{
		Name: "strangers-read-the-volume",
		Rule: "however many ask, the volume is read ten times a second at most (package access, Run)",
		Edits: []Edit{
			{"cmd/holdfast/access/live.go", `			if !retry.Rest(ctx, askedEvery-time.Since(looked)) {`, `			if !retry.Rest(ctx, 0) {`},
		},
		By: unit("cmd/holdfast/access", "^TestLiveRefresh$"), Dies: `the volume was read`,
	},
}
