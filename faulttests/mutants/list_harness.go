// SPDX-License-Identifier: Apache-2.0

package mutants

// harnessMutants break rules that units hold, too: here the simulation must notice.
var harnessMutants = []Mutant{
	{
		Name: "quarantined-unbound-in-schedules",
		Rule: "a quarantined file is rotated before it is unbound: an append that was lost is never told as done (DESIGN 5.4)",
		Edits: []Edit{
			{"shared/locktable/decide_file.go", `		if f.Quarantined { // its last`, `		if f.Quarantined && f.Lock == "" { // its last`},
			{"shared/locktable/legal.go", `r.Remember && (f.Quarantined || `, `r.Remember && (`},
		},
		By:   schedules(),
		Dies: `in no file, and after unbind of it: OK`,
	},
	{
		Name: "lost-appends-unbound-in-schedules",
		Rule: "what was lost in a quarantined generation is known when its file is unbound, too: an append that was lost is never told as done (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/file.go", `	return t.past.lostOf(rc)`, `	return ""`},
		},
		By:   schedules(),
		Dies: `in no file, and after (unbind|bind) of it: OK`,
	},
}
