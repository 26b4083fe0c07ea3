// SPDX-License-Identifier: Apache-2.0

package mutants

const textPkg = "shared/frontend/text"

// turns are clients of the line protocol who take turns over faults drawn by seed.
func turns() Killer {
	return Killer{Pkg: simulation, Run: "^TestLines$", Flags: "-sim.texts 12"}
}

// textMutants break the line protocol.
var textMutants = []Mutant{
	{
		Name: "line-anybody-unlocks",
		Rule: "UNLOCK, RENEW and TOKEN are for the client that holds the lock (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `	if holder != clientID(l.client, l.lock) || l.token`, `	if holder == "" || l.token`},
		},
		By: turns(), Dies: `\w+ has the lock, and \w+ for another \S+ too`,
	},
	{
		Name: "line-any-token",
		Rule: "with a token UNLOCK and RENEW mean one grant (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", ` || l.token != 0 && l.token != token {`, ` {`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `UNLOCK,db,alice,1\s+a < SUCCESS`,
	},
	{
		Name: "line-unlock-follows-the-name",
		Rule: "UNLOCK ends the grant that it found first, and no later one (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `		case asked != 0 && token != asked:`, `		case asked != 0 && token == 0:`},
		},
		By: unit(textPkg, "TestUnlockNeverEndsALaterGrant"), Dies: `the later grant has token NONE`,
	},
	{
		Name: "line-lost-release-is-fail",
		Rule: "an answer that was lost says nothing (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `			asked = token
		default:`, `			return fail
		default:`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `lose release\s+\S+ a > UNLOCK,db,alice\s+a < FAIL`,
	},
	{
		Name: "line-unknown-is-fail",
		Rule: "FAIL says that the client does not have the lock (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `	return failed
}

// call executes`, `	return fail
}

// call executes`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `lose acquire\s+\S+ a > LOCK,db,alice\s+a < FAIL`,
	},
	{
		Name: "line-shorter-lease",
		Rule: "a SUCCESS is a lease of the TTL that was asked for (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `	case ttl < l.ttl:`, `	case ttl < 0:`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `LOCK,db,alice,11s\s+a < SUCCESS`,
	},
	{
		Name: "line-one-client-for-all-locks",
		Rule: "RENEW keeps one lock (line.go)",
		Edits: []Edit{
			{textPkg + "/line.go", `xxhash.Sum64String(string(lock))))`, `xxhash.Sum64String("")))`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `RENEW,two,alice\s+a < SUCCESS`,
	},
	{
		Name: "line-stranger-shown-as-client",
		Rule: "nobody who came another way looks like a client of lines (line.go)",
		Edits: []Edit{
			{textPkg + "/line.go", `	return "=" + s`, `	return s`},
		},
		By: unit(textPkg, "TestNamesOfClients"), Dies: `(c1|NONE|text/me/0) is shown as (c1|NONE|text/me/0), want =`,
	},
	{
		Name: "line-called-like-an-answer",
		Rule: "OWN's answer is a name or a word, and one can tell which (line.go)",
		Edits: []Edit{
			{textPkg + "/line.go", `	case success, fail, none, denied, failed,`, `	case success, fail, denied, failed,`},
		},
		By: unit(textPkg, "TestParse"), Dies: `"LOCK,a,NONE": got .*, want INVALID_FORMAT`,
	},
	{
		Name: "line-repeat-lines-up-anew",
		Rule: "the same line is the same request, and has the same place (line.go)",
		Edits: []Edit{
			{textPkg + "/line.go", `fmt.Sprintf("%s,%d,%d", lock, ttl, wait)`, `fmt.Sprintf("%s,%d,%d,%v", lock, ttl, wait, new(int))`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `show db\s+alice bob bob\s`,
	},
	{
		Name: "line-place-left-behind",
		Rule: "who waits and leaves has no place any more (lock.go)",
		Edits: []Edit{
			{textPkg + "/lock.go", `			return c.giveUp(ctx, l, wait)`, `			return timeout`},
		},
		By: unit(textPkg, "TestWhoLeavesLeavesNoPlace"), Dies: `never: no place`,
	},
	{
		Name: "line-told-grant-released",
		Rule: "a grant that the repeat was told of stays (lock.go)",
		Edits: []Edit{
			{textPkg + "/lock.go", `	case cluster.StatusOK:
		return success
	case cluster.StatusCancelled:`, `	case cluster.StatusOK:
		return c.unlock(ctx, ctx, l)
	case cluster.StatusCancelled:`},
		},
		By: unit(textPkg, "TestGrantOfTheLastMoment"), Dies: `the other: NONE FAIL`,
	},
	{
		Name: "line-leaves-with-another",
		Rule: "who leaves ends only its own wait (lock.go)",
		Edits: []Edit{
			{textPkg + "/lock.go", `			// The same line waited on another connection, and its client left.`, `			return timeout`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `b is closed\s+d < TIMEOUT`,
	},
	{
		Name: "line-wait-forgets-who-has-it",
		Rule: "LOCK of the client that has the lock is SUCCESS, also behind a wait (lock.go)",
		Edits: []Edit{
			{textPkg + "/lock.go", `			return c.late(ctx, l)`, `			return timeout`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `d < SUCCESS\s+\S+ advance 5s\s+c < TIMEOUT`,
	},
	{
		Name: "line-own-goes-back",
		Rule: "OWN is not behind what its connection was told (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `MinLsn: c.seen}`, `MinLsn: min(c.seen, 0)}`},
		},
		By: unit(textPkg, "TestOwnIsNotBehindItsConnection"), Dies: `behind: "a < SUCCESS\S+ < NONE`,
	},
	{
		Name: "line-own-of-what-has-ended",
		Rule: "OWN is not behind a FAIL either (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `		_, refusal := c.held(ctx, l) // has an LSN, so that OWN knows of the end
		return cmp.Or(refusal, fail), refusal == ""`, `		return fail, true`},
		},
		By: unit(textPkg, "TestOwnIsNotBehindAnEnd"), Dies: `OWN wants the table of LSN 1, want 2`,
	},
	{
		Name: "line-own-of-long-ago",
		Rule: "OWN tells nothing from a table that is fed no more (caller.go)",
		Edits: []Edit{
			{textPkg + "/caller.go", `> maxAge:`, `> 1000*maxAge:`},
		},
		By: unit(textPkg, "TestOwnIsNotBehindItsConnection"), Dies: `too old: "a < NONE`,
	},
	{
		Name: "line-cut-off-is-a-line",
		Rule: "half a line is none (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `	if err != nil {
		if late(err) && c.stopping() {`, `	if len(b) > 0 && errors.Is(err, io.EOF) {
		b, err = append(b, '\n'), nil
	}
	if err != nil {
		if late(err) && c.stopping() {`},
		},
		By: unit(textPkg, "TestHalfAConnection"), Dies: `got "SUCCESS\S+SUCCESS\\nNONE\\n", <nil>`,
	},
	{
		Name: "line-lock-for-nobody",
		Rule: "no LOCK is begun for a client that is known to be gone (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `		case (x.command == "LOCK" || x.anyGrant()) &&`, `		case x.anyGrant() &&`},
		},
		By: unit(textPkg, "TestNobodyListens$"), Dies: `b and c are held by me me`,
	},
	{
		Name: "line-unlock-for-nobody",
		Rule: "an UNLOCK of any grant is not begun for a client that is known to be gone (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `		case (x.command == "LOCK" || x.anyGrant()) &&`, `		case x.command == "LOCK" &&`},
		},
		By: unit(textPkg, "TestNobodyListens$"), Dies: `b and c are held by NONE NONE`,
	},
	{
		Name: "line-unlock-long-ago",
		Rule: "an UNLOCK of any grant is begun soon, or not at all (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `time.Since(x.read) > unlockWait:`, `time.Since(x.read) > 100*unlockWait:`},
		},
		By: unit(textPkg, "TestTranscript"), Dies: `b < TIMEOUT\s+b < SUCCESS\s+\S+ b > LOCK,db,bob,30s,5001ms`,
	},
	{
		Name: "line-first-cause-only",
		Rule: "who takes no answer is gone, also when it had said that it sends nothing more (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `			deaf = true
`, ``},
		},
		By: unit(textPkg, "TestNobodyListensToTheRest"), Dies: `one NONE, two NONE, three me`,
	},
	{
		Name: "line-vanished-is-late",
		Rule: "a host that vanished is no deadline (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `return ok && e.Timeout() && !system`, `return ok && (e.Timeout() || system)`},
		},
		By: unit(textPkg, "TestHostThatVanished"), Dies: `left behind: =c1 me, NONE`,
	},
	{
		Name: "line-begun-behind-the-end",
		Rule: "nothing is begun when Stop has no more time (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `		case ctx.Err() != nil, x.any`, `		case x.any`},
		},
		By: unit(textPkg, "TestStopBeginsNothing"), Dies: `acquire is called`,
	},
	{
		Name: "line-slowly",
		Rule: "a line is sent in ten seconds, or the connection is cut (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `	if err := c.readUntil(time.Now().Add(lineWait)); err != nil {
		return x, err
	}
`, ``},
		},
		By: unit(textPkg, "TestBounds"), Dies: `half_a_line.* 1 connections behind the time`,
	},
	{
		Name: "line-waits-without-end-ahead",
		Rule: "a client that is too far ahead is cut, for nobody would notice its end (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `	case <-over.C:
`, ``},
		},
		By: unit(textPkg, "TestBounds"), Dies: `too_far_ahead_of_one_that_waits.* 1 connections behind the time`,
	},
	{
		Name: "line-from-a-browser",
		Rule: "a page that somebody looks at cannot send lines (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", ` || fromBrowser(b)
	return`, `
	return`},
		},
		By:   unit(textPkg, "TestLineEnds"),
		Dies: `"POST / HTTP/1\.1\S* .*: got "INVALID_COMMAND\\r\\nINVALID_COMMAND|"POST / HTTP/1\.1.*: a is held by me`,
	},
	{
		Name: "line-too-long-goes-on",
		Rule: "a page cannot send lines behind a long path either (conn.go)",
		Edits: []Edit{
			{textPkg + "/conn.go", `		x.refusal, x.last = invalidFormat, true`, `		x.refusal = invalidFormat`},
		},
		By: unit(textPkg, "TestLineEnds"), Dies: `"OWN,n+": got "INVALID_FORMAT\\nSUCCESS`,
	},
	{
		Name: "line-stop-drops-answers",
		Rule: "Stop gives what was read its time (server.go)",
		Edits: []Edit{
			{textPkg + "/server.go", `		c.stop()
	}
	s.mu.Unlock()`, `		c.stop()
	}
	s.cancel()
	s.mu.Unlock()`},
		},
		By: unit(textPkg, "TestStop"), Dies: `who waits: "ERROR\\n", false`,
	},
}
