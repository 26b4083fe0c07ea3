// SPDX-License-Identifier: Apache-2.0

package mutants

// frontMutants break rules of front ends and the command line.
var frontMutants = []Mutant{
	{
		Name: "forward-forgets-its-doubt", Also: "",
		Rule: "behind an attempt that may have been executed, a forward takes only what speaks for all attempts (httpapi, forward)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `(doubts == 0 || o.settles(x))`, `true`},
		},
		By:   unit("shared/frontend", "^TestForwardKeepsItsDoubt$"),
		Dies: `want UNKNOWN`,
	},
	{
		Name: "doubt-of-the-own-term-forgotten", Also: "",
		Rule: "what was under way when this server's own term ended may have been executed (httpapi, forward)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `		doubts = 1
`, `		doubts = 0
`},
		},
		By:   unit("shared/frontend", "^TestNoQuorumIsNoAnswerToWhatMayBeDone$"),
		Dies: `behind the end of its own term`,
	},
	{
		Name: "unknown-acquire-left-behind", Also: "",
		Rule: "an acquire under IDs made here that ends UNKNOWN is cancelled and let go (httpapi, answer)",
		Edits: []Edit{
			{"shared/frontend/httpapi/httpapi.go", ` || x.status == cluster.StatusUnknown) {`, `) {`},
		},
		By:   unit("shared/frontend", "^TestForwardLetsGoWhatNobodyKnowsOf$"),
		Dies: `left behind`,
	},
	{
		Name: "forward-loses-committed", Also: "",
		Rule: "an append that is in the log though its file is quarantined holds for every attempt (httpapi, ask)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `committed: said.Committed`, `committed: false`},
		},
		By:   unit("shared/frontend", "^TestForwardKeepsItsDoubt$"),
		Dies: `want FILE_QUARANTINED`,
	},
	{
		Name: "caller-forgets-its-doubt", Also: "",
		Rule: "a call whose earlier attempt may have been executed stays in doubt (remote, call)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `unknown = unknown || v.Verdict == retry.Unknown && k != kindRead`, `unknown = v.Verdict == retry.Unknown && k != kindRead`},
		},
		By:   unit("cmd/holdfast/remote", "^TestDoubtOutlivesLaterRefusals$"),
		Dies: `got .* after`,
	},
	{
		Name: "refusal-settles-a-call", Also: "",
		Rule: "a refusal of a later attempt is no answer to an earlier one (remote, settles)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `if v.Verdict.Final() && unknown && !k.settles(v.Err) {`, `if v.Verdict.Final() && unknown && !k.settles(v.Err) && v.Err == nil {`},
		},
		By:   unit("cmd/holdfast/remote", "^TestDoubtOutlivesLaterRefusals$"),
		Dies: `got .* after`,
	},
	{
		Name: "break-settled-by-another-holder", Also: "",
		Rule: "a break that names no token is not settled by INVALID_TOKEN (retry, Decided)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `k != kindBreak)`, `true)`},
		},
		By:   unit("cmd/holdfast/remote", "^TestARefusedBreakSpeaksForItself$"),
		Dies: `got .* after`,
	},
	{
		Name: "held-holds-for-all-attempts", Also: "",
		Rule: "HELD tells of one attempt only: an earlier one may be granted yet (retry, Decided)",
		Edits: []Edit{
			{"shared/retry/retry.go", `	case cluster.StatusOK, cluster.StatusWaitTimeout,`, `	case cluster.StatusOK, cluster.StatusHeld, cluster.StatusWaitTimeout,`},
		},
		By:   unit("shared/retry", "^TestDecided$"),
		Dies: `HELD, committed false`,
	},
	{
		Name: "large-message-in-one-go", Also: "",
		Rule: "a message of many operations is made into orders piece by piece (session, intake)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `if in.seen++; in.seen%maxIntake == 0 {`, `if in.seen++; in.seen < 0 {`},
		},
		By:   unit("shared/frontend", "^TestMessageOfManyOperations$"),
		Dies: `10000 at once`,
	},
	{
		Name: "message-without-bound", Also: "",
		Rule: "a message of more operations than may be in flight ends the session (session, message)",
		Edits: []Edit{
			{"shared/frontend/session/session.go", `	case n > maxInFlight:`, `	case n > maxInFlight && false:`},
		},
		By:   unit("shared/frontend", "^TestMessageOfManyOperations$"),
		Dies: `131072 operations: \d+ answers, <nil>`,
	},
	{
		Name: "all-answers-in-one-message", Also: "",
		Rule: "answers that wait leave in messages that a client takes by default (session, outbox)",
		Edits: []Edit{
			{"shared/frontend/session/outbox.go", `len(p.b) < service.MaxMessageBytes`, `len(p.b) < 64*service.MaxMessageBytes`},
		},
		By:   unit("shared/frontend/session", "^TestWhatWaitsIsTakenInPieces$"),
		Dies: `a message of`,
	},
	{
		Name: "local-status-counts", Also: "",
		Rule: "a status of one server alone waits for no table (service, Status)",
		Edits: []Edit{
			{"shared/frontend/service/status.go", `if q.GetLocal() { // a search`, `if false { // who looks`},
		},
		By:   unit("shared/frontend", "^TestLocalStatusAsksNoTable$"),
		Dies: `asked for`,
	},
	{
		Name: "forwarded-answer-cut", Also: "",
		Rule: "all that a client holds is passed on (httpapi, ask)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `maxForwarded = 256 << 20`, `maxForwarded = 4 << 20`},
		},
		By:   unit("shared/frontend", "^TestForwardPassesOnALargeAnswer$"),
		Dies: `the answer is no JSON: unexpected end of JSON input`,
	},
	{
		Name: "deaf-client-keeps-its-reset", Also: "",
		Rule: "a watch whose client leaves its reset ends (service, WaitSent)",
		Edits: []Edit{
			{"shared/frontend/service/watch.go", `	case <-t.C:
		return ErrResetNotRead
`, ``},
		},
		By:   unit("shared/frontend", "^TestNobodyKeepsAResetForADeafClient$"),
		Dies: `told STATUS_OK, <nil>`,
	},
	{
		Name: "settled-watch-collects-on", Also: "",
		Rule: "behind its reset a watch may be as far behind as any other (watch, Settle)",
		Edits: []Edit{
			{"shared/watch/watcher.go", `w.mu.events, w.mu.limit = rest, len(rest)+maxPending`, `w.mu.events = rest`},
		},
		By:   unit("shared/watch", "^TestASlowWatcherIsCutBehindItsReset$"),
		Dies: `events wait`,
	},
	{
		Name: "outcome-at-a-replica", Also: "",
		Rule: "a replica does not tell that a request was not seen, or waits (service, Outcome)",
		Edits: []Edit{
			{"shared/frontend/service/read.go", `; reading.Local && !final {`, `; reading.Local && !final && false {`},
		},
		By:   unit("shared/frontend", "^TestReplicaTellsOnlyWhatStaysSo$"),
		Dies: `outcome of request 2 of b`,
	},
	{
		Name: "verify-at-a-replica", Also: "",
		Rule: "only a primary says whether a token is live (service, Verify)",
		Edits: []Edit{
			{"shared/frontend/service/service.go", `checkFreshness(reading, true, 0)`, `checkFreshness(reading, false, 0)`},
		},
		By:   unit("shared/frontend", "^TestReplicaTellsOnlyWhatStaysSo$"),
		Dies: `verify of token`,
	},
	{
		Name: "cat-over-generations", Also: "",
		Rule: "cat writes pieces of one generation (cli, cat)",
		Edits: []Edit{
			{"cmd/holdfast/cli/tail.go", `o.Generation, o.Offset = p.Generation, p.Offset`, `o.Offset = p.Offset`},
		},
		By:   unit("cmd/holdfast/cli", "^TestCatOfOneGeneration$"),
		Dies: `two generations`,
	},
	{
		Name: "passed-on-half", Also: "",
		Rule: "a pass-on that breaks off is broken off (httpapi, copyAnswer)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `			panic(http.ErrAbortHandler) // a part must not look like the whole`, `			break`},
		},
		By:   unit("shared/frontend", "^TestWhatBreaksOffIsBrokenOff$"),
		Dies: `came as the whole`,
	},
	{
		Name: "token-of-anybody", Also: "",
		Rule: "a named client that is not the holder's does not use its token (locktable, mustHold)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `case q.Own && l.grantWithToken`, `case false && l.grantWithToken`},
		},
		By:   unit("shared/locktable", "^TestTokenOfAnotherClient$"),
		Dies: `want INVALID_TOKEN`,
	},
	{
		Name: "token-of-anybody-over-http", Also: "",
		Rule: "over HTTP a token is its client's (httpapi, operation)",
		Edits: []Edit{
			{"shared/frontend/httpapi/operation.go", `	q.Own = true
`, ``},
		},
		By:   unit("shared/frontend", "^TestTokenIsItsClients$"),
		Dies: `append of another`,
	},
	{
		Name: "token-of-anybody-over-grpc", Also: "",
		Rule: "over gRPC a token is its client's, unless the call means it (grpcapi, passedOn)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/grpcapi.go", `q.Own = !passedOn(ctx, q.Client)`, `q.Own = false`},
		},
		By:   unit("shared/frontend", "^TestTokenIsItsClientsOverGRPC$"),
		Dies: `want INVALID_TOKEN`,
	},
	{
		Name: "passed-on-unheard", Also: "",
		Rule: "a call that means it uses another client's token (grpcapi, passedOn)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/grpcapi.go", `wire.PassedOnKey)) > 0`, `wire.PassedOnKey)) > 1`},
		},
		By:   unit("shared/frontend", "^TestTokenIsItsClientsOverGRPC$"),
		Dies: `passed on true`,
	},
	{
		Name: "forget-a-holder", Also: "",
		Rule: "a client that holds or waits is not forgotten (locktable, decideForget)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `	case c.held > 0 || len(c.waits) > 0:
		return refuse(q, cluster.StatusInvalidArgument`, `	case c.held < 0:
		return refuse(q, cluster.StatusInvalidArgument`},
		},
		By:   unit("shared/locktable", "^TestForget$"),
		Dies: `record is illegal in this state: apply record \d+ \(forget_client\)`,
	},
	{
		Name: "forgotten-in-doubt", Also: "",
		Rule: "what may be executed yet keeps its client remembered (remote, Forget)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `if err != nil || c.doubted {`, `if err != nil {`},
		},
		By:   unit("cmd/holdfast/remote", "^TestForget$"),
		Dies: `were forgotten`,
	},
	{
		Name: "frozen-server-holds-a-command", Also: "",
		Rule: "the next server is asked after 100 ms (remote, locate)",
		Edits: []Edit{
			{"cmd/holdfast/remote/locate.go", `		case <-tick.C:
			next()`, `		case <-tick.C:`},
		},
		By:   unit("cmd/holdfast/remote", "^TestAFrozenServerIsNotAsked$"),
		Dies: `after [12]s, want no more than|a replica was asked`,
	},
	{
		Name: "named-primary-believed-blindly", Also: "",
		Rule: "a server is gone to that says itself that it is primary (remote, locate)",
		Edits: []Edit{
			{"cmd/holdfast/remote/locate.go", `				known = insertOnce(known, asked, named)`, `				c.target = named
				return`},
		},
		By:   unit("cmd/holdfast/remote", "^TestAFrozenServerIsNotAsked$"),
		Dies: `named by a replica`,
	},
	{
		Name: "one-shot-release-by-another", Also: "",
		Rule: "who names nobody was handed the token (history, whyOf)",
		Edits: []Edit{
			{"shared/history/record.go", `r.Client == g.Client, r.Client.OneShot():`, `r.Client == g.Client:`},
		},
		By:   unit("shared/history", "^TestWhoLetGo$"),
		Dies: `got  a 1 released_by_other c2, a 3 released_by_other ~x`,
	},
	{
		Name: "nobody-named-in-the-history", Also: "",
		Rule: "who lets go of another's lock is named by what it says of itself (history, who)",
		Edits: []Edit{
			{"shared/history/record.go", `e.Actor = who(t, r.Client)`, `e.Actor = string(r.Client)`},
		},
		By:   unit("shared/history", "^TestWhoLetGo$"),
		Dies: `got  .*, a 8 released_by_other c3\n`,
	},
	{
		Name: "released-from-the-main-registration", Also: "",
		Rule: "a lock that was waited for is released by the registration that holds it (clientlib, releaser)",
		Edits: []Edit{
			{"clientlib/lock.go", `from: l.releaser(), after`, `from: l.client().main, after`},
		},
		By:   unit("clientlib", "^TestOwnLockIsReleasedByItsHolder$"),
		Dies: `was released by`,
	},
	{
		Name: "one-shots-remembered", Also: "",
		Rule: "a command that has its answer has its client forgotten (cli, withCaller)",
		Edits: []Edit{
			{"cmd/holdfast/cli/client.go", `		a.forget(ctx, c)
`, ``},
		},
		By:   unit("cmd/holdfast/cli", "^TestOneShotsAreForgotten$"),
		Dies: `want cli- forgotten|want ~, cli-`,
	},
	{
		Name: "no-data-dir-by-default", Also: "",
		Rule: "a server has a data directory outside of the volume unless it is told not to (serve, dataDir)",
		Edits: []Edit{
			{"cmd/holdfast/serve/datadir.go", `	if named == NoDataDir {`, `	if named == NoDataDir || named == "" {`},
		},
		By:   unit("cmd/holdfast/serve", "^TestDataDir$"),
		Dies: `the default: "", <nil>`,
	},
	{
		Name: "volume-within-a-volume", Also: "",
		Rule: "init makes no volume inside of another one (cli, notInside)",
		Edits: []Edit{
			{"cmd/holdfast/cli/volume.go", `	if err := notInside(dir); err != nil {`, `	if err := notInside(dir); err != nil && dir == "" {`},
		},
		By:   unit("cmd/holdfast/cli", "^TestInitInsideAVolume$"),
		Dies: `got \{code:0 `,
	},
	{
		Name: "escapes-printed-raw", Also: "",
		Rule: "what others say of themselves does nothing to a terminal (cli, print)",
		Edits: []Edit{
			{"cmd/holdfast/cli/output.go", `b.WriteString(wire.Visible(raw.String()))`, `b.WriteString(raw.String())`},
		},
		By:   unit("cmd/holdfast/cli", "^TestTextOfOthersIsHarmless$"),
		Dies: `none of text`,
	},
	{
		Name: "holder-forges-a-line", Also: "",
		Rule: "what a holder says of itself is no line of ours (wire, Person)",
		Edits: []Edit{
			{"shared/wire/person.go", `return OneLine(p.text())`, `return p.text()`},
		},
		By:   unit("cmd/holdfast/cli", "^TestTextOfOthersIsHarmless$"),
		Dies: `none of ours`,
	},
	{
		Name: "errors-printed-raw", Also: "",
		Rule: "an error tells others' words without escapes (cli, fail)",
		Edits: []Edit{
			{"cmd/holdfast/cli/output.go", `wire.Visible(a.topic()), wire.Visible(err.Error())`, `wire.Visible(a.topic()), err.Error()`},
		},
		By:   unit("cmd/holdfast/cli", "^TestTextOfOthersIsHarmless$"),
		Dies: `errors: a character that is none of text`,
	},
	{
		Name: "half-a-surrogate", Also: "",
		Rule: "half a character in JSON is refused (wire, WholeText)",
		Edits: []Edit{
			{"shared/wire/decode.go", `} else if !WholeText(raw) {`, `} else if false {`},
		},
		By:   unit("shared/wire", "^TestHalfACharacterIsRefused$"),
		Dies: `"\\udbff": <nil>`,
	},
	{
		Name: "bytes-that-are-no-utf8", Also: "",
		Rule: "bytes in JSON that are no UTF-8 are refused (wire, WholeText)",
		Edits: []Edit{
			{"shared/wire/decode.go", `	if !utf8.Valid(raw) {
		return false
	}
`, `	_ = utf8.Valid
`},
		},
		By:   unit("shared/wire", "^TestHalfACharacterIsRefused$"),
		Dies: `xff.* is a whole text: true`,
	},
	{
		Name: "endpoint-unchecked", Also: "",
		Rule: "an endpoint that is no address is refused by New (clientlib, checkEndpoint)",
		Edits: []Edit{
			{"clientlib/options.go", `		if err := checkEndpoint(e); err != nil {`, `		if err := checkEndpoint(e); err != nil && e == "" {`},
		},
		By:   unit("clientlib", "^TestNewRefusesWhatIsNoAddress$"),
		Dies: `"localhost": <nil>`,
	},
	{
		Name: "alive-though-gone", Also: "",
		Rule: "why does not call alive who got a lock with a command (package why, advice)",
		Edits: []Edit{
			{"shared/why/why.go", `case cluster.ClientID(l.Holder.Client).OneShot():`, `case cluster.ClientID(l.Holder.Client).Validate() != nil:`},
		},
		By:   unit("shared/why", "^TestOfWhatACommandGot$"),
		Dies: `is alive`,
	},
	{
		Name: "usage-error-as-text", Also: "",
		Rule: "an error is JSON where JSON was asked for (cli, wantsJSON)",
		Edits: []Edit{
			{"cmd/holdfast/cli/cli.go", `		if wantsJSON(args) { //`, `		if len(args) == 0 { //`},
		},
		By:   unit("cmd/holdfast/cli", "^TestUsageErrorsInJSON$"),
		Dies: `-o json: got \{code:2 out: `,
	},
	{
		Name: "json-behind-the-dashes", Also: "",
		Rule: "what stands behind -- is the command's own (cli, wantsJSON)",
		Edits: []Edit{
			{"cmd/holdfast/cli/cli.go", `		case arg == "--":
			return false
`, ``},
		},
		By:   unit("cmd/holdfast/cli", "^TestUsageErrorsInJSON$"),
		Dies: `-- -o json: got \{code:2 out:\{`,
	},
	{
		Name: "down-is-degraded", Also: "",
		Rule: "status of a cluster that nobody serves is 2 (cli, healthOf)",
		Edits: []Edit{
			{"cmd/holdfast/cli/health.go", `		if s.Role == "primary" {`, `		if s.Role == "primary" || s.Role == "fencing" {`},
		},
		By:   unit("cmd/holdfast/cli", "^TestHealth$"),
		Dies: `a takeover`,
	},
	{
		Name: "degraded-is-healthy", Also: "",
		Rule: "status of a cluster that needs care is 1 (cli, healthOf)",
		Edits: []Edit{
			{"cmd/holdfast/cli/health.go", `} else if len(h.Reasons) == 0 {`, `} else if len(h.Reasons) < 2 {`},
		},
		By:   unit("cmd/holdfast/cli", "^TestHealth$"),
		Dies: `a dead replica: code 0`,
	},
	{
		Name: "warnings-need-no-care", Also: "",
		Rule: "a server's warnings need care (cli, careNote)",
		Edits: []Edit{
			{"cmd/holdfast/cli/health.go", `append(notes, s.Volume.Warnings...)`, `notes`},
		},
		By:   unit("cmd/holdfast/cli", "^TestHealth$"),
		Dies: `a warning|and why`,
	},
	{
		Name: "mode-untold", Also: "",
		Rule: "an acquire says how the lock is held (service, Execute)",
		Edits: []Edit{
			{"shared/frontend/service/service.go", `		a.Mode = pb.Mode(q.Mode).Enum()
	}
	return a, nil`, `	}
	return a, nil`},
		},
		By:   unit("shared/frontend", "^TestAcquireSaysModeAndHowLong$"),
		Dies: `exclusive`,
	},
	{
		Name: "held-for-how-long-untold", Also: "",
		Rule: "a refusal says how long the lock is held (core, decide)",
		Edits: []Edit{
			{"primary/core.go", `d.Outcome.Message = c.heldUntil(q.Lock, h.Token)`, `_ = c.heldUntil(q.Lock, h.Token)`},
		},
		By:   unit("shared/frontend", "^TestAcquireSaysModeAndHowLong$"),
		Dies: `held: \{Status:HELD `,
	},
	{
		Name: "taker-remembered", Also: "",
		Rule: "who gets a lock for one command is remembered no longer than it holds it (cli, taker)",
		Edits: []Edit{
			{"cmd/holdfast/cli/client.go", `client: "~" + rand.Text()`, `client: "cli-" + rand.Text()`},
		},
		By:   unit("cmd/holdfast/cli", "^TestOneShotsAreForgotten$"),
		Dies: `holdfast acquire a:|append a log:`,
	},
	{
		Name: "named-client-forgotten", Also: "",
		Rule: "a client that the user named is not forgotten (cli, identify)",
		Edits: []Edit{
			{"cmd/holdfast/cli/client.go", `		id = a.drawn()
	}
`, `		id = a.drawn()
	}
	a.oneShots = append(a.oneShots, id.client)
`},
		},
		By:   unit("cmd/holdfast/cli", "^TestOneShotsAreForgotten$"),
		Dies: `asked \["me"\], forgotten \["me"`,
	},
	{
		Name: "clients-take-all-descriptors", Also: "",
		Rule: "clients' connections leave descriptors for the volume (serve, spare)",
		Edits: []Edit{
			{"cmd/holdfast/serve/room.go", `max(1, descriptors-reserve)`, `max(1, descriptors+0*reserve)`},
		},
		By:   unit("cmd/holdfast/serve", "^TestConnectionsLeaveDescriptors$"),
		Dies: `for clients`,
	},
	{
		Name: "address-takes-all-connections", Also: "",
		Rule: "one address has a part of the connections only (serve, enter)",
		Edits: []Edit{
			{"cmd/holdfast/serve/room.go", `if r.mu.of[from] >= r.each() {`, `if r.mu.of[from] < 0 {`},
		},
		By:   unit("cmd/holdfast/serve", "^TestConnectionsOfAnAddressAreBounded$"),
		Dies: `connections of one address`,
	},
	{
		Name: "connections-unbounded", Also: "",
		Rule: "whoever comes when there is no room is refused (serve, Accept)",
		Edits: []Edit{
			{"cmd/holdfast/serve/room.go", `if b.room.free.Add(-1) < 0 {`, `if b.room.free.Add(-1) < -1<<40 {`},
		},
		By:   unit("cmd/holdfast/serve", "^TestConnectionsAreBounded$"),
		Dies: `a connection too many: `,
	},
	{
		Name: "closed-twice-is-two", Also: "",
		Rule: "a connection makes room once (serve, count)",
		Edits: []Edit{
			{"cmd/holdfast/serve/room.go", `sync.OnceFunc(func() { r.free.Add(1); r.leave(from) })`, `func() { r.free.Add(1); sync.OnceFunc(func() { r.leave(from) })() }`},
		},
		By:   unit("cmd/holdfast/serve", "^TestConnectionsAreBounded$"),
		Dies: `a connection too many: `,
	},
	{
		Name: "advised-pause-ignored", Also: "",
		Rule: "who says when to come again is not asked before (remote, call)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `rest = pause.Next(v.RetryAfter, false)`, `rest = pause.Next(0, false)`},
		},
		By:   unit("cmd/holdfast/remote", "^TestAdvisedPauseIsKept$"),
		Dies: `<nil> after \d`,
	},
	{
		Name: "wait-stays-with-the-deposed", Also: "",
		Rule: "a wait leaves a server that is no longer primary (remote, call)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", `if k == kindWait && late && c.well(ctx, stub) {`, `if k == kindWait && late {`},
		},
		By:   unit("cmd/holdfast/remote", "^TestWaitLeavesAFormerPrimary$"),
		Dies: `was asked`,
	},
}
