// SPDX-License-Identifier: Apache-2.0

package mutants

// markMutants break rules of what a lock remembers, and of clients that wait for each other.
var markMutants = []Mutant{
	{
		Name: "after-any-token",
		Rule: "a lock is granted after a token only if nobody was granted it since (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `	case m.last > q.After:
`, `	case m.last > q.After && q.Wait != 0:
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `record is illegal in this state`,
	},
	{
		Name: "record-after-any-token",
		Rule: "every server checks the condition of a grant (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `m == nil || m.last != r.After {`, `m == nil || m.last > r.After {`},
		},
		By: unit("shared/locktable", "^TestMarksFollowTheLog$"), Dies: `after another token: got`,
	},
	{
		Name: "unknown-is-unchanged",
		Rule: "a lock that remembers nothing is not granted after a token (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `	if m := t.marks.of[r.Lock]; m == nil || m.last`, `	if m := t.marks.of[r.Lock]; m != nil && m.last`},
			{"shared/locktable/marks.go", `	case m == nil || m.last == 0:
`, `	case m == nil:
		return Decision{}, false
	case m.last == 0:
`},
		},
		By: unit("shared/locktable", "^TestMarksFollowTheLog$"), Dies: `after a token of a lock that remembers nothing: got`,
	},
	{
		Name: "cleared-and-unchanged",
		Rule: "after a ForceClear nobody knows who had a lock last (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	t.doubtMarks()
`, ``},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite`,
	},
	{
		Name: "plain-grant-leaves-the-mark",
		Rule: "a grant that does not ask to be remembered counts as well, if its lock remembers (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `	if old == nil && !r.Remember {
`, `	if old == nil || !r.Remember {
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite|last, and is held under`,
	},
	{
		Name: "mark-not-hashed",
		Rule: "marks are part of the state hash (package locktable, invariant 10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `uint64(m.last), uint64(m.at))`, `0, uint64(m.at))`},
		},
		By: unit("shared/locktable", "^TestMarksFollowTheLog$"), Dies: `has the hash of another one`,
	},
	{
		Name: "mark-exported-late",
		Rule: "an export has the marks as they were when it began (package locktable, Exporter)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `		if !passed && max(m.at, m.changed) <= x.at {
`, `		if !passed && max(m.at, m.changed) < x.at {
`},
		},
		By: unit("shared/locktable", "^TestExportIsTheStateAtItsBeginning$"), Dies: `has another hash than the table had`,
	},
	{
		Name: "newest-mark-forgotten",
		Rule: "of too many locks that remember something, the one forgets that was granted longest ago (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `		t.dropMark(t.oldestMark())
`, `		t.dropMark(m)
`},
		},
		By: unit("shared/locktable", "^TestMarksAreBounded$"), Dies: `lock .* remembers something: `,
	},
	{
		Name: "marks-below-their-level",
		Rule: "below feature level 6 nothing is remembered of a lock (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `q.Level < MarksLevel {`, `q.Level < BaseLevel {`},
		},
		By: unit("primary", "^TestMarksNeedTheirLevel$"), Dies: `want INVALID_ARGUMENT`,
	},
	{
		Name: "mark-as-old-as-its-log",
		Rule: "a mark is forgotten when it was not changed for 90 days of a term, and not before (PROTOCOL 12.9)",
		Edits: []Edit{
			{"primary/marks.go", `	recs := c.table.DecideForgetMarks(oldest.lsn,`, `	recs := c.table.DecideForgetMarks(c.table.LSN(),`},
		},
		By: unit("primary", "^TestMarksOutliveTheirTerm$"), Dies: `locks remember something, want`,
	},
	{
		Name: "after-token-waits",
		Rule: "an acquire after a token does not wait (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/locktable/request.go", `	case q.After != 0 && q.Wait != 0:
`, `	case q.After != 0 && q.Wait < 0:
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite`,
	},
	{
		Name: "ring-of-one",
		Rule: "a client that waits for its own lock is no ring: another of its threads has it (package locktable, Ring)",
		Edits: []Edit{
			{"shared/locktable/rings.go", `if g.client == c || !g.client.tied || `, `if !g.client.tied || `},
		},
		By: unit("shared/locktable", "^TestRings$"), Dies: `a chain: the rings are`,
	},
	{
		Name: "tied-for-ever",
		Rule: "a client that waits no more is in no ring (package locktable, tie)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `	w.client.removeWaiter(w)
	t.tie(w.client)
`, `	w.client.removeWaiter(w)
`},
		},
		By: unit("shared/locktable", "^TestRings$"), Dies: `is listed as one that does both`,
	},
	{
		Name: "ring-without-end",
		Rule: "a search for rings looks at a bounded number of grants, and says so (package locktable, Rings)",
		Edits: []Edit{
			{"shared/locktable/rings.go", `			s.looks--
`, ``},
		},
		By: unit("shared/locktable", "^TestRings$"), Dies: `one look: `,
	},
	{
		Name: "ring-for-anybody",
		Rule: "a ring is told to who may read each of its locks (package service, readsRing)",
		Edits: []Edit{
			{"shared/frontend/service/read.go", `string(ring[i].Waiter.Lock), "") {
			return false
`, `string(ring[i].Waiter.Lock), "") {
			return true
`},
		},
		By: unit(frontendPkg, "^TestRingsAreTold$"), Dies: `who may read one lock only`,
	},
	{
		Name: "done-and-granted",
		Rule: "what is done is granted to nobody (PROTOCOL 12.10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `	if m.done(q.Slot) {
`, `	if m.done(q.Slot) && q.Wait == 0 {
`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite`,
	},
	{
		Name: "done-by-record-again",
		Rule: "every server checks that a grant is for a slot that is not done (PROTOCOL 12.10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `	if m := t.marks.of[r.Lock]; m.done(r.Slot) {
`, `	if m := t.marks.of[r.Lock]; m.done(r.Slot) && r.Wait != 0 {
`},
		},
		By: unit("shared/locktable", "^TestOnceFollowsTheLog$"), Dies: `a slot that is done: got`,
	},
	{
		Name: "done-without-slot",
		Rule: "what a holder says it has done is what it was granted the lock for (PROTOCOL 12.10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `|| t.live(r.Lock, r.Token).slotOf() != r.Slot) {`, `|| t.live(r.Lock, r.Token).slotOf() == "x") {`},
		},
		By: unit("shared/locktable", "^TestOnceFollowsTheLog$"), Dies: `done by who has it for another slot: got`,
	},
	{
		Name: "done-is-not-kept",
		Rule: "what is done stays done when the lock is granted again (PROTOCOL 12.10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `	next := mark{lock: r.Lock}
	if old != nil {
		next = *old
	}
	next.last, next.at`, `	next := mark{lock: r.Lock}
	next.last, next.at`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite`,
	},
	{
		Name: "skipped-undone",
		Rule: "a waiter is told that its slot is done only when it is (PROTOCOL 12.10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `|| !t.marks.of[r.Lock].done(w.slot) {`, `|| w.slot == "" {`},
		},
		By: unit("shared/locktable", "^TestOnceFollowsTheLog$"), Dies: `to tell a waiter of a slot that is not done: got`,
	},
	{
		Name: "waits-for-what-is-done",
		Rule: "who waits for a slot that is done is told at once (PROTOCOL 12.10)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	if !d.skipDone(l, r.Slot) {`, `	if !d.skipDone(l, "") {`},
		},
		By: unit("shared/locktable", "^TestTranscripts$"), Dies: `differs; run with -rewrite`,
	},
	{
		Name: "numbers-as-texts",
		Rule: "numbers in slots are compared by their value (package cluster, Slot)",
		Edits: []Edit{
			{"shared/cluster/slot.go", `cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))`, `cmp.Compare(x, y)`},
		},
		By: unit("shared/cluster", "^TestSlotsAreInOrder$"), Dies: `9 and 10: `,
	},
	{
		Name: "slot-not-hashed",
		Rule: "what is done is part of the state hash (package locktable, invariant 10)",
		Edits: []Edit{
			{"shared/locktable/marks.go", `appendText(append(b, 's'), m.slot), uint64(m.by))`, `append(b, 's'), uint64(m.by))`},
		},
		By: unit("shared/locktable", "^TestOnceFollowsTheLog$"), Dies: `with another slot has the same hash`,
	},
	{
		Name: "failed-is-done",
		Rule: "a command that failed has done nothing: the next one runs it (cmd/holdfast/cli, run)",
		Edits: []Edit{
			{"cmd/holdfast/cli/run.go", `err == nil && result.Code == 0 && result.Lost == nil`, `err == nil && result.Lost == nil`},
		},
		By: unit("cmd/holdfast/cli", "^TestOnce$"), Dies: `a command that failed`,
	},
	{
		Name: "unmarked-grant-taken",
		Rule: "a grant of a server that ignored what was asked of it is given back (PROTOCOL 12.9)",
		Edits: []Edit{
			{"shared/wire/error.go", `	if !asked || a.GetMarked() {
`, `	if !asked || a != nil {
`},
		},
		By: unit("clientlib", "^TestGrantWithoutItsConditionIsGivenBack$"), Dies: `holds it under token`,
	},
	{
		Name: "marked-grant-untold",
		Rule: "a grant tells that it has what was asked of it, over a session, too (package convert, AppendOutcome)",
		Edits: []Edit{
			{"shared/wire/convert/frame.go", `out.Ask != nil || out.Marked || out.Permit`, `out.Ask != nil || out.Permit`},
		},
		By: unit("clientlib/holdfasttest", "^TestAfterToken$"), Dies: `older version`,
	},
	{
		Name: "released-is-done",
		Rule: "Done says so where the lock was released before, and nothing is marked (package clientlib, Lock.Done)",
		Edits: []Edit{
			{"clientlib/lock.go", `err == nil && marks && !l.marked() {`, `err == nil && marks && !done {`},
		},
		By: unit("clientlib/holdfasttest", "^TestDone$"), Dies: `done after a release, which has marked nothing`,
	},
	{
		Name: "done-in-doubt-is-lost",
		Rule: "a Done that is refused after one without an answer does not say that nothing was marked (package clientlib, Lock.Done)",
		Edits: []Edit{
			{"clientlib/lock.go", `	if marks && unsure != nil {
`, `	if !marks && unsure != nil {
`},
		},
		By: unit("clientlib", "^TestDoneAgainIsNoLoss$"), Dies: `again: `,
	},
	{
		Name: "no-slot-is-no-condition",
		Rule: "an empty slot, as of a variable that was never set, is a mistake (cmd/holdfast/cli, markFlags)",
		Edits: []Edit{
			{"cmd/holdfast/cli/client.go", `		return cluster.Slot(s).Validate()
`, `		return nil
`},
		},
		By: unit("cmd/holdfast/cli", "^TestOnce$"), Dies: `--once=`,
	},
}
