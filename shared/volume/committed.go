// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Committed is a state of the volume that every later term has in its past: see ReadCommitted.
type Committed struct {
	Cluster Cluster
	Epoch   cluster.Epoch // of the term in whose log the state was read
	At      wal.Position
	Table   *locktable.Table
	// Redo are the appends up to At that protected files may lack, in log order.
	Redo []locktable.Record
	// Time is when the last record that was read was decided, in milliseconds since 1970 by the clock of a primary; 0 if
	// none was read.
	Time int64
	// Unconfirmed is a sentence for people if no primary confirmed the last records, "" otherwise. They are in the
	// log of a term that has not ended, so the next term adopts them unless the filesystem loses them before.
	Unconfirmed string
}

// CommittedOptions configure ReadCommitted. The zero value is ready to use.
type CommittedOptions struct {
	// Wait is for how long ReadCommitted reads again while the volume does not show which term is the newest, or caches
	// hide its files; 0 means 30 s, and 95 s on a network filesystem. Each term that begins meanwhile gets it anew, up to ten times.
	Wait time.Duration
	// Tell is called with each reason to wait or to read again. It may be nil.
	Tell func(error)
}

const (
	committedWait        = 30 * time.Second
	committedWaitNetwork = stateWaitNetwork + committedWait
	// committedTerms bounds how often Wait begins again.
	committedTerms = 10
	// committedPause is the pause between two looks at fences.
	committedPause = 100 * time.Millisecond
	// confirmWait is for how long a primary has the time to confirm the last records: some beats of its canary.
	confirmWait = 3 * time.Second
)

// ErrNotCommitted means that nothing on the volume shows which of the last records were acknowledged.
var ErrNotCommitted = errors.New("the newest term is not known")

// laterTermError means that the term of an epoch has started since the state was read.
type laterTermError struct{ epoch cluster.Epoch }

func (e *laterTermError) Error() string {
	return fmt.Sprintf("epoch %d has started meanwhile: it is read instead", e.epoch)
}

// ReadCommitted reads a state that contains everything that was acknowledged before the call, and nothing that a
// later term may lack. It changes nothing on the volume, and servers may run meanwhile.
//
// The log may end with records that no later term has: a primary that was paused writes them into its own directory
// after a claimant has read the log there. So the log of the newest term that started is not enough. ReadCommitted reads
// it, makes it durable, and then looks at the fence of that term, as a primary does before it answers: see PROTOCOL 6. If
// no claimant has set it, every later term finds what was read. On a network filesystem one client cannot make durable
// what another one writes; there the canary of the primary has to confirm the end of the log, or nothing more comes
// for confirmWait.
//
// If the fence is set, it is not known which of the last records the next term has, and whether it has begun
// already, which a cache may hide. ReadCommitted waits for a START, and then reads that term instead. If all
// claimants have ended before they began, which only the flocks of a filesystem of a single host prove, what they might have
// read does not matter any more.
//
// It returns ErrNoCluster if the directory is no volume, an error that wraps ErrTooOld if this binary is too old for it, ErrNotCommitted if no term has begun
// after Options.Wait, and ErrDamaged if the volume contradicts itself for as long.
func ReadCommitted(ctx context.Context, fsys vfs.FS, opt CommittedOptions) (*Committed, error) {
	if opt.Wait == 0 {
		opt.Wait = committedWait
		if fsys.Kind().Network {
			opt.Wait = committedWaitNetwork
		}
	}
	if opt.Tell == nil {
		opt.Tell = func(error) {}
	}
	began := time.Now()
	until, last := began.Add(opt.Wait), began.Add(committedTerms*opt.Wait)
	newest := cluster.Epoch(0) // that is known to have started; listings may hide it
	for {
		// A START that appears just before the end of the wait is found by the look after that end.
		over := time.Now().After(until)
		c, err := readCommitted(ctx, fsys, newest, until, opt.Tell)
		if err == nil || errors.Is(err, ErrNoCluster) || errors.Is(err, ErrTooOld) {
			return c, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if later, ok := errors.AsType[*laterTermError](err); ok && time.Now().Before(last) {
			newest, until = later.epoch, time.Now().Add(opt.Wait)
		} else if over {
			return nil, err
		}
		opt.Tell(err)
		if err := vfs.Pause(ctx, statePause); err != nil {
			return nil, err
		}
	}
}

// lastTerm is the newest term that started, as a reader found it.
type lastTerm struct {
	fs    vfs.FS
	v     *Volume
	state epochdir.State
	a     *Adoption
}

// readCommitted reads the newest term that started, and returns its state when that is proven. It returns a
// laterTermError if another term is to be read instead. The term of epoch newest, if not 0, is known to have started.
func readCommitted(ctx context.Context, fsys vfs.FS, newest cluster.Epoch, until time.Time, tell func(error)) (*Committed, error) {
	c, err := ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	t := &lastTerm{fs: fsys, v: Offline(fsys, c)}
	told := t.v.historyReach(ctx) // before the log: a primary may write to both meanwhile
	if err := t.find(ctx, newest); err != nil {
		return nil, err
	}
	if t.a, err = t.v.ReadTerm(ctx, t.state.Epoch, *t.state.Start); err != nil {
		return nil, err
	}
	if t.a.End.LSN < told {
		return nil, fmt.Errorf("%w: the log of epoch %d ends at LSN %d, and the history tells of LSN %d", ErrDamaged, t.state.Epoch, t.a.End.LSN, told)
	}
	prove := t.proveOnHost
	if fsys.Kind().Network {
		prove = t.proveOnNetwork
	}
	unconfirmed, err := prove(ctx, until, tell)
	if err != nil {
		return nil, err
	}
	return &Committed{
		Cluster: c, Epoch: t.state.Epoch, At: t.a.End, Table: t.a.Table, Redo: t.a.Redo, Time: t.a.Time, Unconfirmed: unconfirmed,
	}, nil
}

// find finds the newest term that started. A term that cannot be read may have started, so it refuses to look below it.
func (t *lastTerm) find(ctx context.Context, newest cluster.Epoch) error {
	taken, err := epochdir.List(t.fs)
	if err != nil {
		return err
	}
	if !slices.Contains(taken, newest) {
		taken = append(taken, newest)
		slices.Sort(taken)
	}
	for _, e := range slices.Backward(taken) {
		t.state = epochdir.State{Epoch: e}
		if err := t.state.Read(ctx, t.fs); err != nil {
			return err
		}
		if t.state.Unknown() {
			return fmt.Errorf("%w: %s cannot be read: %w; type holdfast fsck --volume DIR", ErrNotCommitted, layout.EpochDir(e), errors.Join(t.state.FenceErr, t.state.StartErr))
		}
		if t.state.Start != nil {
			return t.v.laterThan(ctx, e, taken[len(taken)-1])
		}
	}
	return errNoStart
}

// proveOnHost proves that every later term has what was read, on a filesystem that one host uses.
func (t *lastTerm) proveOnHost(ctx context.Context, until time.Time, tell func(error)) (unconfirmed string, err error) {
	if err := t.sync(); err != nil {
		return "", err
	}
	for said := false; ; said = true {
		over := time.Now().After(until)
		flag, err := t.flag()
		if err != nil || !t.ended(flag) {
			return "", err
		}
		dead, err := t.claimantsDied(ctx, flag)
		switch {
		case err != nil || dead:
			return "", err
		case over:
			return "", t.undecided(flag)
		case !said:
			tell(t.undecided(flag))
		}
		if err := vfs.Pause(ctx, committedPause); err != nil {
			return "", err
		}
	}
}

// proveOnNetwork is proveOnHost for a filesystem of several hosts, whose caches may hide a later term. But no cache hides a
// flag, which each later term sets before it starts.
func (t *lastTerm) proveOnNetwork(ctx context.Context, until time.Time, tell func(error)) (unconfirmed string, err error) {
	for began, said := time.Now(), false; ; {
		over, silent := time.Now().After(until), time.Since(began) > confirmWait
		confirmed := t.confirmed()
		flag, err := t.flag()
		if err != nil {
			return "", err
		}
		switch {
		case t.ended(flag):
			if err := t.laterStarted(ctx, flag); err != nil {
				return "", err
			}
			if over {
				return "", t.undecided(flag)
			}
			if !said {
				tell(t.undecided(flag))
				said = true
			}
		case confirmed:
			return "", nil
		case silent:
			return fmt.Sprintf("no primary confirmed the log of epoch %d up to LSN %d: its last records may be lost if the filesystem's server loses power now", t.state.Epoch, t.a.End.LSN), nil
		}
		if err := vfs.Pause(ctx, committedPause); err != nil {
			return "", err
		}
	}
}

// sync makes durable what was read: START, the log, and the names of its segments. Checkpoints are durable before they have
// their names.
func (t *lastTerm) sync() error {
	path := layout.EpochDir(t.state.Epoch)
	names := []string{layout.FenceName}
	for _, s := range t.a.Segments() {
		names = append(names, s.Name)
	}
	for _, name := range names {
		f, err := t.fs.Open(path+"/"+name, vfs.FlagRead)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("sync %s/%s: %w", path, name, err)
		}
	}
	return t.fs.SyncDir(path)
}

// flag reads the block of the term's fence flag, past the caches.
func (t *lastTerm) flag() (block []byte, err error) {
	f, _, err := epochdir.OpenFence(t.fs, t.state.Epoch, vfs.FlagRead)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block = vfs.AlignedBuffer(vfs.BlockSize)
	if err := vfs.ReadBlock(f, block, 0); err != nil {
		return nil, fmt.Errorf("read the fence of epoch %d: %w", t.state.Epoch, err)
	}
	return block, nil
}

// ended reports whether the block of a flag shows that a claimant has ended the term. Epoch 0 is
// fenced by itself from the beginning.
func (t *lastTerm) ended(block []byte) bool {
	if vfs.AllZero(block) {
		return false
	}
	x, ok := epochdir.DecodeFlag(block)
	return t.state.Epoch != 0 || !ok || x.By != 0
}

// undecided returns the error for a term that has ended, if none has started after it.
func (t *lastTerm) undecided(flag []byte) error {
	by := "a claimant"
	if x, ok := epochdir.DecodeFlag(flag); ok {
		by = fmt.Sprintf("the claim of epoch %d", x.By)
	}
	return fmt.Errorf("%w: %s has ended epoch %d and has not begun, so it is not known which records up to LSN %d the next term has: see that a server serves (holdfast status), then repeat", ErrNotCommitted, by, t.state.Epoch, t.a.End.LSN)
}

// confirmed reports whether a canary shows that the term committed everything that was read.
func (t *lastTerm) confirmed() bool {
	if t.state.ClaimErr != nil {
		return false
	}
	c, err := t.v.ReadCanary(t.state.Claim.Server, vfs.FlagDirect)
	return err == nil && c.Epoch == t.state.Epoch && c.At.LSN >= t.a.End.LSN
}

// later returns the epochs above the term that exist, that of the flag included: a listing may be old.
func (t *lastTerm) later(flag []byte) ([]cluster.Epoch, error) {
	taken, err := epochdir.List(t.fs)
	if err != nil {
		return nil, err
	}
	later := slices.DeleteFunc(taken, func(e cluster.Epoch) bool { return e <= t.state.Epoch })
	if x, ok := epochdir.DecodeFlag(flag); ok && x.By > t.state.Epoch && !slices.Contains(later, x.By) {
		later = append(later, x.By)
	}
	return later, nil
}

// laterStarted returns a laterTermError if a later term has started.
func (t *lastTerm) laterStarted(ctx context.Context, flag []byte) error {
	later, err := t.later(flag)
	if err != nil {
		return err
	}
	for _, e := range later {
		began, _, err := t.v.TermState(ctx, e)
		if err != nil {
			return err
		}
		if began {
			return &laterTermError{e}
		}
	}
	return nil
}

// claimantsDied reports whether no process is left that could begin one of the epochs that were claimed after the term:
// the flock of each claim is free. It returns a laterTermError if one has begun, which it looks for
// after the flocks, since a claimant that has begun may end. Whoever claims later reads a log that has everything that was read here.
func (t *lastTerm) claimantsDied(ctx context.Context, flag []byte) (bool, error) {
	later, err := t.later(flag)
	if err != nil {
		return false, err
	}
	dead := len(later) > 0
	for _, e := range later {
		dead = dead && t.claimantDied(e)
	}
	return dead, t.laterStarted(ctx, flag)
}

// claimantDied reports whether the server's process that claimed epoch e has ended. A recovery holds no flock.
func (t *lastTerm) claimantDied(e cluster.Epoch) bool {
	if note, err := epochdir.ReadRecovered(t.fs, e); err != nil || note != nil {
		return false
	}
	l, err := t.fs.TryLock(layout.EpochDir(e) + "/" + layout.ClaimName)
	return err == nil && l.Unlock() == nil
}
