// SPDX-License-Identifier: Apache-2.0

package mutants

// nodeMutants break rules of who serves, the composition of a server and what peers tell.
var nodeMutants = []Mutant{
	{
		Name: "ages-by-the-time-of-day", Also: "B10, D3",
		Rule: "ages are monotonic: a step of the time of day neither deposes a primary nor hides a hang (DESIGN 2)",
		Edits: []Edit{{"primary/primary.go",
			"	age := now.Sub(p.began)", "	age := now.Round(0).Sub(p.began)"}},
		By:   unit("primary", "TestAgesDoNotFollowTheTimeOfDay"),
		Dies: "the time of day went by",
	},
}
