// SPDX-License-Identifier: Apache-2.0

package mutants

// judgeMutants break rules of the judge of the fault tests.
var judgeMutants = []Mutant{
	{
		Name: "judge-refused-may-be-there",
		Rule: "what a client was told is refused is in no file (I7)",
		Edits: []Edit{
			{"faulttests/check/judge.go", `			case refused[k]:
				v.bad(`, `			case refused[k] && !refused[k]:
				v.bad(`},
			{"faulttests/check/judge.go", `		case !a.Refused:
			open`, `		default:
			open`},
		},
		By:   unit("faulttests/check", "TestJudgeNoticesDamage"),
		Dies: "not noticed",
	},
	{
		Name: "judge-refused-is-unanswered",
		Rule: "what a client was told is refused is not in the log (I7)",
		Edits: []Edit{
			{"faulttests/check/logcheck.go", `		if !a.Refused {
			w.allowed++
		}`, `		w.allowed++`},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I7 is not noticed",
	},
	{
		Name: "judge-grant-of-anybody",
		Rule: "the grant that a client was told of is its own (I7)",
		Edits: []Edit{
			{"faulttests/check/logcheck.go", `		if g.Holder != "" && r.Holder.Command != g.Holder {`, `		if g.Holder != "" && r.Holder.Command == "" {`},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I7 is not noticed",
	},
	{
		Name: "judge-lease-ends-early",
		Rule: "a grant expires when its lease is over, not earlier (I4)",
		Edits: []Edit{
			{"faulttests/check/reflock.go", `r.Time < h.since+h.lease-leaseSlack {`, `r.Time < h.since {`},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I4 is not noticed",
	},
	{
		Name: "judge-expiry-under-its-holder",
		Rule: "no lease expires while its holder counts on it (I2)",
		Edits: []Edit{
			{"faulttests/check/lease.go", `r.Kind == locktable.KindExpire && early > leaseSlack {`, `r.Kind == locktable.KindRelease && early > leaseSlack {`},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I2 is not noticed",
	},
	{
		Name: "judge-lease-goes-on",
		Rule: "a grant ends soon after its holder stopped to count on it (I15)",
		Edits: []Edit{
			{"faulttests/check/lease.go", `late > g.ttl+x.stuck {`, `late > 100*(g.ttl+x.stuck) {`},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I15 is not noticed",
	},
	{
		Name: "judge-lease-without-end",
		Rule: "a grant that the log never ends is judged, too (I15)",
		Edits: []Edit{
			{"faulttests/check/lease.go", `	for token, g := range x.open {
		x.judgeLate(g, x.believed[token], x.last)
	}`, ``},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I15 is not noticed",
	},
	{
		Name: "judge-real-time-lenient",
		Rule: "what is asked for after an answer comes behind it, by one LSN, too (I9)",
		Edits: []Edit{
			{"faulttests/check/logcheck.go", `		if a.lsn <= high {`, `		if a.lsn+1 < high {`},
		},
		By:   unit("faulttests/check", "TestLogThatIsWrong|TestLeasesThatAreWrong"),
		Dies: "I9 is not noticed",
	},
	{
		Name: "judge-landed-append-never-ends",
		Rule: "an append without an answer is over when somebody knows of bytes behind it: windows are cut there",
		Edits: []Edit{
			{"faulttests/check/linear.go", `		op.Return = behind(part, offset)
`, `		op.Return = never
`},
		},
		By:   unit("faulttests/check", "TestLostAppendsThatLanded"),
		Dies: "1 windows",
	},
	{
		Name: "judge-answers-nothing",
		Rule: "a history in which too many calls had no answer proves nothing",
		Edits: []Edit{
			{"faulttests/check/linear.go", `	if unknown > max(mostUnanswered, len(all)/unansweredShare) {`, `	if unknown > max(mostUnanswered, len(all)) {`},
		},
		By:   unit("faulttests/check", "TestThinHistory"),
		Dies: "calls of the history had no answer",
	},
	{
		Name: "judge-kinds-uncounted",
		Rule: "a history has answers to every kind of call",
		Edits: []Edit{
			{"faulttests/check/linear.go", `		if answered[kind] < least[kind] {`, `		if len(answered) == 0 && answered[kind] < least[kind] {`},
		},
		By:   unit("faulttests/check", "TestThinHistory"),
		Dies: "0 answers to ReleaseCall",
	},
	{
		Name: "judge-complaints-unheard",
		Rule: "an answer that no client may get is a violation",
		Edits: []Edit{
			{"faulttests/check/linear.go", `	v.Bad = append(append(v.Bad, h.bad()...), thin(all, unknown, o.Least)...)`, `	v.Bad = append(v.Bad, thin(all, unknown, o.Least)...)`},
		},
		By:   unit("faulttests/check", "TestThinHistory"),
		Dies: "client 3: no",
	},
	{
		Name: "judge-grants-what-is-done", Also: "",
		Rule: "a history in which a slot is granted that is done is wrong (package check, lockState.acquired)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `done, k := call.Slot != 0 && call.Slot <= s.done`, `done, k := r.Done && call.Slot != 0 && call.Slot <= s.done`},
		},
		By: unit("faulttests/check", "TestModelOfWhatIsDoneOnce"), Dies: `linearizable true, want false`,
	},
	{
		Name: "judge-marks-too-soon", Also: "",
		Rule: "a lock that was released, or lost, is not done (package check, lockState.next)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `		if h.marks {
`, `		if h.marks || h.loose {
`},
		},
		By: unit("faulttests/check", "TestModelOfWhatIsDoneOnce"), Dies: `linearizable true, want false`,
	},
	{
		Name: "judge-forgets-a-lost-done", Also: "",
		Rule: "a call without an answer may have marked a slot, also before a window (package check, summary)",
		Edits: []Edit{
			{"faulttests/check/window.go", `if x.marks && x.slot > s.done && s.find(token) < 0 {`, `if x.marks && x.slot > s.done && s.find(token) > 0 {`},
		},
		By: unit("faulttests/check", "TestWindowsKnowWhatIsDone"), Dies: `linearizable false, want true`,
	},
	{
		Name: "judge-forgets-what-is-done", Also: "",
		Rule: "what is done stays done in the windows that follow (package check, summary)",
		Edits: []Edit{
			{"faulttests/check/window.go", `				s.done = max(s.done, f.of(call.Token).slot)
`, `				s.done = max(s.done, 0)
`},
		},
		By: unit("faulttests/check", "TestWindowsKnowWhatIsDone"), Dies: `linearizable`,
	},
}
