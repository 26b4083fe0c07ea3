// SPDX-License-Identifier: Apache-2.0

package mutants

// logMutants break the log: frames, rotation, removal, and what a scan refuses.
var logMutants = []Mutant{
	{
		Name: "no-datasync", Also: "",
		Rule: "a frame is durable before it is acknowledged (PROTOCOL 8.3)",
		Edits: []Edit{
			{"wal/log.go", `	if err := l.seg.file.Datasync(); err != nil {
		return fmt.Errorf("sync %s: %w", l.seg.name, err)
	}
`, ``},
		},
		By: everyCall(), Fast: true,
		Dies: `I8: .* was not durable`,
	},
	{
		Name: "sync-retried", Also: "",
		Rule: "a failed fsync is never retried (PROTOCOL 10.1)",
		Edits: []Edit{
			{"wal/log.go", `	if err := l.seg.file.Datasync(); err != nil {
		return`, `	if err := l.seg.file.Datasync(); err != nil && l.seg.file.Datasync() != nil {
		return`},
		},
		By:   everyOne("ESTALE,"),
		Dies: `I10: .* after the term was over`,
	},
	{
		Name: "close-first", Also: "CLOSE_FIRST",
		Rule: "the successor exists before a CLOSE is written (PROTOCOL 8.2)",
		Edits: []Edit{
			{"wal/rotate.go", `	if err := l.opt.Dir.Rename(NextName, name); err != nil {
		return fmt.Errorf("name successor %s: %w", name, err)
	}
`, `	if err := l.writeEmpty(FrameClose); err != nil {
		return err
	}
	if err := l.opt.Dir.Rename(NextName, name); err != nil {
		return fmt.Errorf("name successor %s: %w", name, err)
	}
`},
			{"wal/rotate.go", `	if err := l.writeEmpty(FrameClose); err != nil {
		return errors.Join(err, next.file.Close())
	}
`, ``},
		},
		By:   unit("wal", "TestEveryFailurePoint"),
		Dies: `CLOSE without its successor`,
	},
	{
		Name: "successor-unsynced", Also: "",
		Rule: "the successor's name is durable before a CLOSE is written (PROTOCOL 8.2)",
		Edits: []Edit{
			{"wal/rotate.go", `	if err := l.opt.Dir.Sync(); err != nil {
		return fmt.Errorf("name successor %s: sync directory: %w", name, err)
	}
`, ``},
		},
		By:   calls("power"),
		Dies: `power loss at call \d+: .*(no such file or directory|log has a gap)`,
	},
	{
		Name: "header-before-close", Also: "",
		Rule: "a CLOSE is durable before its successor's header is written (PROTOCOL 8.2)",
		Edits: []Edit{
			{"wal/rotate.go", `	if err := l.writeEmpty(FrameClose); err != nil {
		return errors.Join(err, next.file.Close())
	}
`, ``},
			{"wal/rotate.go", `	if err := l.begin(next); err != nil {
		return errors.Join(err, next.file.Close())
	}
`, `	if err := l.begin(next); err != nil {
		return errors.Join(err, next.file.Close())
	}
	begun := l.seg
	l.seg = old
	if err := l.writeEmpty(FrameClose); err != nil {
		return err
	}
	old, l.seg = l.seg, begun
`},
		},
		By:   unit("wal", "TestEveryFailurePoint"),
		Dies: `no CLOSE, but \S+ has a header`,
	},
	{
		Name: "recycled-segment", Also: "recycled segment",
		Rule: "segments are never recycled: another term may have linked them (PROTOCOL 3.4)",
		Edits: []Edit{
			{"wal/rotate.go", `	if err := l.opt.Dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop segment: %w", err)
	}
`, `	if l.NextReady() {
		if err := l.opt.Dir.Remove(NextName); err != nil {
			return err
		}
	}
	if err := l.opt.Dir.Rename(name, NextName); err != nil {
		return fmt.Errorf("drop segment: %w", err)
	}
	again, err := l.opt.Dir.OpenWrite(NextName)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.mu.next, l.mu.nextFile = nextReady, again
	l.mu.Unlock()
`},
			{"wal/log.go", `	if !allZero(l.block) {`, `	if l.block == nil {`},
		},
		By:   unit("wal", "^TestDroppedSegmentKeepsItsBytes$"),
		Dies: `was written to after it was dropped`,
	},
	{
		Name: "newest-closed-removed", Also: "",
		Rule: "the newest closed segment stays until its successor's successor has a header (PROTOCOL 9.2)",
		Edits: []Edit{
			{"wal/rotate.go", `		if s.Last > upto || i == len(l.mu.closed)-1 {`, `		if s.Last > upto || i == len(l.mu.closed) {`},
			{"wal/rotate.go", `	oldest := len(l.mu.closed) > 1 &&`, `	oldest := len(l.mu.closed) > 0 &&`},
		},
		By:   unit("wal", "TestRemovable"),
		Dies: `dropped the newest closed segment`,
	},
	{
		Name: "tail-is-never-damage", Also: "I17",
		Rule: "an invalid frame with later proof of durability is corruption and is refused (PROTOCOL 8.1)",
		Edits: []Edit{
			{"wal/scanframes.go", `		if err == nil && f.Ordinal > ordinal || errors.Is(err, ErrFeatureLevel) {`, `		if f.Ordinal > ordinal && errors.Is(err, ErrFeatureLevel) {`},
		},
		By:   unit("wal", "TestBitFlips|TestDamagedMark"),
		Dies: `flip at \d+, marked (true|false): got .*want ErrCorrupt`,
	},
	{
		Name: "unbound-frames", Also: "",
		Rule: "a frame belongs to the segment whose header it is bound to (package wal)",
		Edits: []Edit{
			{"wal/scanframes.go", `		case err != nil || f.Binding != g.binding:`, `		case err != nil || f.Binding != g.binding && g.binding == 0:`},
		},
		By:   unit("wal", "TestForeignFrame|TestScanRefuses|TestFrameMustFit"),
		Dies: `foreign frame behind the end: got`,
	},
	{
		Name: "chain-ignored", Also: "",
		Rule: "chain values match over the whole scan (PROTOCOL 7.4)",
		Edits: []Edit{
			{"wal/scanframes.go", `		if s.pos.Chain != f.Chain {`, `		if s.pos.Chain != f.Chain && s.pos.LSN == 0 {`},
			{"wal/scanframes.go", `	case next.headed && next.Header.Chain != s.pos.Chain:`, `	case next.headed && next.Header.Chain != s.pos.Chain && s.pos.LSN == 0:`},
		},
		By:   unit("wal", "TestScan"),
		Dies: `of_other_records`,
	},
	{
		Name: "unlink-first", Also: "UNLINK_FIRST",
		Rule: "checkpoint durable, then check, then unlink (PROTOCOL 9.2)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	size, err := p.term.WriteCheckpoint(s)
`, `	for _, name := range p.log.Removable(s.At.LSN) {
		if err := p.log.Drop(name); err != nil {
			return err
		}
	}
	size, err := p.term.WriteCheckpoint(s)
`},
		},
		By:   calls("after"),
		Dies: `no segment begins at or before LSN`,
	},
	{
		Name: "unlink-unchecked", Also: "",
		Rule: "checkpoint durable, then check, then unlink (PROTOCOL 9.2)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	if err := p.term.Check(); err != nil {
		return err
	}
	p.opt.Log.Info().Uint64("lsn"`, `	p.opt.Log.Info().Uint64("lsn"`},
		},
		By:   everyCall(),
		Dies: `I8: \d+ remove .* came without a check`,
	},
	{
		Name: "checkpoint-unsynced", Also: "",
		Rule: "a checkpoint is durable, its name included, before anything behind it is removed (PROTOCOL 9.1)",
		Edits: []Edit{
			{"shared/volume/checkpoint/checkpoint.go", `	return size, fsys.SyncDir(dir)
}`, `	return size, nil
}`},
		},
		By:   everyCall(),
		Dies: `I8: \d+ remove .* was not durable`,
	},
	{
		Name: "unchecked-snapshot", Also: "",
		Rule: "a snapshot carries a basis like every word: only what is durable and checked is in it (PROTOCOL 8.4, H2)",
		Edits: []Edit{
			{"primary/core.go", `	case x.kind == callInternal && c.cur.Len() > 0:
		// A snapshot ends where a frame does, so that pushes can go on from there.
		c.internal = append(c.internal, x)
	case x.kind == callInternal:
		x.read(c.view())
		c.answer(x, locktable.Outcome{Status: cluster.StatusOK})`, `	case x.kind == callInternal:
		x.read(c.view())
		x.done(locktable.Outcome{Status: cluster.StatusOK})`},
		},
		By:   calls("slow"),
		Dies: `I8: (\d+ replace-rename|a push of LSN) .* was not durable`,
	},
	{
		Name: "pending-not-carried", Also: "",
		Rule: "a checkpoint carries the appends that files may lack (PROTOCOL 9.1)",
		Edits: []Edit{
			{"primary/housekeeper.go", `	s.Pending = p.files.Kept(s.At.LSN)
`, `	_ = p.files.Kept(s.At.LSN)
`},
		},
		By:   unit("primary", "TestWarmTakeoverWritesWhatTheBaseCarries"),
		Dies: `the file holds "one\\n"`,
	},
}
