// SPDX-License-Identifier: Apache-2.0

package mutants

// watchMutants break what watchers are promised: events in order and without gaps, a
// reset that is the state at its LSN, and nobody who is held up.
var watchMutants = []Mutant{
	{
		Name: "event-before-check", Also: "",
		Rule: "an event leaves like an answer: durable, and then checked (PROTOCOL 15.3)",
		Edits: []Edit{
			{"primary/commit.go", `	if err := p.check(); err != nil {
		b.fail()
		return
	}
	// The check began`, `	p.publish(b)
	if err := p.check(); err != nil {
		b.fail()
		return
	}
	// The check began`},
			{"primary/commit.go", `	p.publish(b)
	if b.resigns {
		p.files.Drain`, `	if b.resigns {
		p.files.Drain`},
		},
		By: unit("primary", "^TestNoEventLeavesBeforeTheCheck$"), Dies: `told grant:l while readat hangs`,
	},
	{
		Name: "event-behind-answers", Also: "",
		Rule: "nobody reads a table that the hub was not told of: a reset rests on that (package watch)",
		Edits: []Edit{
			{"primary/commit.go", `	p.publish(b)
	if b.resigns {
		p.files.Drain`, `	defer p.publish(b)
	if b.resigns {
		p.files.Drain`},
		},
		By: unit("primary", "^TestTheHubHearsBeforeTheAnswer$"), Dies: `when the answer left: OK, up to 1 of 2, 0 events`,
	},
	{
		Name: "resume-skips-one", Also: "",
		Rule: "a resumed watch is told everything after its LSN",
		Edits: []Edit{
			{"shared/watch/watcher.go", `			if e.lsn <= after || `, `			if e.lsn <= after+1 || `},
		},
		By: unit("shared/watch", "^TestWhoIsToldWhat$"), Dies: `resumed: .*, want  ?\d:`,
	},
	{
		Name: "resume-tells-twice", Also: "",
		Rule: "nobody is told an event twice, not even one who is ahead of the server",
		Edits: []Edit{
			{"shared/watch/watcher.go", `	case w.mu.end != nil || cluster.LSN(e.GetLsn()) <= w.mu.after:`, `	case w.mu.end != nil:`},
		},
		By: unit("shared/watch", "^TestAClientThatIsAheadIsToldNothingTwice$"), Dies: `up to LSN 3, told 2:grant:b`,
	},
	{
		Name: "too-old-resumes", Also: "",
		Rule: "where events are kept no more, a watch begins anew and says so",
		Edits: []Edit{
			{"shared/watch/hub.go", `	if after < oldest {
		return nil, false
	}`, `	if after < oldest {
		after = oldest
	}`},
		},
		By: unit("shared/watch", "^TestTheRingIsBounded$"), Dies: `resume before what is kept: <nil>`,
	},
	{
		Name: "leap-untold", Also: "",
		Rule: "a table that came in place of events is a gap, for everybody who watches",
		Edits: []Edit{
			{"shared/watch/feed.go", `	if at != h.in.end {
		h.skipTo(at)
	}`, `	h.in.end = at`},
		},
		By: clusters(), Dies: `watch: server \d+ told \d+ of \d+ events`,
	},
	{
		Name: "gap-by-number", Also: "",
		Rule: "of two logs at one LSN, only the one with the same chain value is the same (package watch)",
		Edits: []Edit{
			{"shared/watch/feed.go", `	if at != h.in.end {
		h.skipTo(at)`, `	if at.LSN != h.in.end.LSN {
		h.skipTo(at)`},
		},
		By: unit("shared/watch", "^TestAnotherLogIsAGap$"), Dies: `another log:  1:grant:a`,
	},
	{
		Name: "missed-untold", Also: "",
		Rule: "a hub that could not hand events out in time says so",
		Edits: []Edit{
			{"shared/watch/hub.go", `	if missed {
		h.endAll`, `	if missed && len(h.mu.chunks) == 0 {
		h.endAll`},
		},
		By: unit("shared/watch", "^TestAHubThatIsTooSlowIsAGap$"), Dies: `the end: .* End:<nil>`,
	},
	{
		Name: "slow-drops", Also: "",
		Rule: "a slow watcher is cut and told so: it never misses an event without knowing",
		Edits: []Edit{
			{"shared/watch/watcher.go", `		w.mu.end = &End{Status: cluster.StatusCancelled, Message: message}
		w.mu.endLSN, w.mu.events = w.mu.taken, nil
		w.h.mu.cut = append(w.h.mu.cut, w)`, `		_ = message`},
		},
		By: unit("shared/watch", "^TestASlowWatcherIsCut$"), Dies: `the slow one: .* End:<nil>`,
	},
	{
		Name: "stale-replica-serves", Also: "",
		Rule: "a replica that is not fed serves no watches",
		Edits: []Edit{
			{"shared/watch/hub.go", `	case h.in.feed.pushed && time.Since(h.in.fed) > h.stale:`, `	case h.in.feed.pushed && time.Since(h.in.fed) > 1000*h.stale:`},
		},
		By: unit("shared/watch", "^TestASilentReplicaServesNobody$"), Dies: `(silent|a new watch): <nil>`,
	},
	{
		Name: "reset-claims-more", Also: "",
		Rule: "a reset is of the LSN of its content, not of a later one",
		Edits: []Edit{
			{"shared/watch/watcher.go", `		case cluster.LSN(e.GetLsn()) <= at:`, `		case cluster.LSN(e.GetLsn()) <= h.mu.end.LSN:`},
		},
		By: unit("shared/watch", "^TestSettle$"), Dies: `changed:  3:expire:a 4:grant:a/b 6:term: 7:expire:a/b true`,
	},
	{
		Name: "reset-of-many-moments", Also: "",
		Rule: "a reset that is read in pages is brought to one LSN",
		Edits: []Edit{
			{"shared/frontend/service/reset.go", `	for p, events := range of {
		if !p.settle(events) {
			return false
		}
	}
	return true`, `	return true`},
		},
		By: unit("shared/frontend", "^TestResetOfALargeTable$"), Dies: `lock \d+ is name:"p/\d+".*, want `,
	},
	{
		Name: "reset-goes-back", Also: "",
		Rule: "no reset is of an earlier state than was told",
		Edits: []Edit{
			{"shared/frontend/service/reset.go", `	case reading.Local && reading.LSN < x.sent:`, `	case reading.Local && reading.LSN+1000 < x.sent:`},
		},
		By: unit("shared/frontend", "^TestNoResetToAnEarlierState$"), Dies: `told \{"kind":"reset","lsn":15`,
	},
	{
		Name: "half-reset-resumes", Also: "",
		Rule: "who heard a part of a reset hears it from the start",
		Edits: []Edit{
			{"shared/frontend/httpapi/sse.go", `		return x.write(encodeEvent(fromReset, &b))`, `		return x.write(encodeEvent("", &b))`},
		},
		By: unit("shared/frontend", "^TestResetThatWasCutBeginsAnew$"), Dies: `first piece: \{"kind":"reset","lsn":0`,
	},
	{
		Name: "deaf-client-stays", Also: "",
		Rule: "a client that takes nothing is cut",
		Edits: []Edit{
			{"shared/frontend/httpapi/sse.go", `			_ = x.c.SetWriteDeadline(time.Now().Add(SSEWait)) // not`, `			_ = time.Now().Add(SSEWait) // not`},
		},
		By: unit("shared/frontend", "^TestClientThatNeverReadsIsCut$"), Dies: `\d+ watches after 10s`,
	},
	{
		Name: "watch-taken-back", Also: "",
		Rule: "a client does not take a reset to an earlier state than it yielded",
		Edits: []Edit{
			{"clientlib/watch.go", `r.GetReset_() != nil && at < w.seen {`, `r.GetReset_() != nil && at < w.seen/2 {`},
		},
		By: unit("clientlib", "^TestNoWatchGoesBack$"), Dies: `got "reset .*", want "grant 3 c"`,
	},
	{
		Name: "mirror-builds-on-half", Also: "",
		Rule: "a reset that was cut leaves nothing behind",
		Edits: []Edit{
			{"clientlib/watch/mirror.go", `		if e.Reset.Part == 0 {
			m.coming, m.part,`, `		if m.part = e.Reset.Part; m.coming == nil {
			m.coming, m.part,`},
		},
		By: unit("clientlib/watch", "^TestAMirrorShowsNoHalfReset$"), Dies: `\.go:\d+: 3 locks`,
	},
	{
		Name: "mirror-keeps-half", Also: "",
		Rule: "a message that does not fit changes nothing",
		Edits: []Edit{
			{"clientlib/watch/mirror.go", `			x.undo()
			return false`, `			return false`},
		},
		By: unit("clientlib/watch", "^TestAMirrorTakesBackWhatDoesNotFit$"), Dies: `got 1 \[d:0\+1\], want 1 \[a:1 b:0\+1\]`,
	},
	{
		Name: "mirror-forgets-queue", Also: "",
		Rule: "a mirror is the table at its LSN",
		Edits: []Edit{
			{"clientlib/watch/state.go", `		if l.QueueLength > 0 { // a lock with a queue is granted to those in line
			l.QueueLength--
		}
`, ``},
		},
		By: unit("clientlib/watch", "^TestAMirrorIsTheTable$"), Dies: `at LSN \d+ the (changes make|mirror shows)`,
	},
	{
		Name: "watch-begins-asleep", Also: "",
		Rule: "what is committed while a watch begins is handed out at once",
		Edits: []Edit{
			{"shared/watch/hub.go", `waiting && (h.in.watched || h.in.losing) {`, `waiting && h.mu.closed {`},
		},
		By:   unit("shared/watch", "^TestWhatIsLostWhileALossWatchBeginsIsHandedOut$"),
		Dies: `there is a loss to tell, and nobody was woken for it`,
	},
	{
		Name: "idle-stream-ends", Also: "",
		Rule: "a stream that had nothing to tell goes on: each event has its own time to be written",
		Edits: []Edit{
			{"shared/frontend/httpapi/sse.go", `	x.room = 0
	if err := x.sendEvents(r); err != nil {`, `	if err := x.sendEvents(r); err != nil {`},
		},
		By: unit("shared/frontend", "^TestWatchThatIsIdleStaysOpen$"), Dies: `the stream has ended before "event: grant"`,
	},
	{
		Name: "message-too-large", Also: "",
		Rule: "a message of a watch is one that a gRPC client takes by default",
		Edits: []Edit{
			{"shared/frontend/service/watch.go", `n < maxMessageItems && size < MaxMessageBytes; n++`, `n < maxMessageItems && size < 1000*MaxMessageBytes; n++`},
		},
		By: unit("shared/frontend", "^TestAWatchFitsIntoMessages$"), Dies: `received message larger than max`,
	},
}
