// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// The layout of START, which is one sector, 64 KiB into a fence: magic 8, epoch
// 8, nonce 16, adopted end 8, chain value 8, CRC-32C in the last 4 bytes.
const (
	startOffset = 64 << 10
	startSize   = 512
	startMagic  = "HFSTART1"
)

// term is one epoch's directory, in a volume or an archive of one.
type term struct {
	epoch   cluster.Epoch
	path    string
	started bool
	end     wal.Position  // that START adopted
	firsts  []cluster.LSN // of its segments, ascending
}

// readTerms reads what the directories under epochs/ say, in order of epochs.
func readTerms(dir string) (all []*term, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "epochs"))
	if err != nil {
		return nil, err
	}
	for _, x := range entries {
		n, err := strconv.ParseUint(x.Name(), 10, 64)
		if err != nil || !x.IsDir() {
			continue
		}
		r := &term{epoch: cluster.Epoch(n), path: filepath.Join(dir, "epochs", x.Name())}
		if err := r.read(); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *term) int { return int(int64(a.epoch) - int64(b.epoch)) })
	return all, nil
}

func (r *term) read() error {
	if err := r.readStart(); err != nil {
		return fmt.Errorf("START of epoch %d: %w", r.epoch, err)
	}
	names, err := os.ReadDir(r.path)
	if err != nil {
		return err
	}
	for _, x := range names {
		if first, ok := wal.ParseSegmentName(x.Name()); ok {
			r.firsts = append(r.firsts, first)
		}
	}
	slices.Sort(r.firsts)
	return nil
}

// readStart reads the adopted end. All zero, or no fence in an archive that was
// cut short, means that the term did not start.
func (r *term) readStart() error {
	f, err := os.Open(filepath.Join(r.path, "fence"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, startSize)
	if _, err := f.ReadAt(b, startOffset); err != nil {
		return err
	}
	if !slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
		return nil
	}
	sum := crc32.Checksum(b[:startSize-4], crc32.MakeTable(crc32.Castagnoli))
	if string(b[:8]) != startMagic || binary.LittleEndian.Uint32(b[startSize-4:]) != sum {
		return errors.New("neither absent nor valid")
	}
	if e := cluster.Epoch(binary.LittleEndian.Uint64(b[8:])); e != r.epoch {
		return fmt.Errorf("it names epoch %d", e)
	}
	r.started = true
	r.end.LSN = cluster.LSN(binary.LittleEndian.Uint64(b[32:]))
	r.end.Chain = wal.Chain(binary.LittleEndian.Uint64(b[40:]))
	return nil
}

// visitRecord receives a record and the chain value after it.
type visitRecord func(rec *locktable.Record, chain wal.Chain) error

// walk reads the term's records after from, one segment after the other, until
// the LSN upto or the end of its frames, and returns where it got to. Nothing is
// visited where the log does not lead through from with its chain value.
func (r *term) walk(from wal.Position, upto cluster.LSN, visit visitRecord) (at wal.Position, err error) {
	i, there := slices.BinarySearch(r.firsts, from.LSN+1)
	if !there {
		i--
	}
	if i < 0 {
		return at, fmt.Errorf("epoch %d has no segment that holds LSN %d", r.epoch, from.LSN+1)
	}
	w := &walker{term: r, from: from, upto: upto, visit: visit}
	for ; i < len(r.firsts) && w.at.LSN < upto; i++ {
		if w.begun && r.firsts[i] != w.at.LSN+1 {
			break // the log ended in the segment before
		}
		if err := w.segment(r.firsts[i]); err != nil {
			return w.at, err
		}
	}
	if !w.begun {
		return from, nil // the segment is named and has no header yet
	}
	return w.at, nil
}

// walker is the state of a walk.
type walker struct {
	term  *term
	from  wal.Position
	upto  cluster.LSN
	visit visitRecord
	at    wal.Position // after the last record read
	begun bool
}

func (w *walker) segment(first cluster.LSN) error {
	name := filepath.Join(w.term.path, wal.SegmentName(first))
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(b) < wal.BlockSize {
		return fmt.Errorf("%s has %d bytes", name, len(b))
	}
	h, err := wal.DecodeSegmentHeader(b)
	if errors.Is(err, wal.ErrZero) {
		return nil // named, and never used
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	start := wal.Position{LSN: h.First - 1, Chain: h.Chain}
	switch {
	case h.First != first || h.Epoch > w.term.epoch:
		return fmt.Errorf("%s: its header is of LSN %d and epoch %d", name, h.First, h.Epoch)
	case !w.begun:
		w.at, w.begun = start, true
	case w.at != start:
		return fmt.Errorf("%s begins behind %v, the segment before ends at %v", name, start, w.at)
	}
	if err := w.meet(); err != nil {
		return err
	}
	binding := xxhash.Sum64(b[:wal.SegmentHeaderSize])
	for offset := wal.BlockSize; offset < len(b) && w.at.LSN < w.upto; {
		f, entries, size, err := wal.DecodeFrame(b[offset:])
		if err != nil || f.Binding != binding || f.Epoch != h.Epoch || f.Kind == wal.FrameClose {
			return nil // the end, torn or not: a caller that needs more notices that it is missing
		}
		if err := w.frame(f, entries); err != nil {
			return fmt.Errorf("%s, offset %d: %w", name, offset, err)
		}
		offset += (size + wal.BlockSize - 1) / wal.BlockSize * wal.BlockSize
	}
	return nil
}

func (w *walker) frame(f wal.FrameHeader, entries []wal.Entry) error {
	if f.Kind == wal.FrameRecords && f.First != w.at.LSN+1 {
		return fmt.Errorf("the frame begins at LSN %d, behind %d", f.First, w.at.LSN)
	}
	for i := range entries {
		if w.at.LSN == w.upto {
			return nil
		}
		w.at = wal.Position{LSN: w.at.LSN + 1, Chain: w.at.Chain.Next(entries[i].Header)}
		if err := w.meet(); err != nil {
			return err
		}
		if w.at.LSN > w.from.LSN {
			if err := w.record(&entries[i]); err != nil {
				return err
			}
		}
	}
	if w.at.Chain != f.Chain {
		return fmt.Errorf("the chain value at LSN %d is %#x, the frame says %#x", w.at.LSN, w.at.Chain, f.Chain)
	}
	return nil
}

// meet compares the chain value where the walk was to begin.
func (w *walker) meet() error {
	if w.at.LSN == w.from.LSN && w.at.Chain != w.from.Chain {
		return fmt.Errorf("the chain value of epoch %d at LSN %d is %#x, not %#x", w.term.epoch, w.at.LSN, w.at.Chain, w.from.Chain)
	}
	return nil
}

func (w *walker) record(e *wal.Entry) error {
	if w.visit == nil {
		return nil
	}
	rec, err := locktable.DecodeHeader(e.Header)
	if err != nil {
		return fmt.Errorf("record %d: %w", w.at.LSN, err)
	}
	if rec.LSN != w.at.LSN {
		return fmt.Errorf("record %d names LSN %d", w.at.LSN, rec.LSN)
	}
	rec.Data = e.Data
	return w.visit(&rec, w.at.Chain)
}

// readLog visits the volume's one log from its beginning: up to each adopted end
// what some term has that leads there with the right chain value, and behind the
// last START what the newest term wrote. It returns the end and every violation.
func readLog(all []*term, visit visitRecord) (at wal.Position, bad []string) {
	var started []*term
	for _, r := range all {
		if r.started {
			started = append(started, r)
		}
	}
	if len(started) == 0 {
		return at, []string{"I3: no epoch started"}
	}
	for i, r := range started {
		if r.end.LSN < at.LSN {
			return at, append(bad, fmt.Sprintf("I3: epoch %d adopted the log up to LSN %d, the one before up to %d", r.epoch, r.end.LSN, at.LSN))
		}
		if r.end == at {
			continue
		}
		source, why := connects(started, i, at, r.end)
		if source == nil {
			return at, append(bad, fmt.Sprintf("I3: nothing leads from LSN %d to the LSN %d that epoch %d adopted: %v", at.LSN, r.end.LSN, r.epoch, why))
		}
		if _, err := source.walk(at, r.end.LSN, visit); err != nil {
			return at, append(bad, fmt.Sprintf("I17: %v", err))
		}
		at = r.end
	}
	newest := started[len(started)-1]
	if len(newest.firsts) == 0 {
		return at, bad // nothing but the beginning
	}
	end, err := newest.walk(at, ^cluster.LSN(0), visit)
	if err != nil {
		return at, append(bad, fmt.Sprintf("I17: %v", err))
	}
	return end, bad
}

// connects finds a term whose log leads from one position to another: the one
// that was adopted from, which is an older one than started[i], or what newer ones
// took over of it.
func connects(started []*term, i int, from, to wal.Position) (*term, error) {
	var why error
	order := slices.Clone(started[:i])
	slices.Reverse(order)
	for _, r := range append(order, started[i:]...) {
		end, err := r.walk(from, to.LSN, nil)
		if err == nil && end == to {
			return r, nil
		}
		if err == nil {
			err = fmt.Errorf("epoch %d leads to %v, not %v", r.epoch, end, to)
		}
		why = errors.Join(why, err)
	}
	return nil, why
}
