// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrDeposed means that the term has ended: nothing more is written in its name.
var ErrDeposed = errors.New("deposed")

// Term is the handle for all writes in the name of one
// epoch. It ends once, with a cause, and then refuses every write. It is safe
// for concurrent use.
type Term struct {
	v          *Volume
	epoch      cluster.Epoch
	nonce      epochdir.Nonce
	path       string
	lock       vfs.Lock  // of claim.json; nil in a recovery's term
	prepared   *Prepared // the claim that became this term, which holds files open until the log has begun
	fence      vfs.File
	fenceInode uint64

	checks pendingCalls // of Check and CheckPath
	made   madeInodes

	// bufs holds one block for each goroutine that checks at the same time.
	bufs sync.Pool

	// life ends with the term; its cause says why. A struct holds this context because it
	// is the state of the term and not of one call.
	life context.Context
	end  context.CancelCauseFunc
}

// Epoch returns the number of the term.
func (r *Term) Epoch() cluster.Epoch { return r.epoch }

// Cluster returns the ID of the cluster that the volume belongs to.
func (r *Term) Cluster() cluster.ID { return r.v.cluster.ID }

// Level returns the feature level of the cluster when its log has made table t.
func (r *Term) Level(t *locktable.Table) uint32 { return r.v.cluster.Level(t) }

// Kind returns the kind of the filesystem.
func (r *Term) Kind() vfs.Kind { return r.v.fs.Kind() }

// Unanswered returns the age of the oldest of this term's calls into the filesystem that
// have not returned, 0 if there is none. Pauses and work in memory do not count.
func (r *Term) Unanswered(now time.Time) time.Duration { return r.v.calls.oldest(now) }

// UnansweredOf is Unanswered for the calls on a protected file and on the directories above it.
func (r *Term) UnansweredOf(name cluster.FileName, now time.Time) time.Duration {
	p := ProtectedPath(name)
	return r.v.calls.oldestOf(now, func(of string) bool { return of == p || strings.HasPrefix(p, of+"/") })
}

// Unchecked is Unanswered for Check and CheckPath: the age of the oldest one that has not returned.
func (r *Term) Unchecked(now time.Time) time.Duration { return r.checks.oldest(now) }

// Space is Volume.Space.
func (r *Term) Space() (vfs.Space, bool) { return r.v.Space() }

// Context returns a context that ends with the term. Its cause is what Err returns.
func (r *Term) Context() context.Context { return r.life }

// Done is closed when the term ends.
func (r *Term) Done() <-chan struct{} { return r.life.Done() }

// Err returns nil until the term ends, then an error that wraps ErrDeposed and the cause.
func (r *Term) Err() error { return context.Cause(r.life) }

// End ends the term with a cause. If the term has ended already, the first cause stays. It returns what Err returns.
func (r *Term) End(cause error) error {
	r.end(fmt.Errorf("epoch %d: %w: %w", r.epoch, ErrDeposed, cause))
	return r.Err()
}

// Release ends the term, closes its descriptors and unlocks claim.json. The free lock shows
// other servers that no process writes for this term any more, so call Release after the last writer ended.
func (r *Term) Release() error {
	r.End(errors.New("released")) //nolint:errcheck // the cause is what it returns
	var err error
	if r.fence != nil {
		err = r.fence.Close()
	}
	if r.lock == nil {
		return err // the term of a recovery, which has no lock and no Prepared
	}
	return errors.Join(err, r.prepared.closeHeld(), r.lock.Unlock())
}

// DropLog removes the prepared log segment of a term that failed before Adopt. So servers that
// try again and again do not fill the volume.
func (r *Term) DropLog() error {
	err := r.prepared.closeHeld() // while a file is open, an NFS client renames it instead of removing it
	return errors.Join(err, vfs.IgnoreMissing(r.v.fs.Remove(r.path+"/"+wal.NextName)))
}

// Check proves that no later claimant had set this term's fence when the check
// began. Anything but a whole block of zeros in a file that still has its link
// and size ends the term, because the fence may be set. It returns what Err returns.
func (r *Term) Check() error {
	if err := r.Err(); err != nil {
		return err
	}
	defer r.checks.end(r.checks.begin(""))
	buf, ok := r.bufs.Get().(*[]byte)
	if !ok {
		b := vfs.AlignedBuffer(vfs.BlockSize)
		buf = &b
	}
	defer r.bufs.Put(buf)

	stat := r.statFence()
	if err := vfs.ReadBlock(r.fence, *buf, 0); err != nil {
		return r.End(fmt.Errorf("check: read the fence: %w", err))
	}
	if !vfs.AllZero(*buf) {
		return r.End(ErrFenced)
	}
	info, err := stat()
	if err != nil {
		return r.End(fmt.Errorf("check: stat the fence: %w", err))
	}
	if info.Nlink < 1 || info.Size != layout.FenceSize || info.Inode != r.fenceInode {
		return r.End(fmt.Errorf("check: %w: the fence was removed or changed", ErrDamaged))
	}
	return r.Err()
}

// statFence returns a function that returns the attributes of the fence's file. On a network filesystem, where
// they cost a round trip, it requests them at once, while the block is read. The order of the two
// does not matter: a fence is set before anything of Holdfast's removes its file, so a block of zeros was read
// before both. The attributes show what people did to the file. Check does
// not wait for them if the block has ended the term: a call that changes nothing may outlive the term.
func (r *Term) statFence() func() (vfs.Info, error) {
	if !r.v.fs.Kind().Network {
		return r.fence.Stat
	}
	var info vfs.Info
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		info, err = r.fence.Stat()
	}()
	return func() (vfs.Info, error) {
		<-answered
		return info, err
	}
}

// CheckPath proves that the volume is still at its path: the fence's name
// leads to the same inode, and CLUSTER names the same cluster. Otherwise it ends the term and returns what Err
// returns. The inodes are of one process and one mount, so that they can be compared.
func (r *Term) CheckPath() error {
	defer r.checks.end(r.checks.begin(""))
	info, err := r.v.fs.Lstat(r.path + "/" + layout.FenceName)
	if err != nil {
		return r.End(fmt.Errorf("check: the fence's name: %w", err))
	}
	if info.Inode != r.fenceInode {
		return r.End(fmt.Errorf("check: %w: the fence's name leads to another file", ErrDamaged))
	}
	if err := r.v.CheckIdentity(); err != nil {
		return r.End(fmt.Errorf("check: %w", err))
	}
	return nil
}

// IndexWriter returns a writer of this term's index, which refuses to write when the term has ended. It creates no
// file yet.
func (r *Term) IndexWriter() *index.Writer { return index.NewWriter(r.v.fs, r.epoch, r.Err) }

// HistoryDir returns the history of grants on the volume.
func (r *Term) HistoryDir() historydir.Dir { return r.v.history() }

// HistoryWriter returns a writer of this term's history, which refuses to write when the term has ended. It creates no
// file yet.
func (r *Term) HistoryWriter() *sidelog.Writer { return r.v.history().Writer(r.epoch, r.Err) }

// dir returns this term's own directory, for package wal.
func (r *Term) dir() *epochdir.Dir { return &epochdir.Dir{FS: r.v.fs, Path: r.path, Gate: r.Err} }

// Source is the term that a claimant takes over from.
type Source struct {
	// Epoch is the number of the newest term that started.
	Epoch cluster.Epoch
	// Fenced are all terms whose fences FenceOlder set, Epoch included, newest first.
	Fenced []cluster.Epoch

	start epochdir.Start
}

// FenceOlder sets the fence of every older term that might still write, from the newest
// down to the first that started, and returns that one. A term
// that never started has answered nobody, so nothing of it is adopted. An error has ended the term: one that
// wraps ErrOvertaken if a later term exists, ErrDamaged if an older term is missing or a witness
// shows a term that is.
func (r *Term) FenceOlder(ctx context.Context) (Source, error) {
	w := fenceWalk{fs: r.v.fs, by: r.epoch, nonce: r.nonce, may: r.Err, notes: r.v.opt.Staleness == 0}
	e, s, err := w.down(ctx, r.epoch)
	src := Source{Fenced: w.fenced}
	if err == nil {
		err = r.v.laterThan(ctx, e, r.epoch)
	}
	if err != nil {
		return src, r.giveUp(fmt.Errorf("fence older terms: %w", err))
	}
	src.Epoch, src.start = e, *s
	if err := w.writeFencedNote(e); err != nil && !vfs.IsFull(err) {
		return src, r.giveUp(fmt.Errorf("fence older terms: %w", err))
	}
	return src, nil
}

// ConfirmSource ends this term if an epoch above src turns out to have started, or to have been
// claimed, while its fence was being set. It is called after the fencing period. Where
// Options.Staleness is not 0, the walk may have read zeros instead of a START, and the
// term with that START may have read zeros instead of its fence's flag. Now either is visible that
// counts. The next claim adopts what that term left. It does nothing where nothing is stale.
func (r *Term) ConfirmSource(ctx context.Context, src Source) error {
	if r.v.opt.Staleness == 0 {
		return nil
	}
	later, err := epochdir.TakenAfter(r.v.fs, src.Epoch, r.epoch)
	for _, d := range later {
		if err == nil {
			err = passedBy(ctx, r.v.fs, d)
		}
	}
	if err == nil {
		err = r.v.laterThan(ctx, src.Epoch, r.epoch)
	}
	if err != nil {
		return r.giveUp(fmt.Errorf("confirm that epoch %d started last: %w", src.Epoch, err))
	}
	return nil
}

// giveUp ends a term that could not take over. If it was fenced meanwhile, this is the cause: later
// terms may have removed files that it wanted to adopt.
func (r *Term) giveUp(cause error) error {
	if !errors.Is(cause, ErrOvertaken) && r.Check() != nil {
		return r.Err()
	}
	return r.End(cause)
}

// WritersEnded reports whether the flock of every fenced term is free, which
// means that those processes have ended or lost their lock on the network. It
// only shortens the fencing period; safety does not depend on it. If the host of such a process is dead, a
// network filesystem may delay the answer for as long as it keeps the files of that host open.
func (r *Term) WritersEnded(src Source) bool {
	for _, d := range src.Fenced {
		l, err := r.v.fs.TryLock(layout.EpochDir(d) + "/" + layout.ClaimName)
		if err != nil || l.Unlock() != nil {
			return false
		}
	}
	return true
}

// WriteStart writes START, which binds this term to the log that it adopted up to end: from now on a later
// claimant takes over from this term. Then it checks the own fence, because a claimant
// that set it before START was durable does not adopt this term. An error has ended the term.
func (r *Term) WriteStart(end wal.Position) error {
	if err := r.Err(); err != nil {
		return err
	}
	f, info, err := epochdir.OpenFence(r.v.fs, r.epoch, vfs.FlagWrite)
	if err != nil {
		return r.End(fmt.Errorf("write START: %w", err))
	}
	if info.Inode != r.fenceInode {
		err = fmt.Errorf("%w: the fence was replaced", ErrDamaged)
	}
	if err == nil {
		_, err = f.WriteAt(epochdir.EncodeStart(epochdir.Start{Epoch: r.epoch, Nonce: r.nonce, End: end}), layout.FenceSpacing)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return r.End(fmt.Errorf("write START: %w", err))
	}
	return r.Check()
}

// ErrFenced means that a later claimant has set this term's fence.
var ErrFenced = errors.New("fenced by a later term")
