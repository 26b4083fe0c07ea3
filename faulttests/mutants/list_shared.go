// SPDX-License-Identifier: Apache-2.0

package mutants

// sharedMutants break locks that several hold: turns, phases and downgrades.
var sharedMutants = []Mutant{
	{
		Name: "reader-overtakes-writer",
		Rule: "behind a waiting writer readers wait too (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `	return mode == ModeShared && !l.exclusive() && l.head == nil`, `	return mode == ModeShared && !l.exclusive()`},
		},
		By: unit("shared/locktable", "TestRandomRequests"), Dies: `Op:acquire .*Mode:1 .*Status:OK .*, but the oracle has`,
	},
	{
		Name: "writer-among-readers",
		Rule: "an exclusive holder is alone (package locktable, invariant 1)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	case l.holders() > 1:
`, ``},
			{"shared/locktable/waiters.go", `	return s.phase != 0 || l.head != nil && l.holders() == 0`, `	return s.phase != 0 || l.head != nil`},
		},
		By: unit("shared/locktable", "TestRandomRequests"), Dies: `invariant 3: owed a grant: true, known as such: false`,
	},
	{
		Name: "phase-of-one",
		Rule: "all readers who wait have their turn together (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `		t.setPhase(l, r.LSN)`, `		t.setPhase(l, s.waiters[0].lsn+1)`},
			{"shared/locktable/decide.go", `	case g.mode == ModeExclusive && len(s.waiters) > 0:
		d.grantAll(s.waiters)`, `	case g.mode == ModeExclusive && len(s.waiters) > 0:
		d.grantAll(s.waiters[:1])`},
		},
		By: unit("shared/locktable", "TestRandomRequests"), Dies: `invariant 3: \d+ wait in shared mode, for nobody`,
	},
	{
		Name: "downgrade-wakes-nobody",
		Rule: "a downgrade begins a phase (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `x.mode = ModeShared })
	t.beginPhase(l, r)
`, `x.mode = ModeShared })
`},
			{"shared/locktable/decide.go", `	if l.sharing != nil {
		d.grantAll(l.sharing.waiters)
	}
	return dec`, `	return dec`},
		},
		By: unit("shared/locktable", "TestRandomRequests"), Dies: `\(downgrade\): .*invariant 3: \d+ wait in shared mode, for nobody`,
	},
	{
		Name: "left-behind-nobody",
		Rule: "when the last writer that waits leaves, those behind it have their turn (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `		if last {
			t.beginPhase(w.lock, r)
		}
`, `		_ = last
`},
			{"shared/locktable/decide.go", `	if l := w.lock; l.lastExclusive(w) && l.sharing != nil {`, `	if l := w.lock; l.lastExclusive(w) && l.sharing != nil && l.sharing.waiters == nil {`},
		},
		By:   unit("shared/locktable", "TestRandomRequests"),
		Dies: `\((wait_timeout|cancel)\): .*invariant 3: \d+ wait in shared mode, for nobody`,
	},
	{
		Name: "late-reader-joins",
		Rule: "who comes after a phase began is not of it (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `	return s.waiters[:n]`, `	_ = n
	return s.waiters`},
		},
		By: unit("shared/locktable", "TestALongPhase"), Dies: `it is not the turn of request \d+ of client late`,
	},
	{
		Name: "shared-token-appends",
		Rule: "only an exclusive token writes (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	if t.live(q.Lock, q.Token).mode == ModeExclusive {`, `	if t.live(q.Lock, q.Token).mode <= ModeShared {`},
			{"shared/locktable/apply.go", `g == nil || g.mode != ModeExclusive {`, `g == nil {`},
			{"primary/fileslots.go", `!live || g.Mode != locktable.ModeExclusive {`, `!live || g.Token == 0 {`},
		},
		By: unit("primary", "TestOnlyAnExclusiveTokenAppends"), Dies: `append by c1/2: OK `,
	},
	{
		Name: "phase-lost-at-the-end-of-the-log",
		Rule: "the next term completes a phase that was cut (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `		t.grantOwed(&d, t.locks.get(name))
	}
	return d.recs`, `		_ = name
	}
	return d.recs`},
		},
		By: unit("shared/locktable", "TestACutPhaseIsCompleted"), Dies: `behind \d+ records: a grant is still owed`,
	},
	{
		Name: "phase-not-in-checkpoint",
		Rule: "a checkpoint holds what is owed (package locktable, Turns)",
		Edits: []Edit{
			{"shared/locktable/export.go", `				s.Phase = sh.phase
`, ``},
		},
		By: unit("shared/locktable", "TestACutPhaseIsCompleted"), Dies: `restored table: hash \S+ at LSN \d+, want|wait in shared mode, for nobody`,
	},
	{
		Name: "phase-ends-with-its-frame",
		Rule: "a phase of very many goes on in the next batches (package locktable, Turns)",
		Edits: []Edit{
			{"primary/core.go", `func (c *core) hasPendingGrants() bool { return !c.resigning && c.table.HasPendingGrants() }`, `func (c *core) hasPendingGrants() bool { return false }`},
		},
		By: unit("primary", "TestAPhaseOfManyOutlivesACrash"), Dies: `\d+ of 300 readers hold the lock after a crash`,
	},
	{
		Name: "one-lease-for-all-sharers",
		Rule: "each holder has a lease of its own, counted by the next term too (leases)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `				if !yield(&g.Lease) {`, `				if g == l && !yield(&g.Lease) {`},
		},
		By: unit("primary", "TestEachSharerHasALeaseOfItsOwn"), Dies: `after the failover the one that is heard must hold`,
	},
	{
		Name: "clear-waits-for-the-oldest",
		Rule: "under failover-policy clear the wait is as long as the longest lease (PROTOCOL 16)",
		Edits: []Edit{
			{"primary/takeover.go", `		if l.Token() != 0 {
			longest`, `		if l.Token() != 0 && longest == 0 {
			longest`},
		},
		By: unit("primary", "TestClearWaitsForEverySharer"), Dies: `a lease of a minute may be alive`,
	},
	{
		Name: "phases-add-up",
		Rule: "those who hold a lock and those who wait to share it are bounded together (package locktable, MaxHolders)",
		Edits: []Edit{
			{"shared/locktable/waiters.go", `l.holders()+l.together() >= MaxHolders+MaxQueue`, `l.together() >= MaxHolders+MaxQueue`},
		},
		By: unit("shared/locktable", "TestPhasesDoNotAddUp"), Dies: `round \d+: \d+ holders`,
	},
	{
		Name: "downgrade-while-exported",
		Rule: "a checkpoint is the state at one LSN, a downgrade behind it is not in it (package locktable, Export)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	if at := t.stamp(); at != 0 {`, `	if at := t.stamp(); at == 1 {`},
		},
		By:   unit("shared/locktable", "Export|TestRandomRequests"),
		Dies: `restore an export of LSN \d+: .* comes twice, or with others and not in shared mode|has another hash than the table had`,
	},
	{
		Name: "reader-before-the-bytes",
		Rule: "a grant is answered when the files of its lock have what was appended before (PROTOCOL 8.5)",
		Edits: []Edit{
			{"primary/core.go", `		after = c.writingUnder(r.Lock)
`, ``},
		},
		By: unit("primary", "TestAReaderBehindADowngrade"), Dies: `answered OK  while an append before the downgrade is not written`,
	},
	{
		Name: "clear-told-to-nobody",
		Rule: "holders are told that a clear ended their grants (PROTOCOL 11.7)",
		Edits: []Edit{
			{"primary/hub.go", `			c.loseAll(r)
`, `			_ = c.loseAll
`},
		},
		By:   unit("primary", "TestEveryHolderIsToldOfAClear"),
		Dies: `who held token \d+, is told \[reason:LOSS_REASON_FORCE_CLEARED [^\]]*\]`,
	},
	{
		Name: "one-loss-a-lock",
		Rule: "all who lose a lock before its next grant are told whose that is (package watch)",
		Edits: []Edit{
			{"shared/watch/loss.go", `open[l.Lock] = append(open[l.Lock], l)`, `open[l.Lock] = []*pb.Loss{l}`},
		},
		By: unit("shared/watch", "TestSeveralLoseALockAtOnce"), Dies: `told \[1 then 0 2 then 0 3 then 7\]`,
	},
	{
		Name: "reset-shows-nobody",
		Rule: "a reset whose next holder was not read is read again (package service)",
		Edits: []Edit{
			{"shared/frontend/service/reset.go", `	return l.view.Holders == 0
`, `	return true
`},
		},
		By: unit("shared/frontend", "TestAResetOfManySharersLosesNoLock"), Dies: `\d reads, told <nil>`,
	},
	{
		Name: "history-of-the-oldest",
		Rule: "the history shows all who hold a lock (package service)",
		Edits: []Edit{
			{"shared/frontend/service/history.go", `	if l.Holders < 2 {`, `	if l.Holders >= 0 {`},
		},
		By:   unit("shared/frontend", "TestHistoryTellsEverySharer"),
		Dies: `a/b:2 held, want a/b:2 held, a/b:3 held, a/b:4 held|token=3: , want a/b:3 held`,
	},
	{
		Name: "history-without-mode",
		Rule: "what ended says how it was held (package history)",
		Edits: []Edit{
			{"shared/history/record.go", `Mode: g.Mode, Permit`, `Permit`},
		},
		By: unit("shared/frontend", "TestHistoryTellsTheMode"), Dies: `(downgraded|shared) was held as \[\S* ?.*Mode:exclusive`,
	},
	{
		Name: "verify-takes-readers-for-writers",
		Rule: "a token that is verified is told to be shared (VerifyRequest)",
		Edits: []Edit{
			{"shared/frontend/service/service.go", `mode, out.Permit = pb.Mode(g.Mode).Enum(), `, `mode, out.Permit = pb.Mode_MODE_EXCLUSIVE.Enum(), `},
		},
		By: unit("shared/frontend", "TestVerifyTellsTheMode"), Dies: `token \d of \w: [^\n]*mode:MODE_EXCLUSIVE <nil>, want "shared"`,
	},
	{
		Name: "unheard-counts-the-oldest",
		Rule: "every lease that was not heard in this term counts (TableStatus)",
		Edits: []Edit{
			{"shared/frontend/service/status.go", `	for i := range x.others {`, `	for i := range x.others[:0] {`},
		},
		By: unit("shared/frontend", "TestEverySharerCountsAsUnheard"), Dies: `Unheard:1\}`,
	},
	{
		Name: "loss-of-the-oldest",
		Rule: "who is not the oldest holder may be live all the same (clientlib, Loss)",
		Edits: []Edit{
			{"clientlib/loss.go", `s.live || info.holds(l.token)`, `s.live || info.Holder != nil && info.Holder.Token == l.token`},
		},
		By: unit("clientlib", "TestLossOfOneOfManySharers"), Dies: `/listed,_forgotten_.* got .*after 0s`,
	},
	{
		Name: "loss-without-asking",
		Rule: "of more holders than are listed the service is asked about the one (clientlib, Loss)",
		Edits: []Edit{
			{"clientlib/loss.go", `!info.holds(l.token) && !info.listsAll() {`, `!info.holds(l.token) && info.Holders < 0 {`},
		},
		By: unit("clientlib", "TestLossOfOneOfManySharers"), Dies: `more_than_are_listed,_forgotten_.* got .*after 0s`,
	},
	{
		Name: "why-names-the-first-to-end",
		Rule: "who wants a shared lock alone waits for the last of its holders (holdfast why)",
		Edits: []Edit{
			{"shared/why/why.go", `left > stuck.GetRemainingMs()`, `left < stuck.GetRemainingMs()`},
		},
		By:   unit("shared/why", "TestAdvice"),
		Dies: `the youngest sharer is unheard: .* that of token 8, the last to end.*want .* that of token 9, the last to end`,
	},
	{
		Name: "sharer-leads",
		Rule: "who shares the lock of an election leads nobody (clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/observe.go", `h == nil || h.Mode == clientlib.ModeShared`, `h == nil || h.Mode == clientlib.ModeShared+"?"`},
		},
		By: unit("clientlib/leader", "TestObserver$"), Dies: `who shares the lock leads nobody: \["5 v5"`,
	},
}
