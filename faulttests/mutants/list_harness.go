// SPDX-License-Identifier: Apache-2.0

package mutants

// volumesMadeAnew are clients whose servers' addresses belong to another cluster from now on.
func volumesMadeAnew() Killer {
	return Killer{Pkg: simulation, Run: "^TestVolumeMadeAnew$", Flags: "-sim.anews 6"}
}

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
	{
		Name: "any-cluster-is-served-in-schedules",
		Rule: "a call that is meant for another cluster does nothing (package api, meantFor)",
		Edits: []Edit{
			{"primary/api/meant.go", `		if len(meant) == 0 || meant[0] == id {`, `		if len(meant) == 0 || meant[0] != "" {`},
		},
		By:   volumesMadeAnew(),
		Dies: `another one did the \w+(-alive)? of its client bare`,
	},
	{
		Name: "any-cluster-is-believed-in-schedules",
		Rule: "a client looks at who answers: the first cluster that it met, or nobody (package clientlib, meant)",
		Edits: []Edit{
			{"clientlib/estranged.go", `	if own == id {`, `	if own != "" {`},
		},
		By:   volumesMadeAnew(),
		Dies: `TWO HOLDERS: |after its volume was gone|was never told that its cluster is no more`,
	},
	{
		Name: "clients-of-all-clusters-in-schedules",
		Rule: "the ID of an opened client is known to the cluster that opened it, and to no other (package cluster, ClientID)",
		Edits: []Edit{
			{"shared/locktable/decide.go", `		r.Mark = q.Mark
`, ``},
		},
		By:   volumesMadeAnew(),
		Dies: `another one did the \w+(-alive)? of its client @\d+`,
	},
}
