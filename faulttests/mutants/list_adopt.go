// SPDX-License-Identifier: Apache-2.0

package mutants

// adoptMutants break what a reign reads of the one before and makes its own.
var adoptMutants = []Mutant{
	{
		Name: "view-as-base", Also: "M8",
		Rule: "recovery trusts checkpoints and the log, never the views for people (DESIGN 3.1)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	for _, lsn := range all {
		b, err := v.readBase`, `	if state, err := readFile(v.fs, stateName, FlagRead); err == nil {
		if requests, err := readFile(v.fs, requestsName, FlagRead); err == nil {
			if b, err := decodeBase(state, requests); err == nil && warm == nil {
				if b.table, err = b.restore(); err == nil {
					return b, nil
				}
			}
		}
	}
	for _, lsn := range all {
		b, err := v.readBase`},
		},
		By:   unit("shared/volume", "^TestScanDoesNotReadTheViews$"),
		Dies: "with an old view beside the log nobody takes over|the scan began at LSN",
	},
	{
		Name: "base-from-start", Also: "BASE_FROM_START",
		Rule: "the base is the newest checkpoint that verifies, not the one that was there at START (DESIGN 1)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	for _, lsn := range all {
		b, err := v.readBase`, `	for _, lsn := range all {
		if lsn > a.Source.start.end.LSN {
			continue
		}
		b, err := v.readBase`},
		},
		By:   unit("shared/volume", "^TestScanBeginsAtTheNewestBaseThatVerifies$"),
		Dies: "no segment begins at or before LSN",
	},
	{
		Name: "warm-unproven", Also: "warm table used without its chain value",
		Rule: "a warm table is used only where the log has its chain value (DESIGN 3.3)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	if s.warm.At != s.at || s.warm.Table.LSN() != s.at.LSN {`, `	if s.warm.Table.LSN() != s.at.LSN {`},
		},
		By:   unit("shared/volume", "^TestWarmTableIs$"),
		Dies: `refused_with_another_chain_value.*used: true, want false`,
	},
	{
		Name: "adopted-end-ignored", Also: "",
		Rule: "the log must reach START's adopted end (DESIGN 3.3, 4)",
		Edits: []Edit{
			{"wal/scan.go", `	if s.pos.LSN < opt.AtLeast.LSN {`, `	if false {`},
		},
		By:   unit("wal", "TestScan"),
		Dies: `adopted_end_beyond_the_end|adopted_end_at_the_base|adopted end`,
	},
	{
		Name: "close-is-the-end", Also: "hidden last segment read as the end, M10",
		Rule: "a CLOSE without its successor is refused, never the end (DESIGN 3.3, 4)",
		Edits: []Edit{
			{"wal/scanframes.go", `		if closed {
			next :=`, `		if closed && g.Size == 0 {
			next :=`},
		},
		By:   staleClusters(),
		Dies: `I1: a token of|I3: .* was acknowledged and is lost|I9: .* was first sent after LSN`,
	},
	{
		Name: "link-by-close", Also: "LINK_BY_CLOSE",
		Rule: "closed means: the successor has a header; a CLOSE alone proves nothing (DESIGN 3.4)",
		Edits: []Edit{
			{"wal/scanframes.go", `	case !closed:
		// The owner`, `	case closed && !next.headed:
		g.Closed = true
		s.linkable++
		s.relog = s.pos
		return true, nil
	case !closed:
		// The owner`},
			{"shared/volume/adopt.go", `	linked := a.log.Segments[:a.log.Linkable]
`, `	linked := a.log.Segments[:a.log.Linkable]
	if a.log.Relog == a.End {
		a.relog, a.frames = nil, nil
	}
`},
		},
		By:   unit("wal", "^TestScanOfAnUnfinishedRotation$"),
		Dies: `CLOSE and no header behind: got`,
	},
	{
		Name: "link-open", Also: "LINK_OPEN",
		Rule: "only closed segments are linked, the open one's records are logged again (DESIGN 3.3, 5)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	linked := a.log.Segments[:a.log.Linkable]
`, `	linked := a.log.Segments[:min(a.log.Linkable+1, len(a.log.Segments))]
	a.log.Relog, a.relog, a.frames = a.End, nil, nil
`},
		},
		By:   everyCall(),
		Dies: `no CLOSE, but \S+ has a header`,
	},
	{
		Name: "nothing-relogged", Also: "M5",
		Rule: "adopted records are written again by their adopter before it serves (DESIGN 3.3, 5; RELIABILITY H3)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `		err := log.Append(&b)
		if errors.Is(err, wal.ErrFull) {`, `		var err error
		if errors.Is(err, wal.ErrFull) {`},
			{"shared/volume/adopt.go", `	if got := log.Position(); got != a.End {`, `	if got := log.Position(); got != a.End && len(a.relog) == 0 {`},
		},
		By:   everyCall(),
		Dies: `batch follows LSN \d+ .*, the log ends at`,
	},
	{
		Name: "adoption-unsynced", Also: "ADOPT_NOSYNC, M18",
		Rule: "what is adopted is durable before START, names included (DESIGN 3.3, 5)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	if err := r.v.fs.SyncDir(r.path); err != nil {
		return nil, err
	}
	opt :=`, `	opt :=`},
			{"wal/log.go", `	if err := o.Dir.Sync(); err != nil {
		return nil, fmt.Errorf("start log: sync directory: %w", err)
	}
`, ``},
		},
		By:   calls("power"),
		Dies: `power loss at call \d+: .*log has a gap`,
	},
	{
		Name: "source-removed-early", Also: "REMOVE_SOURCE_EARLY",
		Rule: "nothing of the adopted reign is removed before START; and nothing of it by its adopter at all (DESIGN 3.1)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	if err := r.v.fs.SyncDir(r.path); err != nil {
		return nil, err
	}
	opt :=`, `	if err := r.v.fs.SyncDir(r.path); err != nil {
		return nil, err
	}
	for _, seg := range linked {
		if err := r.v.fs.Remove(from + "/" + seg.Name); err != nil {
			return nil, err
		}
	}
	opt :=`},
		},
		By:   everyCall(),
		Dies: `I8: \d+ remove epochs/\d+/wal-\S+ .* came without a check|house rule: .* did \d+ remove epochs/\d+/wal-`,
	},
	{
		Name: "tail-cleaned", Also: "M11",
		Rule: "nothing is repaired in place: a late repair is a late loss (RELIABILITY H8)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	opt := r.v.logOptions(r.dir(), r.epoch)
`, `	open := a.log.Segments[len(a.log.Segments)-1]
	if f, err := r.v.fs.Open(from+"/"+open.Name, FlagWrite|FlagDirect); err == nil {
		_, err = f.WriteAt(AlignedBuffer(BlockSize), open.Size-BlockSize)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	opt := r.v.logOptions(r.dir(), r.epoch)
`},
		},
		By:   everyCall(),
		Dies: `house rule: epoch epochs/\d+ did \d+ writeat epochs/\d+/wal-`,
	},
	{
		Name: "redo-forgotten", Also: "",
		Rule: "the appends that files may lack are written again by the next reign (DESIGN 3.3, 7)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `		s.a.Redo = append(s.a.Redo, *rec)
`, ``},
		},
		By:   everyCall(),
		Dies: `I5: .* which are not there|I5: \S+ has \d+ bytes, the table says`,
	},
	{
		Name: "receipt-not-replayed", Also: "M12",
		Rule: "request ID and outcome are part of the record: replay makes receipts (DESIGN 5.3, RELIABILITY H10)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	s.redo(&rec)
	if s.warm == nil {`, `	s.redo(&rec)
	if rec.Kind == locktable.KindRelease {
		rec.Request += 1 << 20
	}
	if s.warm == nil {`},
		},
		By:   everyCall(),
		Dies: `I3: \S+ release was acknowledged and is lost|I13: replayed to LSN \d+ the table has hash`,
	},
}
