// SPDX-License-Identifier: Apache-2.0

package mutants

// leanMutants break which empty fields an answer in JSON leaves out, and the descriptions of HTTP and gRPC for programs.
var leanMutants = []Mutant{
	{
		Name: "first-byte-left-out", Also: "",
		Rule: "the place of an append is told also where a number of it is zero (package wire, Place)",
		Edits: []Edit{
			{"shared/wire/json.go", "	Offset     int64  `json:\"offset\"`\n	Length", "	Offset     int64  `json:\"offset,omitempty\"`\n	Length"},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `"file":"f","length":4`,
	},
	{
		Name: "place-of-nothing", Also: "",
		Rule: "an answer without a receipt has no place in a file (package wire, PlaceOf)",
		Edits: []Edit{
			{"shared/wire/json.go", `	if r == nil {
		return nil
	}
	return &Place{`, `	return &Place{`},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `"status":"UNKNOWN","offset":0`,
	},
	{
		Name: "marked-untold", Also: "",
		Rule: "an answer says that its grant has what was asked of it, over HTTP, too (package wire, Body)",
		Edits: []Edit{
			{"shared/wire/json.go", `		Marked: a.GetMarked(),
`, ``},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `got  \{"status":"OK","token":5\}`,
	},
	{
		Name: "empty-queue-untold", Also: "",
		Rule: "a refusal because others hold the lock has the length of the queue, also 0 (package wire, BodyOf)",
		Edits: []Edit{
			{"shared/wire/json.go", `n > 0 || status == cluster.StatusHeld || `, `n > 0 || `},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `got  \{"status":"HELD","lock":"a"\}`,
	},
	{
		Name: "nothing-held-untold", Also: "",
		Rule: "a client that holds nothing, and believes otherwise, gets an empty list (package wire, KeepAliveBody)",
		Edits: []Edit{
			{"shared/wire/json.go", `b.Grants = make([]HeldLock, 0, len(k.GetGrants()))`, `b.Grants = nil`},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `"differs":true\},`,
	},
	{
		Name: "limited-without-a-time", Also: "",
		Rule: "LIMITED always says when to come again, also that it does not help (package wire, retryText)",
		Edits: []Edit{
			{"shared/wire/json.go", `	if s == cluster.StatusLimited {
		return duration(ms)
	}
	return someTime(ms)`, `	return someTime(ms)`},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `got  \{"status":"LIMITED"\}`,
	},
	{
		Name: "refusal-tells-a-state", Also: "",
		Rule: "a query for an outcome that was refused does not say that the request was not seen (package wire, OutcomeBodyOf)",
		Edits: []Edit{
			{"shared/wire/json.go", `	if status == cluster.StatusOK { // a refusal does not know`, `	if status != cluster.StatusNone {`},
		},
		By: unit("shared/wire", "^TestBodiesLeaveOutWhatIsEmpty$"), Dies: `"NO_QUORUM","message":"m","age":"0s","state":"not_seen"`,
	},
	{
		Name: "field-not-described", Also: "",
		Rule: "docs/api/openapi.json has the fields of the answers (package httpapi, TestOpenAPI)",
		Edits: []Edit{
			{"shared/wire/json.go", "`json:\"queue_length,omitempty\"`", "`json:\"queue,omitempty\"`"},
		},
		By: unit("shared/frontend/httpapi", "^TestOpenAPI$"), Dies: `the server has "\s*\\?"queue\\?"`,
	},
	{
		Name: "operation-not-described", Also: "",
		Rule: "docs/api/openapi.json has every operation (package httpapi, TestOpenAPI)",
		Edits: []Edit{
			{"shared/frontend/ops/table.go", `Route: "POST /v1/seal"`, `Route: "POST /v1/sealed"`},
		},
		By: unit("shared/frontend/httpapi", "^TestOpenAPI$"), Dies: `docs/api/openapi.json does not have what the server has`,
	},
	{
		Name: "null-for-an-empty-list", Also: "",
		Rule: "an answer is as docs/api/openapi.json describes it: a list is never null (package wire, lockBody)",
		Edits: []Edit{
			{"shared/wire/json.go", `		Waiters: make([]WaiterBody, len(l.GetWaiters())), Files: make`, `		Waiters: append([]WaiterBody(nil), make([]WaiterBody, len(l.GetWaiters()))...), Files: make`},
		},
		By: unit("faulttests/openapi", "^TestServerDoesWhatIsDescribed$"), Dies: `lock .*the answer is not described.*waiters`,
	},
	{
		Name: "reflection-for-strangers", Also: "",
		Rule: "the service is described to callers that the rules permit anything (package service, MayDescribe)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/reflect.go", `	return mayAsk(q.ctx, q.s)
`, `	return nil
`},
		},
		By: unit("shared/frontend", "^TestReflectionIsForCallers$"), Dies: `"": \["grpc.reflection.v1.ServerReflection" "holdfast.v1.LockService"\], <nil>`,
	},
	{
		Name: "reflection-asks-once", Also: "",
		Rule: "each question about the service is asked of the rules (package grpcapi, RecvMsg)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/reflect.go", `	return mayAsk(q.ctx, q.s)
`, `	return nil
`},
			{"shared/frontend/grpcapi/reflect.go", `			return x.Handler(srv, &questions`, `			if err := mayAsk(ctx, s); err != nil {
				return err
			}
			return x.Handler(srv, &questions`},
		},
		By: unit("shared/frontend", "^TestReflectionAsksTheRulesEachTime$"), Dies: `LockService"\], <nil>`,
	},
	{
		Name: "reflection-of-everything", Also: "",
		Rule: "only the service for clients is described, not all that is linked into the binary (package grpcapi, registerReflection)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/reflect.go", `Services: g, DescriptorResolver: files, `, `Services: g, `},
		},
		By: unit("shared/frontend", "^TestReflectionIsForCallers$"), Dies: `google.protobuf.FileDescriptorProto: <nil>`,
	},
	{
		Name: "reflection-of-another-cluster", Also: "",
		Rule: "a question that is meant for another cluster is refused (package grpcapi, meantFor)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/reflect.go", `meantFor(clusterOf(stream.Context()), s.Cluster()); err != nil {`, `meantFor("", s.Cluster()); err != nil {`},
		},
		By: unit("shared/frontend", "^TestReflectionIsForCallers$"), Dies: `meant for another cluster: \["grpc`,
	},
}
