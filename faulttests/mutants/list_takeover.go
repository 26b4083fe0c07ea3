// SPDX-License-Identifier: Apache-2.0

package mutants

// takeoverMutants break how one reign follows another: claim, fences, START.
var takeoverMutants = []Mutant{
	{
		Name: "claim-unread", Also: "",
		Rule: "after a failed rename only one's own nonce, read back, makes a number one's own (DESIGN 3.2)",
		Edits: []Edit{
			{"shared/volume/claim.go", `	return json.Unmarshal(b, &c) == nil && c.Nonce == hex.EncodeToString(nonce[:])`, `	return json.Unmarshal(b, &c) == nil && c.Nonce != ""`},
		},
		By: everyOne("late"), Dies: `I9: two processes had epoch`,
	},
	{
		Name: "epochs-unsynced", Also: "NO_EPOCHS_FSYNC, M18",
		Rule: "epochs/ is fsynced after the rename of a claim (DESIGN 3.2)",
		Edits: []Edit{
			{"shared/volume/claim.go", `	if err := v.fs.SyncDir(epochsDir); err != nil {
		return err
	}
	if !v.holdsNonce`, `	if !v.holdsNonce`},
		},
		By: calls("power"), Dies: `I3: no reign can begin on what is left|epoch-missing: epochs/\d+ `,
	},
	{
		Name: "free-name", Also: "FREE_NAME",
		Rule: "an epoch's name is never free again (DESIGN 3.1)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `		if x.Name == fenceName || x.Name == claimName {
			continue
		}
		if err := r.Err()`, `		if err := r.Err()`},
			{"shared/volume/checkpoint.go", `		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}`, `		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.v.fs.Remove(epochDir(e))
}`},
		},
		By: everyCall(), Dies: `did \d+ remove epochs/\d+/(fence|claim\.json)|a claimant that slept for long might take its name`,
	},
	{
		Name: "start-before-fence", Also: "M4, READ_BEFORE_FENCE",
		Rule: "set the fence, then read START through the same descriptor (DESIGN 3.3, 2)",
		Edits: []Edit{
			{"shared/volume/fence.go", `	if err := setFlag(f, by, nonce); err != nil {`, `	s, err = readStart(ctx, f, d)
	if err != nil {
		return nil, err
	}
	if err := setFlag(f, by, nonce); err != nil {`},
			{"shared/volume/fence.go", `	return readProvenStart(ctx, fsys, f, d)
`, `	return s, nil
`},
			// The history, which is written within a second, mostly tells of the reign all the same.
			{"shared/volume/witness.go", `func (v *Volume) witnesses(ctx context.Context, from cluster.Epoch) (all []witness) {
`, `func (v *Volume) witnesses(ctx context.Context, from cluster.Epoch) (all []witness) {
	if v.calls != nil {
		return nil
	}
`},
			{"primary/takeover.go", `known := max(p.opt.Known, p.reign.HistoryReach(ctx))`, `known := p.opt.Known`},
		},
		By: calls("claimed"), Dies: `I3: \S+ \w+ was acknowledged and is lost|I1: a token of \S+ was granted twice`, Fast: true,
	},
	{
		Name: "scan-before-fence", Also: "M4",
		Rule: "the log is scanned when its reign is fenced, not before (DESIGN 3.3)",
		Edits: []Edit{
			{"primary/takeover.go", `	src, err := p.reign.FenceOlder(ctx)
`, `	early, err := p.reign.Peek(ctx, p.opt.Warm)
	if err != nil {
		return nil, err
	}
	src, err := p.reign.FenceOlder(ctx)
`},
			{"primary/takeover.go", `	a, err := p.reign.Scan(ctx, src, p.opt.Warm)
`, `	a := early
	a.Source = src
`},
			{"shared/volume/reign.go", `// WritersEnded says`, `// Peek scans without fencing.
func (r *Reign) Peek(ctx context.Context, warm *Warm) (*Adoption, error) {
	for d := r.epoch; d > 0; {
		d--
		f, _, err := openFence(r.v.fs, d, FlagRead)
		if err != nil {
			return nil, err
		}
		s, err := readStart(ctx, f, d)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if s != nil {
			return r.Scan(ctx, Source{Epoch: d, start: *s}, warm)
		}
	}
	return nil, ErrDamaged
}

// WritersEnded says`},
		},
		By:   calls("claimed"),
		Dies: `I3: \S+ \w+ was acknowledged and is lost|I7: \S+ \w+: was told .*, now |I5: \S+ has \d+ bytes, the table says`,
	},
	{
		Name: "flock-is-death", Also: "M16",
		Rule: "a free flock shortens a wait and proves nothing: fences are set all the same (DESIGN 3.7, RELIABILITY H13)",
		Edits: []Edit{
			{"shared/volume/fence.go", `	if err := setFlag(f, by, nonce); err != nil {`, `	if l, lockErr := fsys.TryLock(epochDir(d) + "/" + claimName); lockErr == nil {
		return readAfter(ctx, f, d, l.Unlock())
	}
	if err := setFlag(f, by, nonce); err != nil {`},
			{"shared/volume/fence.go", `// pause waits,`, `func readAfter(ctx context.Context, f File, d cluster.Epoch, err error) (*start, error) {
	if err != nil {
		return nil, err
	}
	return readStart(ctx, f, d)
}

// pause waits,`},
		},
		By: calls("expire"), Dies: `unfenced: \S+ at \d+: epoch \d+ is not fenced|I3: \S+ \w+ was acknowledged and is lost`,
	},
	{
		Name: "missing-fence", Also: "M10",
		Rule: "a missing fence of an older epoch means refuse, ENOENT never means nothing (DESIGN 3.2, RELIABILITY H5)",
		Edits: []Edit{
			{"shared/volume/walk.go", `			return w.across(ctx, d+1, err)`, `			continue`},
		},
		By: unit("shared/volume", "TestOlderReignIs"), Dies: `refused_without_a_fence.* adopts from \d+: <nil>`,
	},
	{
		Name: "begin-from-nothing", Also: "",
		Rule: "no START anywhere: refuse, never begin from nothing (DESIGN 3.3, 2)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	return 0, nil, fmt.Errorf("%w: no reign below epoch %d has a START", ErrDamaged, top)`, `	return 0, &start{}, nil`},
		},
		By: unit("shared/volume", "TestNothingIsAdoptedWhereNoReignStarted"), Dies: `got <nil>`,
	},
	{
		Name: "recover-sleeps-on", Also: "",
		Rule: "a recovery begins only where nobody began since it looked (DESIGN 3.3; H25)",
		Edits: []Edit{
			{"shared/volume/recover_publish.go", `		if e.start != nil || e.unknown() ||`, `		if e.unknown() ||`},
		},
		By: unit("shared/volume", "TestRecoverWakesLate"), Dies: `epoch \d+ lost what epoch \d+ acknowledged`,
	},
	{
		Name: "recover-fences-what-it-saw", Also: "",
		Rule: "a recovery fences everybody below its number, also who came after it looked (DESIGN 3.3; H25)",
		Edits: []Edit{
			{"shared/volume/recover_publish.go", `		if more, err = takenBehind(r.fs, last, e); err != nil || len(more) == 0 {
			return err
		}
		last =`, `		if last > 0 {
			return err
		}
		last =`},
		},
		By:   unit("shared/volume", "TestRecoverWakesLate|TestRecoverFences"),
		Dies: `epoch \d+ begins below a recovery: <nil>|lost what epoch \d+ acknowledged`,
	},
	{
		Name: "recover-forgets-flags", Also: "",
		Rule: "a recovery keeps what tells that something is missing, so that it asks again (H25)",
		Edits: []Edit{
			{"shared/volume/recover_publish.go", `other.by > by.by || !allZero(block) && by.by < r.plan.Epoch {`, `other.by > maxNumber {`},
		},
		By: unit("shared/volume", "TestRecoverAsksAgain"), Dies: `a_flag_tells.* the volume changed meanwhile`,
	},
	{
		Name: "bad-start-is-none", Also: "",
		Rule: "START that is neither absent nor valid is read again and refused, never taken for absent (DESIGN 3.3, 2)",
		Edits: []Edit{
			{"shared/volume/fence.go", `		return nil, fmt.Errorf("START is neither absent nor valid")`, `		return nil, nil`},
		},
		By: unit("shared/volume", "TestOlderReignIs|TestStart"), Dies: `refused_with_\S* \(.* adopts from \d+: <nil>`,
	},
	{
		Name: "clear-ends-early", Also: "flock shortening the clear policy",
		Rule: "under the clear policy the wait never ends early (DESIGN 3.7)",
		Edits: []Edit{
			{"primary/takeover.go", `	return waitFor(ctx, p.reign.Done(), longest+t.ClearBuffer-time.Since(fenced))`, `	if p.reign.WritersEnded(p.source) {
		return nil
	}
	return waitFor(ctx, p.reign.Done(), longest+t.ClearBuffer-time.Since(fenced))`},
		},
		By:   unit("primary", "TestClearWaitsForEverySharer|TestClearPolicy"),
		Dies: `a lease of a minute may be alive|the takeover took .*, want the longest TTL`,
	},
	{
		Name: "start-unsynced", Also: "START_NOSYNC",
		Rule: "START is durable before anything is served (DESIGN 3.3, 6)",
		Edits: []Edit{
			{"shared/volume/reign.go", `	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join`, `	if err = errors.Join`},
		},
		By: everyCall(), Dies: `I8: \d+ (writeat|remove|rename) .* was not durable`, Fast: true,
	},
	{
		Name: "start-unchecked", Also: "",
		Rule: "behind START the own fence is checked before anything is done (DESIGN 3.3, 6)",
		Edits: []Edit{
			// Alone the second edit is harmless: every deed behind START has a check of its own.
			{"primary/housekeeper.go", `	if err := p.reign.Check(); err != nil {
		return
	}
`, ``},
			{"shared/volume/reign.go", `	if err = errors.Join(err, f.Close()); err != nil {
		return r.Depose(fmt.Errorf("write START: %w", err))
	}
	return r.Check()`, `	if err = errors.Join(err, f.Close()); err != nil {
		return r.Depose(fmt.Errorf("write START: %w", err))
	}
	return nil`},
		},
		By: everyCall(), Dies: `I8: \d+ (remove|writeat|rename) .* came without a check`,
	},
	{
		Name: "redo-first", Also: "M23, REDO_FIRST",
		Rule: "protected files are written only behind START (DESIGN 3.3, 7)",
		Edits: []Edit{
			{"primary/takeover.go", `	if err := p.reign.WriteStart(a.End); err != nil {
		return nil, err
	}
`, ``},
			{"primary/takeover.go", `	c.begin(a)
`, `	c.begin(a)
	p.sleep(5 * time.Millisecond)
	if err := p.reign.WriteStart(a.End); err != nil {
		return nil, err
	}
`},
		},
		By: everyCall(), Dies: `I8: \d+ writeat files/\S+ \S+ at step \d+ came without a check`,
	},
	{
		Name: "deaf-pre-vote", Also: "",
		Rule: "who hears a live primary makes a candidate yield (DESIGN 2, RELIABILITY H20)",
		Edits: []Edit{
			{"election/rule.go", `		if in.hears(v) {
			return Yield, reasonPrimary
		}
`, ``},
		},
		By: Killer{Pkg: simulation, Run: "^TestPermanentFaults$"}, Dies: `reigns alternate: epoch \d+ became \d+`,
	},
}
