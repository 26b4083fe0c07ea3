// SPDX-License-Identifier: Apache-2.0

package mutants

// semaphoreMutants break rules of locks with a limit.
var semaphoreMutants = []Mutant{
	{
		Name: "permits-without-limit",
		Rule: "all grants together have as many permits as the limit, at most (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `return l.taken()+uint64(p.Weight) <= uint64(p.Limit)`, `return uint64(p.Weight) <= uint64(p.Limit)`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `invariant 15|differs; run with -rewrite`,
	},
	{
		Name: "weight-not-counted",
		Rule: "a grant takes its weight, and not one permit (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `		l.sharing.taken += uint64(g.permit.Weight)
`, `		l.sharing.taken++
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `invariant 15|differs; run with -rewrite`,
	},
	{
		Name: "permits-kept-at-the-end",
		Rule: "a grant that ends gives its permits back (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	s.taken -= uint64(g.permit.Weight)
`, ``},
		},
		By: unit("shared/locktable", "^TestRandomRequestsAgainstTheOracle$"), Dies: `invariant 15`,
	},
	{
		Name: "heavy-one-overtaken",
		Rule: "who needs more permits than are free is not overtaken by those behind (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `taken > uint64(w.permit.Limit) {
			return
		}
`, `taken > uint64(w.permit.Limit) {
			taken -= uint64(w.permit.Weight)
			w = w.next
			continue
		}
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `illegal in this state`,
	},
	{
		Name: "light-one-jumps",
		Rule: "while a request waits, no other one is granted at once (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `		return l.head == nil && l.hasRoom(p)
`, `		return l.hasRoom(p)
`},
		},
		By: unit("shared/locktable", "^TestPermitsFollowTheLog$"), Dies: `acquire of c/1: got OK`,
	},
	{
		Name: "other-limit-granted",
		Rule: "all who hold a lock or wait for it agree on its limit (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `	if !used || limit == q.Permit.Limit {
`, `	if !used || limit != 0 || limit == q.Permit.Limit {
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `illegal in this state`,
	},
	{
		Name: "record-with-another-limit",
		Rule: "every server checks that the limits agree (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `used && limit != p.Limit {
		return fmt.Errorf`, `used && limit > p.Limit {
		return fmt.Errorf`},
		},
		By: unit("shared/locktable", "^TestPermitsFollowTheLog$"), Dies: `another limit: got`,
	},
	{
		Name: "behind-the-head-forgotten",
		Rule: "when the first in line leaves, those behind have their turn (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `w.permit.Limit != 0 && w == l.head {`, `w.permit.Limit != 0 && w != l.head {`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite|illegal in this state`,
	},
	{
		Name: "owed-permits-forgotten",
		Rule: "a log that ends between a release and its grants is gone on with (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `		return l.hasRoom(w.permit)
`, `		return false
`},
		},
		By: unit("shared/locktable", "^TestPermitsFollowTheLog$"), Dies: `illegal in this state`,
	},
	{
		Name: "permits-granted-without-end",
		Rule: "one decision adds a bounded number of grants of permits (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `w != nil && n < phaseStep; n++ {`, `w != nil; n++ {`},
		},
		By: unit("shared/locktable", "^TestManyPermitsComeFree$"), Dies: `records at a time`,
	},
	{
		Name: "limit-not-in-a-checkpoint",
		Rule: "a checkpoint has the permits of the holders (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/export.go", `Remember: l.remember, Permit: l.permit.export(),
`, `Remember: l.remember,
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `invariant 15|hash|bad table state`,
	},
	{
		Name: "place-without-its-permit",
		Rule: "a checkpoint has what those in line ask for (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/export.go", `Slot: w.slot, Permit: w.permit.export(),
`, `Slot: w.slot,
`},
		},
		By: unit("shared/locktable", "^TestPermitsOfAState$"), Dies: `invariant 15|hash|bad table state`,
	},
	{
		Name: "restored-and-not-counted",
		Rule: "what is loaded from a checkpoint counts (package locktable, importGrant)",
		Edits: []Edit{
			{"shared/locktable/export.go", `	of.takes(l)
`, ``},
		},
		By: unit("shared/locktable", "^TestPermitsOfAState$"), Dies: `invariant 15`,
	},
	{
		Name: "cloned-and-not-counted",
		Rule: "a copy of a table counts the permits, too (package locktable, Clone)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `	l.takes(g)
`, ``},
		},
		By: unit("shared/locktable", "^TestRandomRequestsAgainstTheOracle$"), Dies: `invariant 15|a clone has changed|decided`,
	},
	{
		Name: "permit-not-hashed",
		Rule: "what a grant takes of a limit is part of the state hash (package locktable, invariant 10)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `uint64(p.Limit), uint64(p.Weight))`, `uint64(p.Limit))`},
		},
		By: unit("shared/locktable", "^TestPermitsOfAState$"), Dies: `or the same hash`,
	},
	{
		Name: "permits-of-an-impossible-state",
		Rule: "a state with more permits than the limit is refused (package locktable, invariant 15)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `	if sum != l.taken() || sum > uint64(limit) {
`, `	if sum != l.taken() {
`},
		},
		By: unit("shared/locktable", "^TestPermitsOfAState$"), Dies: `too many taken: got`,
	},
	{
		Name: "crowd-of-permits",
		Rule: "however large a limit, a lock has a bounded number of holders and waiters (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `	if limit, _ := l.limit(); limit != 0 {
		return int(l.queued)`, `	if limit, _ := l.limit(); limit != 0 && l.head == nil {
		return int(l.queued)`},
		},
		By: unit("shared/locktable", "^TestPermitHoldersAreBounded$"), Dies: `beside all these`,
	},
	{
		Name: "ring-through-free-permits",
		Rule: "who waits for a permit that others can make free is in no ring (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `	return w.permit.Limit == 0 || uint64`, `	return w.permit.Limit >= 0 || uint64`},
		},
		By: unit("shared/locktable", "^TestRingsOfPermits$"), Dies: `all true`,
	},
	{
		Name: "ring-of-a-later-holder",
		Rule: "a ring is found from each holder of permits (package locktable, RingOf)",
		Edits: []Edit{
			{"shared/locktable/rings.go", `			clear(s.state) // who`, `			_ = s.state // who`},
		},
		By: unit("shared/locktable", "^TestRingsOfPermits$"), Dies: `the ring of l is`,
	},
	{
		Name: "semaphores-below-their-level",
		Rule: "below feature level 7 no lock has a limit (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/semaphores.go", `q.Level < SemaphoresLevel {`, `q.Level < BaseLevel {`},
		},
		By: unit("primary", "^TestSemaphoresNeedTheirLevel$"), Dies: `want INVALID_ARGUMENT`,
	},
	{
		Name: "repeat-without-its-permit",
		Rule: "a repeated acquire is told the permits that it holds (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/locktable/request.go", `(g.remember || g.slotOf() != ""), g.permit
`, `(g.remember || g.slotOf() != ""), Permit{}
`},
		},
		By: unit("primary", "^TestSemaphoresOutliveTheirTerm$"), Dies: `a repeat: `,
	},
	{
		Name: "unlimited-grant-taken",
		Rule: "a grant of a server that ignored the limit is given back (PROTOCOL 11.8)",
		Edits: []Edit{
			{"shared/wire/error.go", `	if limit == 0 || a.GetLimit()`, `	if limit == 0 || a != nil || a.GetLimit()`},
		},
		By: unit("clientlib", "^TestGrantWithoutItsConditionIsGivenBack$"), Dies: `holds it under token`,
	},
	{
		Name: "unlimited-token-printed",
		Rule: "a command gives back a grant of a server that ignored the limit (PROTOCOL 11.8)",
		Edits: []Edit{
			{"cmd/holdfast/cli/client.go", `l.once != ""), wire.Unlimited(r, q.Limit, q.Weight)); err != nil {`, `l.once != ""), nil); err != nil {`},
		},
		By: unit("cmd/holdfast/cli", "^TestPermitsOfAnOlderServer$"), Dies: `an older server: `,
	},
	{
		Name: "permit-untold-on-a-session",
		Rule: "a grant tells its permits over a session, too (package convert, AppendOutcome)",
		Edits: []Edit{
			{"shared/wire/convert/frame.go", `out.Marked || out.Permit.Limit != 0 || `, `out.Marked || `},
		},
		By: unit("clientlib/holdfasttest", "^TestPermits$"), Dies: `older version`,
	},
	{
		Name: "session-asks-without-limit",
		Rule: "a session carries the limit that was asked for (package wire, AppendOperation)",
		Edits: []Edit{
			{"shared/wire/frame.go", ` || x.Acquire.Limit != 0 || x.Acquire.Weight != 0 {`, ` {`},
		},
		By: unit("clientlib/holdfasttest", "^TestPermits$"), Dies: `older version`,
	},
	{
		Name: "permit-untold",
		Rule: "an answer tells its permits over HTTP, too (package wire, Body)",
		Edits: []Edit{
			{"shared/wire/json.go", `		Limit:  a.GetLimit(), Weight: a.GetWeight(),
`, ``},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `got  `,
	},
	{
		Name: "history-without-permits",
		Rule: "the history has the permits of a grant that ended (package history, End)",
		Edits: []Edit{
			{"shared/history/line.go", `Permit: locktable.Permit{Limit: x.Limit, Weight: x.Weight}, `, ``},
		},
		By: unit("shared/history", "^TestLines$"), Dies: `Permit`,
	},
	{
		Name: "judge-takes-any-permit",
		Rule: "a log with more permits than the limit is wrong (package check, reference)",
		Edits: []Edit{
			{"faulttests/check/reflock.go", `	return sum > uint64(limit)
`, `	return sum > uint64(limit) && limit == 0
`},
		},
		By: unit("faulttests/check", "^TestPermitsThatAreWrong$"), Dies: `more than is free: found`,
	},
	{
		Name: "judge-takes-any-limit",
		Rule: "a log in which limits of a lock differ is wrong (package check, reference)",
		Edits: []Edit{
			{"faulttests/check/reflock.go", `	if l.disagrees(limit) {
`, `	if l.disagrees(limit) && limit == 0 {
`},
		},
		By: unit("faulttests/check", "^TestPermitsThatAreWrong$"), Dies: `another limit: found`,
	},
}
