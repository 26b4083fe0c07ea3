// SPDX-License-Identifier: Apache-2.0

package mutants

// takeoverMutants break the order in which one reign follows another.
func takeoverMutants() []Mutant {
	return []Mutant{
		{
			Name: "start-before-fence", Also: "M4, READ_BEFORE_FENCE",
			Rule: "set the fence, then read START through the same descriptor (DESIGN 3.3)",
			Edits: []Edit{
				{"shared/volume/fence.go",
					"	if err := setFlag(f, by, nonce); err != nil {",
					"	s, err = readStart(ctx, f, d)\n	if err != nil {\n		return nil, err\n	}\n	if err := setFlag(f, by, nonce); err != nil {"},
				{"shared/volume/fence.go", "	return readStart(ctx, f, d)\n", "	return s, nil\n"},
			},
			By: everyCall(), Fast: true,
		},
		{
			Name: "start-unsynced", Also: "START_NOSYNC",
			Rule: "START is durable before anything is served (DESIGN 3.3, 6)",
			Edits: []Edit{{"shared/volume/reign.go",
				"	if err == nil {\n		err = f.Sync()\n	}\n	if err = errors.Join", "	if err = errors.Join"}},
			By: everyCall(), Fast: true,
		},
		{
			Name: "redo-first", Also: "M23, REDO_FIRST",
			Rule: "protected files are written only after START is durable and checked (DESIGN 3.3, 7)",
			Edits: []Edit{
				{"primary/takeover.go",
					"	if err := p.reign.WriteStart(a.End); err != nil {\n		return nil, err\n	}\n", ""},
				{"primary/takeover.go",
					"	c.begin(a)\n",
					"	c.begin(a)\n	p.sleep(5 * time.Millisecond)\n	if err := p.reign.WriteStart(a.End); err != nil {\n		return nil, err\n	}\n"},
			},
			By: everyCall(),
		},
	}
}
