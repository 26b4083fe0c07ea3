// SPDX-License-Identifier: Apache-2.0

package mutants

// levelMutants break rules of the feature level of a cluster.
var levelMutants = []Mutant{
	{
		Name: "segments-name-the-binary",
		Rule: "segments name the level of the cluster, so that an older binary takes the log over until it is raised (PROTOCOL 21.1)",
		Edits: []Edit{
			{"shared/volume/volume.go", `		FeatureLevel: v.cluster.Level(t),
`, `		FeatureLevel: max(FeatureLevel, v.cluster.Level(t)),
`},
		},
		By:   unit("shared/volume", "TestSegmentsNameTheLevelOfTheCluster"),
		Dies: `a segment names level 8, the cluster has 3`,
	},
	{
		Name: "segments-name-the-first-level",
		Rule: "the segments of a term behind the raise name the new level (PROTOCOL 21.1)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `r.v.logOptions(r.dir(), r.epoch, a.Table)`, `r.v.logOptions(r.dir(), r.epoch, nil)`},
		},
		By:   unit("shared/volume", "TestSegmentsNameTheLevelOfTheCluster"),
		Dies: `the segments of a term that began behind the raise name \[`,
	},
	{
		Name: "records-pass-the-level",
		Rule: "records need the level of the cluster at most (PROTOCOL 21.1)",
		Edits: []Edit{
			{"primary/level.go", `		level = min(level, reached)
`, `		level = reached
`},
		},
		By:   unit("primary", "TestRecordsNeedTheLevelOfTheCluster"),
		Dies: `a cluster of level 3 reaches level 9: records of level 9, want 3`,
	},
	{
		Name: "level-falls",
		Rule: "the feature level of a cluster only rises (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/locktable/level.go", `	if r.Level <= t.level.n {
`, `	if r.Level == t.level.n {
`},
		},
		By:   unit("shared/locktable", "TestLevelOnlyRises"),
		Dies: `a level that is not higher`,
	},
	{
		Name: "level-decided-again",
		Rule: "a level is raised by one record (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/locktable/level.go", `	if n <= t.level.n {
`, `	if n < t.level.n {
`},
		},
		By:   unit("shared/locktable", "TestLevelOnlyRises"),
		Dies: `level 8 is raised to 8`,
	},
	{
		Name: "level-of-a-newer-binary",
		Rule: "a binary refuses a level that it does not know, in records and in states (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/locktable/record.go", `	if level <= MaxLevel {
		return nil`, `	if level <= MaxLevel+1 {
		return nil`},
		},
		By:   unit("shared/locktable", "TestNewerLevelIsRefused"),
		Dies: `a record: <nil>`,
	},
	{
		Name: "level-of-a-newer-state",
		Rule: "a state of a cluster with a level that this binary does not know is refused with the version that is needed (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/locktable/level.go", `	if err := knownLevel(s.Level, s.Version); err != nil {
		return err
	}
`, ``},
		},
		By:   unit("shared/locktable", "TestNewerLevelIsRefused"),
		Dies: `a state: `,
	},
	{
		Name: "level-not-exported",
		Rule: "the level is in every checkpoint and snapshot (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/locktable/export.go", `		if x.level != (level{}) {`, `		if x.level.n > MaxLevel {`},
		},
		By:   unit("shared/locktable", "TestLevelOnlyRises"),
		Dies: `.`,
	},
	{
		Name: "level-not-hashed",
		Rule: "the level is part of the state's hash (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/locktable/level.go", `	t.hash -= t.sumLevel()
	t.level = l
	t.hash += t.sumLevel()
`, `	t.level = l
`},
			{"shared/locktable/level.go", `	ck.sum(l.appendTo)
`, ``},
		},
		By:   unit("shared/locktable", "TestLevelOnlyRises"),
		Dies: `the level is no part of the hash`,
	},
	{
		Name: "level-not-cloned",
		Rule: "a copy of a table has its level (package locktable, Clone)",
		Edits: []Edit{
			{"shared/locktable/apply.go", `c.inodes, c.past, c.level = maps.Clone(t.inodes), t.past.clone(), t.level`, `c.inodes, c.past = maps.Clone(t.inodes), t.past.clone()`},
		},
		By:   unit("shared/locktable", "TestLevelOnlyRises"),
		Dies: `invariant 10|feature level 0`,
	},
	{
		Name: "level-of-a-newer-checkpoint-is-damage",
		Rule: "a checkpoint of a newer binary is not called damaged, nor the log behind it (PROTOCOL 21.2)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	if newer != nil {
		return nil, newer
	}
`, ``},
			{"shared/volume/adopt.go", `	var newer error
`, ``},
			{"shared/volume/adopt.go", `		if locktable.Newer(err) {
			newer = err
		}
`, ``},
		},
		By:   unit("shared/volume", "TestNoServerServesARaisedCluster/checkpoint"),
		Dies: `taken over: `,
	},
	{
		Name: "too-old-is-able",
		Rule: "a server that is too old for what its primary sends does not take over (PROTOCOL 21.2)",
		Edits: []Edit{
			{"cmd/holdfast/node/node.go", `Able: n.mu.prepared != nil && n.mu.outdated == ""`, `Able: n.mu.prepared != nil`},
		},
		By:   unit("faulttests/sim", "TestServerThatIsTooOldSaysSo"),
		Dies: `server 2 is able: true`,
	},
	{
		Name: "raise-told-early",
		Rule: "a level counts when its record is committed and checked (PROTOCOL 21.2)",
		Edits: []Edit{
			{"primary/level.go", `	done := x.done
`, `	done := x.done
	c.p.clusterLevel.Raise(want)
`},
		},
		By:   unit("primary", "TestRaiseIsToldWhenItIsCommitted"),
		Dies: `a fenced term: .* level 8`,
	},
	{
		Name: "raised-level-forgotten",
		Rule: "a term begins with the level that its log has (package primary, newCore)",
		Edits: []Edit{
			{"primary/core.go", `	c.p.clusterLevel.Raise(p.term.Level(table))
`, `	c.p.clusterLevel.Raise(p.term.Level(nil))
`},
		},
		By:   unit("primary", "^TestRaise$"),
		Dies: `the next term begins with level 3`,
	},
	{
		Name: "upgrade-waits-for-nobody",
		Rule: "the level is raised when every server has said that it knows it (PROTOCOL 21.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/upgrade.go", `	case len(waits) > 0:
`, `	case len(waits) > 9:
`},
		},
		By:   unit("faulttests/sim", "TestUpgradeWaitsForAllServers"),
		Dies: `at once: OK`,
	},
	{
		Name: "upgrade-at-once",
		Rule: "every server has to have said so for ten seconds (PROTOCOL 21.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/upgrade.go", `	case x.LevelFor < levelWait:
`, `	case x.LevelFor < 0:
`},
		},
		By:   unit("faulttests/sim", "TestUpgradeWaitsForAllServers"),
		Dies: `at once: OK`,
	},
	{
		Name: "upgrade-of-the-reached",
		Rule: "a server that is down hinders an upgrade (PROTOCOL 21.3)",
		Edits: []Edit{
			{"cmd/holdfast/node/upgrade.go", `	case !x.Reachable || x.LevelFor == 0:
		return fmt.Sprintf("server %d is not heard: start it", x.ID)
`, `	case !x.Reachable || x.LevelFor == 0:
		return ""
`},
		},
		By:   unit("faulttests/sim", "TestUpgradeWaitsForAllServers"),
		Dies: `server 2 is down: OK`,
	},
	{
		Name: "told-level-outlives-a-silence",
		Rule: "a silence ends what a server said of its level (PROTOCOL 21.3)",
		Edits: []Edit{
			{"election/table.go", `	if level != t.level || now.Sub(t.last) > window {
`, `	if level != t.level {
`},
		},
		By:   unit("election", "TestLevelIsToldFor"),
		Dies: `behind the silence: for `,
	},
}
