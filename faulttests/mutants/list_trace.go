// SPDX-License-Identifier: Apache-2.0

package mutants

// traceMutants break rules of what is traced.
var traceMutants = []Mutant{
	{
		Name: "traces-of-all",
		Rule: "a call without a traceparent is traced by chance only (package trace)",
		Edits: []Edit{{"cmd/holdfast/trace/trace.go",
			"	if p.opt.random() >= p.config.Sample {", "	if p.opt.random() > 1 {"}},
		By: unit("cmd/holdfast/trace", "TestWhoIsTraced"), Dies: "traced: true, want false",
	},
	{
		Name: "unsampled-is-traced",
		Rule: "a caller whose trace is not sampled has decided that (package trace)",
		Edits: []Edit{{"cmd/holdfast/trace/trace.go",
			"		if !from.IsSampled() {", "		if false {"}},
		By: unit("cmd/holdfast/trace", "TestWhoIsTraced"), Dies: "traced: true, want false",
	},
	{
		Name: "malformed-parent-taken",
		Rule: "a traceparent of version 00 has 55 bytes, and anything else counts as none (package trace, parse)",
		Edits: []Edit{{"cmd/holdfast/trace/spans.go",
			`len(parent) > parentLength && strings.HasPrefix(parent, "00")`, "false"}},
		By: unit("cmd/holdfast/trace", "TestHostileParents"), Dies: "is taken",
	},
	{
		Name: "traces-without-a-share",
		Rule: "with a share of 0 nothing is traced, whatever callers send (package trace, Config)",
		Edits: []Edit{{"cmd/holdfast/trace/trace.go",
			`	if c.OTLP != "" && c.Sample > 0 {`, `	if c.OTLP != "" {`}},
		By: unit("cmd/holdfast/trace", "TestNothingIsMadeWhereNothingIsTraced"), Dies: "an exporter is made",
	},
	{
		Name: "calls-wait-for-the-collector",
		Rule: "no call waits for a trace: a report is queued or dropped, and dropped ones are counted (package trace)",
		Edits: []Edit{{"cmd/holdfast/trace/trace.go",
			"	default:\n		p.counts.dropped.Add(1)\n	}\n}", "	case <-p.stop:\n		p.counts.dropped.Add(1)\n	}\n}"}},
		By: unit("cmd/holdfast/trace", "TestNobodyWaitsForTheCollector"), Dies: "reports took|counted",
	},
	{
		Name: "traced-wait-uncounted",
		Rule: "the wait for a lock is a stage of its own (package serving, Stages)",
		Edits: []Edit{{"primary/trace.go",
			"Put: moment(x.trace.put),", "Put: moment(x.at),"}},
		By: unit("primary", "TestTracedWait"), Dies: "it waited for",
	},
	{
		Name: "context-searched-untraced",
		Rule: "where nothing is traced, no context is searched for a trace (package primary, await)",
		Edits: []Edit{{"primary/calls.go",
			`	if p.opt.Traces.Tracer() != nil && c.op() != 0 {`, `	if c.op() != 0 {`}},
		By: unit("primary", "^TestTracedCall$"), Dies: "the context is searched",
	},
	{
		Name: "try-without-a-server",
		Rule: "what a session does not carry is no try there (package clientlib, try)",
		Edits: []Edit{{"clientlib/hooks.go",
			`	if _, ok := stub.(*session); ok {
		ctx = &tracedContext{ctx, begin}`, `	if _, ok := stub.(*session); ok {
		begin()
		ctx = &tracedContext{ctx, func() string { return "" }}`}},
		By: unit("clientlib", "^TestTries$"), Dies: `get tried no session takes this`,
	},
}
