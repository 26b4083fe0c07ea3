// SPDX-License-Identifier: Apache-2.0

package mutants

// glusterMutants break how options of GlusterFS are judged, and what keeps a process from ending.
var glusterMutants = []Mutant{
	{
		Name: "failure-waits-for-its-reader", Also: "",
		Rule: "a server that ends says why, and waits for no reader of that (RELIABILITY)",
		Edits: []Edit{{"cmd/holdfast/cli/logqueue.go",
			"	a.Stdout, a.Stderr = logSink{q, a.Stdout}, logSink{q, a.Stderr}\n", ""}},
		By:   unit("cmd/holdfast/cli", "^TestFailureWaitsForNoReader$"),
		Dies: "waits for the reader of its words",
	},
}
