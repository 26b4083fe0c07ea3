// SPDX-License-Identifier: Apache-2.0

package mutants

// leaseMutants break the counting of leases.
var leaseMutants = []Mutant{
	{
		Name: "lease-ends-when-looked-at", Also: "",
		Rule: "the wheel says when to look, the deadline whether a lease is over (package primary, wheel)",
		Edits: []Edit{
			{"primary/leases.go", `	if at := c.deadline(l); at > c.now {
		c.leases.add`, `	if at := l.Granted + l.TTL(); at > c.now && l.TTL() > 24*time.Hour {
		c.leases.add`},
		},
		By:   unit("primary", "TestLeases|TestLeaseLives"),
		Dies: `leases_test.go:\d+: live: false`,
	},
	{
		Name: "lease-of-the-term", Also: "",
		Rule: "a lease starts at its grant (PROTOCOL 11.4)",
		Edits: []Edit{
			{"primary/leases.go", `	l.Granted = c.now
	if d`, `	if d`},
		},
		By:   unit("primary", "TestLeaseStarts"),
		Dies: `ended before its TTL was over`,
	},
	{
		Name: "wheel-place-stale", Also: "",
		Rule: "what moves in a slot of the wheel knows its new place (package primary, wheel)",
		Edits: []Edit{
			{"primary/wheel.go", `		*w.place((*slot)[at]) = p
`, ``},
		},
		By:   unit("primary", "TestWheel"),
		Dies: `an entry was taken that is not in the wheel`,
	},
	{
		Name: "wheel-slot-passed", Also: "",
		Rule: "a slot of the wheel is passed when it is empty: what is left in it waits for a whole turn (package primary, wheel)",
		Edits: []Edit{
			{"primary/wheel.go", `			w.remove(e)
			return e, true`, `			w.remove(e)
			w.next++
			return e, true`},
		},
		By:   unit("primary", "TestWheel|TestLeases"),
		Dies: `was not taken by`,
	},
	{
		Name: "wheel-too-far", Also: "",
		Rule: "what is due later than the wheel reaches waits in its last slot (package primary, wheel)",
		Edits: []Edit{
			{"primary/wheel.go", `	grain = min(max(grain, w.next), w.next+wheelSlots-1)`, `	grain = min(max(grain, w.next), w.next+wheelSlots)`},
		},
		By:   unit("primary", "TestWheel|TestLeases"),
		Dies: `is taken again and again at`,
	},
	{
		Name: "ended-lease-counted", Also: "",
		Rule: "a lease that has ended is taken out of the wheel before its place is used again (package primary, endCounting)",
		Edits: []Edit{
			{"primary/leases.go", `	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		if l`, `	case locktable.KindExpire, locktable.KindBreak:
		if l`},
		},
		By:   unit("primary", "TestNothingGrows"),
		Dies: `\d{5,} leases, \d+ clients and 0 places are counted`,
	},
	{
		Name: "expiry-before-renewal", Also: "",
		Rule: "queued renewals are taken before expiries (PROTOCOL 11.4)",
		Edits: []Edit{
			{"primary/core.go", `	if c.adopting.under {
		c.adoptSome(adoptStep)
	}
	c.followRules()
	for _, x`, `	if c.adopting.under {
		c.adoptSome(adoptStep)
	}
	c.followRules()
	if c.p.quorum.Load() && !c.resigning {
		c.expire()
	}
	for _, x`},
		},
		By:   unit("primary", "TestQueuedRenewals"),
		Dies: `ended with its renewal in the queue`,
	},
	{
		Name: "extension-shortens", Also: "",
		Rule: "no lease gets shorter: its holder counts on it (locktable, mayExtend)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	case ttl < l.ttl:`, `	case ttl < 0:`},
		},
		By:   unit("shared/locktable", "^TestExtend$"),
		Dies: `extend of a/2: got OK`,
	},
	{
		Name: "extension-unknown-to-replicas", Also: "",
		Rule: "no lease is extended while a server does not know what that is (locktable, decideExtend)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `q.Level != 0 && q.Level < 3 {`, `q.Level != 0 && q.Level < 2 {`},
		},
		By:   unit("shared/locktable", "^TestExtend$"),
		Dies: `extend of a/2: got OK`,
	},
	{
		Name: "extension-past-max-hold", Also: "",
		Rule: "an extension tells what is left, also where less is than its TTL (package primary, tellLeft)",
		Edits: []Edit{
			{"primary/leases.go", `(out.Repeat || out.Token != out.LSN.Token())`, `out.Repeat`},
		},
		By:   unit("primary", "^TestExtendedLeaseLastsLonger$"),
		Dies: `tells more than is left`,
	},
}
