// SPDX-License-Identifier: Apache-2.0

package mutants

// sweepElectionMutants break who should serve: what counts as a vote, an answer, a refusal.
var sweepElectionMutants = []Mutant{
	{
		Name: "unable-is-elected",
		Rule: "1. who is not able yields (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `	if !in.Able {
`, `	if !in.Able && in.Self == 0 {
`},
		},
		By: unit("election", "^TestDecide$"), Dies: `1. Who is not able`,
	},
	{
		Name: "old-storage-votes",
		Rule: "2. a vote counts when its voter has storage (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", ` && v.Vote.Status.Storage <= in.Timing.StorageTimeout
`, `
`},
		},
		By: unit("election", "^TestDecide$"), Dies: `2. A voter without storage does not count`,
	},
	{
		Name: "non-member-votes",
		Rule: "2. a vote counts when its voter is a member (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `v.Answer == Voted && member && v`, `v.Answer == Voted && (member || v.ID != 0) && v`},
		},
		By: unit("election", "^TestDecide$"), Dies: `2. A stranger does not count`,
	},
	{
		Name: "own-vote-twice",
		Rule: "2. a server counts itself once (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", ` && v.ID != in.Self && v.Vote`, ` && v.Vote`},
		},
		By: unit("election", "^TestDecide$"), Dies: `2. This server is no voter`,
	},
	{
		Name: "vote-in-anothers-name",
		Rule: "2. a vote is that of the server that was asked (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", ` && v.Vote.From == v.ID && `, ` && `},
		},
		By: unit("election", "^TestDecide$"), Dies: `2. A vote in another`,
	},
	{
		Name: "stuck-primary-forbids",
		Rule: "3. a stalled primary does not make anybody yield (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `return !doomed && !stalled(in.Timing, st, in.Storage)`, `return !doomed`},
		},
		By: unit("election", "^TestDecide$"), Dies: `3. A stuck primary does not forbid`,
	},
	{
		Name: "stuck-without-proof",
		Rule: "3. a primary is stalled where the share works for who says so (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", ` && own < st.Progress
`, `
`},
		},
		By: unit("election", "^TestDecide$"), Dies: `3. A stuck primary forbids without proof`,
	},
	{
		Name: "hang-without-proof",
		Rule: "3. so is a takeover (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `return st.Progress > t.StorageTimeout && own < t.StorageTimeout/2`, `return st.Progress > t.StorageTimeout`},
		},
		By: unit("election", "^TestDecide$"), Dies: `3. A takeover that hangs forbids without proof`,
	},
	{
		Name: "waiting-takeover-is-stuck",
		Rule: "3. a takeover may wait for the volume as long as a server may (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `return st.Progress > t.StorageTimeout && own`, `return st.Progress > t.StorageTimeout/2 && own`},
		},
		By: unit("election", "^TestDecide$"), Dies: `3. A takeover that waits for the volume forbids`,
	},
	{
		Name: "stopped-by-its-own-name",
		Rule: "4. who hears this server as primary forbids nothing to it (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", ` && v.Vote.Primary != in.Self && `, ` && `},
		},
		By: unit("election", "^TestDecide$"), Dies: `4. Who hears this server itself`,
	},
	{
		Name: "hearsay-against-a-vote",
		Rule: "4. a primary that votes has its own word (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `(v.Answer == Waiting || in.counts(&v))`, `v.Answer == Waiting`},
		},
		By: unit("election", "^TestDecide$"), Dies: `4. A primary that votes has its own word`,
	},
	{
		Name: "hearsay-before-the-vote",
		Rule: "4. a primary that may still vote is waited for (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `(v.Answer == Waiting || in.counts(&v))`, `in.counts(&v)`},
		},
		By: unit("election", "^TestDecide$"), Dies: `4. A primary that may still vote`,
	},
	{
		Name: "lower-primary-is-doomed",
		Rule: "5. a lower claim is no obstacle while it is fencing, a primary is (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `st.Role == RoleFencing && st.Epoch < in.Claimed`, `st.Epoch < in.Claimed`},
		},
		By: unit("election", "^TestDecide$"), Dies: `5. A lower primary does`,
	},
	{
		Name: "any-able-server-first",
		Rule: "6. an able server that comes before goes first (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `v.Vote.Status.Able && in.before(v.ID) {`, `v.Vote.Status.Able {`},
		},
		By: unit("election", "^TestDecide$"), Dies: `6. An unable lower server does not`,
	},
	{
		Name: "lower-server-not-first",
		Rule: "6. an able server that comes before goes first (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", ` || v.Vote.Status.Able && in.before(v.ID) {`, ` {`},
		},
		By: unit("election", "^TestDecide$"), Dies: `6. An able lower server goes first`,
	},
	{
		Name: "any-silent-server-first",
		Rule: "6. so does one before it that others hear, and no other (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `return in.before(id) && slices`, `return id != in.Self && slices`},
		},
		By: unit("election", "^TestDecide$"), Dies: `6. Nor does one that is silent`,
	},
	{
		Name: "heard-server-not-first",
		Rule: "6. so does one that is silent here and heard by a voter (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `	return slices.ContainsFunc(v.Vote.Live, func`, `	return slices.ContainsFunc(v.Vote.Live[:0], func`},
		},
		By: unit("election", "^TestDecide$"), Dies: `6. A lower server that others hear goes first`,
	},
	{
		Name: "claim-not-first",
		Rule: "7. who is already claiming goes first (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `v.Vote.Status.Role == RoleCandidate || `, ``},
		},
		By: unit("election", "^TestDecide$"), Dies: `7. Who is claiming`,
	},
	{
		Name: "order-for-ever",
		Rule: "8. who has waited long enough drops the order (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `case first && in.Order == InTurn:`, `case first:`},
		},
		By: unit("election", "^TestDecide$"), Dies: `8. Patience drops the order`,
	},
	{
		Name: "minority-decides",
		Rule: "9. without a majority nothing is decided (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `	case counted+in.Volume < in.Members.Majority():
`, `	case counted+in.Volume < in.Members.Majority()-1:
`},
		},
		By: unit("election", "^TestDecide$"), Dies: `9. Without a majority`,
	},
	{
		Name: "nobody-waited-for",
		Rule: "10. nothing is decided while an answer may forbid the term (package election, Decide)",
		Edits: []Edit{
			{"election/rule.go", `	case waiting:
`, `	case waiting && counted == 0:
`},
		},
		By: unit("election", "^TestDecide$"), Dies: `10. Who may still forbid is waited for`,
	},
	{
		Name: "stall-of-the-share-deposes",
		Rule: "a primary without storage is replaced by who writes, not while the whole share stalls (PROTOCOL 2.3)",
		Edits: []Edit{
			{"election/rule.go", `st.Storage > t.StorageTimeout && own < t.StorageTimeout/2`, `st.Storage > t.StorageTimeout`},
		},
		By: unit("election", "^TestPrimaryWithoutStorageIsReplaced$"), Dies: `votes asked for while nobody writes`,
	},
	{
		Name: "overtaken-answer-heard",
		Rule: "pings are numbered; stale answers count for nothing (PROTOCOL 2.1)",
		Edits: []Edit{
			{"election/table.go", `	if seq <= p.answered {
		return false
	}
	p.answered,`, `	p.answered,`},
		},
		By: unit("election", "^TestStaleAnswerCountsForNothing$"), Dies: `is the primary again`,
	},
	{
		Name: "answer-as-young-as-it-comes",
		Rule: "an answer is as old as its ping (package election)",
		Edits: []Edit{
			{"election/table.go", `p.answered, p.answeredAt = seq, sent`, `p.answered, p.answeredAt = seq, now`},
		},
		By: unit("election", "^TestAnswerIsAsOldAsItsPing$"), Dies: `answers that arrived late`,
	},
	{
		Name: "one-reset-is-death",
		Rule: "one refusal could be a connection that died of old age (package election)",
		Edits: []Edit{
			{"election/table.go", `		p.refused = p.sent
		return true`, `		p.refused, p.gone = p.sent, true
		return true`},
		},
		By: unit("election", "^TestOneResetIsNoSuspicion$"), Dies: `the primary is 0|pre-votes for single resets`,
	},
	{
		Name: "reset-of-an-older-ping",
		Rule: "the second refusal is one of a ping that was sent after the first (package election)",
		Edits: []Edit{
			{"election/table.go", `	case seq > p.refused:
		p.gone = true`, `	case seq >= p.refused:
		p.gone = true`},
		},
		By: unit("election", "^TestNoSuspicionFor$"), Dies: `resets_of_two.*the primary is 0`,
	},
	{
		Name: "earlier-term-followed",
		Rule: "of two that say that they are primary, the one with the higher epoch is the primary (package election)",
		Edits: []Edit{
			{"election/table.go", `p.answer.status.Epoch > best.answer.status.Epoch`, `p.answer.status.Epoch < best.answer.status.Epoch`},
		},
		By: unit("election", "^TestTheLaterTermIsThePrimary$"), Dies: `the primary is . @?|the primary is`,
	},
	{
		Name: "named-by-another",
		Rule: "another server that names this one is no reason to think so (package election, Primary)",
		Edits: []Edit{
			{"election/view.go", ` && p.believes != p.id && p.believes != e.opt.Self
`, ` && p.believes != p.id
`},
		},
		By: unit("election", "^TestThePrimaryThatAnotherNames$"), Dies: `server 3 names 2`,
	},
	{
		Name: "names-itself",
		Rule: "nor does one that names itself and does not say that it is primary (package election, Primary)",
		Edits: []Edit{
			{"election/view.go", `p.believes != 0 && p.believes != p.id && `, `p.believes != 0 && `},
		},
		By: unit("election", "^TestThePrimaryThatAnotherNames$"), Dies: `server 3 names 3`,
	},
	{
		Name: "nobody-else-asked",
		Rule: "a primary that this server does not reach is the one that another names (package election, Primary)",
		Edits: []Edit{
			{"election/view.go", `		return named && p.live(now, t)`, `		return named && p.id == 0`},
		},
		By: unit("election", "^TestThePrimaryThatAnotherNames$"), Dies: `server 3 names 1`,
	},
	{
		Name: "majority-of-old-pings",
		Rule: "the primary counts replica pings (PROTOCOL 2.4)",
		Edits: []Edit{
			{"election/view.go", ` && now.Sub(p.ping.at) <= e.opt.Timing.MajorityWindow
`, `
`},
		},
		By: unit("election", "^TestWhatAPrimaryAsks$"), Dies: `no ping for long|after a silence`,
	},
	{
		Name: "stall-ends-at-once",
		Rule: "when the share comes back, the primary has time to notice too (package election, FreshStorageElsewhere)",
		Edits: []Edit{
			{"election/view.go", `fresh := !p.freshSince.IsZero() && now.Sub(p.freshSince) >= e.opt.Timing.StorageTimeout/2`, `fresh := !p.freshSince.IsZero()`},
		},
		By: unit("election", "^TestWhatAPrimaryAsks$"), Dies: `it comes back`,
	},
	{
		Name: "overtaken-ping-heard",
		Rule: "pings are numbered; one that was overtaken counts for nothing (PROTOCOL 2.1)",
		Edits: []Edit{
			{"election/heartbeat.go", `	if !counts || !p.inOrder(in.Seq, now, e.opt.Timing.Suspicion) {`, `	if ordered := p.inOrder(in.Seq, now, e.opt.Timing.Suspicion); !counts || !ordered && p == nil {`},
		},
		By: unit("election", "^TestWhatAPrimaryAsks$"), Dies: `a ping that was overtaken`,
	},
	{
		Name: "anybody-answers",
		Rule: "an answer is that of the server that was asked (package election)",
		Edits: []Edit{
			{"election/heartbeat.go", `	case err != nil || pong.From != to || pong.Seq`, `	case err != nil || pong.Seq`},
		},
		By: unit("election", "^TestOnlyTheAnswerToAPingCounts$"), Dies: `another_server.*the primary is`,
	},
	{
		Name: "any-answer",
		Rule: "an answer is that to the ping (package election)",
		Edits: []Edit{
			{"election/heartbeat.go", ` || pong.Seq != p.Seq || `, ` || `},
		},
		By: unit("election", "^TestOnlyTheAnswerToAPingCounts$"), Dies: `another_ping.*the primary is`,
	},
	{
		Name: "deadline-is-refusal",
		Rule: "a deadline that passed is silence, no refusal (package election)",
		Edits: []Edit{
			{"election/heartbeat.go", ` && !errors.Is(err, context.DeadlineExceeded)`, ``},
		},
		By: unit("election", "^TestNoSuspicionFor$"), Dies: `deadlines_that.*(the primary is 0|pre-votes)`,
	},
	{
		Name: "cancel-is-refusal",
		Rule: "a call that was cancelled is silence, no refusal (package election)",
		Edits: []Edit{
			{"election/heartbeat.go", ` && !errors.Is(err, context.Canceled)`, ``},
		},
		By: unit("election", "^TestNoSuspicionFor$"), Dies: `calls_that.*(the primary is 0|pre-votes)`,
	},
	{
		Name: "new-primary-not-asked",
		Rule: "the server that says it is primary is asked at once (PROTOCOL 2.1)",
		Edits: []Edit{
			{"election/heartbeat.go", `		p.nudged = true
`, ``},
		},
		By: unit("election", "^TestNewPrimaryIsAskedAtOnce$"), Dies: `0 pings to a server`,
	},
	{
		Name: "vote-without-a-probe",
		Rule: "who is asked pings the primary at once before answering (PROTOCOL 2.2)",
		Edits: []Edit{
			{"election/poll.go", `		e.probe(ctx, suspect.id, st)
`, ``},
		},
		By: unit("election", "^TestVoteRestsOnAProbe$"), Dies: `has just become a replica|answers again`,
	},
	{
		Name: "vote-by-a-long-silence",
		Rule: "half of the suspicion time without an answer is enough to testify (package election)",
		Edits: []Edit{
			{"election/poll.go", `p.reached(now, e.timingLocked(now).Suspicion/2)`, `p.reached(now, e.timingLocked(now).Suspicion)`},
		},
		By: unit("election", "^TestVoteRestsOnAProbe$"), Dies: `silent for 270ms`,
	},
	{
		Name: "poll-right-after-a-term",
		Rule: "whoever ended a term shows before anybody polls (package election)",
		Edits: []Edit{
			{"election/poll.go", `	e.mu.notBefore = now.Add(e.opt.Timing.Suspicion)
	switch`, `	switch`},
		},
		By: unit("election", "^TestNoPollRightAfterATerm$"), Dies: `questions although`,
	},
	{
		Name: "nominated-while-primary",
		Rule: "a server that is primary or claims follows nobody (package election, Nominate)",
		Edits: []Edit{
			{"election/loop.go", ` || e.mu.claiming
`, `
`},
		},
		By: unit("election", "^TestOneTermAtATime$"), Dies: `a second term before the first`,
	},
	{
		Name: "old-verdict-heeded",
		Rule: "a verdict that came when something else made this server claim is dropped (package election)",
		Edits: []Edit{
			{"election/loop.go", ` && !stale && e.opt.Status().Role == RoleReplica {`, ` && !stale {`},
		},
		By: unit("election", "^TestVerdictOutOfDateIsDropped$"), Dies: `to a server that is primary already`,
	},
	{
		Name: "offer-beside-a-primary",
		Rule: "an offer is withdrawn when a primary shows (package election)",
		Edits: []Edit{
			{"election/loop.go", `		e.withdrawLocked()
		e.mu.nominated =`, `		e.mu.nominated =`},
		},
		By: unit("election", "^TestOfferIsWithdrawnForAPrimary$"), Dies: `beside a primary`,
	},
	{
		Name: "first-answer-not-waited-for",
		Rule: "who has just started hears everybody first (package election)",
		Edits: []Edit{
			{"election/loop.go", `; untried {
`, `; untried && l.polling {
`},
		},
		By: unit("election", "^TestSlowFirstAnswerIsWaitedFor$"), Dies: `votes asked for`,
	},
	{
		Name: "offer-for-ever",
		Rule: "an offer lasts as long as its grounds (package election)",
		Edits: []Edit{
			{"election/loop.go", `	e.loop.offer = began.Add(good)
`, `	e.loop.offer = began.Add(1000 * good)
`},
		},
		By: unit("election", "^TestOfferThatNobodyTakesIsRenewed$"), Dies: `an offer lasts as long`,
	},
	{
		Name: "able-alone",
		Rule: "able is who reaches a majority (PROTOCOL 2.2)",
		Edits: []Edit{
			{"election/elector.go", ` && e.couldWinLocked(now, st.Storage)
`, `
`},
		},
		By: unit("election", "^TestAbleNeedsAMajorityAndStorage$"), Dies: `able before|able without a majority`,
	},
	{
		Name: "able-without-storage",
		Rule: "able is whose storage is live (PROTOCOL 2.3)",
		Edits: []Edit{
			{"election/elector.go", ` && st.Storage <= e.opt.Timing.StorageTimeout &&
		`, ` &&
		`},
		},
		By: unit("election", "^TestAbleNeedsAMajorityAndStorage$"), Dies: `able with storage`,
	},
}
