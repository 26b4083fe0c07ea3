// SPDX-License-Identifier: Apache-2.0

package mutants

// askMutants break what holders say and are asked, and answers that wait for replicas.
var askMutants = []Mutant{
	{
		Name: "grace-cut-short",
		Rule: "an ask's grace is counted to its end, however long (asks)",
		Edits: []Edit{
			{"primary/leases.go", `	if a.until > c.now {
		c.asks.add(a, a.until)
		return
	}
`, ``},
		},
		By:   unit("primary", "LongGrace"),
		Dies: `broken within the grace`,
	},
	{
		Name: "grace-not-counted-afresh",
		Rule: "a failover shortens nobody's grace (asks)",
		Edits: []Edit{
			{"primary/core.go", `		c.countAsk(a.Lock, a.Token, a.Grace)`, `		c.countAsk(a.Lock, a.Token, 0)`},
		},
		By:   unit("primary", "AnAskIsCountedAfresh"),
		Dies: `asked: \[\]`,
	},
	{
		Name: "ask-outlives-its-grant",
		Rule: "only the grant whose holder was asked is broken (asks)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	l.grant = nil
	t.tidyEntry(l)`, `	if l.grant.ask == nil || l.head == nil {
		l.grant = nil
		t.tidyEntry(l)
	}`},
		},
		By:   unit("shared/locktable", "TestRandomRequests"),
		Dies: `invariant 1: free, but remembers a holder`,
	},
	{
		Name: "metadata-of-the-one-before",
		Rule: "what a holder says ends with its grant (metadata)",
		Edits: []Edit{
			{"shared/locktable/grants.go", `	if r.Metadata != "" {
		t.extrasOf(g).metadata = r.Metadata
	}`, `	if r.Metadata != "" {
		t.extrasOf(g).metadata = "of another"
	}`},
		},
		By:   unit("shared/locktable", "TestRandomRequests"),
		Dies: `Metadata:of another`,
	},
	{
		Name: "metadata-changed-while-exported",
		Rule: "a checkpoint is the state at one LSN (export.go)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		at = max(at, l.grant.changed)`, ``},
		},
		By:   unit("shared/locktable", "TestExportIsTheStateAtItsBeginning"),
		Dies: `restore an export of LSN \d+: .*: bad table state|another hash than the table had`,
	},
	{
		Name: "hung-holder-kept-alive",
		Rule: "a lease with heartbeats is renewed by the use of its token only (leases)",
		Edits: []Edit{
			{"primary/leases.go", `	if !l.Heartbeat() {
		heard, _`, `	if l.TTL() > 0 {
		heard, _`},
		},
		By:   unit("primary", "TestOnlyHeartbeatsRenew"),
		Dies: `keep-alives renewed it`,
	},
	{
		Name: "held-for-ever",
		Rule: "a grant ends after its MaxHold however often it is renewed (leases)",
		Edits: []Edit{
			{"primary/leases.go", `	return min(from+l.TTL(), c.limit(l))`, `	return from + l.TTL()`},
		},
		By:   unit("primary", "TestHeldNoLongerThanItMay"),
		Dies: `a renewal near the end: .* of the most it may`,
	},
	{
		Name: "answers-before-the-replicas",
		Rule: "with push-ack an answer waits until replicas show what it says (cluster.PushAck)",
		Edits: []Edit{
			{"primary/replicas.go", `	if len(b.answers) == 0 || p.replication.Acknowledged(lsn) {`, `	if len(b.answers) == 0 || p.replication.Acknowledged(lsn) || lsn > 0 {`},
		},
		By:   unit("primary", "TestAnswersWaitForAllReplicas"),
		Dies: `answered OK +before a replica shows it`,
	},
	{
		Name: "appends-before-the-replicas",
		Rule: "with push-ack an append's answer waits like every other (cluster.PushAck)",
		Edits: []Edit{
			{"primary/commit.go", `	p.holdAppends(b.appends)
`, ``},
		},
		By:   unit("primary", "TestAppendsWaitToo"),
		Dies: `answered OK +before a replica shows it`,
	},
	{
		Name: "silent-replica-waited-for",
		Rule: "a replica that is silent is dropped from the set after a bound (cluster.PushAck)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `		case now := <-t.C:
			a.dropSilent(now)`, `		case <-t.C:`},
		},
		By:   unit("primary", "TestASilentReplicaIsDropped"),
		Dies: `acquire: context deadline exceeded`,
	},
	{
		Name: "replica-back-too-early",
		Rule: "a dropped replica counts again when it has everything (cluster.PushAck)",
		Edits: []Edit{
			{"primary/replication/barrier.go", `	back := s.out && (everything || lsn >= s.goal && now.Sub(s.since) < a.bound)`, `	back := s.out`},
		},
		By:   unit("primary", "TestAReplicaIsBackWhenItHasEverything"),
		Dies: `of 3 pushes it counted before`,
	},
	{
		Name: "fenced-token-not-durable",
		Rule: "a guard's token is durable before anything is done under it (clientlib/fencing)",
		Edits: []Edit{
			{"clientlib/fencing/guard.go", `	if err := g.admit(e, key, token); err != nil {
		return err
	}
	return f()`, `	if err := f(); err != nil {
		return err
	}
	return g.admit(e, key, token)`},
		},
		By:   unit("clientlib/fencing", "TestDurableBeforeDone"),
		Dies: `after a crash: <nil>`,
	},
	{
		Name: "fenced-old-still-under-way",
		Rule: "nothing of an old holder is under way when a new one's first thing begins (clientlib/fencing)",
		Edits: []Edit{
			{"clientlib/fencing/guard.go", `	e.Lock()
	defer e.Unlock()
	if err := g.admit`, `	if err := g.admit`},
		},
		By:   unit("clientlib/fencing", "TestNothingOldIsUnderWay"),
		Dies: `begins while the old one's is under way`,
	},
}
