// SPDX-License-Identifier: Apache-2.0

package mutants

// orderMutants break what comes between the core loop and whoever hands in orders.
var orderMutants = []Mutant{
	{
		Name: "order-answered-early", Also: "",
		Rule: "the outcome of an order leaves with its batch, durable and checked (PROTOCOL 15.2)",
		Edits: []Edit{
			{"primary/core.go", `	if x.done != nil {
		c.cur.answers`, `	if x.order != nil {
		x.done(out)
		return
	}
	if x.done != nil {
		c.cur.answers`},
		},
		By: unit("primary", "TestNoOrder|TestOrdersOfAFenced"), Dies: `told \[.*\] while \w+ hangs`,
	},
	{
		Name: "order-flushed-unchecked", Also: "",
		Rule: "outlets are told, and flushed, behind the check (PROTOCOL 15.2)",
		Edits: []Edit{
			{"primary/commit.go", `	// A crash here loses no answer that was given; the next term adopts the frame.
`, `	for i := range b.answers {
		if a := &b.answers[i]; a.joins() {
			deliver(a.call.order, a.out)
			a.call = &call{kind: callInternal, done: func(locktable.Outcome) {}}
		}
	}
`},
		},
		By: unit("primary", "TestNoOrder|TestOrdersOfAFenced"), Dies: `told \[.*\] while readat hangs`,
	},
	{
		Name: "order-answered-twice", Also: "",
		Rule: "an order is answered once (package serving, AsyncRequest)",
		Edits: []Edit{
			{"primary/calls.go", `			deliver(o, locktable.Outcome{Status: status, Message: msg, Client: o.Request.Client, Request: o.Request.ID})
			continue
`, `			deliver(o, locktable.Outcome{Status: status, Message: msg, Client: o.Request.Client, Request: o.Request.ID})
`},
		},
		By: unit("primary", "TestOrdersAreAnswered"), Dies: `told \[3:INVALID_ARGUMENT flush .* 3:OK `,
	},
	{
		Name: "order-unflushed", Also: "",
		Rule: "behind the last answer to an outlet comes a flush: nothing of it stays behind (package serving, ResultSink)",
		Edits: []Edit{
			{"primary/commit.go", `		to.Answer(order, a.out)
	}
	if to != nil {
		to.Flush()
	}`, `		to.Answer(order, a.out)
	}`},
		},
		By: unit("primary", "TestOrdersAreAnswered"), Dies: `told \[[^\]]* 6:HELD\], want`,
	},
	{
		Name: "orders-turned", Also: "",
		Rule: "orders are decided as they were handed in (package primary, Submit)",
		Edits: []Edit{
			{"primary/calls.go", `		calls = append(calls, x)
`, `		calls = append([]*call{x}, calls...)
`},
		},
		By: unit("primary", "TestOrdersAreAnswered"), Dies: `told \[3:INVALID_ARGUMENT flush 6:OK 5:HELD 4:OK`,
	},
	{
		Name: "unlogged-unchecked", Also: "",
		Rule: "what is not logged, a read, a renewal or a keep-alive, leaves behind a check too (PROTOCOL 8.4)",
		Edits: []Edit{
			{"primary/commit.go", `	if err := p.check(); err != nil {
		b.fail()
		return
	}
	// The check began`, `	if b.Len() == 0 {
		p.deliverAll(b, p.age())
		return
	}
	if err := p.check(); err != nil {
		b.fail()
		return
	}
	// The check began`},
		},
		By: unit("primary", "^TestFencedTermTellsNothing$"), Dies: `answered (OK|HELD) <nil>`,
	},
	{
		Name: "keep-alive-unchecked", Also: "",
		Rule: "a keep-alive is answered when a check has passed that began behind it (PROTOCOL 8.4)",
		Edits: []Edit{
			{"primary/leases.go", `	c.answer(x, locktable.Outcome{Status: cluster.StatusOK, Client: id, Epoch: c.p.Epoch(), LSN: c.table.LSN()})`,
				`	x.done(locktable.Outcome{Status: cluster.StatusOK, Client: id, Epoch: c.p.Epoch(), LSN: c.table.LSN()})`},
		},
		By: unit("primary", "TestFencedTermTells"), Dies: `a_keep-alive.* answered OK <nil>`,
	},
	{
		Name: "refused-in-flight", Also: "",
		Rule: "what was in flight when a term ended is UNKNOWN, never refused: the next one may adopt it (PROTOCOL 10.1)",
		Edits: []Edit{
			{"primary/commit.go", `		b.answers[i].call.done(serving.Unknown())`, `		b.answers[i].call.done(locktable.Outcome{Status: cluster.StatusSecondaryMode})`},
		},
		By: unit("primary", "TestFencedTermTells|TestOrdersOfAFenced"), Dies: `answered \[?[^\n]*SECONDARY_MODE`,
	},
	{
		Name: "living-token-lost", Also: "",
		Rule: "a loss is told of a token that is dead, and of no other (PROTOCOL 11.7)",
		Edits: []Edit{
			{"primary/hub.go", `	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak, locktable.KindAsk:
	default:`, `	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak, locktable.KindAsk, locktable.KindAppend:
	default:`},
		},
		By: unit("primary", "TestHoldersAreTold"), Dies: `losses: \[lock:"own"`,
	},
	{
		Name: "loss-unchecked", Also: "",
		Rule: "a loss is told when what ends the grant is durable and checked: else the token lives on (PROTOCOL 11.7)",
		Edits: []Edit{
			{"primary/commit.go", `	// A crash here loses no answer that was given; the next term adopts the frame.
`, `	if len(b.losses) > 0 {
		p.publish(b)
	}
`},
			{"primary/commit.go", `	p.publish(b)
	if b.resigns {`, `	if len(b.losses) == 0 {
		p.publish(b)
	}
	if b.resigns {`},
		},
		By: unit("primary", "TestNoLoss"), Dies: `told \[lock:"l".*\] while readat hangs`,
	},
}

// sessionMutants break sessions, at either end.
var sessionMutants = []Mutant{
	{
		Name: "session-outlives-term", Also: "",
		Rule: "a session ends with its term, and says so (package frontend, Sessions)",
		Edits: []Edit{
			{"shared/frontend/session/server.go", `			if x.term == t {`, `			if x.term != t {`},
		},
		By: unit("shared/frontend", "TestSessionEndsWithTheTerm"), Dies: `no word of the end`,
	},
	{
		Name: "session-shares-orders", Also: "",
		Rule: "an answer goes to the operation that asked: each has an order of its own (package session)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `		in.slab = in.slab[1:]
`, ``},
		},
		By: unit("shared/frontend", "TestSessionCarries"), Dies: `operation \d+ is answered twice`,
	},
	{
		Name: "short-append-shares-memory", Also: "",
		Rule: "the data of an append is not in memory that the next frame uses (package session, intake)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `	in.copies = !own
`, ``},
		},
		By: unit("shared/frontend", "^TestDataOfAppendsStays$"), Dies: `STATUS_FILE_QUARANTINED`,
	},
	{
		Name: "silence-unseen", Also: "",
		Rule: "a client that vanished is noticed, and keeps no place in a queue alive (package session, look)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `	case silence >= silent && x.pinged.Load():`, `	case silence >= 100*silent && x.pinged.Load():`},
		},
		By: unit("shared/frontend/session", "^TestSilentConnectionsAreClosed$"), Dies: `ended: false`,
	},
	{
		Name: "connections-left-behind", Also: "",
		Rule: "a connection that was made to look for the primary is not kept (package session, look)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `now-x.asked.Load() >= idle &&`, `silence >= idle &&`},
		},
		By: unit("shared/frontend/session", "^TestConnectionsWithoutASessionAreNotKept$"), Dies: `it was kept`,
	},
	{
		Name: "stop-cuts-sessions", Also: "",
		Rule: "a server that stops leaves its sessions the time to end with their term (package session, Stop)",
		Edits: []Edit{
			{"shared/frontend/session/server.go", `	for !v.empty() {`, `	for false {`},
		},
		By: unit("shared/frontend/session", "^TestStopWaitsForTheEndOfTheTerm$"), Dies: `stopped after`,
	},
	{
		Name: "session-of-the-dead", Also: "",
		Rule: "no session begins on a connection that has ended (package clientlib, begin)",
		Edits: []Edit{
			{"clientlib/session.go", `	if s.mu.err != nil || s.mu.hello {`, `	if s.mu.hello {`},
		},
		By: unit("clientlib", "^TestSessionBegunWhileItEnds$"), Dies: `the session that has ended is the server's|acquire after`,
	},
	{
		Name: "half-open-for-ever", Also: "",
		Rule: "a connection over which calls get no answer is given up (package clientlib, unanswered)",
		Edits: []Edit{
			{"clientlib/connect.go", `	deaf := s.mu.unheard > 0 &&`, `	deaf := s.mu.unheard < 0 &&`},
		},
		By: unit("clientlib", "^TestHalfOpenConnectionIsGivenUp$"), Dies: `a connection was used that is dead`,
	},
	{
		Name: "refused-though-sent", Also: "",
		Rule: "behind a hello that was refused nothing is looked at (package session, message)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `		x.refused = true
`, ``},
		},
		By: unit("shared/frontend", "^TestSessionRefused$"), Dies: `: EOF`,
	},
	{
		Name: "status-behind-the-stuck", Also: "",
		Rule: "calls that wait for the volume do not hide that the server is there (package session, call)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `		limit *= 2 `, `		limit *= 1 `},
		},
		By: unit("shared/frontend", "^TestCallsThatWereGivenUp$"), Dies: `a server that is there is told as gone`,
	},
	{
		Name: "slow-is-silent", Also: "",
		Rule: "a long frame that comes slowly is a sign of life (package session, hearing)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `	if n > 0 {
		h.x.alive()`, `	if n < 0 {
		h.x.alive()`},
		},
		By: unit("shared/frontend/session", "^TestSlowTransfersAreNoSilence$"), Dies: `closed with`,
	},
	{
		Name: "deaf-is-paused", Also: "",
		Rule: "a client that reads nothing is not excused by what waits for it (package session, waitForCapacity)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `x.paused.Store(sent == nil)`, `x.paused.Store(true)`},
		},
		By: unit("shared/frontend/session", "^TestStoppedClientThatLeftMuchUnread$"), Dies: `still keeps its places`,
	},
	{
		Name: "term-ends-before-the-welcome", Also: "",
		Rule: "what is handed in has a welcome before the end of its session (PROTOCOL 15.1)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `	x.put(&pb.SessionResponse{Welcome: x.welcome(t)}, false)
	x.v.join(x, t)
`, `	x.v.join(x, t)
	x.put(&pb.SessionResponse{Welcome: x.welcome(t)}, false)
`},
			{"shared/frontend/session/session.go", `	if x.refused || x.ended.Load() {`, `	if x.refused {`},
		},
		By: unit("shared/frontend/session", "^TestRefusedSessionHandsNothingIn$"), Dies: `operations were handed in`,
	},
	{
		Name: "session-asks-for-itself", Also: "",
		Rule: "an operation that names a client is that client's, not the session's (package convert)",
		Edits: []Edit{
			{"shared/wire/convert/frame.go", `	if named := len(o.Client) > 0; named && string(o.Client) != string(client) || !named && o.RequestID == 0 {`,
				`	if named := len(o.Client) > 0; !named && o.RequestID == 0 {`},
		},
		By:   unit("shared/frontend", "TestSessionCarries"),
		Dies: `operation 5: .*was used for another request|an operation may have a client of its own`,
	},
	{
		Name: "session-keeps-dead-places", Also: "",
		Rule: "a place in a queue outlives its stream by a TTL, not for ever (PROTOCOL 11.2)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `	x.gone.Store(true)
`, ``},
		},
		By: unit("shared/frontend", "TestSessionPlaceEnds"), Dies: `never: nobody waits`,
	},
	{
		Name: "end-is-a-refusal", Also: "",
		Rule: "the end of a session is UNKNOWN to what was sent on it, whatever ended it (PROTOCOL 15.1)",
		Edits: []Edit{
			{"clientlib/session.go", `		e.Status, e.RetryAfter = cluster.StatusUnknown, 0
`, ``},
		},
		By: unit("clientlib", "TestEndOfASession"), Dies: `the append was executed: append "a": no primary answered`,
	},
	{
		Name: "break-is-unsent", Also: "",
		Rule: "what was sent on a session that broke may have been executed (PROTOCOL 12.5)",
		Edits: []Edit{
			{"clientlib/session.go", `	return status.Error(codes.Unavailable, "the connection broke: "+err.Error())`, `	return &ServiceError{Status: cluster.StatusSecondaryMode}`},
		},
		By: unit("clientlib", "TestEndOfASession"), Dies: `the append was executed: append "a": no primary answered`,
	},
	{
		Name: "repeat-under-another-id", Also: "",
		Rule: "a request keeps its ID through every retry (PROTOCOL 12.1)",
		Edits: []Edit{
			{"clientlib/client.go", `	return do(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return send(ctx, s, requester`, `	return do(ctx, c, k, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		if k.tries > 0 {
			k.who.seq.done(k.id)
			k.id, _ = k.who.seq.take(prompt, false)
		}
		return send(ctx, s, requester`},
		},
		By: unit("clientlib", "TestBrokenSession"), Dies: `lock "a" is held by client @101 on elsewhere`,
	},
	{
		Name: "late-answer-lands", Also: "",
		Rule: "a late answer finds nobody: a number is used once in a session (package clientlib, pendingCall)",
		Edits: []Edit{
			{"clientlib/session.go", `		s.end(all[place], number, l)`, `		s.end(all[place], all[place].number.Load(), l)`},
		},
		By: unit("clientlib", "TestLateAnswer|TestNumber"), Dies: `a late answer to another operation was taken for its own`,
	},
	{
		Name: "cause-is-an-answer", Also: "",
		Rule: "the cause of a caller's ended context is no answer of the service (package clientlib)",
		Edits: []Edit{
			{"clientlib/session.go", `callResult{err: ctx.Err()}) // its cause may look like an answer`, `callResult{err: context.Cause(ctx)})`},
		},
		By: unit("clientlib", "TestCauseIsNoAnswer"), Dies: `the append may have been executed: |the lock was taken for lost: `,
	},
	{
		Name: "loss-by-name", Also: "",
		Rule: "a loss ends the lock with that token, not a later grant of the same lock (PROTOCOL 11.7)",
		Edits: []Edit{
			{"clientlib/handles.go", `	if l := k.mu.locks[token]; l != nil && l.name == lock {
		all = append(all, l)
	}
`, `	for _, l := range k.mu.locks {
		if l.name == lock {
			all = append(all, l)
		}
	}
`},
		},
		By: unit("clientlib", "TestLoss"), Dies: `the other lock was lost too`,
	},
	{
		Name: "clear-ends-later-grants", Also: "",
		Rule: "a loss that names no lock ends what was granted before it, and nothing behind it (clientlib, applyLosses)",
		Edits: []Edit{
			{"clientlib/handles.go", `		if LSN(l.token) < at {`, `		if l.token != 0 && at != 0 {`},
		},
		By: unit("clientlib", "TestClearThat"), Dies: `what was granted after it: "force_cleared"`,
	},
	{
		Name: "two-handles", Also: "",
		Rule: "a token has one handle in a client, so that each Context ends in time (clientlib, Attach)",
		Edits: []Edit{
			{"clientlib/handles.go", `is.name == l.name && is.ctx.Err() == nil {`, `is.name != l.name && is.ctx.Err() == nil {`},
		},
		By: unit("clientlib", "TestTokenHasOneHandle"), Dies: `the handles ended with`,
	},
	{
		Name: "lease-from-answer", Also: "",
		Rule: "the client counts a lease from when it sent its renewal, not from the answer (PROTOCOL 11.6)",
		Edits: []Edit{
			{"clientlib/renewer.go", `		ttl := l.TTL()
		l.grant(ttl, sent, ttl, LSN(r.GetLsn()))`, `		ttl := l.TTL()
		l.grant(ttl, max(sent, k.c.opt.Clock.Now()), ttl, LSN(r.GetLsn()))`},
		},
		By: unit("clientlib", "TestLateRenewal"), Dies: `ended after .*, want a lease from`,
	},
	{
		Name: "extended-though-lost",
		Rule: "a call about a lease that ended on this side meanwhile returns why the lock was lost (clientlib, Extend, Renew)",
		Edits: []Edit{
			{"clientlib/lock.go", `	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return nil
}

// changeFile`, `	return nil
}

// changeFile`},
		},
		By: unit("clientlib", "^Test(Extend|Renew)OfALockThatIsLostMeanwhile$"), Dies: `of a lock that is lost .* returns`,
	},
	{
		Name: "older-server-extends-otherwise",
		Rule: "a server without Extend refuses it with ErrInvalidArgument over a plain call, too (clientlib, Extend)",
		Edits: []Edit{
			{"clientlib/lock.go", `	if status.Code(err) == codes.Unimplemented {`, `	if status.Code(err) == codes.OK && err != nil {`},
		},
		By: unit("clientlib", "^TestExtendAtAnOlderServer$"), Dies: `an older server:`,
	},
	{
		Name: "keep-alive-revives",
		Rule: "an answer that lists no locks revives no lease that is over by now (clientlib, PROTOCOL 11.6)",
		Edits: []Edit{
			{"clientlib/renewer.go", `			l.lose(l.notRenewed())
			continue
`, `			_ = 0
`},
		},
		By: unit("clientlib", "TestKeepAliveRevivesNoLease"), Dies: `revived: lease`,
	},
}

// frameMutants break the messages that are written and read by hand.
var frameMutants = []Mutant{
	{
		Name: "answer-field-swapped", Also: "",
		Rule: "an answer written by hand says what the generated code would (package wire, Frame)",
		Edits: []Edit{
			{"shared/wire/frame.go", `	q = appendNumber(q, tagLSN, a.LSN)
	q = appendNumber(q, tagAnswerToken, a.Token)`, `	q = appendNumber(q, tagLSN, a.Token)
	q = appendNumber(q, tagAnswerToken, a.LSN)`},
		},
		By: unit("shared/wire/convert", "TestAnswerFrames"), Dies: `got .*lsn:9\s+token:\d{4}.*want .*token:9`,
	},
	{
		Name: "receipt-field-swapped", Also: "",
		Rule: "a receipt read by hand says what the generated code would (package wire, Frame)",
		Edits: []Edit{
			{"shared/wire/frame.go", `		case tagOffset:
			r.Offset = int64(v)
		case tagLength:
			r.Length = int64(v)`, `		case tagOffset:
			r.Length = int64(v)
		case tagLength:
			r.Offset = int64(v)`},
		},
		By: unit("shared/wire/convert", "TestAnswerFrames"), Dies: `got .*offset:100\s+length:1099511627776`,
	},
	{
		Name: "request-tags-swapped", Also: "",
		Rule: "the format is protobuf's, also where both ends are written by hand (package wire, Frame)",
		Edits: []Edit{
			{"shared/wire/frame.go", `	tagRequestID   = 2 << 3
	tagLowWater    = 3 << 3`, `	tagRequestID   = 3 << 3
	tagLowWater    = 2 << 3`},
		},
		By: unit("shared/wire/convert", "TestOperationFrames"), Dies: `written by hand: .*request_id:1\s+low_water:1\s+lock:"a"`,
	},
	{
		Name: "token-is-a-ttl", Also: "",
		Rule: "a field is read as the operation's that it stands in (package wire, OperationFrame)",
		Edits: []Edit{
			{"shared/wire/frame.go", `		case tag == tagTTLOrToken && o.Kind == OperationAcquire:`, `		case tag == tagTTLOrToken && o.Kind != OperationRelease:`},
		},
		By: unit("shared/wire/convert", "TestOperationFrames"), Dies: `operation 9:.*got  [^\n]* Token:0 .*want [^\n]* Token:3 `,
	},
	{
		Name: "zero-sum-left-out", Also: "",
		Rule: "a number that is present and 0 is not absent (package wire, Frame)",
		Edits: []Edit{
			{"shared/wire/frame.go", `	if q.Crc32C != nil { // present, 0 or not`, `	if q.GetCrc32C() != 0 {`},
		},
		By: unit("shared/wire/convert", "TestOperationFrames"), Dies: `written by hand: .*data:"data"\s+adopt_existing:true`,
	},
}
