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
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrDeposed says that this term has ended: nothing more is written in its name.
var ErrDeposed = errors.New("deposed")

// Term is the handle through which everything is written in the name of one
// epoch. It closes once, with a cause, and then refuses every write. It is safe
// for use by several goroutines.
type Term struct {
	v          *Volume
	epoch      cluster.Epoch
	nonce      epochdir.Nonce
	path       string
	lock       vfs.Lock
	prepared   *Prepared // what became of it; it holds files until the log has begun
	fence      vfs.File
	fenceInode uint64

	checks calls // under way
	made   madeInodes

	// bufs holds one block per goroutine that checks at the same time.
	bufs sync.Pool

	// life ends with the term; its cause says why. It is the term's state and
	// not one call's, which is why it is kept here.
	life context.Context
	end  context.CancelCauseFunc
}

// Epoch is the term's number.
func (r *Term) Epoch() cluster.Epoch { return r.epoch }

// Cluster is whose volume it is.
func (r *Term) Cluster() cluster.ID { return r.v.cluster.ID }

// Kind is the filesystem's.
func (r *Term) Kind() vfs.Kind { return r.v.fs.Kind() }

// Unanswered is how long ago the oldest of this term's calls into the filesystem began that
// has not come back, 0 while none is under way. Pauses and work in memory do not count.
func (r *Term) Unanswered(now time.Time) time.Duration { return r.v.calls.oldest(now) }

// UnansweredOf is the same for the calls that are about a protected file or a directory above it.
func (r *Term) UnansweredOf(name cluster.FileName, now time.Time) time.Duration {
	p := ProtectedPath(name)
	return r.v.calls.oldestOf(now, func(of string) bool { return of == p || strings.HasPrefix(p, of+"/") })
}

// Unchecked is the same for checks, of the fence and of its path.
func (r *Term) Unchecked(now time.Time) time.Duration { return r.checks.oldest(now) }

// Space is that of the volume.
func (r *Term) Space() (vfs.Space, bool) { return r.v.Space() }

// Context dies with the term.
func (r *Term) Context() context.Context { return r.life }

// Done is closed when the term ends.
func (r *Term) Done() <-chan struct{} { return r.life.Done() }

// Err is nil while the term is open, else ErrDeposed with the cause.
func (r *Term) Err() error { return context.Cause(r.life) }

// End ends the term; only the first cause is kept. It returns what Err returns.
func (r *Term) End(cause error) error {
	r.end(fmt.Errorf("epoch %d: %w: %w", r.epoch, ErrDeposed, cause))
	return r.Err()
}

// Release closes the descriptors and gives the flock back: the sign to others
// that the last writer of this term has ended. Call it when that is true.
func (r *Term) Release() error {
	r.End(errors.New("released")) //nolint:errcheck // the cause is what it returns
	var err error
	if r.fence != nil {
		err = r.fence.Close()
	}
	if r.lock == nil {
		return err // a recovery's: it has no lock and was not prepared
	}
	return errors.Join(err, r.prepared.letGo(), r.lock.Unlock())
}

// DropLog gives the room of the prepared log back, for a term that failed before
// WriteStart and so has no log that anybody will read. Servers that try again and
// again must not fill the share that somebody has to mend.
func (r *Term) DropLog() error {
	err := r.prepared.letGo() // or NFS keeps the room under another name
	return errors.Join(err, vfs.IgnoreMissing(r.v.fs.Remove(r.path+"/"+wal.NextName)))
}

// Check proves that no later claimant had set this term's fence when the check
// began. Anything but a whole block of zeros in a file that still has its name
// and size ends the term, since it can no longer know.
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

// statFence returns what asks for the attributes of the fence's file. On a network, where that
// is a round trip, they are asked for at once, beside the read of the block. Which comes first
// does not matter: a fence is set before its file is ever removed, so a block of zeros was read
// before both, and the attributes are for what people do to the file. The answer is
// not waited for once the block has ended the term: a call that changes nothing may outlive it.
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

// CheckPath proves that the directory is still where it was: the fence's name
// leads to the same inode and CLUSTER names the same cluster. Inodes are
// compared only here, within one process and mount.
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

// IndexWriter returns the writer of this term's index, which ends with the term. It touches nothing yet.
func (r *Term) IndexWriter() *index.Writer { return index.NewWriter(r.v.fs, r.epoch, r.Err) }

// HistoryDir returns the history of grants on the volume.
func (r *Term) HistoryDir() historydir.Dir { return r.v.history() }

// HistoryWriter returns the writer of this term's history, which ends with the term. It touches nothing yet.
func (r *Term) HistoryWriter() *sidelog.Writer { return r.v.history().Writer(r.epoch, r.Err) }

// dir is this term's own directory, for the log.
func (r *Term) dir() *epochdir.Dir { return &epochdir.Dir{FS: r.v.fs, Path: r.path, Gate: r.Err} }

// Source is the term that a claimant takes over from.
type Source struct {
	// Epoch is the newest term that started.
	Epoch cluster.Epoch
	// Fenced are all terms whose fences were set on the way, Epoch included.
	Fenced []cluster.Epoch

	start epochdir.Start
}

// FenceOlder ends every older term that might still write, from the newest
// down to the first that started: fence first, then look for START. A term
// that never started has told nobody anything, so nothing of it is adopted.
func (r *Term) FenceOlder(ctx context.Context) (Source, error) {
	w := fenceWalk{fs: r.v.fs, by: r.epoch, nonce: r.nonce, may: r.Err}
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

// giveUp ends a term that could not take over. Who was fenced meanwhile finds what later
// terms left of what it wanted to adopt, so that is looked at first.
func (r *Term) giveUp(cause error) error {
	if !errors.Is(cause, ErrOvertaken) && r.Check() != nil {
		return r.Err()
	}
	return r.End(cause)
}

// WritersEnded reports whether the flock of every fenced term is free, which
// means that those processes have ended or lost their lock on the network. It
// shortens a courtesy wait; nothing rests on it. Where a host of theirs is dead, a network
// filesystem may hold the answer back for as long as it keeps what that host had opened.
func (r *Term) WritersEnded(src Source) bool {
	for _, d := range src.Fenced {
		l, err := r.v.fs.TryLock(layout.EpochDir(d) + "/" + layout.ClaimName)
		if err != nil || l.Unlock() != nil {
			return false
		}
	}
	return true
}

// WriteStart binds this term to what it adopted: from now on it is what a later
// claimant takes over from. Then the own fence is checked, because a claimant
// that set it before START was there goes past this term.
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

// ErrFenced says that a later claimant has ended this term.
var ErrFenced = errors.New("fenced by a later term")
