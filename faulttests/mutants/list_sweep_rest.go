// SPDX-License-Identifier: Apache-2.0

package mutants

// sweepRestMutants break what replicas take in and what the history tells.
var sweepRestMutants = []Mutant{
	{
		Name: "replica-hears-older-terms",
		Rule: "a push of an older epoch changes nothing (package replica, Push)",
		Edits: []Edit{
			{"replica/replica.go", `	if p.Epoch < r.mu.epoch || p.Epoch <= r.mu.claimed {`, `	if p.Epoch <= r.mu.claimed {`},
		},
		By: unit("replica", "^TestReplicaIgnoresOlderEpochs$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-hears-beside-its-own-term",
		Rule: "while this server is primary it hears no older term (package replica, HandOver)",
		Edits: []Edit{
			{"replica/replica.go", `	if p.Epoch < r.mu.epoch || p.Epoch <= r.mu.claimed {`, `	if p.Epoch < r.mu.epoch {`},
		},
		By: unit("replica", "^TestNoOlderTermIsHeardBesideTheOwn$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-reads-in-doubt",
		Rule: "nobody reads a table that came back from a takeover, until a primary knows its position (package replica, TakeBack)",
		Edits: []Edit{
			{"replica/replica.go", `	if r.mu.table == nil || r.mu.unconfirmed {
		return false`, `	if r.mu.table == nil {
		return false`},
		},
		By: unit("replica", "^TestTableThatCameBackIsDoubted$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-takes-back-what-moved-on",
		Rule: "a table that a takeover moved on without its position is dropped (package replica, TakeBack)",
		Edits: []Edit{
			{"replica/replica.go", ` || w.Table.LSN() != w.At.LSN {`, ` {`},
		},
		By: unit("replica", "^TestTableThatStandsNowhereIsDropped$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-pieces-make-it-new",
		Rule: "pieces of a snapshot do not make an old table new (package replica, Push)",
		Edits: []Edit{
			{"replica/replica.go", `	if err == nil && (p.Chunk == nil || p.Chunk.Last) {`, `	if err == nil {`},
		},
		By: unit("replica", "^TestPiecesMakeNothingNew$"), Dies: `replica_test.go`,
	},
	{
		Name: "known-falls",
		Rule: "what a server knows to be committed does not fall (package node, know)",
		Edits: []Edit{
			{"cmd/holdfast/node/known.go", `= max(n.mu.known.LSN, lsn), max(`, `= lsn, max(`},
		},
		By: unit("cmd/holdfast/node", "^TestWhatIsKnownDoesNotFall$"), Dies: `knows LSN 7, knew 9`,
	},
	{
		Name: "replica-keeps-what-it-gave",
		Rule: "a table that was handed over is nobody else's (package replica, HandOver)",
		Edits: []Edit{
			{"replica/replica.go", `	r.mu.table, r.mu.ends = nil, nil
	return w
`, `	return w
`},
		},
		By: unit("replica", "^TestHandOverEmptiesTheReplica$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-half-a-frame-stays",
		Rule: "a table to which a frame was applied in part is dropped (package replica, frames)",
		Edits: []Edit{
			{"replica/replica.go", `			r.mu.table, r.mu.ends = nil, nil // a`, `			// a`},
		},
		By: unit("replica", "^TestReplicaRefusesAnotherChain$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-snapshot-with-a-hole",
		Rule: "pieces of a snapshot follow each other (package replica, chunk)",
		Edits: []Edit{
			{"replica/replica.go", ` || c.Offset != in.size || c.At`, ` || c.At`},
		},
		By: unit("replica", "^TestSnapshotComesInPieces$"), Dies: `replica_test.go`,
	},
	{
		Name: "replica-frames-out-of-place",
		Rule: "frames follow the position of the table (package replica, frames)",
		Edits: []Edit{
			{"replica/replica.go", `	if r.mu.table == nil || p.Before != r.mu.at {
		return push.ErrMismatch`, `	if r.mu.table == nil {
		return push.ErrMismatch`},
		},
		By: unit("replica", "^TestReplicaAsksForWhatItMisses$"), Dies: `replica_test.go`,
	},
	{
		Name: "history-of-any-lock",
		Rule: "who asks for one lock hears of that one (package history, Query)",
		Edits: []Edit{
			{"shared/history/select.go", `	case q.Lock != "" && e.Lock != q.Lock, !strings`, `	case !strings`},
		},
		By: unit("shared/history", "^TestSelect$"), Dies: `history_test.go`,
	},
	{
		Name: "history-of-any-prefix",
		Rule: "who asks for a prefix hears of that one (package history, Query)",
		Edits: []Edit{
			{"shared/history/select.go", `!strings.HasPrefix(string(e.Lock), q.Prefix):`, `!strings.HasPrefix(string(e.Lock), q.Prefix[:0]):`},
		},
		By: unit("shared/history", "^TestSelect$"), Dies: `history_test.go`,
	},
	{
		Name: "history-of-any-token",
		Rule: "who asks for a token hears of that one (package history, Query)",
		Edits: []Edit{
			{"shared/history/select.go", `	case q.Token != 0 && e.Token != q.Token:
`, `	case false:
`},
		},
		By: unit("shared/history", "^TestSelect$"), Dies: `history_test.go`,
	},
	{
		Name: "history-page-by-lsn-only",
		Rule: "several grants may end with one record: a page goes on behind a token (package history, Query)",
		Edits: []Edit{
			{"shared/history/select.go", ` || e.LSN == q.Before && e.Token >= q.BeforeToken):`, ` || e.LSN == q.Before):`},
		},
		By: unit("shared/history", "^TestSelect$"), Dies: `history_test.go`,
	},
	{
		Name: "history-held-when-it-ended",
		Rule: "a grant is not held any more when it ends (package history, Held)",
		Edits: []Edit{
			{"shared/history/select.go", `(ended == 0 || at < ended)`, `(ended == 0 || at <= ended)`},
		},
		By: unit("shared/history", "^TestSelect$"), Dies: `history_test.go`,
	},
	{
		Name: "history-told-twice",
		Rule: "what is in memory and in a file is one end (package history, Selection)",
		Edits: []Edit{
			{"shared/history/select.go", `	s.found = slices.CompactFunc(s.found, func(a, b End) bool { return a.Compare(&b) == 0 })
`, ``},
		},
		By: unit("shared/history", "^TestSelect$"), Dies: `history_test.go`,
	},
	{
		Name: "history-gaps-unbounded",
		Rule: "many gaps are joined (package history, Past)",
		Edits: []Edit{
			{"shared/history/select.go", `	if n := len(out) - maxGaps; n > 0 {`, `	if n := len(out) - maxGaps; n > 1<<30 {`},
		},
		By: unit("shared/history", "^TestSelectTellsWhatIsMissing$|^TestSelectIsBounded$"), Dies: `history_test.go`,
	},
	{
		Name: "history-gaps-of-elsewhere",
		Rule: "gaps are told that touch what was asked for (package history, Past)",
		Edits: []Edit{
			{"shared/history/select.go", `return g.To <= from || g.From > top })`, `return g.To <= from })`},
		},
		By: unit("shared/history", "^TestSelectTellsGapsOfItsPage$"), Dies: `before 40`,
	},
	{
		Name: "history-of-a-newer-binary",
		Rule: "what a newer binary wrote is refused (package history, Format)",
		Edits: []Edit{
			{"shared/history/line.go", `		if x.Format > Format {`, `		if x.Format > Format+1<<20 {`},
		},
		By: unit("shared/history", "^TestLinesOfOthers$"), Dies: `history_test.go`,
	},
	{
		Name: "history-end-of-nothing",
		Rule: "an end without its record, token or lock is a damaged line (package history, ParseLine)",
		Edits: []Edit{
			{"shared/history/line.go", `		if x.LSN == 0 || x.Token == 0 || x.Lock == "" {`, `		if x.LSN == 0 && x.Token == 0 {`},
		},
		By: unit("shared/history", "^TestLinesOfOthers$"), Dies: `history_test.go`,
	},
	{
		Name: "history-gap-backwards",
		Rule: "a gap from nowhere or backwards is a damaged line (package history, ParseLine)",
		Edits: []Edit{
			{"shared/history/line.go", ` && (x.From == 0 || x.From > x.To) {`, ` && x.From > 1<<63 {`},
		},
		By: unit("shared/history", "^TestLinesOfOthers$"), Dies: `history_test.go`,
	},
	{
		Name: "history-any-name",
		Rule: "a file has one name (package sidelog, Parse)",
		Edits: []Edit{
			{"shared/volume/sidelog/sidelog.go", ` && err == nil && d.File(x) == d.Path+"/"+name
`, ` && err == nil
`},
		},
		By: unit("shared/volume/sidelog", "^TestNames$"), Dies: `sidelog_test.go`,
	},
	{
		Name: "history-ring-unbounded",
		Rule: "what is kept in memory is bounded (package history, Ring)",
		Edits: []Edit{
			{"shared/history/ring.go", `len(r.batch.Ends) > ringEnds || r.bytes > ringBytes && len(r.batch.Ends) > 0 {`, `len(r.batch.Ends) > 1<<40 || r.bytes > 1<<40 && len(r.batch.Ends) > 0 {`},
		},
		By: unit("shared/history", "^TestRingIsBounded$"), Dies: `record_test.go`,
	},
	{
		Name: "history-ring-knows-all",
		Rule: "what was dropped is not known any more (package history, Ring)",
		Edits: []Edit{
			{"shared/history/ring.go", `		r.from = max(r.from, e.LSN)
`, ``},
		},
		By: unit("shared/history", "^TestRingIsBounded$"), Dies: `record_test.go`,
	},
	{
		Name: "history-control-characters",
		Rule: "a line is JSON (package history, appendString)",
		Edits: []Edit{
			{"shared/history/line.go", `		if c >= ' ' && c != '"' && c != '\\' {`, `		if c != '"' && c != '\\' {`},
		},
		By: unit("shared/history", "^TestLines$"), Dies: `history_test.go`,
	},
}
