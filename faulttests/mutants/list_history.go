// SPDX-License-Identifier: Apache-2.0

package mutants

// someSchedules are the first of schedules.
func someSchedules() Killer {
	return Killer{Pkg: simulation, Run: "^TestRandomSchedules$", Flags: "-sim.seeds 60"}
}

// historyMutants break what is told of grants that ended.
var historyMutants = []Mutant{
	{
		Name: "history-before-check", Also: "",
		Rule: "the history is told of a batch behind its commit and check (PROTOCOL 8.4)",
		Edits: []Edit{
			{"primary/commit.go", "	p.history.Add(&b.ended, b.End().LSN)\n	p.publish(b)", "	p.publish(b)"},
			{"primary/commit.go", "	// A crash here loses no answer that was given; the next term adopts the frame.\n", "	p.history.Add(&b.ended, b.End().LSN)\n"},
		},
		By:   unit("primary", "TestNoHistoryBeforeTheCheck"),
		Dies: `the history says \["l:2 released"\], want \[\]`,
	},
	{
		Name: "successor-as-own", Also: "",
		Rule: "an end names the token that ended, and that of its successor beside it (package history)",
		Edits: []Edit{{"shared/history/record.go",
			"		e.Successor = r.LSN.Token()", "		e.Token, e.Successor = r.LSN.Token(), e.Token"}},
		By:   unit("shared/history", "TestObserve"),
		Dies: `handed 6 released|successor 3 of`,
	},
	{
		Name: "reason-confused", Also: "",
		Rule: "an end tells why it came (package history)",
		Edits: []Edit{{"shared/history/record.go",
			"	case r.Kind == locktable.KindBreak:\n		return WhyBroken", "	case r.Kind == locktable.KindBreak:\n		return WhyExpired"}},
		By:   unit("shared/history", "TestObserve"),
		Dies: `broken 14 expired`,
	},
	{
		Name: "completed-twice", Also: "",
		Rule: "the next primary tells what the history lacks, and nothing that it has (PROTOCOL 3.3)",
		Edits: []Edit{{"primary/sidelog/history.go",
			"		if e.LSN > tail {", "		if e.LSN > 0 {"}},
		By:   someSchedules(),
		Dies: `tells of LSN \d+, and is to begin behind`,
	},
	{
		Name: "gap-untold", Also: "",
		Rule: "where nobody knows what ended, the history says so (package history)",
		Edits: []Edit{{"primary/sidelog/history.go",
			"	if tail < h.from {\n", "	if tail < h.from && h.from == 0 {\n"}},
		By:   unit("primary", "TestTheHistorySaysWhatNobodyKnows"),
		Dies: `the history says \["b:4 released"\], want \["gap`,
	},
	{
		Name: "skipped-uncounted", Also: "",
		Rule: "what is left out of the history is counted (package history)",
		Edits: []Edit{{"primary/sidelog/history.go",
			"	for _, k := range ended.Skips {\n", "	for _, k := range ended.Skips[:0] {\n"}},
		By:   unit("primary", "TestManyReleasesAreCounted"),
		Dies: `the history says \["l:2 released".*want \["skipped 3`,
	},
	{
		Name: "one-count-until-the-old-time", Also: "",
		Rule: "a clock that was set back begins a new count of what is left out (package history)",
		Edits: []Edit{{"shared/history/end.go",
			"0 <= passed && passed < skipRun", "passed < skipRun"}},
		By:   unit("shared/history", "TestLimiter"),
		Dies: `later 16 told, .*Count:7 `,
	},
	{
		Name: "history-torn-in-the-middle", Also: "",
		Rule: "what follows a damaged line was not told for sure: it is told again (package history)",
		Edits: []Edit{{"shared/history/scan.go",
			" && bytes.IndexByte(b, 0) < 0", ""}},
		By:   unit("primary", "TestHistoryAfterAPowerLoss"),
		Dies: `loss \d+: \d+ of 10 are told`,
	},
	{
		Name: "history-behind-the-reading", Also: "",
		Rule:  "the table is read before memory and files: what it says to have ended is in them (package service, History)",
		Edits: []Edit{{"primary/commit.go", "	p.history.Add(&b.ended, b.End().LSN)\n	p.publish(b)", "	defer p.history.Add(&b.ended, b.End().LSN)\n	p.publish(b)"}},
		By:    unit("primary", "TestWhatWasAnsweredIsInMemory"),
		Dies:  `0 ends are known when the release is answered`,
	},
	{
		Name: "history-of-half-a-file",
		Rule: "a search that has to stop tells nothing of the file that it was in (package history)",
		Edits: []Edit{
			{"shared/volume/historydir/historydir.go", "			s.GiveUp()\n			r.Stopped = true\n", "			r.Stopped = true\n"},
		},
		By:   unit("shared/volume/historydir", "TestASearchThatStopsTellsWhatItReached"),
		Dies: `what lies between is missed|stopped true, from \d+, more true, kept from 0`,
	},
	{
		Name: "history-behind-the-limit",
		Rule: "what is not told takes no place of what is (package history)",
		Edits: []Edit{
			{"shared/history/select.go", `if e.LSN > s.upTo || !s.q`, `if !s.q`},
			{"shared/history/select.go", "	p := Past{Ends: s.found", "	s.found = slices.DeleteFunc(s.found, func(e End) bool { return e.LSN > s.upTo })\n	p := Past{Ends: s.found"},
		},
		By:   unit("shared/history", "TestSelect"),
		Dies: `got "from 75 more" of 0 files`,
	},
}
