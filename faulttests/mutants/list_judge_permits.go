// SPDX-License-Identifier: Apache-2.0

package mutants

// judgePermitMutants break rules of the judge of the fault tests about locks with a limit.
var judgePermitMutants = []Mutant{
	{
		Name: "model-grants-beyond-the-limit",
		Rule: "a history in which holders have more permits than there are is wrong (package check, lockState.admits)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `return taken+uint64(k.weight) <= uint64(k.limit)`, `return uint64(k.weight) <= uint64(k.limit)`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `one_more_than_there_are.*linearizable true, want false`,
	},
	{
		Name: "model-counts-holders",
		Rule: "a grant takes its weight, and not one permit (package check, lockState.taken)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `		sum += uint64(h.weight)
`, `		sum += uint64(min(1, h.weight))
`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `one_more_than_there_are.*linearizable true, want false`,
	},
	{
		Name: "model-mixes-limits",
		Rule: "a history in which holders have different limits is wrong (package check, lockState.admits)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `	case !s.free() && s.limit != k.limit:
`, `	case !s.free() && s.limit > k.limit:
`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `another_limit_is_granted.*linearizable true, want false`,
	},
	{
		Name: "model-shares-beside-permits",
		Rule: "a history in which a lock is had without its limit is wrong (package check, lockState.admits)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `	case !s.free() && s.limit != k.limit:
`, `	case !s.free() && k.limit > 0 && s.limit != k.limit:
`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `a_sharer_beside_permits.*linearizable true, want false`,
	},
	{
		Name: "model-holds-another-limit",
		Rule: "who asks with another limit is not told that the lock is held (package check, lockState.acquired)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `r.Held && !s.free() && s.limit == k.limit && (`, `r.Held && !s.free() && (`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `held_alone,_where_it_has_a_limit.*linearizable true, want false`,
	},
	{
		Name: "model-refuses-the-same-limit",
		Rule: "who asks with the limit of the others is not told that it is another (package check, lockState.acquired)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `return []lockState{s}, !s.free() && s.limit != k.limit
`, `return []lockState{s}, !s.free()
`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `the_same_limit_is_refused.*linearizable true, want false`,
	},
	{
		Name: "model-refuses-for-nobody",
		Rule: "a lock that nobody has takes any limit (package check, lockState.acquired)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `return []lockState{s}, !s.free() && s.limit != k.limit
`, `return []lockState{s}, s.limit != k.limit
`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `a_limit_that_nobody_uses.*linearizable true, want false`,
	},
	{
		Name: "model-waits-for-the-light",
		Rule: "only one who needs more permits holds others up for whom there is room (package check, kind.holdsUp)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `(!k.shared || k.weight > o.weight)`, `(!k.shared || k.weight > 0)`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `held_behind_one_who_needs_less.*linearizable true, want false`,
	},
	{
		Name: "model-overtakes-the-heavy",
		Rule: "one who needs more permits holds others up (package check, kind.holdsUp)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `(!k.shared || k.weight > o.weight)`, `!k.shared`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `held_behind_one_who_needs_more.*linearizable false, want true`,
	},
	{
		Name: "model-waits-for-another-limit",
		Rule: "who asks with another limit holds nobody up (package check, kind.holdsUp)",
		Edits: []Edit{
			{"faulttests/check/permits.go", `	return k.limit == o.limit && (!k.shared`, `	return (!k.shared`},
		},
		By: unit("faulttests/check", "^TestModelOfPermits$"), Dies: `held_behind_one_of_another_limit.*linearizable true, want false`,
	},
	{
		Name: "model-downgrades-permits",
		Rule: "a permit is not downgraded (package check, lockState.after)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `			case r.Shared != (s.limit > 0):
`, `			case r.Shared && s.limit == 0:
`},
		},
		By: unit("faulttests/check", "^TestModelOfEndsOfPermits$"), Dies: `a_downgrade_of_a_permit.*linearizable true, want false`,
	},
	{
		Name: "model-shows-any-weight",
		Rule: "a holder is shown with its permits (package check, lockState.shown)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `			if s.holds[i].weight != weight {
`, `			if s.holds[i].weight > 0 && weight == 0 {
`},
		},
		By: unit("faulttests/check", "^TestModelShowsPermits$"), Dies: `another_weight_is_shown.*linearizable true, want false`,
	},
	{
		Name: "model-shows-any-limit",
		Rule: "a lock is shown with its limit (package check, lockState.shown)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `distinct > 0 && r.mode() != s.mode {`, `distinct > 0 && r.Shared != s.shared {`},
		},
		By: unit("faulttests/check", "^TestModelShowsPermits$"), Dies: `another_limit_is_shown.*linearizable true, want false`,
	},
	{
		Name: "model-shows-any-ghost",
		Rule: "what is shown has the permits that a call without an answer asked for (package check, lockState.shown)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `return h.token == 0 && h.weight == weight })`, `return h.token == 0 })`},
		},
		By: unit("faulttests/check", "^TestModelOfPermitsWithoutAnAnswer$"), Dies: `it_is_shown_with_another_weight.*linearizable true, want false`,
	},
	{
		Name: "model-has-two-ghosts",
		Rule: "several calls without an answer explain together that too few permits are free (package check, ghostsOf)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `		return max(2, int(call.Limit))
`, `		return min(2, 2+int(call.Limit))
`},
		},
		By: unit("faulttests/check", "^TestModelOfPermitsWithoutAnAnswer$"), Dies: `three_of_one_explain_it.*linearizable false, want true`,
	},
	{
		Name: "model-lets-go-of-nothing",
		Rule: "a window does not begin with more permits than there are (package check, lockState.within)",
		Edits: []Edit{
			{"faulttests/check/lockholds.go", `open.owes() || s.taken() > uint64(s.limit) {`, `open.owes() {`},
		},
		By: unit("faulttests/check", "^TestWindowsKnowPermits$"), Dies: `one_of_two_ended_for_a_third.*linearizable true, want false`,
	},
	{
		Name: "model-outlives-its-limit",
		Rule: "a grant with another limit shows in the next window that those before it are over (package check, fates.outlived)",
		Edits: []Edit{
			{"faulttests/check/window.go", `(y.limit != x.limit || x.limit > 0 && `, `(x.limit > 0 && `},
		},
		By: unit("faulttests/check", "^TestWindowsKnowPermits$"), Dies: `it_ended_for_another_limit.*linearizable true, want false`,
	},
	{
		Name: "model-takes-a-refusal-for-a-grant",
		Rule: "an acquire that was refused for its limit leaves no grant to the next window (package check, fates.note)",
		Edits: []Edit{
			{"faulttests/check/window.go", `!out.Held && !out.OtherLimit && !out.Done {`, `!out.Held && !out.Done {`},
		},
		By: unit("faulttests/check", "^TestWindowsKnowPermits$"), Dies: `refused_for_a_lost_one,_and_granted.*linearizable false, want true`,
	},
	{
		Name: "judge-permits-uncounted",
		Rule: "a history has answers to acquires of permits (package check, kindOf)",
		Edits: []Edit{
			{"faulttests/check/linear.go", `is && acquire.Limit > 0 {`, `is && acquire.Limit > 0 && acquire.Shared {`},
		},
		By: unit("faulttests/check", "^TestThinHistory"), Dies: `0 answers to AcquireCall of permits`,
	},
	{
		Name: "judge-believes-in-any-permit",
		Rule: "clients believe together in no more permits than there are (I2)",
		Edits: []Edit{
			{"faulttests/check/holds.go", `		if taken > uint64(h.Limit) {
`, `		if taken > uint64(h.Limit) && h.Limit == 0 {
`},
		},
		By: unit("faulttests/check", "^TestCheckHolds$"), Dies: `more permits than there are: violated`,
	},
	{
		Name: "judge-believes-in-any-limit",
		Rule: "clients do not believe in permits of two limits at once (I2)",
		Edits: []Edit{
			{"faulttests/check/holds.go", `			if x.Limit != h.Limit {
`, `			if x.Limit > h.Limit {
`},
		},
		By: unit("faulttests/check", "^TestCheckHolds$"), Dies: `permits of two limits: violated`,
	},
}
