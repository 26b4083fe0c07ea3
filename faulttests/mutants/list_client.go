// SPDX-License-Identifier: Apache-2.0

package mutants

// clientMutants break rules of the client library, its keep-alives and the identity of what it talks to.
var clientMutants = []Mutant{
	{
		Name: "repeat-told-a-whole-ttl", Also: "",
		Rule: "a repeated Acquire tells what is left of the lease (DESIGN 5.3)",
		Edits: []Edit{
			{"primary/core.go", `	c.tellLeft(&d.Outcome)
`, ``},
		},
		By:   unit("primary", "^TestRepeatedAcquireTellsWhatIsLeft$"),
		Dies: `tells a lease of 10s, want`,
	},
	{
		Name: "outcome-told-a-whole-ttl", Also: "",
		Rule: "the outcome of an acquire tells what is left of the lease (DESIGN 5.3)",
		Edits: []Edit{
			{"primary/api/read.go", `		if out.TTL = 0; v.Remaining != nil { // a`, `		if v.Remaining == nil { // a`},
		},
		By:   unit("primary/api", "^TestOutcomeTellsWhatIsLeft$"),
		Dies: `want (2s|0s) left`,
	},
	{
		Name: "hold-left-untold", Also: "",
		Rule: "a renewal tells what is left of a max hold, or its client counts on the lock for longer (package primary, renew)",
		Edits: []Edit{
			{"primary/leases.go", `		if l.MaxHold() > 0 {
			out.HoldLeft`, `		if false {
			out.HoldLeft`},
		},
		By:   unit("clientlib/election", "^TestMaxHoldEndsAlsoForWhoIsCutOff$"),
		Dies: `two holders: token`,
	},
	{
		Name: "limit-lowers-no-deadline", Also: "",
		Rule: "the end of a max hold lowers a deadline that was counted before it was known: an older service tells a repeated Acquire a whole TTL (package clientlib, lease)",
		Edits: []Edit{
			{"clientlib/clock.go", `	if l.limit > 0 {
		l.deadline = min(l.deadline, l.limit)
	}
`, ``},
		},
		By:   unit("clientlib", "^TestRepeatedGrantIsCountedAsFarAsItLives$"),
		Dies: `is counted on for 12`,
	},
	{
		Name: "limit-of-an-older-answer", Also: "",
		Rule: "the answer to an older question never shortens a lease (package clientlib, lease)",
		Edits: []Edit{
			{"clientlib/clock.go", `	l.limit = max(l.limit, sent+hold-driftMargin(hold))`, `	l.limit = sent + hold - driftMargin(hold)`},
		},
		By:   unit("clientlib", "^TestLimitEndsALease"),
		Dies: `an older answer moved the deadline`,
	},
	{
		Name: "whole-ttl-of-an-older-grant", Also: "",
		Rule: "what a repeated Acquire tells is counted, not the TTL that was asked for (package clientlib, acquire)",
		Edits: []Edit{
			{"clientlib/acquire.go", `min(o.TTL, wire.Millis(a.GetTtlMs()))`, `o.TTL`},
			{"clientlib/clock.go", `	if l.limit > 0 {
		l.deadline = min(l.deadline, l.limit)
	}
`, ``},
		},
		By:   unit("clientlib", "^TestRepeatedGrantIsCountedAsFarAsItLives$"),
		Dies: `service_of_today`,
	},
	{
		Name: "unwelcome-end-is-unsent", Also: "",
		Rule: "what was sent on a session before its welcome may have been executed: the hello is not waited for (package clientlib, judgeEnd)",
		Edits: []Edit{
			{"clientlib/session.go", `	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
`, `	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		if !welcomed {
			return errNoSession
		}
		return err
`},
		},
		By:   unit("clientlib", "^TestSentBeforeTheWelcomeMayBeExecuted$"),
		Dies: `Unavailable.*the append is in the file, and its caller is told`,
	},
	{
		Name: "reset-before-the-welcome-is-unsent", Also: "",
		Rule: "what was sent on a session that was reset before its welcome may have been executed (package clientlib, judgeEnd)",
		Edits: []Edit{
			{"clientlib/session.go", `	if !welcomed {
		c.noSession(to) // what`, `	if !welcomed {
		return errNoSession // what`},
		},
		By:   unit("clientlib", "^TestSentBeforeTheWelcomeMayBeExecuted$"),
		Dies: `Internal.*the append is in the file, and its caller is told`,
	},
}
