// SPDX-License-Identifier: Apache-2.0

package mutants

// wayMutants break the front ends that CLUSTER does not name, and what they rest on.
var wayMutants = []Mutant{
	{
		Name: "ws-any-origin", Also: "",
		Rule: "a page of another site is refused unless its origin is permitted (package origins)",
		Edits: []Edit{
			{"shared/frontend/origins/origins.go", `	if err == nil {
		return nil
	}`, `	if err == nil || r.Header.Get("Origin") != "null" {
		return nil
	}`},
		},
		By: unit("shared/frontend/origins", "^TestPages$"), Dies: `handshake of \{origin:https://\S*evil\.org`,
	},
	{
		Name: "ws-handshake-is-a-get", Also: "",
		Rule: "a handshake is held to what HTTP holds a POST to, though it is a GET (package origins, Handshake)",
		Edits: []Edit{
			{"shared/frontend/origins/origins.go", `	post.Method = http.MethodPost
`, ``},
		},
		By: unit("shared/frontend/origins", "^TestPages$"), Dies: `handshake of \{origin:https://\S*evil\.org`,
	},
	{
		Name: "ws-origins-not-asked", Also: "",
		Rule: "a handshake of WebSocket is refused to pages that are not permitted (package ws, ServeHTTP)",
		Edits: []Edit{
			{"shared/frontend/ws/ws.go", `s.opt.Pages.Handshake(r); err != nil {`, `s.opt.Pages.Handshake(r); err != nil && r.Header.Get("Origin") == "null" {`},
		},
		By: unit("shared/frontend/ws", "^TestOrigins$"), Dies: `origin:https://\S*evil\.org\S* site:cross-site ok:false\}: <nil>`,
	},
	{
		Name: "ws-origin-by-prefix", Also: "",
		Rule: "a pattern stands for the whole origin (package origins, matches)",
		Edits: []Edit{
			{"shared/frontend/origins/origins.go", `path.Match(strings.ReplaceAll(pattern, "[",`, `path.Match(strings.ReplaceAll(pattern+"*", "[",`},
		},
		By:   unit("shared/frontend/origins", "^TestPages$"),
		Dies: `POST, \{origin:https://app\.example\.com\.evil\.org`,
	},
	{
		Name: "any-page-reads", Also: "",
		Rule: "an answer may be read by pages that are permitted, and no others (package origins, HTTP)",
		Edits: []Edit{
			{"shared/frontend/origins/origins.go", `	if !p.permits(r) {
		return`, `	h.Set("Access-Control-Allow-Origin", "*")
	if !p.permits(r) {
		return`},
		},
		By: unit("shared/frontend/origins", "^TestPages$"), Dies: `"\*" may read`,
	},
	{
		Name: "host-not-asked", Also: "",
		Rule: "a request without a credential has to be for a name of the server's (package httpapi, misled)",
		Edits: []Edit{
			{"shared/frontend/httpapi/httpapi.go", `	return h.opt.Pages.Host(r)
`, `	_ = h.opt.Pages.Host(r)
	return nil
`},
		},
		By: unit("shared/frontend", "^TestAPageUnderAStrangersName$"), Dies: `/v1/locks at evil\.org:7601: 200`,
	},
	{
		Name: "host-asked-with-an-origin-only", Also: "",
		Rule: "a GET has no Origin, and is asked for its host as well (package httpapi, misled)",
		Edits: []Edit{
			{"shared/frontend/httpapi/httpapi.go", `	if c.Name() != "" || !serving.PlainTCP(`, `	if c.Name() != "" || r.Header.Get("Origin") == "" || !serving.PlainTCP(`},
		},
		By: unit("shared/frontend", "^TestAPageUnderAStrangersName$"), Dies: `/v1/locks at evil\.org:7601: 200`,
	},
	{
		Name: "host-asked-of-everybody", Also: "",
		Rule: "who has shown a credential may use any name (package httpapi, misled)",
		Edits: []Edit{
			{"shared/frontend/httpapi/httpapi.go", `	if c.Name() != "" || !serving.PlainTCP(`, `	if c.Name() == "-" || !serving.PlainTCP(`},
		},
		By: unit("shared/frontend", "^TestWhoIsAskedForAName$"), Dies: `a credential: 403`,
	},
	{
		Name: "host-by-prefix", Also: "",
		Rule: "a name is the whole name (package origins, knows)",
		Edits: []Edit{
			{"shared/frontend/origins/origins.go", `	_, parent, _ := strings.Cut(host, ".")`, `	host, parent, _ := strings.Cut(host, ".")`},
		},
		By: unit("shared/frontend/origins", "^TestHost$"), Dies: `host:h1\.evil\.org`,
	},
	{
		Name: "host-names-not-known", Also: "",
		Rule: "a server is known by its names, and by those that it is told (package serve, newFronts)",
		Edits: []Edit{
			{"cmd/holdfast/serve/front.go", `opt.Live.pages.Know(secured.known())`, `opt.Live.pages.Know(nil)`},
		},
		By: unit("cmd/holdfast/serve", "^TestNamesOfAServer$"), Dies: `lb\.example\.org: 403`,
	},
	{
		Name: "ws-unread-unbounded", Also: "",
		Rule: "a client that leaves too much unread is cut (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/outbox.go", `	case b.mu.bytes+b.counts(len(m)) > b.limit:`, `	case b.mu.bytes+b.counts(len(m)) > 1000*b.limit:`},
		},
		By: unit("shared/frontend/ws", "^TestAClientThatDoesNotReadIsCut$"), Dies: `after \d+ messages: half a frame|never: it is cut`,
	},
	{
		Name: "ws-large-is-unread", Also: "",
		Rule: "one message may be as large as it is: who reads gets it (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/outbox.go", `return min(n, b.limit/2) }`, `return n }`},
		},
		By: unit("shared/frontend/ws", "^TestTheOutboxTakesWhatIsLarge$"), Dies: `one: it ends: true`,
	},
	{
		Name: "ws-cut-listens-to-contexts", Also: "",
		Rule: "a connection that is cut ends, whatever reads from it (package ws, conn)",
		Edits: []Edit{
			{"shared/frontend/ws/ws.go", `		h.conn.Close() //nolint:errcheck // it may have ended
`, ``},
		},
		By: unit("shared/frontend/ws", "^TestAMessageInsteadOfAClose$"), Dies: `never: the end`,
	},
	{
		Name: "ws-only-data-counts", Also: "",
		Rule: "all bytes of a message count while its operation has no answer (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/conn.go", `id, size := bytes.Clone(m.id), m.size`, `id, size := bytes.Clone(m.id), 0`},
		},
		By: unit("shared/frontend/ws", "^TestWhatWaitsIsCounted$"), Dies: `answer 2: failed to get reader`,
	},
	{
		Name: "ws-white-space-is-kept", Also: "",
		Rule: "an acquire that waits keeps no white space (package ws)",
		Edits: []Edit{
			{"shared/frontend/ws/message.go", `		if err := json.Compact(&b, f.raw); err != nil {
			b.Write(f.raw) // decoding it will give the error
		}`, `		b.Write(f.raw)`},
		},
		By: unit("shared/frontend/ws", "^TestAnAcquireThatWaitsKeepsLittle$"), Dies: `\d{5} bytes are kept for each`,
	},
	{
		Name: "ws-hello-again-is-deaf", Also: "",
		Rule: "what is lost while a client says hello again is told (package ws)",
		Edits: []Edit{
			{"shared/frontend/ws/conn.go", `	old := x.losses[g.client]
`, `	old := x.losses[g.client]
	if old != nil {
		old()
	}
`},
		},
		By: unit("shared/frontend/ws", "^TestHelloAgain$"), Dies: `told \[\]`,
	},
	{
		Name: "replica-forwards-what-is-wrong", Also: "",
		Rule: "what a primary would certainly refuse is refused by the server that has it (package frontend, Forwarding)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `	if x, wrong := h.rejectLocally(o); wrong {`, `	if x, wrong := h.rejectLocally(o); wrong && h.s.Self() == 0 {`},
		},
		By: unit("shared/frontend", "^TestReplicaRefusesWhatIsWrong$"), Dies: `the primary was asked \d+ times`,
	},
	{
		Name: "ws-cut-without-a-word", Also: "",
		Rule: "whoever is cut for what it leaves unread gets the reason, behind a whole message (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/outbox.go", `			return x.c.Close(last.Code, last.Reason)`, `			return x.c.CloseNow()`},
		},
		By: unit("shared/frontend/ws", "^TestAClientThatDoesNotReadIsCut$"), Dies: `after \d+ messages: (EOF|half a frame|read tcp .*reset)`,
	},
	{
		Name: "ws-watch-does-not-wait", Also: "",
		Rule: "a watch waits for room, so that a client that does not read is cut for nothing but what it asked for (package ws)",
		Edits: []Edit{
			{"shared/frontend/ws/watch.go", `	if err := t.x.out.room(ctx, len(m)); err != nil {`, `	if err := t.x.out.room(ctx, -len(m)<<20); err != nil {`},
		},
		By: unit("shared/frontend/ws", "^TestAWatchThatIsNotReadWaits$"), Dies: `after \d+ events: opcode 8 .*were not read`,
	},
	{
		Name: "ws-waiting-takes-room", Also: "",
		Rule: "acquires that wait take no room from other operations (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/pending.go", `o.Waits() && m.has("wait") {`, `o.Waits() && m.has("waits") {`},
		},
		By: unit("shared/frontend/ws", "^TestOperationsInFlightAreBounded$"), Dies: `the connection has 2 operations in flight`,
	},
	{
		Name: "ws-room-is-not-given-back", Also: "",
		Rule: "an answer makes room for the next operation (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/pending.go", `	f.mu.bytes -= int64(bytes)
`, ``},
		},
		By: unit("shared/frontend/ws", "^TestOperationsInFlightAreBounded$"), Dies: `"op":"append".*bytes in flight`,
	},
	{
		Name: "ws-connections-unbounded", Also: "",
		Rule: "connections are bounded, and one that ended is none (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/ws.go", `	delete(s.mu.conns, x)
`, `	_ = x
`},
		},
		By: unit("shared/frontend/ws", "^TestConnectionsAreBounded$"), Dies: `never: room for one`,
	},
	{
		Name: "ws-message-unbounded", Also: "",
		Rule: "a message is bounded (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/ws.go", `	c.SetReadLimit(s.opt.Limits.Message)
`, `	c.SetReadLimit(64 << 20)
`},
		},
		By: unit("shared/frontend/ws", "^TestMessagesAreBounded$"), Dies: `ended with .*, want StatusMessageTooBig`,
	},
	{
		Name: "ws-silence-is-life", Also: "",
		Rule: "a client that answers no ping is cut (package ws, Bounds)",
		Edits: []Edit{
			{"shared/frontend/ws/outbox.go", `		if err := x.pong(ctx, every); err != nil {
			return err
		}`, `		go x.pong(ctx, every) //nolint:errcheck // a mutant`},
		},
		By: unit("shared/frontend/ws", "^TestSilenceIsBounded$"), Dies: `who answers no ping is not cut`,
	},
	{
		Name: "ws-connection-is-life", Also: "",
		Rule: "an open connection renews nothing (package ws)",
		Edits: []Edit{
			{"shared/frontend/ws/outbox.go", `		if x.writing.Load() {
			continue
		}`, `		if x.writing.Load() {
			continue
		}
		x.s.door.Call(ctx, "keepalive", []byte("{\"client_id\":\"c\"}"))`},
		},
		By:   unit("shared/frontend/ws", "^TestAConnectionRenewsNothing$"),
		Dies: `TestAConnectionRenewsNothing .* failed to get reader: context deadline exceeded`,
	},
	{
		Name: "ws-place-outlives-its-caller", Also: "",
		Rule: "an acquire under IDs that the server made ends with its connection (package frontend, Calls without IDs)",
		Edits: []Edit{
			{"shared/frontend/ws/conn.go", `return x.s.door.Call(ctx, op, body).Body })`, `return x.s.door.Call(context.WithoutCancel(ctx), op, body).Body })`},
		},
		By: unit("shared/frontend/ws", "^TestPlacesInTheQueue$"), Dies: `never: one waits`,
	},
	{
		Name: "ws-request-of-a-stranger", Also: "",
		Rule: "a request with an ID and no client is of the client that said hello, wherever it comes back (package ws)",
		Edits: []Edit{
			{"shared/frontend/ws/message.go", `		m.fields = append(m.fields, field{"client_id", encode(client)})
`, `		m.fields = append(m.fields, field{"client_id", encode(client + m.op)})
`},
		},
		By: unit("shared/frontend/ws", "^TestReconnect$"), Dies: `the append again: .* is of client cacquire, not of c`,
	},
	{
		Name: "ws-stops-at-once", Also: "",
		Rule: "a server that stops says so behind the answers to what is under way (package ws, Server.Stop)",
		Edits: []Edit{
			{"shared/frontend/ws/ws.go", `			case <-x.pending.quiet():
			case <-answers.Done():
			}`, `			default:
				_ = answers
			}`},
		},
		By: unit("shared/frontend/ws", "^TestStop$"), Dies: `answer 2: failed to get reader: received close frame: .*this server stops`,
	},
	{
		Name: "ws-half-a-character", Also: "",
		Rule: "what is appended is what was sent: text that stands for no bytes is refused (package ws)",
		Edits: []Edit{
			{"shared/frontend/ws/message.go", `	if !wire.WholeText(f.raw) {`, `	if !wire.WholeText(f.raw[:2]) {`},
			{"shared/frontend/ws/message.go", `&& !wire.WholeText(f.raw):`, `&& !wire.WholeText(f.raw[:2]):`},
		},
		By: unit("shared/frontend/ws", "^TestAppendings$"), Dies: `ude00": .*, <nil>, want "error"`,
	},
	{
		Name: "ws-half-a-name", Also: "",
		Rule: "two names that are no text do not become one (package ws, field.text)",
		Edits: []Edit{
			{"shared/frontend/ws/message.go", `	if !wire.WholeText(f.raw) {`, `	if !wire.WholeText(f.raw[:2]) {`},
		},
		By:   unit("shared/frontend/ws", "^TestMessages$"),
		Dies: `holds half a character`,
	},
	{
		Name: "replica-tells-no-loss", Also: "",
		Rule: "every server that is fed tells a holder what it loses (package watch, Hub.Losses)",
		Edits: []Edit{
			{"replica/replica.go", `	r.feed.Frames(p.Before, r.mu.at, p.Epoch, p.Frames, taken)`, `	r.feed.Frames(p.Before, r.mu.at, p.Epoch, p.Frames, taken[:0])`},
		},
		By: unit("replica", "^TestTheFeedHearsWhatIsTaken$"), Dies: `heard \[frames from 4 to 5 alive frames from 5 to 6 alive .*want `,
	},
	{
		Name: "release-is-a-loss", Also: "",
		Rule: "a holder's own release takes nothing from it (package watch, Hub.Losses)",
		Edits: []Edit{
			{"replica/replica.go", `rec.Kind == locktable.KindRelease && rec.Client == g.Client`, `rec.Kind == locktable.KindRelease && rec.Client == ""`},
		},
		By: unit("replica", "^TestTheFeedHearsWhatIsTaken$"), Dies: `heard \[frames from 4 to 5 release takes "a" of "a"`,
	},
	{
		Name: "missed-losses-unsaid", Also: "",
		Rule: "where losses may be missing, who listens is told that (package watch, Hub.Losses)",
		Edits: []Edit{
			{"shared/watch/hub.go", `	if why.Gap {
		h.deliverGap()
	}`, ``},
		},
		By: unit("shared/watch", "^TestLossesOfAll$"), Dies: `told \[\], want \[missed\]`,
	},
	{
		Name: "clear-untold", Also: "",
		Rule: "who listens over the end of a term hears that the next one cleared the table (package watch, ClearedOf)",
		Edits: []Edit{
			{"primary/hub.go", `		if r.Kind == locktable.KindForceClear && c.p.opt.Watch != nil {`, `		if r.Kind == locktable.KindForceClear && c.p.opt.Watch == nil {`},
		},
		By: unit("primary", "^TestAClearIsToldToAll$"), Dies: `told of \[\]`,
	},
	{
		Name: "clear-is-no-loss", Also: "",
		Rule: "a ForceClear is a loss of everybody's (package watch, ClearedOf)",
		Edits: []Edit{
			{"shared/watch/loss.go", `		if l.Client == "" {
			for client`, `		if l.Client == "*" {
			for client`},
		},
		By: unit("shared/watch", "^TestLossesOfAll$"), Dies: `told \[\], want \["" LOSS_REASON_FORCE_CLEARED\]`,
	},
}
