// SPDX-License-Identifier: Apache-2.0

package mutants

// deployMutants break what holds the alerts and the dashboard to what servers tell.
var deployMutants = []Mutant{
	{
		Name: "alerts-on-no-metric",
		Rule: "each metric of the alerts and of the dashboard is one that a server tells (package deploy, Unserved)",
		Edits: []Edit{{"faulttests/deploy/deploy.go",
			`			all = append(all, "no server tells "+x[1])`, `			continue`}},
		By: unit("faulttests/deploy", "TestWhatIsMissingIsFound"), Dies: `want \["no server tells holdfast_epochs`,
	},
	{
		Name: "alerts-on-no-label",
		Rule: "a metric has the labels by which an alert chooses it (package deploy, Unserved)",
		Edits: []Edit{{"faulttests/deploy/deploy.go",
			`strings.Contains(","+s, ","+want)`, `strings.Contains(s, want)`}},
		By: unit("faulttests/deploy", "TestWhatIsMissingIsFound"), Dies: `want \["no holdfast_x has tate=`,
	},
	{
		Name: "alerts-without-words",
		Rule: "the manual says of each alert what to look at and what to do (package deploy, Undocumented)",
		Edits: []Edit{{"faulttests/deploy/deploy.go",
			`	words, _, _ = strings.Cut(words, "\n### ")`, `	_ = words`}},
		By: unit("faulttests/deploy", "TestWhatIsMissingIsFound"), Dies: `want one alert, of which 1 is missing`,
	},
}
