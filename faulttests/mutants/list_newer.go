// SPDX-License-Identifier: Apache-2.0

package mutants

// newerMutants break rules of what a binary does that is too old for a volume, and of the level that a volume has.
var newerMutants = []Mutant{
	{
		Name: "recover-cuts-at-a-newer-record",
		Rule: "a recovery by a binary that is too old for the log proposes nothing (PROTOCOL 21.4)",
		Edits: []Edit{
			{"shared/volume/recovery/recovery.go", `	if r.newer != nil {
		return r.newer
	}
`, ``},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/recover,_record$"),
		Dies: `it says: `,
	},
	{
		Name: "recover-forgets-a-newer-checkpoint",
		Rule: "all that a recovery reads is asked whether a newer binary wrote it (package recovery, noteNewer)",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `		r.newer = volume.TooOld(err)
`, `		if _, log := errors.AsType[*wal.ScanError](err); log {
			r.newer = volume.TooOld(err)
		}
`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/recover_--yes,_checkpoint$"),
		Dies: `it says: |it changed something`,
	},
	{
		Name: "recover-cuts-a-newer-segment-behind-damage",
		Rule: "damage does not hide from a recovery that a segment is of a newer binary (package recovery, noteHeaders)",
		Edits: []Edit{
			{"shared/volume/recovery/source.go", `	r.noteHeaders(path)
`, ``},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/recover,_header_(before|behind)_damage$"),
		Dies: `it says: `,
	},
	{
		Name: "fsck-calls-a-newer-log-damaged",
		Rule: "fsck by a binary that is too old for the log says so, and nothing else (PROTOCOL 21.4)",
		Edits: []Edit{
			{"shared/volume/fsck/log.go", `	a, err := k.v.ReadTerm(k.ctx, e.Epoch, *e.Start)
	if k.sawNewer(dir, err) {
		return
	}
`, `	a, err := k.v.ReadTerm(k.ctx, e.Epoch, *e.Start)
`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/fsck,_record$"),
		Dies: `fsck: .*log-damaged`,
	},
	{
		Name: "fsck-has-a-newer-volume-repaired",
		Rule: "what fsck found besides is not told by a binary that is too old (package fsck, onlyTooOld)",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	if k.tooOld != nil {
		k.onlyTooOld()
		return context.Cause(k.ctx)
	}
`, ``},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/fsck,_record$"),
		Dies: `fsck: `,
	},
	{
		Name: "fsck-has-a-newer-cluster-restored",
		Rule: "CLUSTER of a newer binary is not damaged (package fsck)",
		Edits: []Edit{
			{"shared/volume/fsck/fsck.go", `	if k.sawNewer(layout.ClusterName, err) || k.sawNewer(layout.EpochDir(0)+"/"+layout.ClaimName, zeroErr) {`, `	if k.sawNewer(layout.ClusterName, nil) {`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/fsck,_CLUSTER$"),
		Dies: `fsck: .*cluster-damaged`,
	},
	{
		Name: "ls-reads-a-newer-volume-again",
		Rule: "reading again makes a binary no newer (volume, ReadState)",
		Edits: []Edit{
			{"shared/volume/state.go", ` || errors.Is(err, ErrTooOld) || ctx.Err()`, ` || ctx.Err()`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/ls_--volume,_record$"),
		Dies: `ls --volume read it again and again`,
	},
	{
		Name: "ls-sends-to-fsck",
		Rule: "a reader that is too old is sent to no repair (volume, ReadState)",
		Edits: []Edit{
			{"shared/volume/state.go", `		if errors.Is(err, ErrTooOld) {
			return nil, err
		}
`, ``},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/ls_--volume,_record$"),
		Dies: `it says: .*fsck`,
	},
	{
		Name: "backup-reads-a-newer-volume-again",
		Rule: "reading again makes a binary no newer (volume, ReadCommitted)",
		Edits: []Edit{
			{"shared/volume/committed.go", ` || errors.Is(err, ErrTooOld) {`, ` {`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/backup,_record$"),
		Dies: `backup read it again and again`,
	},
	{
		Name: "newer-backup-is-damaged",
		Rule: "a backup of a newer version is not damaged (package backup, Check)",
		Edits: []Edit{
			{"shared/volume/backup/check.go", `	if err := r.table(from); volume.TooOld(err) != nil {
		return nil, fmt.Errorf("%s: %w", checkpoint.CopyName, volume.TooOld(err))
	} else if err != nil {`, `	if err := r.table(from); err != nil {`},
		},
		By:   unit("shared/volume", "^TestBackupOfANewerVersion$"),
		Dies: `check: `,
	},
	{
		Name: "newer-copy-is-left-out",
		Rule: "a data directory of a newer version is not to be left out of a recovery (cli, recover)",
		Edits: []Edit{
			{"cmd/holdfast/cli/recover.go", `		case volume.TooOld(err) != nil:
			return volume.TooOld(err)
`, ``},
		},
		By:   unit("cmd/holdfast/cli", "^TestVolumeOfANewerVersion$"),
		Dies: `--data-dir .*leave out`,
	},
	{
		Name: "damage-is-a-newer-level",
		Rule: "a checkpoint is one of a newer binary only if its sums fit (package checkpoint, Decoder)",
		Edits: []Edit{
			{"shared/volume/checkpoint/decode.go", `		d.entity(element(line))
	}
	return nil
}
`, `		d.entity(element(line))
	}
	return d.odd
}
`},
		},
		By:   unit("shared/volume", "^TestDamageIsNoNewerLevel$"),
		Dies: `this binary is too old for the cluster`,
	},
	{
		Name: "level-unread-without-a-table",
		Rule: "who reads a checkpoint without its table finds its level, too (package checkpoint, Decoder)",
		Edits: []Edit{
			{"shared/volume/checkpoint/decode.go", `		if !bytes.HasPrefix(line, []byte(levelEntity)) {
			return
		}
`, `		if !d.build || !bytes.HasPrefix(line, []byte(levelEntity)) {
			return
		}
`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/server,_checkpoint$"),
		Dies: `it says: <nil>`,
	},
	{
		Name: "too-old-server-starts",
		Rule: "a server reads the level of the volume before its first write (PROTOCOL 21.4)",
		Edits: []Edit{
			{"cmd/holdfast/serve/secrets.go", `			err = volume.CheckLevel(ctx, fsys, c) // before anything is written
`, ``},
		},
		By:   unit("cmd/holdfast/cli", "^TestVolumeOfANewerVersion$"),
		Dies: `server --id 1`,
	},
	{
		Name: "too-old-server-reads-no-records",
		Rule: "the level is looked for in the log, too (volume, CheckLevel)",
		Edits: []Edit{
			{"shared/volume/level.go", `			err = rec.Validate()
		}
		if old := TooOld(err); old != nil {`, `			err = rec.Validate()
		}
		if old := TooOld(nil); old != nil {`},
		},
		By:   unit("shared/volume", "TestNothingIsDamagedForAnOlderBinary/server,_record$"),
		Dies: `it says: <nil>`,
	},
	{
		Name: "raise-not-atomic",
		Rule: "a level only rises, whoever raises it at the same time (wal, Level)",
		Edits: []Edit{
			{"wal/log.go", `	for old := l.n.Load(); n > old && !l.n.CompareAndSwap(old, n); old = l.n.Load() {
	}
`, `	if old := l.n.Load(); n > old {
		time.Sleep(1)
		l.n.Store(n)
	}
`},
			{"wal/log.go", `	"sync/atomic"
`, `	"sync/atomic"
	"time"
`},
		},
		By:   unit("wal", "^TestLevelOnlyRises$"),
		Dies: `at the same time, it is [1-7]`,
	},
	{
		Name: "last-raise-counts",
		Rule: "of two raises the higher one counts, in whatever order they are told (package primary)",
		Edits: []Edit{
			{"primary/level.go", `	p.clusterLevel.Raise(level)
`, `	p.clusterLevel = wal.Level{}
	p.clusterLevel.Raise(level)
`},
			{"primary/level.go", `	"github.com/holdfast-lock/holdfast/shared/serving"
`, `	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/wal"
`},
		},
		By:   unit("primary", "^TestRaisesToldInAnyOrder$"),
		Dies: `raised to 9 and 8: level 8`,
	},
	{
		Name: "restore-raises-the-level",
		Rule: "a restored volume has the level of its backup (package backup, Restore)",
		Edits: []Edit{
			{"shared/volume/backup/restore.go", `volume.InitCell(to, r.level, p.Servers,`, `volume.InitCell(to, volume.FeatureLevel, p.Servers,`},
		},
		By:   unit("shared/volume", "^TestRestoreKeepsTheFeatureLevel$"),
		Dies: `CLUSTER has level 8`,
	},
	{
		Name: "secret-of-another-user",
		Rule: "a file of secrets off the volume belongs to the servers' user, or root (osfs, OpenPrivate)",
		Edits: []Edit{
			{"shared/volume/osfs/file.go", `	case st.Uid != 0 && int(st.Uid) != me:
`, `	case int(st.Uid) == me+1:
`},
		},
		By:   unit("cmd/holdfast/secrets", "^TestFilesOfOthers$"),
		Dies: `a file of another user: <nil>`,
	},
	{
		Name: "secret-that-others-read",
		Rule: "nobody else may read a file of secrets off the volume (osfs, OpenPrivate)",
		Edits: []Edit{
			{"shared/volume/osfs/file.go", `	case st.Mode&0o077 != 0:
`, `	case st.Mode&0o007 != 0:
`},
		},
		By:   unit("cmd/holdfast/secrets", "^TestFilesOfOthers$"),
		Dies: `a file that others may read: <nil>`,
	},
	{
		Name: "secrets-looked-at-once",
		Rule: "a secret that comes later is looked at, too (osfs, OpenPrivate)",
		Edits: []Edit{
			{"cmd/holdfast/secrets/secrets.go", `	f.Attach(volume.SecretsDir, found)
`, `	later, err := osfs.Open(dir)
	if err != nil {
		return err
	}
	f.Attach(volume.SecretsDir, later)
`},
		},
		By:   unit("cmd/holdfast/secrets", "^TestFilesOfOthers$"),
		Dies: `a file that became one`,
	},
	{
		Name: "secrets-unseen-at-the-start",
		Rule: "all files of a directory of secrets are looked at when it is named (package secrets)",
		Edits: []Edit{
			{"cmd/holdfast/secrets/secrets.go", `	if err := allPrivate(found); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrNoSecrets, err), found.Close())
	}
`, ``},
		},
		By:   unit("cmd/holdfast/secrets", "^TestFilesOfOthers$"),
		Dies: `a file of another user: <nil>`,
	},
	{
		Name: "host-with-an-at",
		Rule: "an @ in a host makes nobody somebody else (locktable, HostOf)",
		Edits: []Edit{
			{"shared/locktable/record.go", `	host = strings.ReplaceAll(host, "@", "_")
`, ``},
		},
		By:   unit("shared/wire/convert", "^TestHostWithAnAt$"),
		Dies: `user:"alice@a"`,
	},
	{
		Name: "own-host-with-an-at-unknown",
		Rule: "who waits on a host with an @ in its name knows itself in the queue (cli, waiting)",
		Edits: []Edit{
			{"cmd/holdfast/cli/waiting.go", `w.Host == locktable.HostOf("", x.host)`, `w.Host == x.host`},
			{"cmd/holdfast/cli/waiting.go", `	"github.com/holdfast-lock/holdfast/shared/locktable"
`, ``},
		},
		By:   unit("cmd/holdfast/cli", "^TestWaitingText$"),
		Dies: `on a host with an @: `,
	},
}
