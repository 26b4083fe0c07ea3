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
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrDeposed says that this reign has ended: nothing more is written in its name.
var ErrDeposed = errors.New("deposed")

// Reign is the handle through which everything is written in the name of one
// epoch. It closes once, with a cause, and then refuses every write. It is safe
// for use by several goroutines.
type Reign struct {
	v          *Volume
	epoch      cluster.Epoch
	nonce      Nonce
	path       string
	lock       Lock
	prepared   *Prepared // what became of it; it holds files until the log has begun
	fence      File
	fenceInode uint64

	checks calls // under way
	made   madeInodes

	// bufs holds one block per goroutine that checks at the same time.
	bufs sync.Pool

	// life ends with the reign; its cause says why. It is the reign's state and
	// not one call's, which is why it is kept here.
	life context.Context
	end  context.CancelCauseFunc
}

// Epoch is the reign's number.
func (r *Reign) Epoch() cluster.Epoch { return r.epoch }

// Cluster is whose volume it is.
func (r *Reign) Cluster() ClusterID { return r.v.cluster.ID }

// Kind is the filesystem's.
func (r *Reign) Kind() Kind { return r.v.fs.Kind() }

// Unanswered is how long ago the oldest of this reign's calls into the filesystem began that
// has not come back, 0 while none is under way. Pauses and work in memory do not count.
func (r *Reign) Unanswered(now time.Time) time.Duration { return r.v.calls.oldest(now) }

// UnansweredOf is the same for the calls that are about a protected file or a directory above it.
func (r *Reign) UnansweredOf(name cluster.FileName, now time.Time) time.Duration {
	p := ProtectedPath(name)
	return r.v.calls.oldestOf(now, func(of string) bool { return of == p || strings.HasPrefix(p, of+"/") })
}

// Unchecked is the same for checks, of the fence and of its path.
func (r *Reign) Unchecked(now time.Time) time.Duration { return r.checks.oldest(now) }

// Space is that of the volume.
func (r *Reign) Space() (Space, bool) { return r.v.Space() }

// Context dies with the reign.
func (r *Reign) Context() context.Context { return r.life }

// Done is closed when the reign ends.
func (r *Reign) Done() <-chan struct{} { return r.life.Done() }

// Err is nil while the reign is open, else ErrDeposed with the cause.
func (r *Reign) Err() error { return context.Cause(r.life) }

// Depose ends the reign; only the first cause is kept. It returns what Err returns.
func (r *Reign) Depose(cause error) error {
	r.end(fmt.Errorf("epoch %d: %w: %w", r.epoch, ErrDeposed, cause))
	return r.Err()
}

// Release closes the descriptors and gives the flock back: the sign to others
// that the last writer of this reign has ended. Call it when that is true.
func (r *Reign) Release() error {
	r.Depose(errors.New("released")) //nolint:errcheck // the cause is what it returns
	var err error
	if r.fence != nil {
		err = r.fence.Close()
	}
	return errors.Join(err, r.prepared.letGo(), r.lock.Unlock())
}

// DropLog gives the room of the prepared log back, for a reign that failed before
// WriteStart and so has no log that anybody will read. Servers that try again and
// again must not fill the share that somebody has to mend.
func (r *Reign) DropLog() error {
	err := r.prepared.letGo() // or NFS keeps the room under another name
	return errors.Join(err, ignoreMissing(r.v.fs.Remove(r.path+"/"+wal.NextName)))
}

// Check proves that no later claimant had set this reign's fence when the check
// began. Anything but a whole block of zeros in a file that still has its name
// and size ends the reign, since it can no longer know.
func (r *Reign) Check() error {
	if err := r.Err(); err != nil {
		return err
	}
	defer r.checks.end(r.checks.begin(""))
	buf, ok := r.bufs.Get().(*[]byte)
	if !ok {
		b := AlignedBuffer(BlockSize)
		buf = &b
	}
	defer r.bufs.Put(buf)

	if err := readBlock(r.fence, *buf, 0); err != nil {
		return r.Depose(fmt.Errorf("check: read the fence: %w", err))
	}
	if !allZero(*buf) {
		return r.Depose(ErrFenced)
	}
	info, err := r.fence.Stat()
	switch {
	case err != nil:
		return r.Depose(fmt.Errorf("check: stat the fence: %w", err))
	case info.Nlink < 1 || info.Size != fenceSize || info.Inode != r.fenceInode:
		return r.Depose(fmt.Errorf("check: %w: the fence was removed or changed", ErrDamaged))
	}
	return r.Err()
}

// CheckPath proves that the directory is still where it was: the fence's name
// leads to the same inode and CLUSTER names the same cluster. Inodes are
// compared only here, within one process and mount.
func (r *Reign) CheckPath() error {
	defer r.checks.end(r.checks.begin(""))
	info, err := r.v.fs.Lstat(r.path + "/" + fenceName)
	if err != nil {
		return r.Depose(fmt.Errorf("check: the fence's name: %w", err))
	}
	if info.Inode != r.fenceInode {
		return r.Depose(fmt.Errorf("check: %w: the fence's name leads to another file", ErrDamaged))
	}
	if err := r.v.CheckIdentity(); err != nil {
		return r.Depose(fmt.Errorf("check: %w", err))
	}
	return nil
}

// dir is this reign's own directory, for the log.
func (r *Reign) dir() *dir { return &dir{fs: r.v.fs, path: r.path, gate: r.Err} }

// Source is the reign that a claimant takes over from.
type Source struct {
	// Epoch is the newest reign that started.
	Epoch cluster.Epoch
	// Fenced are all reigns whose fences were set on the way, Epoch included.
	Fenced []cluster.Epoch

	start start
}

// FenceOlder ends every older reign that might still write, from the newest
// down to the first that started: fence first, then look for START. A reign
// that never started has told nobody anything, so nothing of it is adopted.
func (r *Reign) FenceOlder(ctx context.Context) (Source, error) {
	w := fenceWalk{fs: r.v.fs, by: r.epoch, nonce: r.nonce, may: r.Err}
	e, s, err := w.down(ctx, r.epoch)
	src := Source{Fenced: w.fenced}
	if err == nil {
		err = r.v.laterThan(ctx, e, r.epoch)
	}
	if err != nil {
		return src, r.giveUp(fmt.Errorf("fence older reigns: %w", err))
	}
	src.Epoch, src.start = e, *s
	if err := w.writeFencedNote(e); err != nil && !IsFull(err) {
		return src, r.giveUp(fmt.Errorf("fence older reigns: %w", err))
	}
	return src, nil
}

// giveUp ends a reign that could not take over. Who was fenced meanwhile finds what later
// reigns left of what it wanted to adopt, so that is looked at first.
func (r *Reign) giveUp(cause error) error {
	if !errors.Is(cause, ErrOvertaken) && r.Check() != nil {
		return r.Err()
	}
	return r.Depose(cause)
}

// WritersEnded says whether the flock of every fenced reign is free, which
// means that those processes have ended or lost their lock on the network. It
// shortens a courtesy wait; nothing rests on it. Where a host of theirs is dead, a network
// filesystem may hold the answer back for as long as it keeps what that host had opened.
func (r *Reign) WritersEnded(src Source) bool {
	for _, d := range src.Fenced {
		l, err := r.v.fs.TryLock(epochDir(d) + "/" + claimName)
		if err != nil || l.Unlock() != nil {
			return false
		}
	}
	return true
}

// WriteStart binds this reign to what it adopted: from now on it is what a later
// claimant takes over from. Then the own fence is checked, because a claimant
// that set it before START was there goes past this reign.
func (r *Reign) WriteStart(end wal.Position) error {
	if err := r.Err(); err != nil {
		return err
	}
	f, info, err := openFence(r.v.fs, r.epoch, FlagWrite)
	if err != nil {
		return r.Depose(fmt.Errorf("write START: %w", err))
	}
	if info.Inode != r.fenceInode {
		err = fmt.Errorf("%w: the fence was replaced", ErrDamaged)
	}
	if err == nil {
		_, err = f.WriteAt(encodeStart(start{epoch: r.epoch, nonce: r.nonce, end: end}), fenceSpacing)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return r.Depose(fmt.Errorf("write START: %w", err))
	}
	return r.Check()
}
