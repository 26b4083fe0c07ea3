// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// build makes the state that the new epoch begins with, and completes the plan.
func (r *recovery) build() (Snapshot, error) {
	b := &builder{r: r, at: wal.Position{LSN: r.plan.LSN, Chain: r.source.end.Chain.Next(r.nonce[:])}}
	if err := b.checkFiles(); err != nil {
		return Snapshot{}, err
	}
	var err error
	if b.table, err = locktable.Restore(b.at.LSN, b.entities); err != nil {
		return Snapshot{}, err
	}
	if !r.plan.Complete {
		if err := b.dropHolders(); err != nil {
			return Snapshot{}, err
		}
		for _, f := range r.plan.Files {
			name := cluster.FileName(strings.TrimPrefix(f.Path, filesDir+"/"))
			if f.Fate == fateQuarantined && !b.wasQuarantined(name) {
				if err := b.apply(b.table.DecideQuarantine(name, f.Reason, r.plan.Epoch, nil)); err != nil {
					return Snapshot{}, err
				}
			}
		}
	}
	r.plan.LSN, r.plan.Clients = b.at.LSN, b.table.ClientCount()
	for l := range b.table.Locks("", "") {
		if l.Grant.Token != 0 {
			r.plan.Held++
		}
	}
	// What a file may lack, it gets from the checkpoint: the log is empty.
	pending := slices.DeleteFunc(slices.Clone(r.source.pending), func(rec locktable.Record) bool {
		f, ok := b.table.File(rec.File)
		return !ok || f.Quarantined || f.Generation != rec.Generation
	})
	return Snapshot{Epoch: r.plan.Epoch, At: b.at, Table: b.table, Pending: pending}, b.table.Check()
}

// The fates of protected files.
const (
	fateKept        = "kept"
	fateQuarantined = "quarantined"
)

// builder turns the source's table into the new epoch's.
type builder struct {
	r      *recovery
	table  *locktable.Table
	at     wal.Position
	inodes map[cluster.FileName]uint64
}

func (b *builder) wasQuarantined(name cluster.FileName) bool {
	f, ok := b.r.source.table.File(name)
	return ok && f.Quarantined
}

// checkFiles decides which protected files go on. Where the state is complete,
// that is left to the takeover, as always.
func (b *builder) checkFiles() error {
	b.inodes = map[cluster.FileName]uint64{}
	table, p := b.r.source.table, b.r.plan
	checks := newFileChecks(b.r.fs, table, b.r.source.pending, b.r.source.pending)
	taken := map[uint64]bool{}
	for name, state := range table.Files() {
		f := PlannedFile{Path: ProtectedPath(name), Fate: fateKept}
		switch c := checks[name]; {
		case state.Quarantined:
			f.Fate, f.Reason = fateQuarantined, state.Reason
		case !p.Complete:
			c.anyInode = true
			info, _ := b.r.fs.Lstat(f.Path) // run says what is wrong
			c.sizeBefore = info.Size
			problem, err := c.run()
			if err != nil {
				return fmt.Errorf("protected file %s: %w", name, err)
			}
			if problem != nil {
				f.Fate, f.Reason = fateQuarantined, problem.text
				break
			}
			b.inodes[name] = c.info.Inode
			taken[c.info.Inode] = true
		}
		p.Files = append(p.Files, f)
	}
	// A number that a kept file has now may be that of another one in the table.
	free := uint64(1) << 63
	for name, state := range table.Files() {
		if _, kept := b.inodes[name]; !kept && taken[state.Inode] {
			b.inodes[name] = free // no filesystem gives it; the file is quarantined
			free++
		}
	}
	return nil
}

// entities are the source's, with the inodes of today and, where the state may
// not be the end, with clients that can only repeat.
func (b *builder) entities(yield func(locktable.Entity, error) bool) {
	for e := range b.r.source.table.Export() {
		if e.File != nil {
			if inode, ok := b.inodes[e.File.Name]; ok {
				e.File.Inode = inode
			}
		}
		if e.Client != nil && !b.r.plan.Complete && !e.Client.ID.Anonymous() {
			e.Client.Dropped = retired
		}
		if !yield(e, nil) {
			return
		}
	}
}

func (b *builder) apply(recs []locktable.Record) error {
	for i := range recs {
		if err := b.table.Apply(&recs[i]); err != nil {
			return err
		}
		b.at = wal.Position{LSN: recs[i].LSN, Chain: b.at.Chain.Next(recs[i].AppendHeader(nil))}
	}
	return nil
}

// dropHolders ends every grant and place, and lets nobody hold the locks that
// were held, each for its lease.
func (b *builder) dropHolders() error {
	var held []locktable.Grant
	for l := range b.table.Locks("", "") {
		b.r.plan.Dropped += l.QueueLength
		if l.Grant.Token != 0 {
			held = append(held, l.Grant)
		}
	}
	if err := b.apply(b.table.DecideForceClear(b.r.plan.Epoch, nil)); err != nil {
		return err
	}
	nobody := cluster.ClientID(fmt.Sprintf("recovered-%d", b.r.plan.LSN))
	for i, g := range held {
		q := &locktable.Request{
			Op: locktable.OpAcquire, Client: nobody, ID: cluster.RequestID(i + 1), LowWater: cluster.RequestID(i + 1),
			Lock: g.Lock, TTL: g.TTL, Holder: g.Holder,
		}
		recs, d := b.table.Decide(q, b.r.plan.Epoch, locktable.FileFacts{}, nil)
		if d.Outcome.Status != cluster.StatusOK {
			return fmt.Errorf("keep lock %s held: %v %s", g.Lock, d.Outcome.Status, d.Outcome.Message)
		}
		if err := b.apply(recs); err != nil {
			return err
		}
	}
	return nil
}

// recoverPrefix begins the names under servers/ of what a recovery builds.
const recoverPrefix = "recover-"

// publish builds the epoch's directory and gives it its name.
func (r *recovery) publish(s Snapshot) error {
	if err := r.removeUnfinished(); err != nil {
		return err
	}
	tmp := serversDir + "/" + recoverPrefix + hex.EncodeToString(r.nonce[:]) + tmpSuffix
	if err := r.fill(tmp, s); err != nil {
		return fmt.Errorf("recover: build epoch %d: %w", s.Epoch, err)
	}
	// Read it as the next claimant will, while it has no name yet.
	src := Source{Epoch: s.Epoch, start: start{epoch: s.Epoch, nonce: r.nonce, end: s.At}}
	a, err := r.v.scanOnce(tmp, src, nil)
	if err == nil && (a.End != s.At || a.Table.Hash() != s.Table.Hash()) {
		err = fmt.Errorf("%w: it reads as LSN %d, written was %d", ErrDamaged, a.End.LSN, s.At.LSN)
	}
	if err != nil {
		return fmt.Errorf("recover: verify epoch %d: %w", s.Epoch, err)
	}
	if err := r.unchanged(); err != nil {
		return err
	}
	// The commit. Where no number is left out it also proves that nobody claimed
	// since the fences were set: the number was free.
	if err := r.fs.Rename(tmp, epochDir(s.Epoch)); err != nil && !r.v.holdsNonce(s.Epoch, r.nonce) {
		return fmt.Errorf("recover: name epoch %d: %w", s.Epoch, err)
	}
	if err := r.fs.SyncDir(epochsDir); err != nil {
		return fmt.Errorf("recover: epoch %d has its name, but it may not survive a power loss: repeat: %w", s.Epoch, err)
	}
	r.plan.Done = true
	// A claimant that slept through all this and finds a number free below this
	// one reads here that it was overtaken.
	if err := r.fence(s.Epoch); err != nil {
		return fmt.Errorf("recover: epoch %d is there; repeat before you start servers: %w", s.Epoch, err)
	}
	return nil
}

// fill writes what a takeover writes, in its order, into a directory of this
// recovery's own.
func (r *recovery) fill(tmp string, s Snapshot) error {
	if err := r.fs.Mkdir(tmp); err != nil {
		return err
	}
	p := r.plan
	claim, err := json.Marshal(claimFile{
		Cluster: r.v.cluster.ID, Nonce: hex.EncodeToString(r.nonce[:]), Address: r.v.opt.Address, Prepared: time.Now().UTC(),
		Recovered: &recoveredNote{Follows: p.Follows, Source: p.Source, End: p.End, LSN: p.LSN, Complete: p.Complete},
	})
	if err != nil {
		return err
	}
	if err := createFile(r.fs, tmp+"/"+claimName, append(claim, '\n')); err != nil {
		return err
	}
	next, err := createZeros(r.fs, tmp+"/"+wal.NextName, r.opt.FirstSegment)
	if err != nil {
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	reign := &Reign{v: r.v, epoch: s.Epoch, nonce: r.nonce, path: tmp}
	reign.life, reign.end = context.WithCancelCause(context.Background())
	defer reign.end(nil)
	if _, err := reign.WriteCheckpoint(s); err != nil {
		return err
	}
	log, err := wal.Start(r.v.logOptions(reign.dir(), s.Epoch), s.At, s.At.LSN)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	// START comes last, as in a takeover.
	if err := prepareFence(r.fs, tmp, encodeStart(start{epoch: s.Epoch, nonce: r.nonce, end: s.At}), nil); err != nil {
		return err
	}
	return errors.Join(r.fs.SyncDir(tmp), r.fs.SyncDir(serversDir))
}

// unchanged refuses where somebody claimed since the survey.
func (r *recovery) unchanged() error {
	now, err := listEpochs(r.fs)
	if err != nil {
		return err
	}
	if len(now) != len(r.epochs) || now[len(now)-1] != r.epochs[len(r.epochs)-1].epoch {
		return fmt.Errorf("epoch %d was claimed meanwhile: %w", now[len(now)-1], ErrServersRun)
	}
	return nil
}

// removeUnfinished removes what recoveries built that did not finish. It is
// renamed away first, so that half of it never gets the name of an epoch.
func (r *recovery) removeUnfinished() error {
	entries, err := r.fs.ReadDir(serversDir)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if !strings.HasPrefix(x.Name, recoverPrefix) || x.Type != TypeDir {
			continue
		}
		name := serversDir + "/" + x.Name
		trash := strings.TrimSuffix(strings.TrimSuffix(name, tmpSuffix), trashSuffix) + trashSuffix
		if name != trash {
			if err := r.fs.Rename(name, trash); err != nil {
				return err
			}
		}
		if err := removeTree(r.fs, trash); err != nil {
			return err
		}
	}
	return nil
}
