// SPDX-License-Identifier: Apache-2.0

package mutants

// crowdMutants break what a client does where its primary is silent, and where very many clients lose theirs at once.
var crowdMutants = []Mutant{
	{
		Name: "question-held-by-a-pause",
		Rule: "a call that a session does not carry has the time of an attempt, and goes to the next primary (package clientlib, attempt)",
		Edits: []Edit{
			{"clientlib/connect.go", `LockServiceClient: pb.NewLockServiceClient(noCalls{}),`, `LockServiceClient: to.stub,`},
		},
		By: unit("clientlib", "^TestPausedPrimaryDoesNotHoldAQuestion$"), Dies: `context deadline exceeded`,
	},
	{
		Name: "question-unwatched",
		Rule: "a call that a session does not carry looks for the next primary while it has no answer (package clientlib, attempt)",
		Edits: []Edit{
			{"clientlib/call.go", `			watch.Reset(first)
`, ``},
		},
		By: unit("clientlib", "^TestPausedPrimaryDoesNotHoldAQuestion$"), Dies: `the answer took`,
	},
	{
		Name: "connections-not-bounded-as-asked",
		Rule: "clients have as many connections as max-connections says, where descriptors allow that (package serve, newRoom)",
		Edits: []Edit{
			{"cmd/holdfast/serve/room.go", `min(int64(connections), spare(int64(descriptors)))`, `spare(int64(descriptors))`},
		},
		By: unit("cmd/holdfast/serve", "^TestConnectionsAreBounded$"), Dies: `--- FAIL: TestConnectionsAreBounded`,
	},
	{
		Name: "crowd-begins-anew",
		Rule: "a client waits for its turn at a server, and does not begin anew (package clientlib, run)",
		Edits: []Edit{{"clientlib/servers.go", `			if !slices.ContainsFunc(all, (*server).connects) {
				cancel(context.DeadlineExceeded) // each question returns whom it did not hear
			}`, `			cancel(context.DeadlineExceeded)`}},
		By:   unit("clientlib", "^TestRoundWaitsForItsTurn$"),
		Dies: `rank 0, error`,
	},
	{
		Name: "silent-server-waited-for",
		Rule: "a round does not wait for a connected server that is silent (package clientlib, run)",
		Edits: []Edit{{"clientlib/servers.go", `			if !slices.ContainsFunc(all, (*server).connects) {
				cancel(context.DeadlineExceeded) // each question returns whom it did not hear
			}`, `			continue`}},
		By:   unit("clientlib", "^TestRoundDoesNotWaitForASilentServer$"),
		Dies: `it took 3s`,
	},
	{
		Name:  "silent-server-unnamed",
		Rule:  "a round that nobody answers tells which servers are silent (package clientlib, run)",
		Edits: []Edit{{"clientlib/servers.go", `				cancel(context.DeadlineExceeded) // each`, `				answered = len(all) // each`}},
		By:    unit("clientlib", "^TestRoundDoesNotWaitForASilentServer$"),
		Dies:  `the error is <nil>`,
	},
}
