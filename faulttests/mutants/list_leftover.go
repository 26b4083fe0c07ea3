// SPDX-License-Identifier: Apache-2.0

package mutants

// leftoverMutants break what makes the end of a reign cheap.
var leftoverMutants = []Mutant{
	{
		Name: "table-ahead-is-left", Also: "",
		Rule: "a reign leaves its table only where every decided record was durable before a check that passed (DESIGN 3.6)",
		Edits: []Edit{{"primary/core.go",
			"c.broken || at.LSN != c.p.LSN() || at.LSN != c.table.LSN()", "c.broken"}},
		By:   unit("primary", "TestAReignThatMayBeAheadLeavesNoTable"),
		Dies: "a table at LSN \\d+ is left, committed was",
	},
	{
		Name: "deposed-reign-loses-its-table", Also: "",
		Rule: "a reign all of whose records are committed leaves its table to the replica (DESIGN 3.6)",
		Edits: []Edit{{"primary/core.go",
			"	if c.broken || at.LSN != c.p.LSN() || at", "	if true || c.broken || at.LSN != c.p.LSN() || at"}},
		By:   unit("primary", "TestAReignLeavesItsTable"),
		Dies: "it leaves <nil>",
	},
	{
		Name: "left-table-keeps-counts", Also: "",
		Rule: "what one reign counted of leases and silence is nothing to the next one (DESIGN 5.2)",
		Edits: []Edit{{"primary/core.go",
			"	c.table.ResetCounts()\n", ""}},
		By:   unit("primary", "TestAReignLeavesItsTable"),
		Dies: "its client was heard: true.*a lease never ends|exports are under way for ever",
	},
	{
		Name: "snapshot-after-take-back", Also: "",
		Rule: "a snapshot ends where the replica stands at a position that the feed has (DESIGN 4)",
		Edits: []Edit{{"primary/push.go",
			"!last && w.ack.At != w.from && w.x.p.feed.keeps(w.ack.At)", "false"}},
		By:   unit("primary", "TestASnapshotEndsWhereTheReplicaHasItsTableAgain"),
		Dies: "it took \\d+ chunks|it has its own table: false",
	},
	{
		Name: "history-forgets-the-ttl", Also: "",
		Rule: "the history tells the TTL of a grant that ended (package history)",
		Edits: []Edit{{"shared/history/record.go",
			"		TTL: g.TTL, Mode:", "		Mode:"}},
		By:   unit("primary/api", "TestHistoryTellsTheTTL"),
		Dies: "it was held as .*TTL:0s",
	},
	{
		Name: "close-forgets-what-is-in-doubt", Also: "",
		Rule: "a client is forgotten at its end only if every request has an answer that holds (package clientlib, Close)",
		Edits: []Edit{{"clientlib/client.go",
			"	k.who.doubted.Store(true)\n", ""}},
		By:   unit("clientlib", "TestCloseForgetsNothingThatIsInDoubt"),
		Dies: "an_append_without_an_answer.*forgotten: ",
	},
	{
		Name: "close-leaves-the-client", Also: "",
		Rule: "a client that is done is forgotten at its end, and not after the retention (package clientlib, Close)",
		Edits: []Edit{{"clientlib/client.go",
			"	c.forget(holding)\n", "	_ = holding\n"}},
		By:   unit("clientlib", "TestCloseForgetsAClientThatIsDone"),
		Dies: "2 clients were opened, the service remembers map.\\d+:@",
	},
	{
		Name: "status-forgets-feature-levels", Also: "",
		Rule: "status tells the feature level of every server that is heard (package node)",
		Edits: []Edit{{"cmd/holdfast/node/status.go",
			"		x.FeatureLevel = max(1, p.Status.FeatureLevel) // who tells none has the first\n", ""}},
		By:   unit(simulation, "TestStatusTellsTheFeatureLevels"),
		Dies: "tells of levels",
	},
	{
		Name: "loss-hides-a-late-timer", Also: "",
		Rule: "a loss says by how much the timer of the renewals was late (package clientlib, LostError)",
		Edits: []Edit{{"clientlib/keeper.go",
			"	if by := now - k.mu.wakes; k.mu.running && by > lateness {", "	if by := now - k.mu.wakes; k.mu.running && by > time.Hour {"}},
		By:   unit("clientlib", "TestALossSaysWhoseTimerWasLate"),
		Dies: "want .the timer of the renewals was 1m0s late",
	},
}
