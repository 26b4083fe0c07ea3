// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// candidate is a state that a recovery may begin with.
type candidate struct {
	name    string
	epoch   cluster.Epoch
	table   *locktable.Table
	end     wal.Position
	pending []locktable.Record
	// complete says that nothing that was acknowledged can be missing.
	complete bool
	// copied says that it comes from outside the volume; elsewhere, that it is of another one.
	copied, elsewhere bool
	// damage says where reading had to end.
	damage []string
}

func (c *candidate) better(other *candidate) bool {
	return other == nil || c != nil && c.end.LSN > other.end.LSN
}

func candidateOf(e cluster.Epoch, a *Adoption) *candidate {
	return &candidate{name: "the log of " + epochDir(e), epoch: e, table: a.Table, end: a.End, pending: a.Redo}
}

// findSource looks for the newest state that can be proven. Its reasons say why a takeover
// is not enough; there are none where it is.
func (v *Volume) findSource(ctx context.Context, epochs []epochState) (best *candidate, reasons []string, err error) {
	var doubtful []epochState // newer than the newest that surely started
	var newest *epochState    // that surely started
	var next *adoptedEnd      // of the lowest reign so far that surely started
	for i := len(epochs) - 1; i >= 0; i-- {
		e := &epochs[i]
		switch {
		case e.start != nil && newest == nil:
			newest, next = e, adoptedBy(e)
			if best, err = v.startedSource(ctx, e, &reasons); err != nil {
				return nil, nil, err
			}
		case newest != nil && (e.start != nil || e.unknown()):
			// What the next reign adopted is proven here as well, and nothing behind it:
			// that was written late, by a primary that was fenced.
			if c := v.seal(e.epoch, next.at.LSN); next.of(c, best == nil) && c.better(best) {
				best = c
			}
			if next.doubtful = true; e.start != nil {
				next = adoptedBy(e)
			}
		case e.unknown():
			reasons = append(reasons, fmt.Sprintf("%s: %v", epochDir(e.epoch), errors.Join(e.fenceErr, e.startErr)))
			doubtful = append(doubtful, *e)
		}
		if newest != nil && best != nil && best.end.LSN >= newest.start.end.LSN {
			break
		}
		if i > 0 && epochs[i-1].epoch < e.before() {
			reasons = append(reasons, fmt.Sprintf("%s is missing", epochDir(e.before())))
			if next != nil {
				next.doubtful = true
			}
			doubtful = append(doubtful, epochState{epoch: e.before(), fenceErr: fs.ErrNotExist})
		}
	}
	for i := range doubtful {
		c, ok := v.doubtfulSource(ctx, &doubtful[i], best)
		if best != nil && !ok {
			best.complete = false // it may have served, and what it served is not all here
		}
		if best != nil && c != nil && v.contradict(c, best) {
			best = newer(c, best)
		} else if c.better(best) {
			best = c
		}
	}
	return best, reasons, context.Cause(ctx)
}

// adoptedEnd is up to where a reign adopted the log of the one before.
type adoptedEnd struct {
	at wal.Position
	// unchained says that the chain value at that place is not known.
	unchained bool
	// doubtful says that this may have been another reign than the next lower one that
	// surely started.
	doubtful bool
}

// adoptedBy is what the START of an epoch says, or the claim of one that a recovery made.
func adoptedBy(e *epochState) *adoptedEnd {
	if e.claimErr == nil && e.claim.Recovered != nil {
		return &adoptedEnd{at: wal.Position{LSN: e.claim.Recovered.End}, unchained: true}
	}
	return &adoptedEnd{at: e.start.end}
}

// of says that what was sealed at the adopted end is of the log that was adopted. One that
// ends before has no place to compare: where it may be the log of another reign, only the
// want of all others makes it count.
func (a *adoptedEnd) of(c *candidate, only bool) bool {
	if c == nil || c.end.LSN == a.at.LSN {
		return c != nil && (a.unchained || c.end == a.at)
	}
	return !a.doubtful || only
}

// contradict says that two logs differ below the end of the shorter one.
func (v *Volume) contradict(a, b *candidate) bool {
	shorter, longer := a, b
	if a.end.LSN > b.end.LSN {
		shorter, longer = b, a
	}
	met, end, _ := v.meets(longer.epoch, shorter.end) // as far as it can be read
	return !met && end.LSN >= shorter.end.LSN
}

// newer chooses between logs that contradict each other, whichever is longer. The higher
// epoch had fenced the other one before it wrote anything of its own: what
// the other one has besides was not acknowledged, unless the higher one never served.
func newer(a, b *candidate) *candidate {
	if a.epoch < b.epoch {
		a, b = b, a
	}
	a.complete = false
	a.damage = append(a.damage, fmt.Sprintf("what %s has besides, up to LSN %d: the two contradict each other, and the higher epoch counts", b.name, b.end.LSN))
	return a
}

// meets says whether a log has the position at, and up to where it was read.
func (v *Volume) meets(e cluster.Epoch, at wal.Position) (met bool, end wal.Position, err error) {
	path := epochDir(e)
	b, err := v.findBase(&Adoption{}, path, nil)
	if err != nil {
		return false, end, err
	}
	end = b.head.position()
	met = end == at || at.LSN < end.LSN // what lies below a base is not there any more
	_, err = wal.Scan(&dir{fs: v.fs, path: path}, wal.ScanOptions{
		Cluster: v.cluster.ID, FeatureLevel: FeatureLevel, MaxEpoch: e, From: end,
	}, func(lsn cluster.LSN, x wal.Entry, _ wal.FrameHeader) error {
		end = wal.Position{LSN: lsn, Chain: end.Chain.Next(x.Header)}
		met = met || end == at
		return nil
	})
	return met, end, err
}

// startedSource reads a reign that started, as a takeover does, or else as far as it goes.
func (v *Volume) startedSource(ctx context.Context, e *epochState, reasons *[]string) (*candidate, error) {
	a, err := v.scan(ctx, Source{Epoch: e.epoch, start: *e.start}, nil)
	if err == nil {
		c := candidateOf(e.epoch, a)
		c.complete = true
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	*reasons = append(*reasons, err.Error())
	return v.seal(e.epoch, endless), nil
}

// doubtfulSource reads a reign of which nobody knows whether it started. Had it
// served, its log would hold all that it adopted from below: then, and only then, its log is the
// whole truth (ok). One that ends before is what an adoption that failed leaves, or is damaged.
func (v *Volume) doubtfulSource(ctx context.Context, e *epochState, below *candidate) (c *candidate, ok bool) {
	src := Source{Epoch: e.epoch, start: start{epoch: e.epoch}}
	if below != nil {
		src.start.end = below.end
	}
	if a, err := v.scan(ctx, src, nil); err == nil {
		c := candidateOf(e.epoch, a)
		c.complete = below != nil && below.complete
		return c, true
	}
	return v.seal(e.epoch, endless), false
}

// endless is no bound for seal.
const endless = ^cluster.LSN(0)

// seal reads a log that a takeover refuses, up to the last frame that proves
// itself and not beyond the LSN until, from whichever checkpoint leads furthest.
// nil means that nothing can be read.
func (v *Volume) seal(e cluster.Epoch, until cluster.LSN) *candidate {
	path := epochDir(e)
	bases := []*base{{head: head{Hash: hex64(locktable.New().Hash())}, table: locktable.New()}}
	all, _ := listCheckpoints(v.fs, path) // none are none
	for _, lsn := range all {
		if lsn > until {
			continue
		}
		b, err := v.readBase(path, lsn)
		if err == nil {
			b.table, err = b.restore()
		}
		if err == nil {
			bases = append(bases, b)
		}
	}
	var best *candidate
	for _, b := range bases {
		if c := v.sealFrom(e, b, until); c.better(best) {
			best = c
		}
	}
	return best
}

// sealFrom reads from one base. A damaged segment hides what lies before it from
// the scan, so it reads a second time without that one and what is behind.
func (v *Volume) sealFrom(e cluster.Epoch, b *base, until cluster.LSN) *candidate {
	c, err := v.sealBefore(e, b, until, 0)
	if damage, ok := errors.AsType[*wal.ScanError](err); ok {
		if first, ok := wal.ParseSegmentName(damage.File); ok {
			again, _ := v.sealBefore(e, b, until, first) // the first error says what is wrong
			if again != nil && again.end.LSN > b.head.LSN && again.better(c) {
				c = again
			}
		}
	}
	if c != nil && err != nil {
		c.damage = []string{epochDir(e) + ": " + err.Error()}
	}
	return c
}

func (v *Volume) sealBefore(e cluster.Epoch, b *base, until, first cluster.LSN) (*candidate, error) {
	path := epochDir(e)
	a := &Adoption{Table: b.table.Clone(), Redo: slices.Clone(b.pending)}
	p := &sealer{scanner: scanner{a: a, at: b.head.position()}, end: b.head.position(), until: until}
	_, err := wal.Scan(&hidingDir{dir{fs: v.fs, path: path}, first}, wal.ScanOptions{
		Cluster: v.cluster.ID, FeatureLevel: FeatureLevel, MaxEpoch: e, From: p.at,
	}, p.visit)
	if errors.Is(err, errUntil) {
		err = nil
	}
	if p.broken || b.head.LSN == 0 && a.Table.LSN() == 0 {
		return nil, err
	}
	a.End = p.end
	c := candidateOf(e, a)
	c.name = fmt.Sprintf("the log of %s, sealed at LSN %d", path, p.end.LSN)
	return c, err
}

// sealer applies records frame by frame, each once its chain value is proven.
type sealer struct {
	scanner
	end    wal.Position
	until  cluster.LSN
	frame  []wal.Entry
	broken bool // a frame was applied in part: the table is no state of the log
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
		if err := p.scanner.visit(p.end.LSN+1+cluster.LSN(i), x, f); err != nil {
			p.broken = i > 0
			return err
		}
	}
	p.frame, p.end = p.frame[:0], p.at
	return nil
}

// hidingDir shows only the segments that begin before an LSN; 0 shows all.
type hidingDir struct {
	dir
	first cluster.LSN
}

// Names lists what is shown.
func (d *hidingDir) Names() ([]string, error) {
	names, err := d.dir.Names()
	return slices.DeleteFunc(names, func(n string) bool {
		first, ok := wal.ParseSegmentName(n)
		return ok && d.first != 0 && first >= d.first
	}), err
}
