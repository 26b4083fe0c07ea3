// SPDX-License-Identifier: Apache-2.0

package mutants

// adoptMutants break what a term reads of the one before and makes its own.
var adoptMutants = []Mutant{
	{
		Name: "view-as-base", Also: "",
		Rule: "recovery trusts checkpoints and the log, never the views for people (PROTOCOL 3.3)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	for _, lsn := range all {
		b, err := checkpoint.Read`, `	if state, err := vfs.ReadFile(v.fs, layout.StateName, vfs.FlagRead); err == nil {
		if requests, err := vfs.ReadFile(v.fs, layout.RequestsName, vfs.FlagRead); err == nil {
			d := checkpoint.NewDecoder()
			_, err := d.Write(append(requests, state...))
			if s, cerr := d.Close(); err == nil && cerr == nil && warm == nil {
				return &checkpoint.Base{Snapshot: s}, nil
			}
		}
	}
	for _, lsn := range all {
		b, err := checkpoint.Read`},
		},
		By:   unit("shared/volume", "^TestScanDoesNotReadTheViews$"),
		Dies: "with an old view beside the log nobody takes over|the scan began at LSN",
	},
	{
		Name: "base-from-start", Also: "BASE_FROM_START",
		Rule: "the base is the newest checkpoint that verifies, not the one that was there at START (PROTOCOL 7.4)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	for _, lsn := range all {
		b, err := checkpoint.Read`, `	for _, lsn := range all {
		if lsn > a.Source.start.End.LSN {
			continue
		}
		b, err := checkpoint.Read`},
		},
		By:   unit("shared/volume", "^TestScanBeginsAtTheNewestBaseThatVerifies$"),
		Dies: "no segment begins at or before LSN",
	},
	{
		Name: "warm-unproven", Also: "warm table used without its chain value",
		Rule: "a warm table is used only where the log has its chain value (PROTOCOL 7.6)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	if s.warm.At != s.at || s.warm.Table.LSN() != s.at.LSN {`, `	if s.warm.Table.LSN() != s.at.LSN {`},
		},
		By:   unit("shared/volume", "^TestWarmTableIs$"),
		Dies: `refused_with_another_chain_value.*used: true, want false`,
	},
	{
		Name: "adopted-end-ignored", Also: "",
		Rule: "the log must reach START's adopted end (PROTOCOL 7.2)",
		Edits: []Edit{
			{"wal/scan.go", `	if s.pos.LSN < opt.AtLeast.LSN {`, `	if false {`},
		},
		By:   unit("wal", "TestScan"),
		Dies: `adopted_end_beyond_the_end|adopted_end_at_the_base|adopted end`,
	},
	{
		Name: "close-is-the-end", Also: "hidden last segment read as the end",
		Rule: "a CLOSE without its successor is refused, never the end (PROTOCOL 7.4)",
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
		Rule: "closed means: the successor has a header; a CLOSE alone proves nothing (PROTOCOL 7.5)",
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
		Rule: "only closed segments are linked, the open one's records are logged again (PROTOCOL 7.5)",
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
		Name: "nothing-relogged", Also: "",
		Rule: "adopted records are written again by their adopter before it serves (PROTOCOL 7.5, H3)",
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
		Name: "adoption-unsynced", Also: "ADOPT_NOSYNC",
		Rule: "what is adopted is durable before START, names included (PROTOCOL 7.5)",
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
		Rule: "nothing of the adopted term is removed before START; and nothing of it by its adopter at all (PROTOCOL 7.5)",
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
		Name: "tail-cleaned", Also: "",
		Rule: "nothing is repaired in place: a late repair is a late loss (PROTOCOL 3.4, H8)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `	opt := r.v.logOptions(r.dir(), r.epoch, a.Table)
`, `	open := a.log.Segments[len(a.log.Segments)-1]
	if f, err := r.v.fs.Open(from+"/"+open.Name, vfs.FlagWrite|vfs.FlagDirect); err == nil {
		_, err = f.WriteAt(vfs.AlignedBuffer(vfs.BlockSize), open.Size-vfs.BlockSize)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	opt := r.v.logOptions(r.dir(), r.epoch, a.Table)
`},
		},
		By:   everyCall(),
		Dies: `house rule: epoch epochs/\d+ did \d+ writeat epochs/\d+/wal-`,
	},
	{
		Name: "redo-forgotten", Also: "",
		Rule: "the appends that files may lack are written again by the next term (PROTOCOL 7.7)",
		Edits: []Edit{
			{"shared/volume/adopt.go", `		s.a.Redo = append(s.a.Redo, *rec)
`, ``},
		},
		By:   everyCall(),
		Dies: `I5: .* which are not there|I5: \S+ has \d+ bytes, the table says`,
	},
	{
		Name: "receipt-not-replayed", Also: "",
		Rule: "request ID and outcome are part of the record: replay makes receipts (PROTOCOL 12.2, H10)",
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
