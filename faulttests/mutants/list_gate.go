// SPDX-License-Identifier: Apache-2.0

package mutants

const servicePkg = "shared/frontend/service"

// gateMutants break what bounds strangers.
var gateMutants = []Mutant{
	{
		Name: "stranger-stays",
		Rule: "a connection on which nobody proves in time who he is ends, where the rules demand an identity (package clientport, next)",
		Edits: []Edit{
			{portPkg + "/unproven.go", `	case u.mu.stopped, u.proof.Given():
`, `	case u.mu.stopped, u.proof.Given(), demanded:
`},
		},
		By: unit(portPkg, "^TestNobodyStaysUnproven$"), Dies: `closed after 0s, want 15s`,
	},
	{
		Name: "proven-is-closed",
		Rule: "who has proved who he is keeps his connection (package clientport, next)",
		Edits: []Edit{
			{portPkg + "/unproven.go", `	case u.mu.stopped, u.proof.Given():
`, `	case u.mu.stopped:
`},
		},
		By: unit(portPkg, "^TestNobodyStaysUnproven$"), Dies: `closed after 15s, want 0s`,
	},
	{
		Name: "open-volume-closes-strangers",
		Rule: "where the rules demand no identity, connections without one stay (package clientport, next)",
		Edits: []Edit{
			{portPkg + "/unproven.go", `	demanded := u.port.demands()
`, `	demanded := u.port.demand != nil
`},
		},
		By: unit(portPkg, "^TestNobodyStaysUnproven$"), Dies: `closed after 15s, want 0s`,
	},
	{
		Name: "login-for-ever",
		Rule: "a login keeps a connection once (package clientport, next)",
		Edits: []Edit{
			{portPkg + "/unproven.go", `		u.mu.patient = true
`, ``},
		},
		By: unit(portPkg, "^TestNobodyStaysUnproven$"), Dies: `closed after 0s, want 45s`,
	},
	{
		Name: "told-and-left-open",
		Rule: "a connection whose front end does not end it in time is closed (package clientport, next)",
		Edits: []Edit{
			{portPkg + "/unproven.go", `	u.mu.told = true
	u.mu.timer.Reset(partingWait)
`, `	u.mu.told = partingWait > 0
`},
		},
		By: unit(portPkg, "^TestNobodyStaysUnproven$"), Dies: `closed after 0s, want 18s`,
	},
	{
		Name: "credential-proves-nothing",
		Rule: "whoever shows a credential that counts has proved who he is (package service, Authenticate)",
		Edits: []Edit{
			{servicePkg + "/permit.go", `		serving.Prove(from)
`, `		serving.Proved(from)
`},
		},
		By: unit("shared/frontend", "^TestStrangersDoNotStay$"), Dies: `of_(alice|late)`,
	},
	{
		Name: "anonymous-is-a-stranger",
		Rule: "where the rules let callers without a credential do something, none is demanded (package service, Stranger)",
		Edits: []Edit{
			{servicePkg + "/permit.go", `	return p.check(access.Keep, "", "")
}

// Authenticate`, `	if p.look() {
		return errMany()
	}
	return nil
}

// Authenticate`},
		},
		By: unit("shared/frontend", "^TestStrangersDoNotStay$"), Dies: `of_anonymous`,
	},
	{
		Name: "failures-unbounded",
		Rule: "of an address from which too many credentials fail no more are looked at in that second (package service, Authenticate)",
		Edits: []Edit{
			{servicePkg + "/failures.go", `>= maxFailures
`, `>= 1<<20*maxFailures
`},
		},
		By: unit(servicePkg, "^TestFailuresAreBounded$"), Dies: `one more: `,
	},
	{
		Name: "failures-keep-out-the-good",
		Rule: "failures keep nobody out who was proved before (package service, Authenticate)",
		Edits: []Edit{
			{servicePkg + "/permit.go", ` && !serving.Proved(from) && !s.opt.Authenticator.Known(credential) {`, ` {`},
		},
		By: unit(servicePkg, "^TestFailuresAreBounded$"), Dies: `a (known one|new one of who proved): `,
	},
	{
		Name: "failures-by-address-of-ipv6",
		Rule: "an IPv6 host counts with its /64, in which it has as many addresses as it likes (package service, source)",
		Edits: []Edit{
			{servicePkg + "/failures.go", `a.Prefix(64)`, `a.Prefix(128)`},
		},
		By: unit(servicePkg, "^TestFailuresAreBounded$"), Dies: `one more: `,
	},
	{
		Name: "failures-of-a-proxy",
		Rule: "what this host passes on is not bounded together (package conns, Host)",
		Edits: []Edit{
			{"shared/conns/conns.go", `	if !ok || tcp.IP.IsLoopback() {`, `	if !ok {`},
		},
		By: unit(servicePkg, "^TestFailuresAreBounded$"), Dies: `this host: `,
	},
	{
		Name: "failures-remembered-without-end",
		Rule: "few failing addresses are remembered one by one (package service, counted)",
		Edits: []Edit{
			{servicePkg + "/failures.go", `len(f.of) >= maxFailing {`, `len(f.of) >= 100*maxFailing {`},
		},
		By: unit(servicePkg, "^TestFailuresAreFew$"), Dies: `addresses are counted`,
	},
	{
		Name: "excess-unbounded",
		Rule: "few connections for which there is no room are asked what they speak (package clientport, turnBack)",
		Edits: []Edit{
			{portPkg + "/excess.go", `len(p.mu.excess) >= maxExcess {`, `len(p.mu.excess) >= 10*maxExcess {`},
		},
		By: unit(portPkg, "^TestNoRoom$"), Dies: `not the last of too many is closed at once`,
	},
	{
		Name: "excess-waits-for-its-client",
		Rule: "a connection for which there is no room is closed in a second, whatever it says (package clientport, turnBack)",
		Edits: []Edit{
			{portPkg + "/excess.go", `		_ = c.SetDeadline(over) // what is closed needs none
`, ``},
		},
		By: unit(portPkg, "^TestNoRoom$"), Dies: `stays|deadlock`,
	},
	{
		Name: "body-of-a-stranger-is-read",
		Rule: "no body is read of whom the rules give nothing (package httpapi, Authenticated)",
		Edits: []Edit{
			{"shared/frontend/httpapi/httpapi.go", `			err = h.s.Stranger(c) // before`, `			_ = h.s.Stranger(c) // before`},
		},
		By: unit("shared/frontend", "^TestStrangersGetNoMemory$"), Dies: `a_(body|WebSocket)_of_#?`,
	},
	{
		Name: "frame-of-a-stranger-is-read",
		Rule: "no long frame is taken of whom the rules give nothing (package session, begin)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `	if x.stranger == nil && x.v.s.Stranger(caller) == nil {`, `	if x.stranger == nil || x.v.s.Stranger(caller) == nil {`},
		},
		By: unit("shared/frontend", "^TestStrangersGetNoMemory$"), Dies: `a_frame_of_`,
	},
	{
		Name: "streams-unbounded",
		Rule: "a connection of gRPC has a bounded number of calls and streams (package grpcapi, Options)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/grpcapi.go", `MaxConcurrentStreams(MaxStreams)`, `MaxConcurrentStreams(2 * MaxStreams)`},
		},
		By: unit("shared/frontend", "^TestBoundsOfGRPC$"), Dies: `one more: `,
	},
	{
		Name: "blind-is-told-the-counts",
		Rule: "who may read nothing is told no more by a status than a stranger (package service, Status)",
		Edits: []Edit{
			{servicePkg + "/permit.go", `(p.rules == nil || p.rights.May(access.Read, "", ""))`, `(p.rules == nil || p.rights != nil)`},
		},
		By: unit("shared/frontend", "^TestStatusForStrangers$"), Dies: `"blind"`,
	},
	{
		Name: "session-told-wrong-where-not-looked-at",
		Rule: "a client library whose credential is not looked at is told to come again, and not that it is wrong (package session, begin)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `	if notNow { // the client library comes again then`, `	if notNow && caller != nil {`},
		},
		By: unit("shared/frontend", "^TestTooManyFailures$"), Dies: `a client library: `,
	},
	{
		Name: "line-told-wrong-where-not-looked-at",
		Rule: "a line whose credential is not looked at is not told that it is wrong (package text, execute)",
		Edits: []Edit{
			{"shared/frontend/text/caller.go", `			return failed // it was not looked at`, `			return fail`},
		},
		By: unit("shared/frontend", "^TestTooManyFailures$"), Dies: `one more: "FAIL`,
	},
	{
		Name: "session-ends-without-a-word",
		Rule: "a client library is told why its connection ends on which nobody proved who he is (package session, newConn)",
		Edits: []Edit{
			{"shared/frontend/session/conn.go", `	serving.WhenUnproven(c.RemoteAddr(), func() {`, `	serving.WhenUnproven(nil, func() {`},
		},
		By: unit("shared/frontend", "^TestStrangersDoNotStay$"), Dies: `sessions_of_.*\n.*it was told`,
	},
	{
		Name: "address-bound-not-as-asked",
		Rule: "an address has as many connections as --max-connections-per-address says (package serve, newRoom)",
		Edits: []Edit{
			{"cmd/holdfast/serve/room.go", `each: cmp.Or(each, ConnectionsPerAddress)`, `each: max(each, ConnectionsPerAddress)`},
			{"cmd/holdfast/serve/room.go", `	"cmp"
`, ``},
		},
		By: unit("cmd/holdfast/serve", "^TestConnectionsOfAnAddressAreBounded$"), Dies: `connections of one address`,
	},
}
