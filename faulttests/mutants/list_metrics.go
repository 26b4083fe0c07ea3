// SPDX-License-Identifier: Apache-2.0

package mutants

// metricsMutants break rules of what is counted, of the probes and of the log's slow calls.
var metricsMutants = []Mutant{
	{
		Name: "live-by-the-volume",
		Rule: "a core loop that waits for the volume is not late: to start the process anew would mend nothing (package httpapi, livez)",
		Edits: []Edit{{"primary/measure.go",
			"	if p.State() != StateServing || p.away.Load() {", "	if p.State() != StateServing {"}},
		By: unit("primary", "TestALoopThatWaitsForTheVolumeIsNotLate"), Dies: "with a volume that hangs, the loop is late",
	},
	{
		Name: "livez-asks",
		Rule: "livez fails only where a loop is stuck, and asks nobody (package httpapi)",
		Edits: []Edit{{"shared/frontend/httpapi/probes.go",
			"	var checks []service.Check\n", "	checks := h.s.Readiness(r.Context())\n"}},
		By: unit("shared/frontend/httpapi", "TestLivezAsksNobody"), Dies: "the server was asked",
	},
	{
		Name: "ready-unfed",
		Rule: "a replica that is not fed is not ready (package service)",
		Edits: []Edit{{"shared/frontend/service/status.go",
			"	case reading.Local && reading.Age > s.b.Timing().StorageTimeout:", "	case false:"}},
		By: unit("shared/frontend/httpapi", "TestReadyz"), Dies: "200 ",
	},
	{
		Name: "slow-calls-flood",
		Rule: "there is one line for slow calls each second at most (package primary)",
		Edits: []Edit{{"primary/measure.go",
			"	n := p.slow.Count(slowEvery)", "	n := p.slow.Count(0)"}},
		By: unit("primary", "TestSlowCalls"), Dies: "lines for six slow calls",
	},
	{
		Name: "waits-are-slow",
		Rule: "the time in the queue of a lock is none of the server's (package primary)",
		Edits: []Edit{{"primary/measure.go",
			"		x.at = max(x.at, c.taken)\n", "		_ = x\n"}},
		By: unit("primary", "TestAWaitInAQueueIsNoTimeOfTheServer"), Dies: "the acquires took",
	},
	{
		Name: "answers-counted-twice",
		Rule: "each answer is counted once: those that are delivered by themselves count themselves (package primary)",
		Edits: []Edit{{"primary/measure.go",
			"		if a := &b.answers[i]; a.joins() {\n			took", "		if a := &b.answers[i]; true {\n			took"}},
		By: unit("primary", "TestEachCallIsCountedOnce"), Dies: "counted 4, want 2",
	},
	{
		Name: "metrics-for-strangers",
		Rule: "on the port for clients metrics are for callers that the rules permit anything (package service, MayScrape)",
		Edits: []Edit{{"shared/frontend/ops/table.go",
			`Route: "GET /metrics", Server: Any, Verb: access.Keep`, `Route: "GET /metrics", Server: Any, Verb: access.Open`}},
		By: unit("shared/frontend/ops", "TestMetricsNeedACaller"), Dies: "metrics are of verb",
	},
}
