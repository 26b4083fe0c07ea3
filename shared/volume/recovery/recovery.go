// SPDX-License-Identifier: Apache-2.0

// Package recovery makes a volume that no server can take over usable again, from what is left of it and from
// copies that servers kept elsewhere. An operator runs it, while all servers are stopped.
//
// A recovery makes one new epoch that holds the whole state: a checkpoint, an empty
// log and START. Of what exists it only changes the fences, which it sets. It builds the
// epoch in servers/, renames it, sets the fence of every epoch below, and last writes
// START. So a crash leaves the old state or the new one, and so does a recovery that was paused
// while servers went on.
//
// A binary that is too old for a record, a checkpoint or a log on the volume recovers nothing: what it cannot read is not damaged,
// and without it everything after it would be lost.
//
// Tokens, epochs and LSNs rise, also above those that are lost: the new log begins
// at the next multiple of 2^32 above every LSN that was seen.
//
// If acknowledged operations may be missing, it is not known what clients believe,
// and the new state does not depend on it:
//
//   - No old token is valid. A lock that was held stays held for one lease, under a
//     new token that no client has, so that it is not granted while its former holder
//     may still use it. Waiters lose their places.
//   - Receipts that are known answer repeats. Every other request of a
//     known client gets STALE_REQUEST, and so does every request of an opened client that is
//     unknown: no old request is executed twice. A self-chosen client ID that the
//     state does not know is a new client; as it has no valid token, only requests that need
//     none, acquiring and breaking, can be executed.
//   - A protected file that fits the state stays bound if its inode is new,
//     which shows that it was restored. Every other one is quarantined: a paused primary
//     may still write to the old inode, at the offset of an append that it had logged and that the
//     state does not have. A new term could give the same offset to another append.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Options are what an operator knows. Random has to be set; all other fields may be zero.
type Options struct {
	// Restored is true for a volume that was restored from a backup: its log is complete,
	// but later records existed.
	Restored bool
	// SeenLSN and SeenEpoch are the highest that were seen anywhere: in a status, a
	// token, a server's log. 0 means that nothing is known: if the same backup was restored
	// before, and there are no Copies, the numbers given since are then given a second time.
	SeenLSN   cluster.LSN
	SeenEpoch cluster.Epoch
	// Copies are the states that servers kept outside the volume.
	Copies []Copy
	// AcceptLoss allows a recovery that may lose acknowledged operations.
	AcceptLoss bool
	// Random is the source of the nonce.
	Random io.Reader
	// FirstSegment is the size of the new epoch's log in bytes; 0 means the default.
	FirstSegment int64
}

// Copy is a state of the volume that was kept elsewhere. If Table is nil, it only
// shows which epoch and LSN the volume had reached.
type Copy struct {
	Name string // for people
	checkpoint.Snapshot
}

// Plan describes what a recovery does or has done.
type Plan struct {
	Cluster cluster.ID `json:"cluster_id"`
	// Needed is false if a server can take over without a recovery.
	Needed bool `json:"needed"`
	// Reasons are sentences: what prevents a takeover, or is known to be missing.
	Reasons []string `json:"reasons"`
	// Source describes the state that is used, End is its last LSN. Complete is true if no
	// acknowledged operation can be missing from it.
	Source   string      `json:"source"`
	End      cluster.LSN `json:"end_lsn"`
	Complete bool        `json:"complete"`
	// Lost are sentences that describe what may be missing, with LSNs, files and offsets; empty if Complete.
	Lost []string `json:"lost"`
	// SeenLSN and SeenEpoch are the highest that were seen anywhere.
	SeenLSN   cluster.LSN   `json:"seen_lsn"`
	SeenEpoch cluster.Epoch `json:"seen_epoch"`
	// Epoch is the new epoch, Follows the newest that exists. The new log begins after LSN.
	Follows cluster.Epoch `json:"follows"`
	Epoch   cluster.Epoch `json:"epoch"`
	LSN     cluster.LSN   `json:"lsn"`
	// Held counts the locks that stay held, Dropped the waiters that lose their place.
	Held    int `json:"held"`
	Dropped int `json:"dropped_waiters"`
	Clients int `json:"clients"`
	// Files are all protected files.
	Files []PlannedFile `json:"files"`
	// Notes are sentences that tell an operator what to know or to do.
	Notes []string `json:"notes"`
	// Done is true if the new epoch exists and has started.
	Done bool `json:"done"`
}

// PlannedFile is a protected file and its fate, "kept" or "quarantined", with the reason for people.
type PlannedFile struct {
	Path   string `json:"path"`
	Fate   string `json:"fate"`
	Reason string `json:"reason"`
}

// ErrNoSource means that nothing is left to recover from.
var ErrNoSource = errors.New("no log and no copy can be read: name data directories of servers with --data-dir, or restore a backup")

// ErrLossNotAccepted means that a recovery may lose acknowledged operations, and
// Options.AcceptLoss is false.
var ErrLossNotAccepted = errors.New("acknowledged operations may be lost and nobody has agreed to that: nothing was changed (--accept-loss agrees)")

// recovery is one call of NewPlan or Run.
type recovery struct {
	fs     vfs.FS
	v      *volume.Volume
	opt    Options
	nonce  epochdir.Nonce
	now    int64 // the time of its records, in milliseconds since 1970
	epochs []epochdir.State
	source *candidate
	plan   *Plan
	// known are the IDs of all servers that may run, and shown is the list of servers in MEMBERS, or that of CLUSTER.
	known []cluster.ServerID
	shown cluster.Membership
	// show is what MEMBERS is to show, nil for nothing.
	show *cluster.Membership
	// newer is the error of the first thing that only a newer binary may interpret; nil if nothing such was read.
	newer error
}

// NewPlan returns what Run would do. It only reads. It returns an error that wraps ErrServersRun if a server uses the
// volume, ErrNoSource if there is nothing to recover from, ErrForeignCopy for a copy of another cluster, volume.ErrTooOld, and then no
// plan, if this binary is too old for what it finds.
func NewPlan(ctx context.Context, fsys vfs.FS, opt Options) (*Plan, error) {
	r, err := newRecovery(fsys, opt)
	if err != nil {
		return nil, err
	}
	if err := r.survey(ctx); err != nil {
		return nil, err
	}
	if err := r.decide(ctx); err != nil || !r.plan.Needed {
		return r.plan, err
	}
	_, err = r.build(ctx)
	return r.plan, err
}

// Run makes the volume one that servers can take over from: see the package documentation. It
// holds the guard of every server meanwhile. If nothing is wrong it changes
// nothing; repeated after a crash, it finishes. Its errors are those of NewPlan, and
// ErrLossNotAccepted, with the plan, if operations may be lost and Options does not accept that.
func Run(ctx context.Context, fsys vfs.FS, opt Options) (_ *Plan, err error) {
	r, err := newRecovery(fsys, opt)
	if err != nil {
		return nil, err
	}
	held, err := r.guard()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	if err := r.survey(ctx); err != nil {
		return nil, err
	}
	if err := r.decide(ctx); err != nil {
		return r.plan, err
	}
	if !r.plan.Needed {
		return r.plan, nil
	}
	if !r.plan.Complete && !opt.AcceptLoss {
		_, err := r.build(ctx) // completes the plan
		return r.plan, errors.Join(ErrLossNotAccepted, err)
	}
	// Fences come first: no older term can add to what is read after this. They carry the name
	// of the newest claim, so that servers can take over the old state as long as the new epoch has
	// not started.
	if err := r.fence(r.numbers(), epochdir.Flag{By: r.plan.Follows, Nonce: r.epochs[len(r.epochs)-1].ClaimNonce()}); err != nil {
		return r.plan, err
	}
	before := *r.plan
	if err := r.survey(ctx); err != nil {
		return nil, err
	}
	if err := r.decide(ctx); err != nil {
		return r.plan, err
	}
	if r.plan.Source != before.Source || r.plan.End != before.End || r.plan.Epoch != before.Epoch || r.plan.Complete != before.Complete {
		return r.plan, fmt.Errorf("the volume changed meanwhile: %w", ErrServersRun)
	}
	snapshot, err := r.build(ctx)
	if err != nil {
		return r.plan, err
	}
	return r.plan, r.publish(ctx, snapshot)
}

func newRecovery(fsys vfs.FS, opt Options) (*recovery, error) {
	c, err := volume.ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	if opt.FirstSegment == 0 {
		opt.FirstSegment = layout.FirstSegmentSize
	}
	r := &recovery{fs: fsys, opt: opt, now: time.Now().UnixMilli(), v: volume.Offline(fsys, c)}
	if _, err := io.ReadFull(opt.Random, r.nonce[:]); err != nil {
		return nil, fmt.Errorf("draw a nonce: %w", err)
	}
	ids, err := volume.ServerIDs(fsys, c)
	list, _ := r.v.ReadMembers() //nolint:errcheck // what cannot be read lists nobody
	r.known = slices.Compact(slices.Sorted(slices.Values(append(ids, list.Servers.IDs()...))))
	return r, err
}

// guard locks the guard of every server that may run, so that none can start meanwhile. One that was removed runs on until it learns that,
// and what is recovered may list it again.
func (r *recovery) guard() (held volume.Guards, err error) {
	for _, id := range r.known {
		l, err := volume.TakeGuard(r.fs, id)
		if errors.Is(err, volume.ErrSameID) {
			err = fmt.Errorf("%w: server %d: stop it, and see that it stays stopped", ErrServersRun, id)
		}
		if err != nil {
			return nil, errors.Join(err, held.Release())
		}
		held = append(held, l)
	}
	return held, nil
}

// survey reads all epochs, and MEMBERS. It returns an error that wraps ErrServersRun if a running process holds a claim.
func (r *recovery) survey(ctx context.Context) (err error) {
	if r.epochs, err = epochdir.Survey(ctx, r.fs); err != nil {
		return err
	}
	r.shown, _ = r.v.ReadMembers() //nolint:errcheck // what cannot be read shows nothing
	if len(r.epochs) == 0 {
		return fmt.Errorf("%w: epochs/ is empty: make a new volume with holdfast init, then recover it from the servers' data directories", volume.ErrDamaged)
	}
	held, err := epochdir.HeldClaims(r.fs, r.epochs)
	if err == nil && len(held) > 0 {
		err = fmt.Errorf("%w: %s is locked: stop all servers, and see that they stay stopped", ErrServersRun, strings.Join(held, ", "))
	}
	return err
}

// decide makes the plan: the state to begin with, and the numbers of the new epoch.
func (r *recovery) decide(ctx context.Context) error {
	last := r.epochs[len(r.epochs)-1].Epoch
	p := &Plan{Cluster: r.v.Cluster().ID, Follows: last, Lost: []string{}, Files: []PlannedFile{}, Notes: []string{}}
	r.plan, r.newer = p, nil
	source, reasons, err := r.findSource(ctx, r.epochs)
	if r.newer != nil {
		return r.newer
	}
	if err != nil {
		return err
	}
	witnesses := r.v.Witnesses(ctx, 0)
	seen, proven := r.surveyHighest(r.epochs, witnesses)
	proven.saw(r.opt.SeenEpoch, r.opt.SeenLSN)
	if source, err = r.takeCopies(source, &proven, &reasons); err != nil {
		return err
	}
	if source == nil {
		return ErrNoSource
	}
	if of := r.v.Cluster(); of.Cell != nil {
		if err := of.FitsCell(source.table); err != nil {
			return fmt.Errorf("%s: %w", source.name, err)
		}
	}
	seen.saw(proven.epoch, max(proven.lsn, source.end.LSN))
	missing := unfinished(r.epochs, &seen)
	if r.opt.Restored {
		missing = append(missing, "the volume was restored from a backup")
	}
	if proven.lsn > source.end.LSN || proven.epoch > last {
		missing = append(missing, fmt.Sprintf("LSN %d and epoch %d were told of; what is left ends at LSN %d, the newest epoch is %d", proven.lsn, proven.epoch, source.end.LSN, last))
	}
	if list := source.table.MembersOr(r.v.Cluster().Servers); r.shown.Version > list.Version {
		missing = append(missing, fmt.Sprintf("MEMBERS shows version %d of the list of servers, what is left has version %d", r.shown.Version, list.Version))
	}
	missing = append(missing, epochdir.TakenTwice(r.epochs)...)
	missing = append(missing, volume.WitnessedTerms(r.epochs, witnesses)...)
	if e := &r.epochs[len(r.epochs)-1]; e.ByErr {
		missing = append(missing, fmt.Sprintf("the fence of %s is set, and its flag does not say by whom: a newer epoch may be gone", layout.EpochDir(e.Epoch)))
	}
	source.complete = source.complete && len(missing) == 0
	reasons = append(reasons, missing...)
	r.source = source
	p.Reasons, p.Needed = append([]string{}, reasons...), len(reasons) > 0
	p.Source, p.End, p.Complete = source.name, source.end.LSN, source.complete
	p.SeenLSN, p.SeenEpoch = seen.lsn, seen.epoch
	if seen.lsn >= maxNumber || seen.epoch >= maxNumber {
		return fmt.Errorf("LSN %d or epoch %d is too large to go on from: see --seen-lsn and --seen-epoch", seen.lsn, seen.epoch)
	}
	p.Epoch = last + 1
	if seen.epoch > last || r.opt.Restored || source.copied {
		// Epochs may be lost: skip all numbers that they may have had.
		p.Epoch = cluster.Epoch(roundUp(uint64(seen.epoch)))
	}
	p.LSN = After(seen.lsn)
	r.explain()
	return nil
}

const (
	// numberStep is the step to which a recovery rounds LSNs and epochs up.
	numberStep = 1 << 32
	// maxNumber bounds LSNs and epochs, so that programs that read numbers as floats read them exactly.
	maxNumber = 1 << 53
)

// After returns the LSN after which the log of a recovery begins, if lsn is the highest that was seen.
func After(lsn cluster.LSN) cluster.LSN { return cluster.LSN(roundUp(uint64(lsn))) }

// roundUp returns the next multiple of numberStep above n.
func roundUp(n uint64) uint64 { return (n/numberStep + 1) * numberStep }

// ErrForeignCopy means that a copy is not of this volume's cluster.
var ErrForeignCopy = errors.New("this copy is of another cluster: name the data directories of this volume's servers; to bring a lost volume back, recover into a new one (holdfast init) on which no server has run")

// takeCopies returns the newest copy if it is ahead of source, else source. A copy that is ahead proves
// that the log on the volume is not complete.
func (r *recovery) takeCopies(source *candidate, proven *highest, reasons *[]string) (*candidate, error) {
	of := r.v.Cluster().ID
	if r.fresh(source) && len(r.opt.Copies) > 0 {
		of = r.opt.Copies[0].Cluster
	}
	for _, c := range r.opt.Copies {
		switch {
		case c.Cluster == cluster.ID{}:
			return nil, fmt.Errorf("%s: %w: it does not say of which", c.Name, ErrForeignCopy)
		case c.Cluster != of:
			return nil, fmt.Errorf("%s: %w: it is of %s, wanted is %s", c.Name, ErrForeignCopy, c.Cluster, of)
		}
		proven.saw(c.Epoch, c.At.LSN)
		if c.Table == nil || source != nil && c.At.LSN <= source.end.LSN {
			continue
		}
		fromCopy := &candidate{name: c.Name, epoch: c.Epoch, table: c.Table, end: c.At, copied: true, elsewhere: c.Cluster != r.v.Cluster().ID}
		if fromCopy.elsewhere { // the servers of this volume are those of its CLUSTER
			fromCopy.table = c.Table.ForgetMembers()
		}
		if source != nil && source.end.LSN > 0 {
			*reasons = append(*reasons, fmt.Sprintf("%s is at LSN %d of epoch %d, the volume ends at LSN %d", c.Name, c.At.LSN, c.Epoch, source.end.LSN))
			fromCopy.damage = append(source.damage, fmt.Sprintf("what %s has, up to LSN %d, and the copy in %s lacks", source.name, source.end.LSN, c.Name))
		} else {
			*reasons = append(*reasons, fmt.Sprintf("%s is at LSN %d of epoch %d, the volume holds nothing", c.Name, c.At.LSN, c.Epoch))
		}
		source = fromCopy
	}
	return source, nil
}

// fresh reports whether no server has served from this volume: it may become the new one of another cluster.
func (r *recovery) fresh(source *candidate) bool {
	for i := range r.epochs {
		if e := &r.epochs[i]; e.Epoch != 0 && (e.ClaimErr != nil || e.Claim.Recovered == nil) {
			return false
		}
	}
	return source != nil && source.end.LSN == 0
}

// explain adds to the plan what may be lost and what to do.
func (r *recovery) explain() {
	p := r.plan
	if !p.Complete {
		known := "how many is not known"
		if p.SeenLSN > p.End {
			known = fmt.Sprintf("at least up to LSN %d", p.SeenLSN)
		}
		p.Lost = append(p.Lost, fmt.Sprintf("records from LSN %d on, %s", p.End+1, known))
		p.Lost = append(p.Lost, r.source.damage...)
		p.Notes = append(p.Notes,
			"locks that were granted after LSN "+fmt.Sprint(p.End)+" are unknown: before you start servers, wait for the longest lease that clients use",
			fmt.Sprintf("LSNs and tokens go on at %d: if more than that may have been given, repeat with --seen-lsn", p.LSN))
	}
	if r.opt.Restored && r.opt.SeenLSN == 0 && len(r.opt.Copies) == 0 {
		p.Notes = append(p.Notes, "NOBODY HAS SAID HOW FAR THIS VOLUME WAS. If the same backup was ever restored before, tokens of that time are given a second time, to somebody else: find the highest LSN or token in logs or at clients, and repeat with --seen-lsn")
	}
	p.Notes = append(p.Notes, "the first primary removes what older epochs left: copy epochs/ before, if you want to look at it")
}

// retired is a low-water mark above every request ID.
const retired = locktable.MaxRequestID + 1
