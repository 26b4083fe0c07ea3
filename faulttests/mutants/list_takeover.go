// SPDX-License-Identifier: Apache-2.0

package mutants

// takeoverMutants break how one term follows another: claim, fences, START.
var takeoverMutants = []Mutant{
	{
		Name: "claim-unread", Also: "",
		Rule: "after a failed rename only one's own nonce, read back, makes a number one's own (PROTOCOL 4.2)",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/claim.go", `	return json.Unmarshal(b, &c) == nil && c.Nonce == hex.EncodeToString(nonce[:])`, `	return json.Unmarshal(b, &c) == nil && c.Nonce != hex.EncodeToString(nil)`},
		},
		By: everyOne("late"), Dies: `I9: two processes had epoch`,
	},
	{
		Name: "epochs-unsynced", Also: "NO_EPOCHS_FSYNC",
		Rule: "epochs/ is fsynced after the rename of a claim (PROTOCOL 4.3)",
		Edits: []Edit{
			{"shared/volume/claim.go", `	if err := v.fs.SyncDir(layout.EpochsDir); err != nil {
		return err
	}
	if !epochdir.HoldsNonce`, `	if !epochdir.HoldsNonce`},
		},
		By: calls("power"), Dies: `I3: no term can begin on what is left|epoch-missing: epochs/\d+ `,
	},
	{
		Name: "free-name", Also: "FREE_NAME",
		Rule: "an epoch's name is never free again (PROTOCOL 3.2)",
		Edits: []Edit{
			{"shared/volume/checkpoint.go", `		if x.Name == layout.FenceName || x.Name == layout.ClaimName {
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
	return r.v.fs.Remove(layout.EpochDir(e))
}`},
		},
		By: everyCall(), Dies: `did \d+ remove epochs/\d+/(fence|claim\.json)|a claimant that slept for long might take its name`,
	},
	{
		Name: "start-before-fence", Also: "READ_BEFORE_FENCE",
		Rule: "set the fence, then read START through the same descriptor (PROTOCOL 5.1)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	if err := epochdir.SetFlag(f, by, nonce); err != nil {`, `	s, err = epochdir.ReadStart(ctx, f, d)
	if err != nil {
		return nil, err
	}
	if err := epochdir.SetFlag(f, by, nonce); err != nil {`},
			{"shared/volume/walk.go", `	return epochdir.ReadProvenStart(ctx, fsys, f, d)
`, `	return s, nil
`},
			// The history, which is written within a second, mostly tells of the term all the same.
			{"shared/volume/witness.go", `func (v *Volume) Witnesses(ctx context.Context, from cluster.Epoch) (all []Witness) {
`, `func (v *Volume) Witnesses(ctx context.Context, from cluster.Epoch) (all []Witness) {
	if v.calls != nil {
		return nil
	}
`},
			{"primary/takeover.go", `known := max(p.opt.Known, p.term.HistoryReach(ctx))`, `known := p.opt.Known`},
		},
		By: calls("claimed"), Dies: `I3: \S+ \w+ was acknowledged and is lost|I1: a token of \S+ was granted twice`, Fast: true,
	},
	{
		Name: "scan-before-fence", Also: "",
		Rule: "the log is scanned when its term is fenced, not before (PROTOCOL 7.1)",
		Edits: []Edit{
			{"primary/takeover.go", `	src, err := p.term.FenceOlder(ctx)
`, `	early, err := p.term.Peek(ctx, p.opt.Warm)
	if err != nil {
		return nil, err
	}
	src, err := p.term.FenceOlder(ctx)
`},
			{"primary/takeover.go", `	a, err := p.term.Scan(ctx, src, p.opt.Warm)
`, `	a := early
	a.Source = src
`},
			{"shared/volume/term.go", `// WritersEnded reports`, `// Peek scans without fencing.
func (r *Term) Peek(ctx context.Context, warm *WarmState) (*Adoption, error) {
	for d := r.epoch; d > 0; {
		d--
		f, _, err := epochdir.OpenFence(r.v.fs, d, vfs.FlagRead)
		if err != nil {
			return nil, err
		}
		s, err := epochdir.ReadStart(ctx, f, d)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if s != nil {
			return r.Scan(ctx, Source{Epoch: d, start: *s}, warm)
		}
	}
	return nil, ErrDamaged
}

// WritersEnded reports`},
		},
		By:   calls("claimed"),
		Dies: `I3: \S+ \w+ was acknowledged and is lost|I7: \S+ \w+: was told .*, now |I5: \S+ has \d+ bytes, the table says`,
	},
	{
		Name: "flock-is-death", Also: "",
		Rule: "a free flock shortens a wait and proves nothing: fences are set all the same (PROTOCOL 7.3, H13)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	if err := epochdir.SetFlag(f, by, nonce); err != nil {`, `	if l, lockErr := fsys.TryLock(layout.EpochDir(d) + "/" + layout.ClaimName); lockErr == nil {
		return readAfter(ctx, f, d, l.Unlock())
	}
	if err := epochdir.SetFlag(f, by, nonce); err != nil {`},
			{"shared/volume/walk.go", `// writeFencedNote records`, `func readAfter(ctx context.Context, f vfs.File, d cluster.Epoch, err error) (*epochdir.Start, error) {
	if err != nil {
		return nil, err
	}
	return epochdir.ReadStart(ctx, f, d)
}

// writeFencedNote records`},
		},
		By: calls("expire"), Dies: `unfenced: \S+ at \d+: epoch \d+ is not fenced|I3: \S+ \w+ was acknowledged and is lost`,
	},
	{
		Name: "missing-fence", Also: "",
		Rule: "a missing fence of an older epoch means refuse, ENOENT never means nothing (PROTOCOL 5.2, H5)",
		Edits: []Edit{
			{"shared/volume/walk.go", `			return w.across(ctx, d+1, err)`, `			continue`},
		},
		By: unit("shared/volume", "TestOlderTermIs"), Dies: `refused_without_a_fence.* adopts from \d+: <nil>`,
	},
	{
		Name: "begin-from-nothing", Also: "",
		Rule: "no START anywhere: refuse, never begin from nothing (PROTOCOL 5.2)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	return 0, nil, fmt.Errorf("%w: no term below epoch %d has a START", ErrDamaged, top)`, `	return 0, &epochdir.Start{}, nil`},
		},
		By: unit("shared/volume", "TestNothingIsAdoptedWhereNoTermStarted"), Dies: `got <nil>`,
	},
	{
		Name: "recover-sleeps-on", Also: "",
		Rule: "a recovery begins only where nobody began since it looked (PROTOCOL 17.2, H25)",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `		if e.Start != nil || e.Unknown() ||`, `		if e.Unknown() ||`},
		},
		By: unit("shared/volume", "TestRecoverWakesLate"), Dies: `epoch \d+ lost what epoch \d+ acknowledged`,
	},
	{
		Name: "recover-fences-what-it-saw", Also: "",
		Rule: "a recovery fences everybody below its number, also who came after it looked (PROTOCOL 17.2, H25)",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `		if more, err = epochdir.TakenAfter(r.fs, last, e); err != nil || len(more) == 0 {
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
		Rule: "a recovery keeps what tells that something is missing, so that it asks again (PROTOCOL 17.2, H25)",
		Edits: []Edit{
			{"shared/volume/recovery/publish.go", `other.By > by.By || !vfs.AllZero(block) && by.By < r.plan.Epoch {`, `other.By > maxNumber {`},
		},
		By: unit("shared/volume", "TestRecoverAsksAgain"), Dies: `a_flag_tells.* the volume changed meanwhile`,
	},
	{
		Name: "bad-start-is-none", Also: "",
		Rule: "START that is neither absent nor valid is read again and refused, never taken for absent (PROTOCOL 5.2)",
		Edits: []Edit{
			{"shared/volume/internal/epochdir/fence.go", `		return nil, fmt.Errorf("START is neither absent nor valid")`, `		return nil, nil`},
		},
		By: unit("shared/volume", "TestOlderTermIs|TestStart"), Dies: `refused_with_\S* \(.* adopts from \d+: <nil>`,
	},
	{
		Name: "clear-ends-early", Also: "flock shortening the clear policy",
		Rule: "under the clear policy the wait never ends early (PROTOCOL 16)",
		Edits: []Edit{
			{"primary/takeover.go", `	return waitFor(ctx, p.term.Done(), longest+t.ClearBuffer-time.Since(fenced))`, `	if p.term.WritersEnded(p.source) {
		return nil
	}
	return waitFor(ctx, p.term.Done(), longest+t.ClearBuffer-time.Since(fenced))`},
		},
		By:   unit("primary", "TestClearWaitsForEverySharer|TestClearPolicy"),
		Dies: `a lease of a minute may be alive|the takeover took .*, want the longest TTL`,
	},
	{
		Name: "start-unsynced", Also: "START_NOSYNC",
		Rule: "START is durable before anything is served (PROTOCOL 7.2)",
		Edits: []Edit{
			{"shared/volume/term.go", `	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join`, `	if err = errors.Join`},
		},
		By: everyCall(), Dies: `I8: \d+ (writeat|remove|rename) .* was not durable`, Fast: true,
	},
	{
		Name: "start-unchecked", Also: "",
		Rule: "behind START the own fence is checked before anything is done (PROTOCOL 7.2)",
		Edits: []Edit{
			// Alone the second edit is harmless: every deed behind START has a check of its own.
			{"primary/housekeeper.go", `	if err := p.term.Check(); err != nil {
		return
	}
`, ``},
			{"shared/volume/term.go", `	if err = errors.Join(err, f.Close()); err != nil {
		return r.End(fmt.Errorf("write START: %w", err))
	}
	return r.Check()`, `	if err = errors.Join(err, f.Close()); err != nil {
		return r.End(fmt.Errorf("write START: %w", err))
	}
	return nil`},
		},
		By: everyCall(), Dies: `I8: \d+ (remove|writeat|rename) .* came without a check`,
	},
	{
		Name: "redo-first", Also: "REDO_FIRST",
		Rule: "protected files are written only behind START (PROTOCOL 7.7)",
		Edits: []Edit{
			{"primary/takeover.go", `	if err := p.term.WriteStart(a.End); err != nil {
		return nil, err
	}
`, ``},
			{"primary/takeover.go", `	c.begin(a)
`, `	c.begin(a)
	p.sleep(5 * time.Millisecond)
	if err := p.term.WriteStart(a.End); err != nil {
		return nil, err
	}
`},
		},
		By: everyCall(), Dies: `I8: \d+ writeat files/\S+ \S+ at step \d+ came without a check`,
	},
	{
		Name: "deaf-pre-vote", Also: "",
		Rule: "who hears a live primary makes a candidate yield (PROTOCOL 2.2, H20)",
		Edits: []Edit{
			{"election/rule.go", `		if in.hears(v) {
			return Yield, reasonPrimary
		}
`, ``},
		},
		By: Killer{Pkg: simulation, Run: "^TestPermanentFaults$"}, Dies: `terms alternate: epoch \d+ became \d+`,
	},
	{
		Name: "failed-claim-keeps-its-segment",
		Rule: "a server whose takeovers fail does not fill the volume (package volume, DropLog)",
		Edits: []Edit{
			{"primary/takeover.go", `	if !errors.Is(p.term.Err(), volume.ErrFenced) {
		err =`, `	if Refused(err) {
		err =`},
		},
		By: unit("primary", "^TestUnconfirmedTakeoverFencesNobody$"), Dies: `again and again fills the volume`,
	},
	{
		Name: "source-not-confirmed",
		Rule: "where the filesystem shows stale data, what the walk went past is looked at again after the fencing period (PROTOCOL 5.1)",
		Edits: []Edit{
			{"primary/takeover.go", `	if err := p.term.ConfirmSource(ctx, src); err != nil {
		return nil, p.refuse(err)
	}
`, ``},
		},
		By: unit("primary", "TestTakeoverConfirmsItsSource"), Dies: `ended with`,
	},
	{
		Name: "stale-note-is-followed",
		Rule: "where the filesystem shows stale data, nobody notes or believes that a term has not started (PROTOCOL 5.1)",
		Edits: []Edit{
			{"shared/volume/term.go", `notes: r.v.opt.Staleness == 0}`, `notes: true}`},
		},
		By: unit("shared/volume", "TestTermThatStartedLateIsAdopted"), Dies: `the next claimant adopts from 1`,
	},
	{
		Name: "source-past-a-late-start",
		Rule: "a term that turns out to have started after its fence was set is not gone past (PROTOCOL 5.1)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	if err == nil && s != nil {
		err = fmt.Errorf("epoch %d started meanwhile`, `	if err == nil && s != nil && d == 0 {
		err = fmt.Errorf("epoch %d started meanwhile`},
		},
		By: unit("shared/volume", "TestSourceIsConfirmed"), Dies: `confirmed: <nil>`,
	},
	{
		Name: "source-past-a-late-claim",
		Rule: "an epoch that was claimed while the fences were set is fenced too, or ends the claimant (PROTOCOL 5.1)",
		Edits: []Edit{
			{"shared/volume/walk.go", `	if vfs.AllZero(block) {
		return fmt.Errorf("epoch %d was claimed meanwhile`, `	if d == 0 {
		return fmt.Errorf("epoch %d was claimed meanwhile`},
		},
		By: unit("shared/volume", "TestSourceIsConfirmed"), Dies: `confirmed: <nil>`,
	},
}
