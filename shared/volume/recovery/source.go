// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/inspect"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// candidate is a state from which a recovery may begin.
type candidate struct {
	name    string
	epoch   cluster.Epoch
	table   *locktable.Table
	end     wal.Position
	pending []locktable.Record
	// complete is true if no acknowledged operation can be missing.
	complete bool
	// copied is true if the state comes from outside the volume, elsewhere if it is the state of another volume.
	copied, elsewhere bool
	// damage tells people where reading ended, and why.
	damage []string
}

func (c *candidate) better(other *candidate) bool {
	return other == nil || c != nil && c.end.LSN > other.end.LSN
}

func candidateOf(e cluster.Epoch, a *volume.Adoption) *candidate {
	return &candidate{name: "the log of " + layout.EpochDir(e), epoch: e, table: a.Table, end: a.End, pending: a.Redo}
}

// findSource returns the newest state that can be proven, nil if there is none, and the reasons why a takeover
// is not possible; there are no reasons if it is.
func (r *recovery) findSource(ctx context.Context, epochs []epochdir.State) (best *candidate, reasons []string, err error) {
	var doubtful []epochdir.State // terms newer than newest that may have started
	var newest *epochdir.State    // the newest term that certainly started
	var next *adoptedEnd          // of the oldest term so far that certainly started
	for i := len(epochs) - 1; i >= 0; i-- {
		e := &epochs[i]
		switch {
		case e.Start != nil && newest == nil:
			newest, next = e, adoptedBy(e)
			if best, err = r.startedSource(ctx, e, &reasons); err != nil {
				return nil, nil, err
			}
		case newest != nil && (e.Start != nil || e.Unknown()):
			// This log proves what the next term adopted, and nothing after it:
			// a primary that was fenced wrote that late.
			if c := r.seal(e.Epoch, next.at.LSN); next.of(c, best == nil) && c.better(best) {
				best = c
			}
			if next.doubtful = true; e.Start != nil {
				next = adoptedBy(e)
			}
		case e.Unknown():
			reasons = append(reasons, fmt.Sprintf("%s: %v", layout.EpochDir(e.Epoch), errors.Join(e.FenceErr, e.StartErr)))
			doubtful = append(doubtful, *e)
		}
		if newest != nil && best != nil && best.end.LSN >= newest.Start.End.LSN {
			break
		}
		if i > 0 && epochs[i-1].Epoch < e.Before() {
			reasons = append(reasons, fmt.Sprintf("%s is missing", layout.EpochDir(e.Before())))
			if next != nil {
				next.doubtful = true
			}
			doubtful = append(doubtful, epochdir.State{Epoch: e.Before(), FenceErr: fs.ErrNotExist})
		}
	}
	for i := range doubtful {
		c, ok := r.doubtfulSource(ctx, &doubtful[i], best)
		if best != nil && !ok {
			best.complete = false // it may have served, and what it served is not all here
		}
		if best != nil && c != nil && r.contradict(c, best) {
			best = newer(c, best)
		} else if c.better(best) {
			best = c
		}
	}
	return best, reasons, context.Cause(ctx)
}

// adoptedEnd is the position up to which a term adopted the log of an older one.
type adoptedEnd struct {
	at wal.Position
	// unchained is true if the chain value at that position is not known.
	unchained bool
	// doubtful is true if the older term may be another one than the next lower one that
	// certainly started.
	doubtful bool
}

// adoptedBy returns the adopted end in the START of an epoch, or in the claim of an epoch that a recovery made.
func adoptedBy(e *epochdir.State) *adoptedEnd {
	if e.ClaimErr == nil && e.Claim.Recovered != nil {
		return &adoptedEnd{at: wal.Position{LSN: e.Claim.Recovered.End}, unchained: true}
	}
	return &adoptedEnd{at: e.Start.End}
}

// of reports whether c, which was sealed at the adopted end, is a part of the log that was adopted. A log that
// ends earlier has no position to compare: if it may be the log of another term, it counts only if
// there is no other candidate.
func (a *adoptedEnd) of(c *candidate, only bool) bool {
	if c == nil || c.end.LSN == a.at.LSN {
		return c != nil && (a.unchained || c.end == a.at)
	}
	return !a.doubtful || only
}

// contradict reports whether two logs differ before the end of the shorter one.
func (r *recovery) contradict(a, b *candidate) bool {
	shorter, longer := a, b
	if a.end.LSN > b.end.LSN {
		shorter, longer = b, a
	}
	has, end, _ := inspect.HasPosition(r.fs, r.v, longer.epoch, shorter.end) // as far as it can be read
	return !has && end.LSN >= shorter.end.LSN
}

// newer returns the log of the higher epoch, of two that contradict each other, whichever is longer. The higher
// epoch had fenced the lower one before it wrote records of its own. So what only
// the lower one has was not acknowledged, unless the higher one never served.
func newer(a, b *candidate) *candidate {
	if a.epoch < b.epoch {
		a, b = b, a
	}
	a.complete = false
	a.damage = append(a.damage, fmt.Sprintf("what %s has besides, up to LSN %d: the two contradict each other, and the higher epoch counts", b.name, b.end.LSN))
	return a
}

// startedSource reads a term that started, as a takeover does, or else as far as its log can be read.
func (r *recovery) startedSource(ctx context.Context, e *epochdir.State, reasons *[]string) (*candidate, error) {
	a, err := r.v.ReadTerm(ctx, e.Epoch, *e.Start)
	if err == nil {
		c := candidateOf(e.Epoch, a)
		c.complete = true
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.noteNewer(err)
	*reasons = append(*reasons, err.Error())
	return r.seal(e.Epoch, endless), nil
}

// doubtfulSource reads a term that may have started. If it
// served, its log has everything that it adopted from the older term. ok reports whether it has, and so is
// complete. A log that ends earlier comes from an adoption that failed, or is damaged.
func (r *recovery) doubtfulSource(ctx context.Context, e *epochdir.State, below *candidate) (c *candidate, ok bool) {
	began := epochdir.Start{Epoch: e.Epoch}
	if below != nil {
		began.End = below.end
	}
	a, err := r.v.ReadTerm(ctx, e.Epoch, began)
	if err == nil {
		c := candidateOf(e.Epoch, a)
		c.complete = below != nil && below.complete
		return c, true
	}
	r.noteNewer(err)
	return r.seal(e.Epoch, endless), false
}

// noteNewer notes an error which shows that this binary is too old for what it read. All errors of reading come here, because
// none of what is cut off for damage may be what a newer binary can read.
func (r *recovery) noteNewer(err error) {
	if r.newer == nil {
		r.newer = volume.TooOld(err)
	}
}

// noteHeaders reads the headers of all segments of a term: a scan ends at the first damage, and behind that may be one
// which needs a newer binary.
func (r *recovery) noteHeaders(path string) {
	entries, err := r.fs.ReadDir(path)
	if err != nil {
		return // it is reported where it matters
	}
	for _, x := range entries {
		if _, ok := wal.ParseSegmentName(x.Name); !ok {
			continue
		}
		b, err := vfs.ReadBlockFile(r.fs, path+"/"+x.Name, vfs.FlagRead)
		if err != nil {
			continue // likewise
		}
		h, err := wal.DecodeSegmentHeader(b)
		if err == nil && h.FeatureLevel > volume.FeatureLevel {
			err = fmt.Errorf("%s/%s: %w: feature level %d, this binary knows %d", path, x.Name, wal.ErrFeatureLevel, h.FeatureLevel, volume.FeatureLevel)
		}
		r.noteNewer(err)
	}
}

// endless means that seal has no bound.
const endless = ^cluster.LSN(0)

// seal reads a log that a takeover refuses, up to the last frame whose chain value fits,
// and at most up to the LSN until. It begins at the checkpoint from which it gets furthest.
// It returns nil if nothing can be read.
func (r *recovery) seal(e cluster.Epoch, until cluster.LSN) *candidate {
	path := layout.EpochDir(e)
	bases := []*checkpoint.Base{checkpoint.Empty()}
	all, _ := checkpoint.List(r.fs, path) // with an error there is only the empty state
	for _, lsn := range all {
		if lsn > until {
			continue
		}
		b, err := checkpoint.Read(r.fs, r.v.Cluster().ID, path, lsn, true)
		if r.noteNewer(err); err == nil {
			bases = append(bases, b)
		}
	}
	r.noteHeaders(path)
	var best *candidate
	for _, b := range bases {
		if c := r.sealFrom(e, b, until); c.better(best) {
			best = c
		}
	}
	return best
}

// sealFrom reads from one base. A scan ends with an error at a damaged segment before it visits the records of earlier
// segments, so sealFrom reads a second time without that segment and later ones.
func (r *recovery) sealFrom(e cluster.Epoch, b *checkpoint.Base, until cluster.LSN) *candidate {
	c, err := r.sealBefore(e, b, until, 0)
	r.noteNewer(err)
	if damage, ok := errors.AsType[*wal.ScanError](err); ok {
		if first, ok := wal.ParseSegmentName(damage.File); ok {
			again, err := r.sealBefore(e, b, until, first) // the first error is the one to report
			if r.noteNewer(err); again != nil && again.end.LSN > b.At.LSN && again.better(c) {
				c = again
			}
		}
	}
	if c != nil && err != nil {
		c.damage = []string{layout.EpochDir(e) + ": " + err.Error()}
	}
	return c
}

func (r *recovery) sealBefore(e cluster.Epoch, b *checkpoint.Base, until, first cluster.LSN) (*candidate, error) {
	path := layout.EpochDir(e)
	a := &volume.Adoption{Table: b.Table.Clone(), Redo: slices.Clone(b.Pending)}
	p := &sealer{apply: a.Replay(), at: b.At, end: b.At, until: until}
	_, err := wal.Scan(&epochdir.HidingDir{Dir: epochdir.Dir{FS: r.fs, Path: path}, Before: first}, wal.ScanOptions{
		Cluster: r.v.Cluster().ID, FeatureLevel: volume.FeatureLevel, MaxEpoch: e, From: p.at,
	}, p.visit)
	if errors.Is(err, errUntil) {
		err = nil
	}
	if p.broken || b.At.LSN == 0 && a.Table.LSN() == 0 {
		return nil, err
	}
	a.End = p.end
	c := candidateOf(e, a)
	c.name = fmt.Sprintf("the log of %s, sealed at LSN %d", path, p.end.LSN)
	return c, err
}

// sealer applies records frame by frame, each after its chain value was compared.
type sealer struct {
	apply  func(cluster.LSN, wal.Entry, wal.FrameHeader) error
	at     wal.Position // of the last record visited
	end    wal.Position // of the last frame applied
	until  cluster.LSN
	frame  []wal.Entry
	broken bool // a frame was applied in part, so that the table is not a state of the log
}

var (
	errChain = errors.New("the chain value does not fit")
	errUntil = errors.New("far enough")
)

func (p *sealer) visit(lsn cluster.LSN, e wal.Entry, f wal.FrameHeader) error {
	if f.Last() > p.until {
		return errUntil
	}
	p.at = wal.Position{LSN: lsn, Chain: p.at.Chain.Next(e.Header)}
	p.frame = append(p.frame, wal.Entry{Header: slices.Clone(e.Header), Data: slices.Clone(e.Data), DataLen: e.DataLen})
	if lsn != f.Last() {
		return nil
	}
	if p.at.Chain != f.Chain {
		return errChain
	}
	for i, x := range p.frame {
		if err := p.apply(p.end.LSN+1+cluster.LSN(i), x, f); err != nil {
			p.broken = i > 0
			return err
		}
	}
	p.frame, p.end = p.frame[:0], p.at
	return nil
}
