// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	holdFile    = "shared/frontend/service/hold.go"
	usageFile   = "shared/frontend/service/usage.go"
	frontendPkg = "shared/frontend"
)

// limitMutants break what is held before it is refused, what counts once, and what ends when its permission is withdrawn.
var limitMutants = []Mutant{
	{
		Name: "nothing-is-held",
		Rule: "what exceeds a rate for a moment waits for its turn (package service, take)",
		Edits: []Edit{
			{usageFile, `	if t.now < len(sizes) && h != nil {`, `	if t.now < 0 && h != nil {`},
		},
		By: unit(servicePkg, "^TestHeldInTheirTurn$"), Dies: `LIMITED`,
	},
	{
		Name: "held-is-overtaken",
		Rule: "nothing that counts overtakes what is held of its identity (package service, take)",
		Edits: []Edit{
			{usageFile, `	if x.line.busy() { // nothing overtakes it`, `	if len(x.line.requests) > 0 {`},
		},
		By: unit(servicePkg, "^TestNothingOvertakesWhatIsHeld$"), Dies: `went on`,
	},
	{
		Name: "lifted-quota-overtakes",
		Rule: "nothing overtakes what is held, not even where a quota was lifted (package service, Boundless)",
		Edits: []Edit{
			{usageFile, ` && !p.s.opt.Usage.heldOf(p.caller.Name())`, ``},
		},
		By: unit(servicePkg, "^TestNothingOvertakesWhatIsHeld$"), Dies: `went on`,
	},
	{
		Name: "held-for-long",
		Rule: "a request is held only if its wait is short (package service, enqueue)",
		Edits: []Edit{
			{holdFile, ` || after(n, bytes) > h.most-holdTick {`, ` || after(n, bytes) > time.Hour {`},
		},
		By: unit(servicePkg, "^TestHeldInTheirTurn$"), Dies: `were refused`,
	},
	{
		Name: "held-beyond-its-time",
		Rule: "what was held for a second is refused (package service, advance)",
		Edits: []Edit{
			{holdFile, `now.Sub(l.requests[ended].since) >= l.requests[ended].of.most {`, `now.Sub(l.requests[ended].since) >= time.Hour {`},
		},
		By: unit(servicePkg, "^TestLowerRateRefusesWhatIsHeld$"), Dies: `were refused`,
	},
	{
		Name: "line-without-end",
		Rule: "the line of an identity is bounded (package service, enqueue)",
		Edits: []Edit{
			{holdFile, `		if n > maxHeld || bytes`, `		if bytes`},
		},
		By: unit(servicePkg, "^TestLinesAreBounded$"), Dies: `of connection 4`,
	},
	{
		Name: "connection-fills-the-line",
		Rule: "what is held of a connection is bounded (package service, enqueue)",
		Edits: []Edit{
			{holdFile, ` || l.ofConn[h.conn] >= maxHeldOfConn || `, ` || `},
		},
		By: unit(servicePkg, "^TestLinesAreBounded$"), Dies: `of connection 0`,
	},
	{
		Name: "line-of-many-bytes",
		Rule: "the bytes that are held of an identity are bounded (package service, enqueue)",
		Edits: []Edit{
			{holdFile, ` || bytes > maxHeldBytes || `, ` || `},
		},
		By: unit(servicePkg, "^TestLinesAreBounded$"), Dies: `large appends are held`,
	},
	{
		Name: "gone-stays-in-line",
		Rule: "a call that ends leaves the line, and spends nothing (package service, leaveLine)",
		Edits: []Edit{
			{holdFile, `	if p.s.opt.Usage.withdraw(p.caller.Name(), h) {`, `	if p.caller.Name() != "" {`},
		},
		By: unit(servicePkg, "^TestWaitEndsWithItsCall$"), Dies: `went on`,
	},
	{
		Name: "rules-before-the-wait",
		Rule: "the rules are asked again after a wait (package service, count)",
		Edits: []Edit{
			{usageFile, `	if err == nil && waited {`, `	if err != nil && waited {`},
		},
		By: unit(servicePkg, "^TestRulesAreAskedAfterAWait$"), Dies: `<nil>`,
	},
	{
		Name: "counted-for-each-try",
		Rule: "a request of a user counts once, however often it is tried (package service, OneRequest)",
		Edits: []Edit{
			{holdFile, `	if counted != nil && err == nil {`, `	if counted != nil && err != nil {`},
		},
		By: unit(frontendPkg, "^TestTakeoverCountsARequestOnce$"), Dies: `429 after`,
	},
	{
		Name: "counted-where-it-is-passed-on",
		Rule: "what another server passes on was counted there (package service, Boundless)",
		Edits: []Edit{
			{usageFile, `	if p.caller != nil && p.caller.PassedOn {`, `	if p.caller != nil && p.caller.Via == "nothing" {`},
		},
		By: unit(frontendPkg, "^TestForwardCountsWhereItCameFrom$"), Dies: `passed on: `,
	},
	{
		Name: "watch-for-nothing",
		Rule: "a watch counts as a request when it begins (package service, Watch)",
		Edits: []Edit{
			{servicePkg + "/watch.go", `err = allowed.count(asked, 0, check); err == nil {`, `err = check(); err == nil {`},
		},
		By: unit(frontendPkg, "^TestEveryDoorLimitsTheSame$"), Dies: `watch by alice: OK, want LIMITED`,
	},
	{
		Name: "forbidden-waits-on",
		Rule: "who may not acquire a lock any more does not wait for it (package service, Execute)",
		Edits: []Edit{
			{servicePkg + "/service.go", `return s.permission(asked).Withdrawn(access.Acquire, lock, "") })`, `_ = lock; return s.permission(asked).Ended() })`},
		},
		By: unit(frontendPkg, "^TestWaitEndsWithItsPermission$"),
	},
	{
		Name: "forbidden-waits-in-its-session",
		Rule: "a session cancels the acquires that its caller may not wait for any more (package session, leaveQueues)",
		Edits: []Edit{
			{"shared/frontend/session/waiting.go", `	if len(cancels) > 0 {`, `	if len(cancels) > 1000 {`},
		},
		By: unit(frontendPkg, "^TestWaitEndsWithItsPermission$"),
	},
}
