// SPDX-License-Identifier: Apache-2.0

package mutants

// tableMutants break the lock table, leases and requests.
var tableMutants = []Mutant{
	{
		Name: "grant-from-receipt", Also: "",
		Rule: "a repeated Acquire is answered from the present (PROTOCOL 12.4, H11)",
		Edits: []Edit{
			{"shared/locktable/request.go", `	out.Status = cluster.StatusLeaseExpired
`, ``},
		},
		By: unit("shared/locktable", "^TestRepeats$"), Dies: `got OK "the grant of this request has ended" .*want LEASE_EXPIRED`,
	},
	{
		Name: "stale-executes", Also: "delayed duplicate executing after its refusal",
		Rule: "below its client's mark a request is refused, never executed (PROTOCOL 12.3)",
		Edits: []Edit{
			{"shared/locktable/clients.go", `func (c *client) stale(id cluster.RequestID) bool { return id < c.lowWater || id < c.dropped }`, `func (c *client) stale(id cluster.RequestID) bool { return id < c.dropped }`},
		},
		By: unit("shared/locktable", "^TestLowWaterMark$"), Dies: `got HELD .*want STALE_REQUEST`,
	},
	{
		Name: "repeat-executes", Also: "",
		Rule: "same request, same answer, executed at most once (PROTOCOL 12.2)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	if rc := c.receipt(id); rc != nil {
		if rc.kind`, `	if rc := c.receipt(id); rc != nil && rc.kind != KindAppend {
		if rc.kind`},
			{"shared/locktable/apply.go", `	if c.receipt(r.Request) != nil || c.waiter(r.Request) != nil {`, `	if c.receipt(r.Request) != nil && r.Kind != KindAppend || c.waiter(r.Request) != nil {`},
		},
		By: everyCall(), Dies: `I5: \S+ holds "c\d round \d+ part \d+\\n" \d+ times`,
	},
	{
		Name: "queue-turned", Also: "",
		Rule: "the queue is FIFO and survives checkpoints (PROTOCOL 11.2)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `			t.grantOrSkip(d, l.head)`, `			t.grantOrSkip(d, l.tail)`},
			{"shared/locktable/waiters.go", `	w := l.head
	for w != nil && w.mode`, `	w := l.tail
	for w != nil && w.mode`},
		},
		By: unit("shared/locktable", "FIFO|TestRandomRequests"), Dies: `want a grant for b`,
	},
	{
		Name: "tokens-restart", Also: "",
		Rule: "tokens rise over the whole volume: a token is its record's LSN, and LSNs never start again (PROTOCOL 11.3)",
		Edits: []Edit{
			{"shared/locktable/clients.go", `		rc.token = cluster.Token(r.LSN)`, `		rc.token = cluster.Token(r.LSN & 63)`},
		},
		By: unit("shared/locktable", "TestRandomRequests"), Dies: `invariant 7: receipt \d+ has token \d+ of record \d+`,
	},
	{
		Name: "token-unchecked", Also: "",
		Rule: "appends and releases need the live token (PROTOCOL 11.3)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	if l.token == token {
		return l`, `	if l.token >= token {
		return l`},
		},
		By: unit("shared/locktable", "^TestOwnershipIsLockAndToken$"), Dies: `release of a/2: got OK .*want INVALID_TOKEN`,
	},
	{
		Name: "renewal-unchecked", Also: "",
		Rule: "renewals are not logged but obey the basis like everything else (PROTOCOL 8.4)",
		Edits: []Edit{
			{"primary/leases.go", `		out.Status, out.Message = cluster.StatusInvalidToken, "the token is not the live one of this lock"
	}
	c.answer(x, out)`, `		out.Status, out.Message = cluster.StatusInvalidToken, "the token is not the live one of this lock"
	}
	x.done(out)`},
		},
		By: unit("primary", "^TestFencedTermTellsNothing$"), Dies: `a_renewal.* answered OK <nil>`,
	},
	{
		Name: "lease-from-claim", Also: "",
		Rule: "a new term counts each lease afresh from when it serves (PROTOCOL 11.4)",
		Edits: []Edit{
			{"primary/core.go", `	c.clock.last = time.Now()
	for {`, `	c.clock.last = time.Now()
	c.clock.elapsed = 2 * time.Second
	for {`},
		},
		By: unit("primary", "^TestNewTermCountsLeasesAndPlacesAfresh$"), Dies: `live true, \d+\.\d+s left of 30 s`,
	},
	{
		Name: "clock-runs-asleep", Also: "",
		Rule: "the serving clock stands still while the core loop was late (PROTOCOL 11.4)",
		Edits: []Edit{
			{"primary/leases.go", `		c.elapsed += tick // the loop was asleep for the rest`, `		c.elapsed += step`},
		},
		By: unit("primary", "TestServingClock"), Dies: `asleep.* counted 1h0m0s of 1h0m0s`,
	},
	{
		Name: "clear-keeps-holders", Also: "",
		Rule: "under the clear policy a takeover drops holders and waiters (PROTOCOL 16)",
		Edits: []Edit{
			{"primary/takeover.go", `	if c.p.opt.Timing.Policy == cluster.PolicyClear {
		c.apply`, `	if c.p.opt.Timing.Policy != cluster.PolicyClear && len(c.slots) > 1<<20 {
		c.apply`},
		},
		By: unit("primary", "TestClearPolicy"), Dies: `the adopted grant is alive`,
	},
	{
		Name: "replica-without-chain", Also: "",
		Rule: "a replica applies only frames whose chain value follows its own (PROTOCOL 14.1)",
		Edits: []Edit{
			{"replica/replica.go", `	if wal.VerifyChain(r.mu.at.Chain, entries) != f.Chain {`, `	if wal.VerifyChain(r.mu.at.Chain, entries) != f.Chain && len(entries) == 0 {`},
		},
		By: unit("replica", "TestReplica"), Dies: `a frame whose chain value does not follow was taken`,
	},
}
