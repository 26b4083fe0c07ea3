// SPDX-License-Identifier: Apache-2.0

package mutants

// bindingMutants break rules of protected files, their bindings and what requests about them left behind.
var bindingMutants = []Mutant{
	{
		Name: "already-leaves-no-receipt",
		Rule: "what was answered OK was executed: a late duplicate of a Bind or Seal that found its file so already does nothing (package locktable, KindAlready)",
		Edits: []Edit{
			{"shared/locktable/decide_file.go", `	if q.Client.Anonymous() {
		dec := decided(&r)`, `	if q.Client != "" {
		dec := decided(&r)`},
		},
		By:   unit("shared/locktable", "TestWhatWasAnsweredOKDoesNothingLater"),
		Dies: `request 5 was answered at generation 1|request 3 found the file bound`,
	},
}
