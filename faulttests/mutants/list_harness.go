// SPDX-License-Identifier: Apache-2.0

package mutants

// volumesMadeAnew are clients whose servers' addresses belong to another cluster from now on.
func volumesMadeAnew() Killer {
	return Killer{Pkg: simulation, Run: "^TestVolumeMadeAnew$", Flags: "-sim.anews 6"}
}

// volumesSetBack are volumes that are restored from a backup under servers that know better.
func volumesSetBack() Killer {
	return Killer{Pkg: simulation, Run: "^TestVolumeSetBack$", Flags: "-sim.setbacks 6"}
}

// harnessMutants break rules that units hold, too: here the simulation must notice.
var harnessMutants = []Mutant{
	{
		Name: "quarantined-unbound-in-schedules",
		Rule: "a quarantined file is rotated before it is unbound: an append that was lost is never told as done (PROTOCOL 13.7)",
		Edits: []Edit{
			{"shared/locktable/files.go", `		if f.Quarantined { // its last`, `		if f.Quarantined && f.Lock == "" { // its last`},
			{"shared/locktable/apply.go", `r.Remember && (f.Quarantined || `, `r.Remember && (`},
		},
		By:   schedules(),
		Dies: `in no file, and after unbind of it: OK`,
	},
	{
		Name: "lost-appends-unbound-in-schedules",
		Rule: "what was lost in a quarantined generation is known when its file is unbound, too: an append that was lost is never told as done (package locktable, past)",
		Edits: []Edit{
			{"shared/locktable/files.go", `	return t.past.lostOf(rc)`, `	return ""`},
		},
		By:   schedules(),
		Dies: `in no file, and after (unbind|bind) of it: OK`,
	},
	{
		Name: "any-cluster-is-served-in-schedules",
		Rule: "a call that is meant for another cluster does nothing (package grpcapi, meantFor)",
		Edits: []Edit{
			{"shared/frontend/grpcapi/grpcapi.go", `	if meant == "" || meant == id {`, `	if meant == "" || meant != "" {`},
		},
		By:   volumesMadeAnew(),
		Dies: `another one did the \w+(-alive)? of its client bare`,
	},
	{
		Name: "any-cluster-is-believed-in-schedules",
		Rule: "a client looks at who answers: the first cluster that it met, or nobody (package wire, KnownCluster)",
		Edits: []Edit{
			{"shared/wire/calls.go", `	return own, own == id`, `	return own, own != ""`},
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
	{
		Name: "judge-ghosts-for-ever",
		Rule: "an acquire without an answer explains nothing once its wait and its lease must be over (I4)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `		if c.over == 0 || now <= c.over {`, `		if c.over == 0 || now != 0 {`},
		},
		By:   unit("faulttests/check", "TestModelOfWhatIsLeftOfAnAcquire"),
		Dies: `over in a minute, in windows of 0: true, want false`,
	},
	{
		Name: "judge-shown-ghosts-for-ever",
		Rule: "a grant whose client got no answer is over in time, and its token does not make it last (I4)",
		Edits: []Edit{
			{"faulttests/check/lockholds.go", `		if h.ghost {
			open = `, `		if h.ghost && h.token == 0 {
			open = `},
		},
		By:   unit("faulttests/check", "TestModelOfWhatIsLeftOfAnAcquire"),
		Dies: `shown_in_time,_and_there_for_ever.*over in a minute, in windows of 0: true, want false`,
	},
	{
		Name: "judge-ghosts-without-number",
		Rule: "an acquire without an answer explains one grant at most (I4)",
		Edits: []Edit{
			{"faulttests/check/lockmodel.go", `			g.acquires = g.acquires.plus(c.kind, -1)
`, ``},
			{"faulttests/check/lockholds.go", `	s.acquires = s.acquires.atMost(open)`, `	_ = s.acquires.atMost(open)`},
		},
		By:   unit("faulttests/check", "TestModelOfWhatIsLeftOfAnAcquire"),
		Dies: `in windows of 0: true, want false`,
	},
	{
		Name: "judge-ghosts-again-in-each-window",
		Rule: "what an acquire without an answer has explained in one window it does not explain in the next (I4)",
		Edits: []Edit{
			{"faulttests/check/window.go", `s.acquires.plus(k, -1) // this`, `s.acquires.plus(k, 0) // this`},
		},
		By:   unit("faulttests/check", "TestModelOfWhatIsLeftOfAnAcquire"),
		Dies: `in windows of 1: true, want false`,
	},
	{
		Name: "leases-by-the-time-of-day",
		Rule: "leases are counted on a monotonic clock: what the clock on the wall shows is for people (PROTOCOL 11.4)",
		Edits: []Edit{
			{"primary/core.go", `c.clock.advance(now, c.stalled(now)), c.p`, `c.clock.advance(c.p.opt.TimeOfDay(now), c.stalled(now)), c.p`},
		},
		By:   schedules(),
		Dies: `I2: token \d+ of \S+ was heard of`,
	},
	{
		Name: "ages-by-the-clock-on-the-wall",
		Rule: "ages are monotonic: a step of the time of day neither deposes a primary nor hides a hang (PROTOCOL 2.1)",
		Edits: []Edit{
			{"primary/primary.go", `	age := now.Sub(p.began)`, `	age := p.opt.TimeOfDay(now).Sub(p.began)`},
		},
		By:   clusters(),
		Dies: `some primary that was well was deposed`,
	},
	{
		Name: "set-back-for-all-it-knows",
		Rule: "no server serves from a log that ends before what this server knows to be committed (package primary, ErrVolumeRolledBack)",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `told = max(told, known); err`, `told = max(told, 0*known); err`},
			{"cmd/holdfast/node/node.go", `Known: n.knows().LSN,`, `Known: 0 * n.knows().LSN,`},
		},
		By:   volumesSetBack(),
		Dies: `silently lost: server \[\d\] is primary`,
	},
	{
		Name: "data-directory-unread",
		Rule: "what a server knew outlives its process, where it has a data directory (package node, readKnown)",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `	n.mu.known, n.mu.signs = knew, map`, `	n.mu.known.Cluster, n.mu.signs = knew.Cluster, map`},
		},
		By:   volumesSetBack(),
		Dies: `silently lost: server \[\d\] is primary`,
	},
	{
		Name: "recover-loses-in-silence",
		Rule: "a recovery says what may be lost, and asks whether that is agreed to (package volume, Recover)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	source.complete = source.complete && len(missing) == 0`, `	source.complete = source.complete || len(missing) > 0`},
		},
		By:   volumesSetBack(),
		Dies: `silently lost: \d+ operations behind`,
	},
}
