// SPDX-License-Identifier: Apache-2.0

package mutants

// backupMutants break rules of the committed state, backups and their restore.
var backupMutants = []Mutant{
	{
		Name: "backup-takes-uncommitted", Also: "",
		Rule: "what the log of a term has that a claimant ended is not known to be committed (volume, ReadCommitted)",
		Edits: []Edit{
			{"shared/volume/committed.go", `	if vfs.AllZero(block) {
		return false
	}
	x, ok := epochdir.DecodeFlag(block)
	return t.state`, `	if true {
		return false
	}
	x, ok := epochdir.DecodeFlag(block)
	return t.state`},
		},
		By: unit("shared/volume", "^TestCommittedStateBesideATakeover$"), Dies: `which the log never passed through`,
	},
	{
		Name: "backup-reads-what-is-not-durable", Also: "",
		Rule: "what was read is made durable before the fence is looked at (volume, ReadCommitted)",
		Edits: []Edit{
			{"shared/volume/committed.go", `	if err := t.sync(); err != nil {
		return "", err
	}
`, ``},
		},
		By: unit("shared/volume", "^TestCommittedReaderChangesNothing$|^TestCommittedStateIsDurable$"), Dies: `after a power loss|not read after`,
	},
	{
		Name: "backup-waits-in-vain", Also: "",
		Rule: "claimants that have ended begin no term, and are not waited for on a single host (volume, ReadCommitted)",
		Edits: []Edit{
			{"shared/volume/committed.go", `	dead := len(later) > 0
`, `	dead := false
`},
		},
		By: unit("shared/volume", "^TestCommittedStateBesideATakeover$"), Dies: `has not begun`,
	},
	{
		Name: "backup-copies-past-end", Also: "",
		Rule: "a protected file is copied up to its end at the LSN of the backup (backup)",
		Edits: []Edit{
			{"shared/volume/backup/copy.go", `size: info.Size, end: state.End,`, `size: info.Size, end: max(info.Size, state.End),`},
		},
		By: unit("shared/volume", "^TestBackupBesideWriters$"), Dies: `late`,
	},
	{
		Name: "backup-lacks-pending", Also: "",
		Rule: "appends that a file lacks are written from the log (backup)",
		Edits: []Edit{
			{"shared/volume/backup/copy.go", `rec.File == name && rec.Generation == state.Generation {`, `rec.File == name && rec.Generation == 0 {`},
		},
		By: unit("shared/volume", "^TestBackupIsRestored$"), Dies: `fifth|problem|Problem`,
	},
	{
		Name: "backup-misses-rotation", Also: "",
		Rule: "files that were unbound or rotated while they were copied are copied again, of a later state (backup)",
		Edits: []Edit{
			{"shared/volume/backup/backup.go", `		changed := r.changed(later)
`, `		changed := r.changed(later)[:0]
`},
		},
		By: unit("shared/volume", "^TestBackupBesideWriters$"), Dies: `the copy holds|Generation`,
	},
	{
		Name: "backup-any-inode", Also: "",
		Rule: "a file with another inode than the log's is not the protected file (backup)",
		Edits: []Edit{
			{"shared/volume/backup/copy.go", `	if info.Inode != state.Inode {`, `	if false {`},
		},
		By: unit("shared/volume", "^TestBackupNamesWhatDoesNotFit$"),
	},
	{
		Name: "backup-manifest-unsynced-names", Also: "",
		Rule: "the manifest is written when all names of the backup are durable (backup)",
		Edits: []Edit{
			{"shared/volume/backup/backup.go", `	if err := syncDirs(r.to, "."); err != nil {
		return nil, err
	}
	report`, `	report`},
		},
		By: unit("shared/volume", "^TestBackupThatIsCutShort$"), Dies: `killed at call`,
	},
	{
		Name: "backup-with-secrets", Also: "",
		Rule: "secrets are copied only where an operator asks for them (backup)",
		Edits: []Edit{
			{"shared/volume/backup/backup.go", `	if r.opt.Secrets {
		dirs`, `	if true {
		dirs`},
		},
		By: unit("shared/volume", "^TestBackupIsRestored$"), Dies: `nobody asked`,
	},
	{
		Name: "backup-check-without-sums", Also: "",
		Rule: "a check compares the sum of each file (backup)",
		Edits: []Edit{
			{"shared/volume/backup/check.go", `	case hex.EncodeToString(h.Sum(nil)) != f.SHA256:`, `	case f.SHA256 == hex.EncodeToString(nil):`},
		},
		By: unit("shared/volume", "^TestDamagedBackupIsRefused$"), Dies: `flipped: nothing was found`,
	},
	{
		Name: "restore-lowers-tokens", Also: "",
		Rule: "a restored volume goes on above what servers and operators know, not only above the backup (backup, Restore)",
		Edits: []Edit{
			{"shared/volume/backup/restore.go", `Copies: known, SeenLSN: opt.SeenLSN,`, `Copies: known[:1],`},
		},
		By: unit("shared/volume", "^TestBackupIsRestored$|^TestRestoreGoesOnAboveWhatServersKnew$"),
	},
}
