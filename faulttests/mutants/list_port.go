// SPDX-License-Identifier: Apache-2.0

package mutants

const portPkg = "shared/frontend/clientport"

// portMutants break the port for clients.
var portMutants = []Mutant{
	{
		Name: "http-taken-for-a-line",
		Rule: "what begins like a request over HTTP is never a line of text (package clientport, classify)",
		Edits: []Edit{
			{portPkg + "/class.go", `	case word == 0 || b[word] != ' ':`, `	case word == 0 || b[word] != ' ' || string(b[:word]) == "LOCK" || string(b[:word]) == "CONNECT":`},
		},
		By: unit(portPkg, "^(TestClasses|FuzzFirstBytes)$"), Dies: `"LOCK /a HTTP/1.1\\r\\n": class 0, want 1`,
	},
	{
		Name: "long-method-taken-for-a-line",
		Rule: "a method may be longer than what is read of it (package clientport, classify)",
		Edits: []Edit{
			{portPkg + "/class.go", `		return HTTP // no line begins like this, and a method may`, `		return Text`},
		},
		By: unit(portPkg, "^FuzzFirstBytes$"), Dies: `is a request over HTTP, and was taken for class 0`,
	},
	{
		Name: "split-preface-misjudged",
		Rule: "first bytes that come one by one tell the same as those that come at once (package clientport, begins)",
		Edits: []Edit{
			{portPkg + "/class.go", `	case n < len(preface):
		return undecided
`, `	case n < len(preface):
		return Text
`},
		},
		By: unit(portPkg, "^TestSplitFirstBytes$"), Dies: `class 0 read`,
	},
	{
		Name: "split-method-misjudged",
		Rule: "a word without what follows it tells nothing (package clientport, classify)",
		Edits: []Edit{
			{portPkg + "/class.go", `	case word == len(b):
		return undecided
	case word == 0`, `	case word == len(b):
		return Text
	case word == 0`},
		},
		By: unit(portPkg, "^TestSplitFirstBytes$"), Dies: `class 0 read`,
	},
	{
		Name: "first-bytes-lost",
		Rule: "a front end reads what told its class (package clientport, readAgain)",
		Edits: []Edit{
			{portPkg + "/conn.go", `	if s.first = s.first[n:]; len(s.first) == 0 {`, `	if n > 0 {`},
		},
		By: unit(portPkg, "^TestSplitFirstBytes$"), Dies: `class \d read`,
	},
	{
		Name: "silent-connections-unbounded",
		Rule: "connections that say nothing are bounded in number (package clientport, await)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `make(chan struct{}, maxSilent)`, `make(chan struct{}, 1<<20)`},
		},
		By: unit(portPkg, "^TestSilentConnectionsAreBounded$"), Dies: `client 1 was taken after 0s`,
	},
	{
		Name: "silence-unbounded",
		Rule: "a connection that says nothing is closed after a minute (package clientport, tell)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `	_ = c.SetReadDeadline(over) // what is closed needs none
`, ``},
		},
		By: unit(portPkg, "^TestSilenceIsBounded$"), Dies: `a silent connection lives on`,
	},
	{
		Name: "first-deadline-stays",
		Rule: "the minute is for the first bytes alone (package clientport, tell)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `		err = c.SetReadDeadline(time.Time{})
`, `		err = nil
`},
		},
		By: unit(portPkg, "^TestSilenceIsBounded$"), Dies: `an hour later: `,
	},
	{
		Name: "newest-silent-cut",
		Rule: "of too many silent connections the oldest goes: the newest may be a client's (package clientport, cutOldest)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `	e := p.mu.silent.Front()
	if e == nil || time.Since(e.Value.(*silent).since) < leastWait {
		return false
	}
	s := p.mu.silent.Remove(e).(*silent)`, `	e := p.mu.silent.Front()
	if e == nil || time.Since(e.Value.(*silent).since) < leastWait {
		return false
	}
	s := p.mu.silent.Remove(p.mu.silent.Back()).(*silent)`},
		},
		By: unit(portPkg, "^TestSilentConnectionsAreBounded$"), Dies: `silent connection 1 is closed: false`,
	},
	{
		Name: "unheard-taken-for-silent",
		Rule: "a client that is not heard yet is not cut for the next one (package clientport, cutOldest)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `	return time.Until(e.Value.(*silent).since.Add(leastWait))`, `	return 0`},
			{portPkg + "/clientport.go", ` || time.Since(e.Value.(*silent).since) < leastWait {`, ` {`},
		},
		By: unit(portPkg, "^TestManyThatComeAtOnce$"), Dies: `io: read/write on closed pipe`,
	},
	{
		Name: "place-kept-for-ever",
		Rule: "a connection that has spoken leaves its place to others (package clientport, leave)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `	p.mu.silent.Remove(e)
	<-p.places
`, `	p.mu.silent.Remove(e)
`},
		},
		By: unit(portPkg, "^TestSilenceIsBounded$"), Dies: `0 silent connections, \d+ places are taken, want 0`,
	},
	{
		Name: "tls-answered",
		Rule: "TLS is refused without a certificate (package clientport, inside)",
		Edits: []Edit{
			{portPkg + "/class.go", `return begins(b, tlsHandshake, overTLS)`, `return begins(b, tlsHandshake, Text)`},
		},
		By: unit(portPkg, "^TestTLSIsRefused$"), Dies: `it is not closed`,
	},
	{
		Name: "turns-unbounded",
		Rule: "so many connections are set up at a time (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/admission.go", `		if !tooLong && len(q.taken) >= most {`, `		if !tooLong && len(q.taken) >= most<<20 {`},
		},
		By: unit(portPkg, "^TestConnectionsTakeTurns$"), Dies: `96 turns are taken and 0 wait, want 32 and 64`,
	},
	{
		Name: "newest-has-its-turn",
		Rule: "turns come in order of arrival (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/admission.go", `	q.waiting = append(q.waiting, t)
`, `	q.waiting = append([]*turn{t}, q.waiting...)
`},
		},
		By: unit(portPkg, "^TestConnectionsTakeTurns$"), Dies: `client 95 is the next, want 32`,
	},
	{
		Name: "turn-kept",
		Rule: "a turn comes back when its connection is closed (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/conn.go", `	s.turn.end()
	s.unproven.stop()
`, `	s.unproven.stop()
`},
		},
		By: unit(portPkg, "^TestTurnsComeBack$"), Dies: `closed_by_its_front_end.*\n.*32 turns are taken`,
	},
	{
		Name: "turn-waits-for-its-client",
		Rule: "a client that says no more takes no turn from others (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/conn.go", `		s.turn.end() // the front end has begun, and waits for the client
`, ``},
		},
		By: unit(portPkg, "^TestHalfAGreetingHoldsNobodyUp$"), Dies: `a client was not taken`,
	},
	{
		Name: "turn-for-ever",
		Rule: "a front end that does not begin keeps no turn for ever (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/admission.go", `now.Sub(q.taken[0].since) >= turnTime {`, `now.Sub(q.taken[0].since) >= 1000*turnTime {`},
		},
		By: unit(portPkg, "^TestTurns$"), Dies: `a_turn_is_over`,
	},
	{
		Name: "turn-awaited-for-ever",
		Rule: "who has waited for long is told to come again (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/admission.go", `now.Sub(t.since) >= turnWait
`, `now.Sub(t.since) >= 1000*turnWait
`},
		},
		By: unit(portPkg, "^TestWaitingForATurnIsBounded$"), Dies: `a client library: .* after 6s`,
	},
	{
		Name: "crowd-unbounded",
		Rule: "so many wait for their turns (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/admission.go", `	if len(q.waiting) >= maxWaiting {`, `	if len(q.waiting) >= 2*maxWaiting {`},
		},
		By: unit(portPkg, "^TestTooManyWaitForATurn$"), Dies: `after 2s`,
	},
	{
		Name: "late-server-takes-as-many",
		Rule: "a server that is short of CPU sets up fewer connections at a time (PROTOCOL 15.4)",
		Edits: []Edit{
			{portPkg + "/admission.go", `len(a.mu.taken)+len(a.mu.waiting) > fewTurns && a.late()`, `len(a.mu.taken) >= fewTurns && a.late()`},
		},
		By: unit(portPkg, "^TestLateServerTakesFewer$"), Dies: `32 turns are taken and 1 wait, want 4 and 29`,
	},
	{
		Name: "crowd-runs-first",
		Rule: "others run between two connections that are accepted (package clientport)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `		}
		runtime.Gosched() // see the package's doc
	})
`, `		}
	})
`},
		},
		By: unit(portPkg, "^TestCrowdLetsOthersRun$"), Dies: `\d\d\d connections were accepted`,
	},
	{
		Name: "crowd-served-first",
		Rule: "others run between the turns of a crowd (package clientport)",
		Edits: []Edit{
			{portPkg + "/clientport.go", `	runtime.Gosched() // see the package's doc
	p.open`, `	p.open`},
		},
		By: unit(portPkg, "^TestCrowdLetsOthersRun$"), Dies: `\d\d\d got their turns`,
	},
	{
		Name: "client-gives-up-in-the-queue",
		Rule: "a client waits longer than a server lets it wait for its turn (PROTOCOL 15.4)",
		Edits: []Edit{
			{"clientlib/connect.go", `	settingsTime = deafTime
`, `	settingsTime = time.Second
`},
		},
		By: unit("shared/frontend", "^TestServerGetsOverAHerd$"), Dies: `\d{4,} connections were set up for 800 clients`,
	},
	{
		Name: "busy-server-asked-again",
		Rule: "a server that asks to be left alone is (PROTOCOL 15.4)",
		Edits: []Edit{
			{"clientlib/connect.go", `		to.connecting.err, to.connecting.notBefore = busy, busy.until
`, ``},
		},
		By: unit("clientlib", "^TestBusyServerIsLeftAlone$"), Dies: `connected after`,
	},
	{
		Name: "herd-comes-again-together",
		Rule: "clients that were refused together do not come again together (PROTOCOL 15.4)",
		Edits: []Edit{
			{"clientlib/connect.go", ` + busy.after + time.Duration(c.opt.Rand()%uint64(busy.after))`, ` + busy.after + time.Duration(c.opt.Rand()%uint64(redialBase))`},
		},
		By: unit("clientlib", "^TestBusyServerIsLeftAlone$"), Dies: `in_the_middle`,
	},
	{
		Name: "others-asked-instead",
		Rule: "who waits until a busy primary may be asked does not ask the others meanwhile (PROTOCOL 15.4)",
		Edits: []Edit{
			{"clientlib/call.go", `			v.RetryAfter = max(1, busy.until-c.opt.Clock.Now())
`, `			v.RetryAfter = 0 * busy.until
`},
		},
		By: unit("clientlib", "^TestBusyPrimaryMakesNoQuestions$"), Dies: `the other server was asked \d\d`,
	},
	{
		Name: "second-address-for-some",
		Rule: "every address that a server has for clients serves all of them (package serve, clientAddresses)",
		Edits: []Edit{
			{"cmd/holdfast/serve/serve.go", `	if m.OldHTTP != "" {
		old,`, `	if m.OldHTTP != "" && opt.Listen != "" {
		old,`},
		},
		By: unit("cmd/holdfast/serve", "^TestClientAddresses$"), Dies: `want h:1 h:3`,
	},
	{
		Name: "old-members-written-anew",
		Rule: "what an older server wrote of its members is written so that it can read it (package cluster, MarshalJSON)",
		Edits: []Edit{
			{"shared/cluster/members.go", `		if x.OldHTTP != "" {
			all[i]`, `		if x.OldHTTP == "-" {
			all[i]`},
		},
		By: unit("shared/cluster", "^TestMembersOfOlderServers$"), Dies: `is written as`,
	},
}
