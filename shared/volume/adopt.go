// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// WarmState is the table of a replica. A scan uses it only if the adopted log has the same
// chain value at its position. The scan then owns it, and advances At and Table together.
type WarmState struct {
	At    wal.Position
	Table *locktable.Table
	Of    cluster.ID // the cluster that the table belongs to
	// Ends are the grants that ended last; nil if they are not known.
	Ends *history.Ring
}

// Adoption is what a claimant read of the term that it takes over from.
type Adoption struct {
	Source Source
	// Table is the state at End.
	Table *locktable.Table
	End   wal.Position
	// Ends are the grants that ended last.
	Ends *history.Ring
	// Base is the LSN of the checkpoint at which the scan began, 0 for the empty state.
	Base cluster.LSN
	// Redo are the appends that protected files may lack, in log order.
	Redo []locktable.Record
	// Time is when the last record that was read was decided, in milliseconds since 1970; 0 if none was read.
	Time int64
	// Warm is true if Table is the table of the WarmState.
	Warm bool
	// Records counts the records that were read from the log. LogBytes is the size of the log after the base, in
	// bytes: closed segments as they lie on the volume, which may be many times their records.
	Records  int
	LogBytes int64
	// BaseBytes is the size of the base's files, in bytes.
	BaseBytes int64
	// Unread is what was not verified, because the warm table made reading it unnecessary; nil
	// if everything was read.
	Unread *UnverifiedLog

	bases  []cluster.LSN // the checkpoints to adopt
	log    wal.Result
	relog  []wal.Entry       // the records after log.Relog
	frames []wal.FrameHeader // of the frames that had these records, in order
}

// Scan reads the fenced term: its base, then every segment. What does not
// fit may be a stale listing or a file that was removed meanwhile, so Scan
// opens and reads everything again before it returns an error, which names file and offset. An error has ended
// the term. A nil warm reads all of the base and the log.
func (r *Term) Scan(ctx context.Context, src Source, warm *WarmState) (*Adoption, error) {
	a, err := r.v.scan(ctx, src, warm)
	if err != nil {
		return nil, r.giveUp(err)
	}
	return a, nil
}

// ReadTerm reads what a claimant would adopt from the term of epoch e, whose START is s. It returns the errors
// of Term.Scan. It sets no fence, so a primary may write meanwhile.
func (v *Volume) ReadTerm(ctx context.Context, e cluster.Epoch, s epochdir.Start) (*Adoption, error) {
	return v.scan(ctx, Source{Epoch: e, start: s}, nil)
}

// ReadTermIn reads from dir, without trying again, a term that is being built and will have the START s.
func (v *Volume) ReadTermIn(dir string, s epochdir.Start) (*Adoption, error) {
	return v.scanOnce(dir, Source{Epoch: s.Epoch, start: s}, nil)
}

// Base returns the newest checkpoint in dir, the directory of a term, that verifies, or the empty state if none does.
func (v *Volume) Base(dir string) (*checkpoint.Base, error) {
	return v.findBase(&Adoption{}, dir, nil)
}

// scan is Term.Scan for a term that need not be fenced.
func (v *Volume) scan(ctx context.Context, src Source, warm *WarmState) (*Adoption, error) {
	path := layout.EpochDir(src.Epoch)
	if warm != nil {
		if warm.Ends == nil {
			warm.Ends = history.NewRing(v.opt.HistoryRate, warm.At.LSN)
		}
		if a, err := v.resume(path, src, warm); err == nil {
			return a, nil
		}
		// Whatever the error was: read all of the log from its base on.
	}
	var known []cluster.LSN
	for try := 1; ; try++ {
		a, err := v.scanOnce(path, src, warm, known...)
		if err == nil {
			return a, nil
		}
		if errors.Is(err, errCold) {
			warm = nil
			try--
			continue
		}
		if damage, ok := errors.AsType[*wal.ScanError](err); ok && damage.Unlisted != 0 && !slices.Contains(known, damage.Unlisted) {
			// A cached listing may lack a file; opening it by a name that was never looked up finds it. This
			// does not count as a try, because the next one gets further.
			known = append(known, damage.Unlisted)
			try--
			continue
		}
		if old := TooOld(err); old != nil { // reading it again makes this binary no newer
			return nil, fmt.Errorf("scan epoch %d: %w", src.Epoch, old)
		}
		if try == vfs.Retries {
			return nil, fmt.Errorf("scan epoch %d: %w", src.Epoch, err)
		}
		if err := vfs.Pause(ctx, vfs.RetryPause); err != nil {
			return nil, err
		}
	}
}

// errCold means that the warm table cannot be used with the adopted log.
var errCold = errors.New("the warm table does not fit the log")

func (v *Volume) scanOnce(path string, src Source, warm *WarmState, known ...cluster.LSN) (*Adoption, error) {
	a := &Adoption{Source: src}
	b, err := v.findBase(a, path, warm)
	if err != nil {
		return nil, err
	}
	s := &scanner{a: a, base: b.At, at: b.At}
	a.Table, a.BaseBytes = b.Table, b.Size
	if b.Table == nil {
		s.warm = warm
		if warm.At.LSN == s.at.LSN {
			if err := s.useWarm(); err != nil {
				return nil, err
			}
		}
	}
	a.Base = s.at.LSN
	if a.Ends == nil {
		a.Ends = history.NewRing(v.opt.HistoryRate, s.at.LSN)
	}
	a.Redo = append(a.Redo, b.Pending...)
	return a, s.scan(v, path, wal.Position{}, known...)
}

// scan reads the log after the base, and visits the records after resume. known are segments that exist although
// no listing may have them.
func (s *scanner) scan(v *Volume, path string, resume wal.Position, known ...cluster.LSN) (err error) {
	a := s.a
	a.log, err = wal.Scan(&epochdir.Dir{FS: v.fs, Path: path}, wal.ScanOptions{
		Cluster:      v.cluster.ID,
		FeatureLevel: FeatureLevel,
		MaxEpoch:     a.Source.Epoch,
		From:         s.base,
		Resume:       resume,
		AtLeast:      a.Source.start.End,
		Known:        known,
		Relog:        s.keep,
	}, s.visit)
	if err != nil {
		return err
	}
	a.End = a.log.End
	for _, g := range a.log.Segments[:a.log.Linkable] {
		if g.Last > a.Base {
			a.LogBytes += g.Size
		}
	}
	if a.Table == nil {
		return errCold // the log ends before the position of the warm table
	}
	if a.Table.LSN() != a.End.LSN {
		return fmt.Errorf("%w: the table ends at LSN %d, the log at %d", ErrDamaged, a.Table.LSN(), a.End.LSN)
	}
	return nil
}

// findBase returns the newest checkpoint that verifies, or else the empty state at LSN 0, in
// which case the log must begin at LSN 1. It passes over the rest of a checkpoint whose removal was
// interrupted. It restores the table only if the base is newer than the warm table. Where it finds none but one that a newer
// binary wrote, it returns why that was refused: the log behind it is not to be called damaged.
func (v *Volume) findBase(a *Adoption, path string, warm *WarmState) (*checkpoint.Base, error) {
	all, err := checkpoint.List(v.fs, path)
	if err != nil {
		return nil, err
	}
	var newer error
	for _, lsn := range all {
		b, err := checkpoint.Read(v.fs, v.cluster.ID, path, lsn, warm == nil || warm.At.LSN < lsn)
		if locktable.Newer(err) {
			newer = err
		}
		if err != nil {
			continue // if the log does not reach back far enough, the scan returns an error
		}
		a.bases = []cluster.LSN{lsn} // it was read whole, so the one before it is not needed
		return b, nil
	}
	if newer != nil {
		return nil, newer
	}
	b := checkpoint.Empty()
	if warm != nil {
		b.Table = nil
	}
	return b, nil
}

// scanner applies records to the table while the log is read.
type scanner struct {
	a    *Adoption
	base wal.Position
	warm *WarmState   // nil if there is none
	at   wal.Position // of the last record visited, if there is a warm table

	decoder locktable.Decoder
}

// Replay returns a visitor for wal.Scan that applies the records to a.Table, in their order, and adds to
// a.Redo the appends that protected files may lack.
func (a *Adoption) Replay() func(cluster.LSN, wal.Entry, wal.FrameHeader) error {
	return (&scanner{a: a}).visit
}

// Segments returns the segments of the log that was read.
func (a *Adoption) Segments() []wal.SegmentInfo { return a.log.Segments }

func (s *scanner) visit(lsn cluster.LSN, e wal.Entry, _ wal.FrameHeader) error {
	rec, err := s.decoder.DecodeHeader(e.Header)
	if err != nil {
		return fmt.Errorf("record %d: %w", lsn, err)
	}
	if rec.LSN != lsn {
		return fmt.Errorf("%w: record %d names LSN %d", ErrDamaged, lsn, rec.LSN)
	}
	if e.DataLen > 0 {
		rec.Data = append([]byte(nil), e.Data...)
	}
	if err := rec.Validate(); err != nil {
		return fmt.Errorf("record %d: %w", lsn, err)
	}
	s.a.Records++
	s.a.Time = rec.Time
	s.redo(&rec)
	if s.warm == nil {
		s.a.Ends.Observe(s.a.Table, &rec)
		return s.a.Table.Apply(&rec)
	}
	// wal.Scan verifies the chain. Its value is needed here to compare it with the warm table's, and to keep
	// warm.At right if the scan fails.
	s.at = wal.Position{LSN: lsn, Chain: s.at.Chain.Next(e.Header)}
	switch {
	case s.a.Table != nil:
		s.a.Ends.Observe(s.a.Table, &rec)
		if err := s.a.Table.Apply(&rec); err != nil {
			return err
		}
		s.warm.At = s.at
	case lsn == s.warm.At.LSN:
		return s.useWarm()
	}
	return nil
}

// redo adds an append to those that its file may lack. A file is synced before it is
// unbound or rotated, so appends before such a record need no redo.
func (s *scanner) redo(rec *locktable.Record) {
	switch rec.Kind {
	case locktable.KindAppend:
		s.a.Redo = append(s.a.Redo, *rec)
	case locktable.KindUnbind, locktable.KindRotate:
		s.a.Redo = slices.DeleteFunc(s.a.Redo, func(x locktable.Record) bool { return x.File == rec.File })
	}
}

// keep copies a record of the open segment, which has to be logged again.
func (s *scanner) keep(_ cluster.LSN, e wal.Entry, f wal.FrameHeader) error {
	if n := len(s.a.frames); n == 0 || s.a.frames[n-1].First != f.First {
		s.a.frames = append(s.a.frames, f)
	}
	s.a.LogBytes += int64(len(e.Header) + len(e.Data))
	s.a.relog = append(s.a.relog, wal.Entry{
		Header: append([]byte(nil), e.Header...), Data: append([]byte(nil), e.Data...), DataLen: e.DataLen,
	})
	return nil
}

// useWarm makes the warm table the table of the adoption, if the chain value of the log proves that both
// have the same records up to here.
func (s *scanner) useWarm() error {
	if s.warm.At != s.at || s.warm.Table.LSN() != s.at.LSN {
		return errCold
	}
	s.a.Table, s.a.Ends, s.a.Warm = s.warm.Table, s.warm.Ends, true
	return nil
}

// Adopt makes the state of the old term the state of this term: it links checkpoints and closed
// segments, and writes the records of the open segment again into a
// segment of its own. LSNs, epochs, request IDs and tokens stay. Everything is durable when it
// returns the log; WriteStart has to follow. An error has ended the term.
func (r *Term) Adopt(a *Adoption) (*wal.Log, error) {
	log, err := r.adopt(a)
	if err != nil {
		return nil, r.End(fmt.Errorf("adopt epoch %d: %w", a.Source.Epoch, err))
	}
	return log, nil
}

func (r *Term) adopt(a *Adoption) (*wal.Log, error) {
	from := layout.EpochDir(a.Source.Epoch)
	for _, lsn := range a.bases {
		if err := r.linkCheckpoint(from, lsn); err != nil {
			return nil, err
		}
	}
	linked := a.log.Segments[:a.log.Linkable]
	for _, seg := range linked {
		if err := r.linkFile(from+"/"+seg.Name, r.path+"/"+seg.Name); err != nil {
			return nil, err
		}
	}
	if err := r.v.fs.SyncDir(r.path); err != nil {
		return nil, err
	}
	opt := r.v.logOptions(r.dir(), r.epoch, a.Table)
	opt.Adopted = linked
	return r.relog(opt, a)
}

// relogBytes is the largest frame of the copy, in bytes.
const relogBytes = 1 << 20

// relog writes the records of the open segment into this term's first own segment.
func (r *Term) relog(opt wal.Options, a *Adoption) (*wal.Log, error) {
	log, err := wal.Start(opt, a.log.Relog, a.Base)
	if err != nil {
		return nil, err
	}
	if err := r.prepared.closeHeld(); err != nil { // log has the segment open, and the term the fence
		return nil, errors.Join(err, log.Close())
	}
	var b wal.Batch
	for i := 0; i < len(a.relog); {
		b.Reset(log.Position())
		b.Add(a.relog[i].Header, a.relog[i].Data)
		for i++; i < len(a.relog) && b.SizeWith(a.relog[i].Header, a.relog[i].Data) <= min(log.Room(), relogBytes); i++ {
			b.Add(a.relog[i].Header, a.relog[i].Data)
		}
		err := log.Append(&b)
		if errors.Is(err, wal.ErrFull) {
			if err = log.PrepareNext(r.life); err == nil {
				err = log.Append(&b)
			}
		}
		if err != nil {
			return nil, errors.Join(err, log.Close())
		}
	}
	if got := log.Position(); got != a.End {
		return nil, errors.Join(fmt.Errorf("%w: the copy ends at %v, the original at %v", ErrDamaged, got, a.End), log.Close())
	}
	return log, nil
}

func (r *Term) linkCheckpoint(from string, lsn cluster.LSN) error {
	name := layout.CheckpointDir(lsn)
	tmp := r.path + "/" + name + layout.TmpSuffix
	if err := r.v.fs.Mkdir(tmp); err != nil {
		return err
	}
	for _, f := range []string{layout.RequestsName, layout.StateName} {
		if err := r.linkFile(from+"/"+name+"/"+f, tmp+"/"+f); err != nil {
			return err
		}
	}
	if err := r.v.fs.SyncDir(tmp); err != nil {
		return err
	}
	return r.v.fs.Rename(tmp, r.path+"/"+name)
}

// linkFile makes a hard link and syncs the file, or copies the file if the
// filesystem cannot link it.
func (r *Term) linkFile(from, to string) error {
	err := r.v.fs.Link(from, to)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return err
	}
	if err != nil {
		return vfs.CopyFile(r.v.fs, from, to)
	}
	f, err := r.v.fs.Open(to, vfs.FlagRead)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// TailFrame is a frame of the adopted log, without append data.
type TailFrame struct {
	Before wal.Position
	Bytes  []byte
}

// Tail returns the last frames of the segment that was open, about limit bytes of them. They
// are the frames that the older term wrote, so the replicas that it fed are usually at the
// end of one of them. Call it after Adopt and WriteStart: only then do these
// records belong to this term.
func (a *Adoption) Tail(limit int) []TailFrame {
	var tail []TailFrame
	end := len(a.relog)
	for i := len(a.frames) - 1; i >= 0 && limit > 0; i-- {
		before := a.log.Relog
		if i > 0 {
			before = wal.Position{LSN: a.frames[i-1].Last(), Chain: a.frames[i-1].Chain}
		}
		from := int(before.LSN - a.log.Relog.LSN)
		f := a.frames[i]
		f.First, f.Elided = before.LSN+1, true // the first frame may have begun before
		b := wal.AppendFrame(nil, f, a.relog[from:end])
		tail = append(tail, TailFrame{before, b})
		limit -= len(b)
		end = from
	}
	slices.Reverse(tail)
	return tail
}
