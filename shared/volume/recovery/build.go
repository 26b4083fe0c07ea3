// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/inspect"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/wal"
)

// build returns the state with which the new epoch begins, and completes the plan.
func (r *recovery) build(ctx context.Context) (checkpoint.Snapshot, error) {
	b := &builder{r: r, at: wal.Position{LSN: r.plan.LSN, Chain: r.source.end.Chain.Next(r.nonce[:])}}
	if err := b.checkFiles(ctx); err != nil {
		return checkpoint.Snapshot{}, err
	}
	b.list = b.members()
	var err error
	if b.table, err = locktable.Restore(b.at.LSN, b.entities); err != nil {
		return checkpoint.Snapshot{}, err
	}
	if !r.plan.Complete {
		if err := b.dropHolders(); err != nil {
			return checkpoint.Snapshot{}, err
		}
		for _, f := range r.plan.Files {
			name := cluster.FileName(strings.TrimPrefix(f.Path, layout.FilesDir+"/"))
			if f.Fate == FateQuarantined {
				if err := b.apply(b.table.DecideQuarantine(name, f.Reason, r.plan.Epoch, nil)); err != nil {
					return checkpoint.Snapshot{}, err
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
	// Appends that a file may lack are in the checkpoint, because the new log is empty.
	pending := slices.DeleteFunc(slices.Clone(r.source.pending), func(rec locktable.Record) bool {
		f, ok := b.table.File(rec.File)
		return !ok || f.Quarantined || f.Generation != rec.Generation
	})
	return checkpoint.Snapshot{Epoch: r.plan.Epoch, At: b.at, Table: b.table, Pending: pending}, b.table.Check()
}

// The fates of protected files, as PlannedFile.Fate has them. as PlannedFile.Fate has them.
const (
	FateKept        = "kept"
	FateQuarantined = "quarantined"
)

// builder turns the source's table into the new epoch's.
type builder struct {
	r      *recovery
	table  *locktable.Table
	list   *cluster.Membership // nil: that of CLUSTER
	at     wal.Position
	inodes map[cluster.FileName]uint64
	taken  map[uint64]bool // the inodes of files that were kept
}

// checkFiles decides which protected files are kept. If the state is complete,
// the takeover verifies them, as always.
func (b *builder) checkFiles(ctx context.Context) error {
	b.inodes, b.taken = map[cluster.FileName]uint64{}, map[uint64]bool{}
	table, p := b.r.source.table, b.r.plan
	checks := inspect.NewFileChecks(b.r.fs, table, b.r.source.pending, b.r.source.pending)
	for name, state := range table.Files() {
		f := PlannedFile{Path: volume.ProtectedPath(name), Fate: FateKept}
		switch c := checks[name]; {
		case state.Quarantined:
			f.Fate, f.Reason = FateQuarantined, state.Reason
		case !p.Complete:
			c.AnyInode, c.AtRest = true, true
			problem, err := c.Run(ctx)
			if err != nil {
				return fmt.Errorf("protected file %s: %w", name, err)
			}
			if problem == nil && c.Info.Inode == state.Inode && !b.r.source.elsewhere {
				problem = &inspect.FileProblem{Text: "it fits, but appends to this inode may be lost: a primary that still sleeps may write them over new ones"}
			}
			if problem != nil {
				f.Fate, f.Reason = FateQuarantined, problem.Text
				break
			}
			b.inodes[name] = c.Info.Inode
			b.taken[c.Info.Inode] = true
		}
		p.Files = append(p.Files, f)
	}
	// The inode number of a kept file may be that of another file in the table.
	free := uint64(1) << 63
	for name, state := range table.Files() {
		if _, kept := b.inodes[name]; !kept && b.taken[state.Inode] {
			b.inodes[name] = free // no filesystem uses it; the file is quarantined
			free++
		}
	}
	return nil
}

// entities yields the entities of the source, with the present inodes. If the state may
// not be complete, clients can only repeat requests.
func (b *builder) entities(yield func(locktable.Entity, error) bool) {
	known := map[uint64]bool{} // inodes that the source remembers
	if b.list != nil && !yield(locktable.Entity{Members: b.list}, nil) {
		return
	}
	for e := range b.r.source.table.Export() {
		if e.Members != nil {
			continue
		}
		if e.File != nil {
			if inode, ok := b.inodes[e.File.Name]; ok {
				e.File.Inode = inode
			}
		}
		if e.Client != nil && !b.r.plan.Complete {
			e.Client.Dropped = retired
		}
		if e.Past != nil {
			b.changePast(e.Past)
			known[e.Past.Inode] = true
		}
		if !yield(e, nil) {
			return
		}
	}
	if b.r.plan.Complete || b.r.source.elsewhere {
		return
	}
	for _, state := range b.r.source.table.Files() {
		if !b.taken[state.Inode] && !known[state.Inode] && !yield(locktable.Entity{Past: &locktable.PastState{Inode: state.Inode, End: math.MaxInt64}}, nil) {
			return
		}
	}
}

// members returns the list of servers, nil for that of CLUSTER, and notes what MEMBERS is to show. If the state may not be complete, changes of
// the list may be lost: no version and no ID that they gave is given again, so a server that they added counts as removed.
func (b *builder) members() *cluster.Membership {
	table, c, p := b.r.source.table, b.r.v.Cluster(), b.r.plan
	list, made := table.Members()
	if !made {
		list = cluster.FirstMembership(c.Servers)
	}
	next, shown := list, b.r.shown
	next.HighestID = max(list.HighestID, shown.HighestID, slices.Max(b.r.known))
	lost := shown.Version > list.Version || shown.Version == list.Version && shown.Text() != list.Text() || next.HighestID > list.HighestID
	switch {
	case lost && !p.Complete && !b.r.source.elsewhere && c.Level(table) >= locktable.MembersLevel:
		next.Version = max(list.Version, shown.Version)
		b.r.show = new(next)
		next.Version++
		p.Notes = append(p.Notes, fmt.Sprintf("changes of the list of servers may be lost: the servers are now %v, and IDs up to %d are not given again", next.Servers.IDs(), next.HighestID))
		return &next
	case made:
		b.r.show = &list
	default:
		b.r.show = nil
	}
	return b.r.show
}

// changePast corrects what the table remembers of an inode. Inodes of another filesystem do not exist here.
// If later records may be missing, it is not known how far an inode was written.
func (b *builder) changePast(p *locktable.PastState) {
	switch {
	case b.r.source.elsewhere:
		p.Inode, p.End, p.Forgotten = 0, 0, 0
	case p.Inode != 0 && !b.r.plan.Complete:
		p.End = math.MaxInt64
	}
}

func (b *builder) apply(recs []locktable.Record) error {
	for i := range recs {
		recs[i].Time = b.r.now
		if err := b.table.Apply(&recs[i]); err != nil {
			return err
		}
		b.at = wal.Position{LSN: recs[i].LSN, Chain: b.at.Chain.Next(recs[i].AppendHeader(nil))}
	}
	return nil
}

// dropHolders ends every grant and removes every waiter. It grants each lock that was held to a
// client that does not exist, for one lease.
func (b *builder) dropHolders() error {
	var held []locktable.Grant
	for l := range b.table.Locks("", "") {
		b.r.plan.Dropped += l.QueueLength
		if l.Grant.Token == 0 {
			continue
		}
		longest := l.Grant
		for g := range b.table.Grants(l.Name) {
			longest.TTL = max(longest.TTL, g.TTL)
		}
		held = append(held, longest)
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
