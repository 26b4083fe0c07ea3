// SPDX-License-Identifier: Apache-2.0

package mutants

// nodeMutants break rules of who serves, the composition of a server and what peers tell.
var nodeMutants = []Mutant{
	{
		Name: "log-waits-for-its-reader", Also: "",
		Rule: "nobody in a server waits for who reads its log (RELIABILITY)",
		Edits: []Edit{{"cmd/holdfast/cli/server.go",
			"	return zerolog.New(q).", "	return zerolog.New(w)."}},
		By:   unit("cmd/holdfast/cli", "TestLogWaitsForNoReader"),
		Dies: "logging waited",
	},
	{
		Name: "dropped-lines-untold", Also: "",
		Rule: "a log that lacks lines says how many (RELIABILITY)",
		Edits: []Edit{{"cmd/holdfast/cli/logqueue.go",
			"		q.dropped.Add(1)", ""}},
		By:   unit("cmd/holdfast/cli", "TestLogWaitsForNoReader"),
		Dies: "0 said to be dropped",
	},
	{
		Name: "hung-end-waited-for", Also: "C12",
		Rule: "a server that is told to stop gives its process up where its volume hangs (DESIGN 3.6)",
		Edits: []Edit{{"cmd/holdfast/node/node.go",
			"	go n.watchEnd(inner, ended)\n", ""}},
		By:   unit(simulation, "TestServerOnAHungVolumeEnds"),
		Dies: "after it was told to stop a replica still waits",
	},
	{
		Name: "late-handover-heeded", Also: "B8",
		Rule: "a handover that comes when a later reign is healthy does not end that (DESIGN 2)",
		Edits: []Edit{{"election/poll.go",
			"p != nil && p.answer.status.Epoch > by || st.Role.reigns()", "p == nil && st.Role.reigns()"}},
		By:   unit(simulation, "TestLateNominationEndsNoHealthyReign"),
		Dies: "a healthy reign of server 2 was ended",
	},
	{
		Name: "burned-number-is-a-reign", Also: "",
		Rule: "a number that was claimed and never began is no later reign: a handover goes on (DESIGN 2)",
		Edits: []Edit{{"election/poll.go",
			"p != nil && p.answer.status.Epoch > by || st.Role.reigns()", "p != nil && p.answer.status.Epoch > by || st.Role.reigns() || e.mu.highest > by"}},
		By:   unit(simulation, "TestHandoverBelowABurnedNumber"),
		Dies: "handover",
	},
	{
		Name: "reign-that-never-began-counts", Also: "",
		Rule: "a claim that yielded before START leaves its server a replica of the reign that goes on (DESIGN 2)",
		Edits: []Edit{{"cmd/holdfast/node/node.go",
			"p.Unused(), p.LSN() > 0)", "p.Unused(), true)"}},
		By:   unit(simulation, "TestWhoYieldedFollowsOn"),
		Dies: "three seconds after LSN",
	},
	{
		Name: "ages-by-the-time-of-day", Also: "B10, D3",
		Rule: "ages are monotonic: a step of the time of day neither deposes a primary nor hides a hang (DESIGN 2)",
		Edits: []Edit{{"primary/primary.go",
			"	age := now.Sub(p.began)", "	age := now.Round(0).Sub(p.began)"}},
		By:   unit("primary", "TestAgesDoNotFollowTheTimeOfDay"),
		Dies: "the time of day went by",
	},
	{
		Name: "hung-takeover-forbids", Also: "B6",
		Rule: "a takeover in which a call does not come back for the storage timeout is no reason to yield (DESIGN 2)",
		Edits: []Edit{{"election/rule.go",
			"		return st.Progress > t.StorageTimeout && own", "		return false && own"}},
		By:   unit("election", "TestDecide"),
		Dies: "A takeover that hangs does not forbid",
	},
	{
		Name: "hung-takeover-untold", Also: "B6",
		Rule: "a takeover tells for how long it has waited for the volume (DESIGN 2)",
		Edits: []Edit{
			{"shared/volume/claim.go", "v: v.watched(), epoch", "v: v, epoch"},
			{"shared/volume/reign.go", "{ return r.v.calls.oldest(now) }", "{ return 0 }"},
		},
		By:   unit(simulation, "TestTakeoverThatHangsIsTakenOver"),
		Dies: "with the hang: primaries after",
	},
	{
		Name: "hung-check-unseen", Also: "B6",
		Rule: "a check that does not come back is as old as its beginning, whatever other checks say (DESIGN 2)",
		Edits: []Edit{{"primary/primary.go",
			"max(age-time.Duration(p.checked.Load()), p.reign.Unchecked(now))", "age - time.Duration(p.checked.Load())"}},
		By:   unit("primary", "TestHungCheckIsNoCheck"),
		Dies: "a check .* ago, while one has hung for 7 s",
	},
}
