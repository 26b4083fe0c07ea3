// SPDX-License-Identifier: Apache-2.0

package mutants

const electing = "clientlib/leader"

// elections are candidates on drifting clocks over faults drawn by seed.
func elections() Killer {
	return Killer{Pkg: simulation, Run: "^TestElections$", Flags: "-sim.elections 2"}
}

// electionMutants break leader election for applications.
var electionMutants = []Mutant{
	{
		Name: "leads-to-the-end", Also: "",
		Rule: "the Context of a leader ends a grace before its lease could (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `time.Until(l.lock.Expires()) - l.e.o.Grace }`, `time.Until(l.lock.Expires()) }`},
		},
		By:   unit(electing, "^TestContextEndsBeforeTheLeaseCan$"),
		Dies: `the context ended 0s before the deadline`,
	},
	{
		Name: "leads-beyond-the-end", Also: "",
		Rule: "at most one Context of an election is alive at any moment (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `time.Until(l.lock.Expires()) - l.e.o.Grace }`, `time.Until(l.lock.Expires()) + l.e.o.Grace }`},
			{"clientlib/leader/leadership.go", `			l.lose(why)
`, `			if l.isRunning() {
				<-t.C
				continue
			}
			l.lose(why)
`},
		},
		By:   elections(),
		Dies: `token \d+ leads and token \d+, since \S+, does too`,
	},
	{
		Name: "loss-unheard", Also: "",
		Rule: "a leader whose lock is lost does not lead, whatever its clock says (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `		case <-l.lock.Context().Done():
			why`, `		case <-context.Background().Done():
			why`},
		},
		By:   unit(electing, "^TestBrokenLeadershipEndsAtOnce$"),
		Dies: `the context ended after .* could not be renewed in time`,
	},
	{
		Name: "ask-unheard", Also: "",
		Rule: "a leader that is asked to let go does, before the lock is taken (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `	go l.listen()
`, ``},
		},
		By:   unit(electing, "^TestLeaderThatIsAskedLetsGo$"),
		Dies: `the lock was taken`,
	},
	{
		Name: "work-outlives-leadership", Also: "",
		Rule: "the context of Run's function ends with the leadership (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/run.go", `	err = f(l.ctx, l)`, `	err = f(context.WithoutCancel(l.ctx), l)`},
		},
		By:   unit(electing, "^TestRunGoesOnAfterALoss$"),
		Dies: `the context lives for an hour|ended behind the deadline`,
	},
	{
		Name: "overrun-tolerated", Also: "",
		Rule: "work that runs at the deadline of a lost leadership is an overrun (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `	if l.isRunning() {
		// The lock`, `	if l.isRunning() && l.lock.Context().Err() == nil {
		// The lock`},
		},
		By:   unit(electing, "^TestOverrun$"),
		Dies: `it overran 0 times`,
	},
	{
		Name: "lease-for-nobody", Also: "",
		Rule: "a lease that was renewed after the leadership ended is let go at the deadline (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/leadership.go", `	l.letGo(context.Background())
`, ``},
		},
		By:   unit(electing, "^TestLeaseRenewedAfterTheContextEnded$"),
		Dies: `kept alive for nobody`,
	},
	{
		Name: "released-before-stopped", Also: "",
		Rule: "the lease is kept alive until the function of Run has returned (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/run.go", `	l.start()
	l.e.o`, `	l.start()
	context.AfterFunc(l.ctx, func() { l.letGo(l.ctx) })
	l.e.o`},
		},
		By:   unit(electing, "^TestWorkMayTakeItsTimeToStop$"),
		Dies: `leads when the work has stopped since 0001-01-01`,
	},
	{
		Name: "place-given-up", Also: "",
		Rule: "a candidate that was cut off stands in line again (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/election.go", `	for errors.Is(err, clientlib.ErrWaitTimeout) {`, `	for e.name == "" && errors.Is(err, clientlib.ErrWaitTimeout) {`},
		},
		By:   unit(electing, "^TestCandidateThatWasCutOff$"),
		Dies: `the wait ended before the lock came`,
	},
	{
		Name: "observe-skips-ends", Also: "",
		Rule: "an observer is told when nobody leads any more, however that came (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/observe.go", `e.Kind == clientlib.EventExpire, e.Kind == clientlib.EventBreak, e.Kind == clientlib.EventDowngrade:
`, `e.Kind == clientlib.EventExpire, e.Kind == clientlib.EventDowngrade:
`},
		},
		By:   unit(electing, "^TestObserver$"),
		Dies: `grants and ends: \[`,
	},
	{
		Name: "observe-skips-values", Also: "",
		Rule: "an observer is told each value that stays (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/observe.go", `		now.Value = e.Metadata
`, ``},
		},
		By:   unit(electing, "^TestObserver$"),
		Dies: `: a value: \[`,
	},
	{
		Name: "observe-misses-the-latest", Also: "",
		Rule: "who is slow is told the latest leader, not an older one (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/observe.go", `		} else {
			o.event(&ev)`, `		} else if len(o.changed) == 0 {
			o.event(&ev)`},
		},
		By:   unit(electing, "^TestObserveTellsTheLatest$"),
		Dies: `told \[0 \d+\], want \[0 2000\]`,
	},
	{
		Name: "reset-by-pieces", Also: "",
		Rule: "a reset counts when it is complete (package clientlib/leader)",
		Edits: []Edit{
			{"clientlib/leader/observe.go", `	if r.Last {`, `	if r.Last || r.Part == 0 {`},
		},
		By:   unit(electing, "^TestObserver$"),
		Dies: `a reset (counts when it is complete|that is begun anew): \[`,
	},
}
