// SPDX-License-Identifier: Apache-2.0

package mutants

// delegations takes the power from machines in turn.
func delegations() Killer { return unit(simulation, "^TestNobodyWaitsForADeadMachinesDelegations$") }

// delegationMutants break rules that keep everybody from waiting for the lease of a machine that died
// with a delegation of an NFS server's.
var delegationMutants = []Mutant{
	{
		Name: "nfs-gives-delegations", Also: "",
		Rule: "what a server opens on NFS it wants no delegation of (package osfs, noDelegation)",
		Edits: []Edit{{"shared/volume/osfs/file.go",
			"	if f.kind.Name != nfs {", "	if f.kind.Name == nfs {"}},
		By:   unit("shared/volume/osfs", "^TestOpenAsksNFSForNoDelegation$"),
		Dies: "a delegation would be given",
	},
	{
		Name: "nfs-direct-for-good", Also: "",
		Rule: "a file is read and written through the caches unless it was asked for otherwise, also on NFS (package osfs)",
		Edits: []Edit{{"shared/volume/osfs/file.go",
			"		if !direct {\n			flags &^= unix.O_DIRECT\n		}\n", ""}},
		By:   unit("shared/volume/osfs", "^TestOpenAsksNFSForNoDelegation$"),
		Dies: "the file is open with",
	},
	{
		Name: "own-block-closed", Also: "",
		Rule: "what a process writes in place over and over it keeps open for writing (package volume, blockFile)",
		Edits: []Edit{{"shared/volume/blockfile.go",
			"		return errors.Join(err, b.drop())\n	}\n	return nil\n}", "		return errors.Join(err, b.drop())\n	}\n	return b.drop()\n}"}},
		By:   delegations(),
		Dies: `\.process`,
	},
	{
		Name: "canary-open-late", Also: "",
		Rule: "a canary is open for writing before its server reigns (package volume, Open)",
		Edits: []Edit{{"shared/volume/volume.go",
			"	if err := v.own.canary.hold(); err != nil {", "	if err := error(nil); err != nil {"}},
		By:   delegations(),
		Dies: `\.canary`,
	},
	{
		Name: "next-segment-closed", Also: "",
		Rule: "the next segment is open for writing until it is used (package wal, fillNext)",
		Edits: []Edit{
			{"wal/rotate.go", "	l.mu.next, l.mu.nextFile = nextReady, file\n	return nil\n", "	l.mu.next = nextReady\n	return file.Close()\n"},
			{"wal/rotate.go", "	next, err := l.prepared(name, l.takeNext())\n", "	l.takeNext()\n	file, err := l.opt.Dir.OpenWrite(name)\n	if err != nil {\n		return err\n	}\n	next, err := l.prepared(name, file)\n"},
		},
		By:   delegations(),
		Dies: `wal-next`,
	},
	{
		Name: "own-fence-for-reading", Also: "",
		Rule: "a reign has its fence open for writing (package volume, confirmClaim)",
		Edits: []Edit{{"shared/volume/claim.go",
			"openFence(v.fs, r.epoch, FlagWrite)", "openFence(v.fs, r.epoch, FlagRead)"}},
		By:   delegations(),
		Dies: `open epochs/\d+/fence`,
	},
	{
		Name: "prepared-claim-closed", Also: "",
		Rule: "a prepared claim has its files open for writing (package volume, Prepared)",
		Edits: []Edit{{"shared/volume/claim.go",
			"	if err := v.fs.SyncDir(p.path); err != nil {", "	if err := errors.Join(p.letGo(), v.fs.SyncDir(p.path)); err != nil {"}},
		By:   delegations(),
		Dies: `wal-next|/fence`,
	},
	{
		Name: "close-waits-for-a-hung-write", Also: "",
		Rule: "who closes a volume waits for no write that hangs (package volume, blockFile)",
		Edits: []Edit{{"shared/volume/blockfile.go",
			"	if !b.mu.TryLock() {\n		return nil\n	}\n", "	b.mu.Lock()\n"}},
		By:   unit("shared/volume", "^TestCloseWaitsForNoWriteThatHangs$"),
		Dies: "cannot be closed while a write hangs",
	},
	{
		Name: "block-of-another-volume", Also: "",
		Rule: "a block is opened anew only below the volume that was opened (package volume, blockFile)",
		Edits: []Edit{{"shared/volume/blockfile.go",
			"	if err := b.check(); err != nil {\n		return err\n	}\n", ""}},
		By:   unit("shared/volume", "^TestBlockIsWrittenWhereItsNameLeads$"),
		Dies: "no volume of this cluster any more",
	},
	{
		Name: "block-where-its-name-led", Also: "",
		Rule: "a block is written where its name leads now (package volume, blockFile)",
		Edits: []Edit{{"shared/volume/blockfile.go",
			"err == nil && now.Inode == b.info.Inode {", "err == nil && now.Inode != 0 || err != nil {"}},
		By:   unit("shared/volume", "^TestBlockIsWrittenWhereItsNameLeads$"),
		Dies: "by its name it says|cannot be opened|no such file",
	},
}
