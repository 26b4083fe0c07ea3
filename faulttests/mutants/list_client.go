// SPDX-License-Identifier: Apache-2.0

package mutants

// clientMutants break rules of the client library, its keep-alives and the identity of what it talks to.
var clientMutants = []Mutant{
	{
		Name: "repeat-told-a-whole-ttl", Also: "",
		Rule: "a repeated Acquire tells what is left of the lease (PROTOCOL 12.4)",
		Edits: []Edit{
			{"primary/core.go", `	c.tellLeft(&d.Outcome)
`, ``},
		},
		By:   unit("primary", "^TestRepeatedAcquireTellsWhatIsLeft$"),
		Dies: `tells a lease of 10s, want`,
	},
	{
		Name: "outcome-told-a-whole-ttl", Also: "",
		Rule: "the outcome of an acquire tells what is left of the lease (PROTOCOL 12.4)",
		Edits: []Edit{
			{"shared/frontend/service/read.go", `		if out.TTL = 0; v.Remaining != nil { // a`, `		if v.Remaining == nil { // a`},
		},
		By:   unit("shared/frontend", "^TestOutcomeTellsWhatIsLeft$"),
		Dies: `want (2s|0s) left`,
	},
	{
		Name: "hold-left-untold", Also: "",
		Rule: "a renewal tells what is left of a max hold, or its client counts on the lock for longer (package primary, renew)",
		Edits: []Edit{
			{"primary/leases.go", `		if l.MaxHold() > 0 {
			out.HoldLeft`, `		if false {
			out.HoldLeft`},
		},
		By:   unit("clientlib/leader", "^TestMaxHoldEndsAlsoForWhoIsCutOff$"),
		Dies: `two holders: token`,
	},
	{
		Name: "limit-lowers-no-deadline", Also: "",
		Rule: "the end of a max hold lowers a deadline that was counted before it was known: an older service tells a repeated Acquire a whole TTL (package clientlib, lease)",
		Edits: []Edit{
			{"clientlib/clock.go", `	if l.limit > 0 {
		l.deadline = min(l.deadline, l.limit)
	}
`, ``},
		},
		By:   unit("clientlib", "^TestRepeatedGrantIsCountedAsFarAsItLives$"),
		Dies: `is counted on for 12`,
	},
	{
		Name: "limit-of-an-older-answer", Also: "",
		Rule: "the answer to an older question never shortens a lease (package clientlib, lease)",
		Edits: []Edit{
			{"clientlib/clock.go", `	l.limit = max(l.limit, sent+hold-driftMargin(hold))`, `	l.limit = sent + hold - driftMargin(hold)`},
		},
		By:   unit("clientlib", "^TestLimitEndsALease"),
		Dies: `an older answer moved the deadline`,
	},
	{
		Name: "whole-ttl-of-an-older-grant", Also: "",
		Rule: "what a repeated Acquire tells is counted, not the TTL that was asked for (package clientlib, acquire)",
		Edits: []Edit{
			{"clientlib/acquire.go", `min(o.TTL, wire.Millis(a.GetTtlMs()))`, `o.TTL`},
			{"clientlib/clock.go", `	if l.limit > 0 {
		l.deadline = min(l.deadline, l.limit)
	}
`, ``},
		},
		By:   unit("clientlib", "^TestRepeatedGrantIsCountedAsFarAsItLives$"),
		Dies: `is counted on for 12`,
	},
	{
		Name: "unwelcome-end-is-unsent", Also: "",
		Rule: "what was sent on a session before its welcome may have been executed: the hello is not waited for (package clientlib, judgeEnd)",
		Edits: []Edit{
			{"clientlib/connect.go", `	s.fail(c.judgeEnd(to, s.read()))`, `	if err := s.read(); s.welcomed() {
		s.fail(c.judgeEnd(to, err))
	} else {
		s.fail(&retry.UnsentError{Err: err})
	}`},
		},
		By:   unit("clientlib", "^TestSentBeforeTheWelcomeMayBeExecuted$"),
		Dies: `the append is in the file, and its caller is told`,
	},
	{
		Name: "stale-after-unknown-runs-anew", Also: "",
		Rule: "a request that may have been executed is not made anew under another name (package clientlib, change)",
		Edits: []Edit{
			{"clientlib/client.go", `cluster.StatusStaleRequest && !k.unknown && !who.chosen`, `cluster.StatusStaleRequest && !who.chosen`},
		},
		By:   unit("clientlib", "^TestWhatMayBeExecutedIsNotMadeAnew$"),
		Dies: `appended 2 times`,
	},
	{
		Name: "unknown-forgotten-at-a-refusal", Also: "",
		Rule: "a refusal on a session speaks for its own attempt only (package clientlib, roundTrip)",
		Edits: []Edit{
			{"clientlib/call.go", `	if !v.Verdict.Doubtful() {
		k.unknown = before
	}
	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, true`, `	if !v.Verdict.Doubtful() {
		k.unknown = false
	}
	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, true`},
		},
		By:   unit("clientlib", "^TestDoubtOutlivesLaterRefusals$"),
		Dies: `appended 1 times, and told`,
	},
	{
		Name: "unknown-forgotten-without-a-session", Also: "",
		Rule: "a refusal speaks for its own attempt only (package clientlib, attempt)",
		Edits: []Edit{
			{"clientlib/call.go", `	if !v.Verdict.Doubtful() {
		k.unknown = before
	}
	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, false`, `	if !v.Verdict.Doubtful() {
		k.unknown = false
	}
	if v.Verdict == retry.TooFast { // no server is quicker
		return r, v, false`},
		},
		By:   unit("clientlib", "^TestDoubtOutlivesLaterRefusals$"),
		Dies: `appended 1 times, and told`,
	},
	{
		Name: "refused-break-speaks-for-all", Also: "",
		Rule: "a break that names no token is refused once it was executed: that holds for no attempt before (package clientlib, call)",
		Edits: []Edit{
			{"clientlib/call.go", `a.GetCommitted(), k.op != "break")`, `a.GetCommitted(), true)`},
		},
		By:   unit("clientlib", "^TestRefusedBreakMayHaveBeenExecuted$"),
		Dies: `told break "a": the token is not the live one`,
	},
	{
		Name: "old-outcome-believed", Also: "",
		Rule: "what a replica says of a request is not told: somebody acts on it (package clientlib, Outcome)",
		Edits: []Edit{
			{"clientlib/ask.go", `err == nil && r.GetAgeMs() > 0`, `false`},
		},
		By:   unit("clientlib", "^TestOutcomeIsNotBelievedOfAReplica$"),
		Dies: `of an append that is done`,
	},
	{
		Name: "asks-of-keepalives-ignored", Also: "",
		Rule: "a holder without a session hears with its keep-alives that it is asked to let go (package clientlib, keepAlive)",
		Edits: []Edit{
			{"clientlib/renewer.go", `	k.asked(r.GetAsks())
`, ``},
		},
		By:   unit("clientlib", "^TestAskComesWithAKeepAlive$"),
		Dies: `half a TTL later`,
	},
	{
		Name: "half-reset-resumed-by-the-client", Also: "",
		Rule: "a watch that was cut off within a reset begins anew (package clientlib, batch)",
		Edits: []Edit{
			{"clientlib/watch.go", `		if w.after = 0; x.GetLast()`, `		if x.GetLast()`},
		},
		By:   unit("clientlib", "^TestHalfAResetIsNotResumed$"),
		Dies: `asked to go on`,
	},
	{
		Name: "follower-takes-any-offset", Also: "",
		Rule: "a follower takes only the piece that continues the one before (package clientlib, Follower)",
		Edits: []Edit{
			{"clientlib/fileread.go", `f.begun && !rotated && p.Offset != at`, `f.begun && !rotated && p.Offset < at`},
		},
		By:   unit("clientlib", "^TestFollowTakesNoOtherPlace$"),
		Dies: `read "one\\ntwo\\nx"`,
	},
	{
		Name: "rank-before-epoch", Also: "",
		Rule: "the newer epoch is believed: an old primary may not know yet that it is deposed (package clientlib, better)",
		Edits: []Edit{
			{"clientlib/servers.go", `	if f.epoch != g.epoch {
		return f.epoch > g.epoch
	}
	return f.rank > g.rank`, `	if f.rank != g.rank {
		return f.rank > g.rank
	}
	return f.epoch > g.epoch`},
		},
		By:   unit("clientlib", "^TestTheNewerEpochIsBelieved$"),
		Dies: `found &`,
	},
	{
		Name: "old-epochs-believed", Also: "",
		Rule: "late words from older epochs change nothing (package clientlib, believe)",
		Edits: []Edit{
			{"clientlib/servers.go", `		if epoch >= b.epoch || b.primary == nil {
			b.primary = v
		}`, `		b.primary = v`},
		},
		By:   unit("clientlib", "^TestTheNewerEpochIsBelieved$"),
		Dies: `after s1 of epoch 1: s1`,
	},
	{
		Name: "clients-of-all-clusters", Also: "",
		Rule: "the ID of an opened client is known to the cluster that opened it, and to no other (package cluster, ClientID)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `		r.Mark = q.Mark
`, ``},
		},
		By:   unit("clientlib/leader", "TestAnotherClusterKnowsNoOpenedClient"),
		Dies: "clients of two volumes are both @2|its keep-alive",
	},
	{
		Name: "any-cluster-is-served", Also: "",
		Rule: "a call that is meant for another cluster does nothing (package grpcapi, meantFor)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/grpcapi.go", `	if meant == "" || meant == id {`, `	if meant == "" || meant != "" {`},
		},
		By:   unit("shared/frontend", "TestCallsMeantForAnotherClusterAreRefused"),
		Dies: "acquire: ",
	},
	{
		Name: "any-cluster-is-believed", Also: "",
		Rule: "a client looks at who answers: the first cluster that it met, or nobody (package wire, KnownCluster)",
		Edits: []Edit{
			{"shared/wire/calls.go", `	return own, own == id`, `	return own, own != ""`},
		},
		By:   unit("clientlib/leader", "TestAnotherClusterAnswers"),
		Dies: "TWO HOLDERS of job|it was lost by",
	},
	{
		Name: "meant-for-anybody", Also: "",
		Rule: "a client says with every call for which cluster it is meant (package wire, KnownCluster)",
		Edits: []Edit{
			{"clientlib/servers.go", `		grpc.WithPerRPCCredentials(&s.known),
`, ``},
		},
		By:   unit("clientlib/leader", "TestAnotherClusterAnswers"),
		Dies: "a watch goes on in the other cluster",
	},
	{
		Name: "estranged-holds-on", Also: "",
		Rule: "where every server belongs to another cluster, locks end at once, and say why (package clientlib, servers)",
		Edits: []Edit{
			{"clientlib/servers.go", `		s.lost(p.found.err)
`, ``},
		},
		By:   unit("clientlib/leader", "TestAnotherClusterAnswers"),
		Dies: "it was lost by",
	},
	{
		Name: "guard-line-unsynced", Also: "",
		Rule: "the line of a token is durable before anything is done under it (package fencing)",
		Edits: []Edit{
			{"clientlib/fencing/log.go", `	return l.f.Sync()
`, `	return nil
`},
		},
		By:   unit("clientlib/fencing", "^TestPowerLossForgetsNoToken$"),
		Dies: `was admitted under token \d+, and the guard knows`,
	},
	{
		Name: "guard-dir-unsynced", Also: "",
		Rule: "the name of a guard's file is durable before it is relied on (package fencing)",
		Edits: []Edit{
			{"clientlib/fencing/log.go", `		err = d.syncDir(filepath.Dir(path))
`, `		_ = filepath.Dir(path)
`},
		},
		By:   unit("clientlib/fencing", "^TestPowerLossForgetsNoToken$"),
		Dies: `was admitted under token \d+, and the guard knows`,
	},
	{
		Name: "guard-above-unsynced", Also: "",
		Rule: "the directory of a guard does not go with the power: a new guard admits every old token (package fencing, makeDir)",
		Edits: []Edit{
			{"clientlib/fencing/disk.go", `	if err := d.syncDir(parent); made || !notOurs(err) {
		return err
	}
	return nil`, `	_ = made
	return nil`},
		},
		By:   unit("clientlib/fencing", "^TestPowerLossForgetsNoToken$"),
		Dies: `was admitted under token \d+, and the guard knows 0`,
	},
	{
		Name: "guard-syncs-what-it-made", Also: "",
		Rule: "a guard syncs the names above it also where a process before it made them, and was killed (package fencing, makeDir)",
		Edits: []Edit{
			{"clientlib/fencing/disk.go", `	made, err := d.mkdir(dir)
	if err != nil {
		return err
	}
`, `	made, err := d.mkdir(dir)
	if err != nil || !made {
		return err
	}
`},
		},
		By:   unit("clientlib/fencing", "^TestDirectoryOfAnInterruptedOpenIsDurable$"),
		Dies: `then power lost: token 0`,
	},
	{
		Name: "guard-trusts-a-failed-sync", Also: "",
		Rule: "a line that could not be synced is in memory, and no further sync saves it: the file is written anew (package fencing, openLog)",
		Edits: []Edit{
			{"clientlib/fencing/log.go", `	l, err := writeLog(d, path, seen)
	return l, seen, err`, `	if len(b) == 0 {
		l, err := writeLog(d, path, seen)
		return l, seen, err
	}
	f, err := d.(interface{ Reopen(string) (file, error) }).Reopen(path)
	if err != nil {
		return nil, nil, err
	}
	return &log{disk: d, path: path, f: f, lines: len(seen), size: int64(len(b))}, seen, errors.Join(f.Sync(), d.syncDir(filepath.Dir(path)))`},
			{"clientlib/fencing/disk_test.go", `func (d hostDisk) rename(`, `func (d hostDisk) Reopen(name string) (file, error) {
	f, err := d.h.Open(base(name), vfs.FlagWrite)
	return hostFile{f}, err
}

func (d hostDisk) rename(`},
		},
		By:   unit("clientlib/fencing", "^TestLineOfAFailedSyncIsNotTrusted$"),
		Dies: `token 8 is told`,
	},
	{
		Name: "guard-beside-another", Also: "",
		Rule: "a guard that has lost its lock admits nothing once another process has written (package fencing, check)",
		Edits: []Edit{
			{"clientlib/fencing/guard.go", `	if err := g.mu.log.check(); err != nil {
		return err
	}
`, ``},
		},
		By:   unit("clientlib/fencing", "^TestGuardThatLostItsLock$"),
		Dies: `beside another process: <nil>`,
	},
	{
		Name: "guard-writes-over", Also: "",
		Rule: "a line goes to the end of the file, wherever another process has moved that (package fencing)",
		Edits: []Edit{
			{"clientlib/fencing/disk.go", `os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND`, `os.O_CREATE|os.O_EXCL|os.O_WRONLY`},
		},
		By:   unit("clientlib/fencing", "^TestLineGoesToTheEnd$"),
		Dies: `behind a foreign line|want three lines`,
	},
	{
		Name: "guard-goes-on-after-a-failed-sync", Also: "",
		Rule: "a failed sync is never tried again (package fencing, admit)",
		Edits: []Edit{
			{"clientlib/fencing/guard.go", `		g.mu.closed = fmt.Errorf("%w: %w", ErrClosed, err)
		return g.mu.closed
	}
	return nil
}

// note`, `		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// note`},
		},
		By:   unit("clientlib/fencing", "^TestLineOfAFailedSyncIsNotTrusted$"),
		Dies: `a guard whose sync failed goes on`,
	},
	{
		Name: "fencedstore-value-undurable", Also: "",
		Rule: "a value that was told as written does not go with the power (cmd/examples/fencedstore)",
		Edits: []Edit{
			{"cmd/examples/fencedstore/store.go", `	return s.sync(s.dir)
`, `	return nil
`},
		},
		By:   unit("cmd/examples/fencedstore", "^TestValueAndItsToken$"),
		Dies: `put: 200, synced 0 times`,
	},
	{
		Name: "keepalive-counts", Also: "",
		Rule: "a keep-alive compares which tokens are held, and not how many (package cluster, Digest)",
		Edits: []Edit{
			{"primary/leases.go", `		return c.table.DigestOf(id) != *b.Digest`, `		return c.table.HeldBy(id) != b.Held`},
		},
		By:   unit("primary", "TestKeepAliveThatDiffersListsGrants"),
		Dies: "it believes",
	},
	{
		Name: "digest-forgets-no-token", Also: "",
		Rule: "the digest of a client is that of what it holds now (package locktable, client)",
		Edits: []Edit{
			{"shared/locktable/clients.go", `c.held-1, c.digest.Without(l.token)`, `c.held-1, c.digest`},
		},
		By:   unit("shared/locktable", "TestAcquireReleaseIsFIFO|TestRandomRequests"),
		Dies: "invariant 6: lists",
	},
	{
		Name: "library-says-how-many", Also: "",
		Rule: "a client says which tokens it holds (package clientlib, belief)",
		Edits: []Edit{
			{"clientlib/renewer.go", `uint32(len(locks)), (*uint64)(&digest)`, `uint32(len(locks)), (*uint64)(nil)`},
		},
		By:   unit("clientlib", "TestStrayInThePlaceOfAnEndedGrant"),
		Dies: "it is valid, of which nothing is left",
	},
	{
		Name: "number-believed", Also: "",
		Rule: "an older server, which compares how many tokens are held, is made to list them (package clientlib, belief)",
		Edits: []Edit{
			{"clientlib/state.go", `	k.mu.compared = r.GetCompared()
`, ``},
		},
		By:   unit("clientlib", "TestStrayInThePlaceOfAnEndedGrant"),
		Dies: "older_servers.*it is valid, of which nothing is left",
	},
	{
		Name: "number-believed-once", Also: "",
		Rule: "a number that an older server compared is not believed even once (package clientlib, answered)",
		Edits: []Edit{
			{"clientlib/state.go", `return !k.mu.compared && q.Held != heldUnknown`, `return !k.mu.compared && q.Held > heldUnknown-1 && false`},
		},
		By:   unit("clientlib", "TestTermMovesToAnOlderServer"),
		Dies: "of which nothing is left",
	},
	{
		Name: "losses-of-the-hello-only", Also: "",
		Rule: "losses from before a session are told to every registration that is kept alive there (package session)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `cluster.LSN(q.GetLossesAfterLsn()))
		x.runHelper`, `0)
		x.runHelper`},
		},
		By:   unit("shared/frontend", "TestSessionTellsLossesOfEveryRegistration"),
		Dies: "told \\[\\]",
	},
	{
		Name: "strays-by-name", Also: "",
		Rule: "a grant is a stray unless the very request that it answered is open (package clientlib, strays)",
		Edits: []Edit{
			{"clientlib/renewer.go", `		if g.RequestId != 0 {
			wanted`, `		if g.RequestId == 0 {
			wanted`},
		},
		By:   unit("clientlib/leader", "Itself"),
		Dies: "waits since|waits for its own grant",
	},
	{
		Name: "grant-is-a-stray-until-kept", Also: "",
		Rule: "a request is open until somebody keeps what it got (package clientlib, begun)",
		Edits: []Edit{
			{"clientlib/client.go", `		return a, func() { who.seq.done(k.id) }, err
`, `		who.seq.done(k.id)
		return a, finish, err
`},
		},
		By:   unit("clientlib", "TestGrantIsNoStrayBeforeItIsKept"),
		Dies: "was handed out, the table has",
	},
	{
		Name: "own-try-renews", Also: "",
		Rule: "a request that its own client's grant keeps from the lock does not renew that grant (package primary, behindItself)",
		Edits: []Edit{
			{"primary/core.go", `	if !c.behindItself(q, &d) {`, `	if !c.behindItself(q, &d) || q.Wait == 0 {`},
		},
		By:   unit("primary", "TestLeaseLivesBy"),
		Dies: "tries_of_its_client.*live: true",
	},
	{
		Name: "own-wait-renews", Also: "",
		Rule: "a wait that its own client's grant kept from the lock does not renew that grant when it ends (package primary, endWait)",
		Edits: []Edit{
			{"primary/core.go", `(r.Kind == locktable.KindGrant || !c.table.Holds(key.client, r.Lock))`, `(r.Kind != 0 || !c.table.Holds(key.client, r.Lock))`},
		},
		By:   unit("primary", "TestLeaseLivesBy"),
		Dies: "waiting_behind_it.*live: true",
	},
	{
		Name: "places-only-renews-all", Also: "",
		Rule: "a keep-alive for places renews no grant (package primary, keepAlive)",
		Edits: []Edit{
			{"primary/leases.go", `		c.hearPlaces(id)
	} else {`, `		c.touch(id)
	} else {`},
		},
		By:   unit("primary", "TestLeaseLivesBy|TestNobodyWaitsForItself"),
		Dies: "places_only.*live: true|waits for its own grant",
	},
	{
		Name: "places-unheard", Also: "",
		Rule: "a keep-alive for places keeps them (package primary, hearPlaces)",
		Edits: []Edit{
			{"primary/leases.go", `		if w := c.waiter(waitKey{id, x.Request}); w != nil {
			w.since = c.now`, `		if w := c.waiter(waitKey{id, x.Request}); w != nil {
			w.since = max(w.since, 0)`},
		},
		By:   unit("primary", "TestPlaceLivesByKeepAlivesForPlaces"),
		Dies: "in the queue",
	},
	{
		Name: "place-below-the-mark-stays", Also: "",
		Rule: "what waits below its client's low-water mark is taken out of the queue (package primary, dropGivenUp)",
		Edits: []Edit{
			{"primary/core.go", `	if q.LowWater > 0 {`, `	if false {`},
		},
		By:   unit("primary", "TestPlacesBelowTheMarkEnd"),
		Dies: "waits on|in the queue",
	},
	{
		Name: "watch-behind-the-end", Also: "",
		Rule: "a watch that resumes behind a primary's own end begins anew (package watch, resume)",
		Edits: []Edit{
			{"shared/watch/watcher.go", `	if after > h.mu.end.LSN && h.fedByPrimary() {`, `	if after > h.mu.end.LSN && !h.fedByPrimary() {`},
		},
		By:   unit("shared/watch", "^TestAClientThatIsAheadOfThePrimaryBeginsAnew$"),
		Dies: "it is taken for one that was told all",
	},
	{
		Name: "stuck-registration-holds-up-all", Also: "",
		Rule: "a keep-alive that hangs delays those of no other registration (package clientlib, renewAll)",
		Edits: []Edit{
			{"clientlib/renewer.go", `			k.loops.Go(k.renewAll)
`, `			k.renewAll()
`},
		},
		By:   unit("clientlib", "^TestStuckRegistrationDelaysNoOther$"),
		Dies: `a lock of a registration that is answered`,
	},
	{
		Name: "keep-alives-pile-up", Also: "",
		Rule: "a registration whose keep-alive is under way is not kept alive once more (package clientlib, keepRegistrations)",
		Edits: []Edit{
			{"clientlib/renewer.go", `			s.renewing = true
`, ``},
		},
		By:   unit("clientlib", "^TestStuckRegistrationDelaysNoOther$"),
		Dies: `from the registration that is not answered: one at a time`,
	},
	{
		Name: "leaving-caller-doubts-the-primary", Also: "",
		Rule: "a caller that leaves says nothing about a primary that was heard lately (package clientlib, lately)",
		Edits: []Edit{
			{"clientlib/call.go", `	return time.Duration(to.heard.Load()) > c.opt.Clock.Now()-patience`, `	return patience == 0`},
		},
		By:   unit("clientlib", "^TestCallerThatLeavesDoubtsNoPrimary$"),
		Dies: `the primary is believed: false, want true`,
	},
	{
		Name: "silent-primary-believed", Also: "",
		Rule: "callers who leave one after the other are not kept at a primary that answers nobody (package clientlib, lately)",
		Edits: []Edit{
			{"clientlib/call.go", `	return time.Duration(to.heard.Load()) > c.opt.Clock.Now()-patience`, `	return patience > 0`},
		},
		By:   unit("clientlib", "^TestCallerThatLeavesDoubtsNoPrimary$"),
		Dies: `the primary is believed: true, want false`,
	},
	{
		Name: "told-before-the-handle-is-lost", Also: "",
		Rule: "what a session tells of a grant while its answer is handed out, the handle is told (package clientlib, deliverEarly)",
		Edits: []Edit{
			{"clientlib/acquire.go", `			c.renewer.deliverEarly(l)
`, ``},
		},
		By:   unit("clientlib", "^TestToldBeforeThereIsAHandle$"),
		Dies: `the handle: `,
	},
	{
		Name: "early-notices-stay", Also: "",
		Rule: "a notice is kept for as long as a grant of its lock may be handed out (package clientlib, unexpect)",
		Edits: []Edit{
			{"clientlib/renewer.go", `		delete(k.mu.early, lock)
`, ``},
		},
		By:   unit("clientlib", "^TestToldBeforeThereIsAHandle$"),
		Dies: `is kept what was told early`,
	},
	{
		Name: "watch-alternates-behind-replicas", Also: "",
		Rule: "a watch tries each server before it comes back to one that failed (package clientlib, choose)",
		Edits: []Edit{
			{"clientlib/watch.go", `		failed[to] = true
`, `		clear(failed)
		failed[to] = true
`},
		},
		By:   unit("clientlib", "^TestNoWatchGoesBack$"),
		Dies: `no server let us watch`,
	},
	{
		Name: "guard-last-line-wins", Also: "",
		Rule: "the highest token of a key counts, wherever its line stands (package fencing, parse)",
		Edits: []Edit{
			{"clientlib/fencing/log.go", `seen[key] = max(seen[key], token)`, `seen[key] = token`},
		},
		By:   unit("clientlib/fencing", "^TestTheHighestLineCounts$"),
		Dies: `lines tell`,
	},
	{
		Name: "guard-tells-what-is-not-durable", Also: "",
		Rule: "a guard knows a token when that is durable (package fencing, note)",
		Edits: []Edit{
			{"clientlib/fencing/guard.go", `	if token > e.seen {
		if err`, `	if token > e.seen {
		e.seen = token
		if err`},
		},
		By:   unit("clientlib/fencing", "^TestLineOfAFailedSyncIsNotTrusted$"),
		Dies: `is told as seen, and is not durable`,
	},
	{
		Name: "guard-keeps-the-lock-of-a-failed-open", Also: "",
		Rule: "a guard that could not be opened gives its lock back (package fencing, Open)",
		Edits: []Edit{
			{"clientlib/fencing/guard.go", `errors.Join(err, g.unlock())
	}`, `err
	}`},
		},
		By:   unit("clientlib/fencing", "^TestTornEnd$"),
		Dies: `in another process`,
	},
	{
		Name: "guard-stumbles-over-its-temporary", Also: "",
		Rule: "what an interrupted rewrite left is replaced (package fencing, create)",
		Edits: []Edit{
			{"clientlib/fencing/disk.go", `	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
`, ``},
		},
		By:   unit("clientlib/fencing", "^TestInterruptedRewrite$"),
		Dies: `exists`,
	},
	{
		Name: "wall-clock-unseen", Also: "",
		Rule: "where the monotonic clock may stand still, the time of day is asked too (package clientlib, monotonicClock)",
		Edits: []Edit{
			{"clientlib/clock.go", `, now.Round(0).Sub(c.mu.last.Round(0)))`, `)`},
		},
		By:   unit("clientlib", "^TestFallbackClockSeesASleep$"),
		Dies: `it went on by`,
	},
	{
		Name: "receipt-uncompared", Also: "",
		Rule: "a receipt of other data than were sent is no success (package clientlib, Append)",
		Edits: []Edit{
			{"clientlib/lock.go", `	if err == nil && (r.Length != int64(len(data)) || r.CRC32C != sum) {`, `	if false {`},
		},
		By:   unit("clientlib", "^TestReceiptOfOtherData$"),
		Dies: `told .*<nil>`,
	},
	{
		Name: "ask-of-a-renewal-ignored", Also: "",
		Rule: "a holder hears with its own renewal that it is asked to let go (package clientlib, renew)",
		Edits: []Edit{
			{"clientlib/lock.go", `	l.recordAsk(a.GetAsk())
`, ``},
		},
		By:   unit("clientlib", "^TestAskComesWithARenewal$"),
		Dies: `renewed: `,
	},
	{
		Name: "context-outlives-a-release", Also: "",
		Rule: "the context of a lock ends before its release is sent (package clientlib, Release)",
		Edits: []Edit{
			{"clientlib/lock.go", `	l.end(ErrReleased)
	// Until`, `	defer l.end(ErrReleased)
	// Until`},
		},
		By:   unit("clientlib", "^TestContextEndsBeforeTheReleaseIsSent$"),
		Dies: `while the release is under way`,
	},
	{
		Name: "added-after-close", Also: "",
		Rule: "a closed client hands out no lock, for nobody watches its lease (package clientlib, add)",
		Edits: []Edit{
			{"clientlib/handles.go", `	if k.mu.closed || lease.over(now) {`, `	if lease.over(now) {`},
		},
		By:   unit("clientlib", "^TestNothingIsAddedAfterClose$"),
		Dies: `a lock is held after Close`,
	},
	{
		Name: "newer-identity-forgotten", Also: "",
		Rule: "only the identity that was forgotten is dropped (package clientlib, forget)",
		Edits: []Edit{
			{"clientlib/registration.go", `	if s.mu.who == who && !who.chosen {`, `	if !who.chosen {`},
		},
		By:   unit("clientlib", "^TestNextIdentityStays$"),
		Dies: `the next one is gone`,
	},
	{
		Name: "fencing-server-believed", Also: "",
		Rule: "a server that is about to be primary is not taken for the primary (package clientlib, run)",
		Edits: []Edit{
			{"clientlib/servers.go", `	if p.found.rank >= rankNamed {`, `	if p.found.rank >= rankFencing {`},
		},
		By:   unit("clientlib", "^TestFencingServerIsNoPrimary$"),
		Dies: `and believes &`,
	},
	{
		Name: "too-long-is-unsent", Also: "",
		Rule: "a request whose answer is too long was executed (package retry, OfError)",
		Edits: []Edit{
			{"shared/retry/retry.go", `	case codes.ResourceExhausted:
		return TooLong`, `	case codes.ResourceExhausted:
		return Refused`},
		},
		By:   unit("clientlib", "^TestVerdicts$"),
		Dies: `answer is too long`,
	},
	{
		Name: "unknown-word-is-unsent", Also: "",
		Rule: "UNKNOWN says that the attempt may have been executed (package retry, OfStatus)",
		Edits: []Edit{
			{"shared/retry/retry.go", `	case cluster.StatusUnknown:
		return Unknown`, `	case cluster.StatusUnknown:
		return Later`},
		},
		By:   unit("clientlib", "^TestVerdicts$"),
		Dies: `want final false, unsent false`,
	},
	{
		Name: "quarantine-speaks-for-all", Also: "",
		Rule: "FILE_QUARANTINED speaks for all attempts of an append only if it is committed (retry, Decided)",
		Edits: []Edit{
			{"shared/retry/retry.go", `		return committed //`, `		return committed || s == cluster.StatusFileQuarantined //`},
		},
		By:   unit("shared/retry", "^TestDecided$"),
		Dies: `FILE_QUARANTINED, committed false`,
	},
	{
		Name: "wait-begun-anew", Also: "",
		Rule: "a wait whose grant ended unheard goes on with what is left of it (package clientlib, Acquire)",
		Edits: []Edit{
			{"clientlib/acquire.go", `if o.Wait -= time.Since(began).Truncate(time.Millisecond); o.Wait <= 0 {`, `if o.Wait <= 0 {`},
		},
		By:   unit("clientlib", "^TestWaitGoesOnWithWhatIsLeft$"),
		Dies: `after 4 s for one of 10s`,
	},
	{
		Name: "losses-after-the-newest", Also: "",
		Rule: "a session asks for losses from the oldest lock on that is held (package clientlib, lossesAfter)",
		Edits: []Edit{
			{"clientlib/loss.go", `(oldest == 0 || token < oldest)`, `(oldest == 0 || token > oldest)`},
		},
		By:   unit("clientlib", "^TestLossesAreAskedForFromTheOldestLockOn$"),
		Dies: `the oldest token is`,
	},
	{
		Name: "older-last-append-told", Also: "",
		Rule: "what a handle was told of its last append stays where the service knows of an older one (package clientlib, reportedLoss)",
		Edits: []Edit{
			{"clientlib/loss.go", `		case e.LastAppend == nil || r.LSN > e.LastAppend.LSN:`, `		case true:`},
		},
		By:   unit("clientlib", "^TestLastAppendOfALoss$"),
		Dies: `the last append is at LSN`,
	},
	{
		Name: "outage-ends-run", Also: "",
		Rule: "no outage ends Run: a client that was forgotten campaigns again (package clientlib/leader, refused)",
		Edits: []Edit{
			{"clientlib/leader/run.go", `			clientlib.StatusUnknown, clientlib.StatusLeaseExpired, clientlib.StatusInvalidToken, clientlib.StatusCancelled,
			clientlib.StatusStaleRequest:`, `			clientlib.StatusUnknown, clientlib.StatusLeaseExpired, clientlib.StatusInvalidToken, clientlib.StatusCancelled:`},
		},
		By:   unit(electing, "^TestWhatEndsRun$"),
		Dies: `ends Run: true, want false`,
	},
	{
		Name: "deadline-moves-on-after-the-loss", Also: "",
		Rule: "the deadline of a leadership that is lost stands still, though the lease be renewed (package clientlib/leader, Deadline)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `	if l.mu.lost != nil {
		return l.mu.deadline
	}
`, ``},
		},
		By:   unit(electing, "^TestLeaseRenewedAfterTheContextEnded$"),
		Dies: `the deadline has moved`,
	},
	{
		Name: "command-keeps-what-it-does-not-know", Also: "",
		Rule: "a command that waits keeps its place alive, and no grant (package cli, keepPlace)",
		Edits: []Edit{
			{"cmd/holdfast/cli/client.go", `ClientId: client, PlacesOnly: true}`, `ClientId: client}`},
		},
		By:   unit("cmd/holdfast/cli", "TestAcquireKeepsItsPlaceOnly"),
		Dies: "said client_id",
	},
}
