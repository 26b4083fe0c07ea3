// SPDX-License-Identifier: Apache-2.0

package mutants

// sweepFrontMutants break what front ends make of a request and of an answer.
var sweepFrontMutants = []Mutant{
	{
		Name: "session-client-for-all",
		Rule: "an operation without IDs has none: it is not its session's (package convert, ToRequest)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `		if client == "" && id != 0 {`, `		if client == "" {`},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `an operation without IDs`,
	},
	{
		Name: "session-client-for-none",
		Rule: "an operation with a request ID and no client is its session's (package convert, ToRequest)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `		if client == "" && id != 0 {`, `		if client == "" && id == 1<<63 {`},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `client_id is missing`,
	},
	{
		Name: "crc-of-zero-is-none",
		Rule: "a CRC that is given as 0 is 0 (package convert, fillAppend)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	if q.Crc32C == nil {`, `	if r.CRC == 0 {`},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `got .* want`,
	},
	{
		Name: "expected-offset-lost",
		Rule: "the offset that an append expects is part of it (package convert, fillAppend)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	r.At = q.ExpectedOffset
`, ``},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `got .*At:<nil>`,
	},
	{
		Name: "max-hold-lost",
		Rule: "the longest hold that is asked for is part of an acquire (package convert, fillAcquire)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	r.MaxHold, err = duration("max_hold_ms", q.GetMaxHoldMs())
`, `	_, err = duration("max_hold_ms", q.GetMaxHoldMs())
`},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `MaxHold:2.5s`,
	},
	{
		Name: "heartbeat-lost",
		Rule: "whether only heartbeats renew is part of an acquire (package convert, fillAcquire)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	r.Metadata, r.Heartbeat = q.GetMetadata(), q.GetHeartbeat()
`, `	r.Metadata = q.GetMetadata()
`},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `Heartbeat:true`,
	},
	{
		Name: "grace-lost",
		Rule: "the grace that a holder is given is part of a break (package convert, fillContent)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	r.Grace, err = duration("grace_ms", q.GetGraceMs())
`, ``},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `Grace:1.5s`,
	},
	{
		Name: "metadata-lost",
		Rule: "what is to be set is part of the request that sets it (package convert, fillContent)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `		r.Metadata = q.GetMetadata()
`, ``},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `Metadata:m`,
	},
	{
		Name: "seal-is-a-rotation",
		Rule: "a seal is a seal (package ops, table)",
		Edits: []Edit{
			{"shared/frontend/ops/table.go", `Op: locktable.OpSeal,`, `Op: locktable.OpRotate,`},
		},
		By: unit("shared/frontend/ops", "^TestInto$"), Dies: `got `,
	},
	{
		Name: "any-mode",
		Rule: "a mode that is no number of a mode is refused (package convert, fillAcquire)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	if q.GetMode() < 0 || q.GetMode() > math.MaxUint8 {`, `	if q.GetMode() < math.MinInt32 {`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `mode:256: got <nil>`,
	},
	{
		Name: "low-water-of-nobody",
		Rule: "a low-water mark is that of a client (package convert, fill)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	case client == "" && lowWater != 0:
`, `	case false:
`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `low_water`,
	},
	{
		Name: "request-of-nobody",
		Rule: "client_id and request_id come together (package convert, fill)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	case client == "" && id != 0:
`, `	case false:
`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `client_id is missing`,
	},
	{
		Name: "client-without-a-request",
		Rule: "client_id and request_id come together (package convert, fill)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	case client != "" && id == 0:
`, `	case false:
`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `request_id is missing`,
	},
	{
		Name: "duration-bent",
		Rule: "a duration that cannot be held is refused, and no other one (package convert, duration)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	if ms < 0 || d.Milliseconds() != ms {`, `	if ms < 0 {`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `9223372036854775807`,
	},
	{
		Name: "question-about-no-request",
		Rule: "who asks about a request names one (package convert, ToIDs)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	if request == 0 || cluster`, `	if cluster`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `IDs \{`,
	},
	{
		Name: "lease-without-a-token",
		Rule: "a renewal names its token (package convert, ToLease)",
		Edits: []Edit{
			{"shared/wire/convert/request.go", `	if q.GetToken() == 0 {`, `	if q.GetToken() == 1<<63 {`},
		},
		By: unit("shared/wire/convert", "^TestToAcquireRefuses$"), Dies: `lease `,
	},
	{
		Name: "anonymous-is-protected",
		Rule: "a call without IDs of its own has no repeat protection, and its answer says so (PROTOCOL 12.1)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `Protected: out.Client != "" && !out.Client.Anonymous()`, `Protected: out.Client != ""`},
		},
		By: unit("shared/wire/convert", "^TestFromOutcome$"), Dies: `protected:true`,
	},
	{
		Name: "end-untold",
		Rule: "where an append expected another end, the answer tells where it is (package convert, tellsFile)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `cluster.StatusOffsetMismatch, out.Status == cluster.StatusFileSealed:`, `cluster.StatusFileSealed:`},
		},
		By: unit("shared/wire/convert", "^TestFromOutcome$"), Dies: `got .*want`,
	},
	{
		Name: "receipt-of-a-refusal",
		Rule: "a refusal that left no record has no receipt (package convert, tellsFile)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	return out.LSN != 0
`, `	return true
`},
		},
		By: unit("shared/wire/convert", "^TestFromOutcome$"), Dies: `INVALID_TOKEN|Status:`,
	},
	{
		Name: "ask-untold",
		Rule: "the word to a holder that it let go is part of an answer (package convert, FromOutcome)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	a.Ask, a.HoldLeftMs = FromAsk(out.Ask), wire`, `	a.HoldLeftMs = wire`},
		},
		By: unit("shared/wire/convert", "^TestFromOutcome$"), Dies: `got .*want`,
	},
	{
		Name: "grace-rounded-down",
		Rule: "a grace is not shorter than it was said (package convert, FromAsk)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `GraceMs: wire.CeilMillis(a.Grace)`, `GraceMs: wire.FloorMillis(a.Grace)`},
		},
		By: unit("shared/wire/convert", "^TestFromOutcome$"), Dies: `grace_ms:1000`,
	},
	{
		Name: "remaining-below-zero",
		Rule: "what is left of a lease is not less than nothing, which means something else (package convert)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	return max(0, wire.FloorMillis(d))`, `	return wire.FloorMillis(d)`},
		},
		By: unit("shared/wire/convert", "^TestFromViews$"), Dies: `overdue grant`,
	},
	{
		Name: "wait-rounded-down",
		Rule: "a wait does not look shorter than it is (package wire, CeilMillis)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	return wire.CeilMillis(d)
`, `	return wire.FloorMillis(d)
`},
		},
		By: unit("shared/wire/convert", "^TestFromViews$"), Dies: `a waiter waits longer`,
	},
	{
		Name: "record-of-now",
		Rule: "an event has the time of its record (package convert, FromRecord)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	if r.Time == 0 { // an`, `	if r.Time >= 0 { // an`},
		},
		By: unit("shared/wire/convert", "^TestFromViews$"), Dies: `the record's time is its own`,
	},
	{
		Name: "grant-without-its-token",
		Rule: "the token of a grant is its LSN (PROTOCOL 11.3)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	if r.Kind == locktable.KindGrant {
		e.Token`, `	if r.Kind == locktable.KindGrant && r.Token != 0 {
		e.Token`},
		},
		By: unit("shared/wire/convert", "^TestFromViews$"), Dies: `grant event`,
	},
	{
		Name: "loss-by-a-release-untold",
		Rule: "a release by somebody else is a loss (package convert, LossReason)",
		Edits: []Edit{
			{"shared/wire/convert/answer.go", `	case locktable.KindRelease:
`, `	case locktable.MaxKind + 1:
`},
		},
		By: unit("shared/wire/convert", "^TestFromViews$"), Dies: `is a loss by`,
	},
	{
		Name: "text-control-characters",
		Rule: "a line has no control characters (package text, parse)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", ` || strings.ContainsFunc(s, unicode.IsControl) {`, ` || strings.ContainsFunc("", unicode.IsControl) {`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `HO.*LD,a,me`,
	},
	{
		Name: "text-line-unbounded",
		Rule: "a line is bounded (package text, parse)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `len(s) > maxLine || `, `len(s) > 1<<20 || `},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `LOCK,a,me,000`,
	},
	{
		Name: "text-white-space-is-part",
		Rule: "fields have no white space around them (package text, parse)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `f == "" || f != strings.TrimSpace(f) || `, `f == "" || `},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `LOCK, a,me`,
	},
	{
		Name: "text-fields-unbounded",
		Rule: "a command has so many fields (package text, commands)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", ` || len(fields) > c.Most {`, ` || len(fields) > c.Most+1 {`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `TOKEN,a,me,1|LOCK,a,me,30,5,5`,
	},
	{
		Name: "text-ttl-of-nothing",
		Rule: "a TTL is more than nothing (package text, take)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `return ok && l.ttl > 0`, `return ok`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `LOCK,a,me,0`,
	},
	{
		Name: "text-wait-unbounded",
		Rule: "a LOCK waits at most a day (package text, take)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `return ok && l.wait <= maxWait`, `return ok`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `25h`,
	},
	{
		Name: "text-token-of-nothing",
		Rule: "token 0 is any token, and none that is named (package text, take)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `return err == nil && n > 0`, `return err == nil`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `UNLOCK,a,me,0`,
	},
	{
		Name: "text-client-called-none",
		Rule: "no client is called like an answer (package text, validClient)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `	case success, fail, none, denied, failed,`, `	case success, fail, denied, failed,`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `LOCK,a,NONE`,
	},
	{
		Name: "text-client-of-any-letter",
		Rule: "no client is called like one of the servers' own (package text, validClient)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `	return letter && len(s)`, `	return (letter || s != "") && len(s)`},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `LOCK,a,@17|LOCK,a,~17`,
	},
	{
		Name: "text-client-unbounded",
		Rule: "the name of a client with what is added is a client ID (package text, maxClient)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", ` && len(s) <= maxClient && `, ` && len(s) <= 2*maxClient && `},
		},
		By: unit("shared/frontend/text", "^TestParseRefuses$"), Dies: `LOCK,a,nnn`,
	},
	{
		Name: "text-commands-in-upper-case",
		Rule: "commands may come in any case (package text)",
		Edits: []Edit{
			{"shared/frontend/ops/ops.go", `strings.EqualFold(o.Line.Verb, verb)`, `o.Line.Verb == verb`},
		},
		By: unit("shared/frontend/text", "^TestParse$"), Dies: `lock,a,me,30`,
	},
	{
		Name: "text-one-client-for-all-locks",
		Rule: "a client of this front end is one for each lock (package text, clientID)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `xxhash.Sum64String(string(lock)))`, `xxhash.Sum64String(string(lock[:0])))`},
		},
		By: unit("shared/frontend/text", "^TestNamesOfClients$"), Dies: `names|line_test.go`,
	},
	{
		Name: "text-owner-of-another-lock",
		Rule: "a holder passes for a client of this front end only on its lock (package text, ownerOf)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `; clientID(name, lock) == id {`, `; name != "" {`},
		},
		By: unit("shared/frontend/text", "^TestNamesOfClients$"), Dies: `passes for`,
	},
	{
		Name: "text-owner-like-a-client",
		Rule: "who is no client of this front end is not shown like one (package text, ownerOf)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `	return "=" + s
`, `	return s
`},
		},
		By: unit("shared/frontend/text", "^TestNamesOfClients$"), Dies: `is shown as`,
	},
	{
		Name: "text-wait-is-not-asked-for",
		Rule: "a line with another wait is another request (package text, acquireID)",
		Edits: []Edit{
			{"shared/frontend/text/line.go", `"%s,%d,%d", lock, ttl, wait)`, `"%s,%d,%d", lock, ttl, 0*wait)`},
		},
		By: unit("shared/frontend/text", "^TestRequestsOfALine$"), Dies: `request `,
	},
}
