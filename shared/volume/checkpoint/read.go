// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Verify reads the checkpoint at lsn of a term in dir and compares its sums. It calls rest now and then,
// whose error ends it. It builds no table.
func Verify(fsys vfs.FS, dir string, lsn cluster.LSN, rest func() error) error {
	name := dir + "/" + layout.CheckpointDir(lsn) + "/"
	receipts, err := verifyFile(fsys, name+layout.RequestsName, "{", rest)
	if err != nil {
		return err
	}
	if _, err := verifyFile(fsys, name+layout.StateName, "", rest); err != nil {
		return err
	}
	h, err := ReadHead(fsys, name+layout.StateName)
	if err == nil && uint32(h.ReceiptsC) != receipts {
		err = fmt.Errorf("%s is not the one that %s names", layout.RequestsName, layout.StateName)
	}
	return err
}

// verifyFile compares the sum in the last line of a file, which begins with prefix,
// with that of all before it.
func verifyFile(fsys vfs.FS, name, prefix string, rest func() error) (uint32, error) {
	f, err := fsys.Open(name, vfs.FlagRead)
	if err != nil {
		return 0, err
	}
	sum, err := sumFile(f, prefix, rest)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return sum, errors.Join(err, f.Close())
}

func sumFile(f vfs.File, prefix string, rest func() error) (uint32, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	last := func(sum uint32) string { return fmt.Sprintf("%s\"crc32c\":\"%08x\"}\n", prefix, sum) }
	body := max(0, info.Size-int64(len(last(0))))
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if err := vfs.CopyPieces(h, io.NewSectionReader(f, 0, body), rest); err != nil {
		return 0, err
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, body, info.Size-body))
	if err == nil && string(tail) != last(h.Sum32()) {
		err = errSum
	}
	return h.Sum32(), err
}

// Read reads the checkpoint at lsn of a term in dir. Returns an error if a sum does not match, and
// ErrDamaged if it is of another cluster or LSN. Its Table is nil: see Base.Restore.
func Read(fsys vfs.FS, id cluster.ID, dir string, lsn cluster.LSN) (*Base, error) {
	cp := dir + "/" + layout.CheckpointDir(lsn)
	state, err := vfs.ReadFile(fsys, cp+"/"+layout.StateName, vfs.FlagRead)
	if err != nil {
		return nil, err
	}
	requests, err := vfs.ReadFile(fsys, cp+"/"+layout.RequestsName, vfs.FlagRead)
	if err != nil {
		return nil, err
	}
	b, err := DecodeBase(state, requests)
	if err == nil && (b.Head.LSN != lsn || b.Head.Cluster != id) {
		err = fmt.Errorf("%w: checkpoint %d is another one's", layout.ErrDamaged, lsn)
	}
	return b, err
}

// headBytes are enough for the first line of a state.
const headBytes = 4096

// Edge is what the first lines of a checkpoint say.
type Edge struct {
	At      wal.Position // of the log, where it was taken
	Size    int64        // of both files, in bytes
	Pending bool         // it carries appends that files may lack
}

// ReadEdge reads the first lines of the checkpoint at lsn of a term in dir, and verifies no sum. Returns
// ErrDamaged if it is of another cluster or LSN.
func ReadEdge(fsys vfs.FS, id cluster.ID, dir string, lsn cluster.LSN) (b Edge, err error) {
	first := make([]byte, headBytes)
	for _, name := range []string{layout.RequestsName, layout.StateName} { // the state is read last
		f, err := fsys.Open(dir+"/"+layout.CheckpointDir(lsn)+"/"+name, vfs.FlagRead)
		if err != nil {
			return b, err
		}
		info, err := f.Stat()
		if err == nil {
			var n int
			if n, err = f.ReadAt(first[:headBytes], 0); errors.Is(err, io.EOF) {
				err = nil
			}
			first = first[:n]
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return b, err
		}
		b.Size += info.Size
	}
	h, err := readHead(bufio.NewReader(bytes.NewReader(first)))
	if err != nil {
		return b, err
	}
	if h.LSN != lsn || h.Cluster != id {
		return b, fmt.Errorf("%w: checkpoint %d is another one's", layout.ErrDamaged, lsn)
	}
	_, rest, _ := bytes.Cut(first, []byte("\n"))
	b.At, b.Pending = h.Position(), !bytes.HasPrefix(rest, []byte("\"pending\":[\n],\n"))
	return b, nil
}

// ReadHead reads the first line of a view or of a checkpoint's file.
func ReadHead(fsys vfs.FS, name string) (Head, error) {
	f, err := fsys.Open(name, vfs.FlagRead)
	if err != nil {
		return Head{}, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	return readHead(bufio.NewReader(io.NewSectionReader(f, 0, 64<<10)))
}

// readHead reads the first line of either file.
func readHead(r *bufio.Reader) (Head, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return Head{}, fmt.Errorf("first line: %w", err)
	}
	return decodeHead(line)
}

func decodeHead(line []byte) (Head, error) {
	line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
	if !bytes.HasSuffix(line, []byte("}")) {
		line = append(slices.Clip(line), '}')
	}
	var h Head
	if err := json.Unmarshal(line, &h); err != nil {
		return Head{}, fmt.Errorf("first line: %w", err)
	}
	if h.Format != layout.Format {
		return Head{}, fmt.Errorf("format %d, this binary knows %d", h.Format, layout.Format)
	}
	return h, nil
}

// Base is a checkpoint that verified: where a scan of the log begins.
type Base struct {
	Head Head
	// Pending are committed appends up to Head's LSN that their files may lack.
	Pending []locktable.Record
	Table   *locktable.Table // nil until it is restored
	state   []byte
	request []byte
}

// Empty returns the state before the first record, at LSN 0.
func Empty() *Base {
	t := locktable.New()
	return &Base{Head: Head{Hash: hex64(t.Hash())}, Table: t}
}

// Size returns the size of its files without their sums, in bytes.
func (b *Base) Size() int64 { return int64(len(b.state) + len(b.request)) }

var errSum = errors.New("the checksum does not match")

// verifySum cuts the last line off, which must be the sum of the rest as it is written, to the byte.
func verifySum(b []byte) ([]byte, error) {
	at := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n') + 1
	sum := crc32.Checksum(b[:at], crc32.MakeTable(crc32.Castagnoli))
	if !isSum(b[at:], sum) {
		return nil, errSum
	}
	return b[:at], nil
}

// VerifyView verifies the sum of a view that was read whole, and returns its first line.
func VerifyView(b []byte) (Head, error) {
	if _, err := verifySum(b); err != nil {
		return Head{}, err
	}
	return readHead(bufio.NewReader(bytes.NewReader(b)))
}

// isSum reports whether a line is the last one of a file whose other bytes have this sum.
func isSum(line []byte, sum uint32) bool {
	return string(bytes.TrimPrefix(line, []byte("{"))) == fmt.Sprintf("\"crc32c\":\"%08x\"}\n", sum)
}

// DecodeBase verifies a checkpoint's two files and reads what stands above the
// entities; restore does the rest.
func DecodeBase(state, requests []byte) (*Base, error) {
	s, err := verifySum(state)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", layout.StateName, err)
	}
	q, err := verifySum(requests)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", layout.RequestsName, err)
	}
	h, err := readHead(bufio.NewReader(bytes.NewReader(s)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", layout.StateName, err)
	}
	if crc := crc32.Checksum(q, crc32.MakeTable(crc32.Castagnoli)); crc != uint32(h.ReceiptsC) {
		return nil, fmt.Errorf("%s is not the one that %s names", layout.RequestsName, layout.StateName)
	}
	b := &Base{Head: h, request: q}
	_, s, ok := bytes.Cut(s, []byte("\n\"pending\":[\n"))
	if !ok {
		return nil, fmt.Errorf("%s: no pending appends", layout.StateName)
	}
	pending, s, ok := bytes.Cut(s, []byte("],\n\"entities\":[\n"))
	if !ok {
		return nil, fmt.Errorf("%s: no entities", layout.StateName)
	}
	b.state = s
	for line := range jsonLines(pending) {
		var p pendingAppend
		if err := json.Unmarshal(line, &p); err != nil {
			return nil, fmt.Errorf("%s: pending append: %w", layout.StateName, err)
		}
		rec, err := locktable.DecodeHeader(p.Header)
		if err != nil {
			return nil, fmt.Errorf("%s: pending append: %w", layout.StateName, err)
		}
		rec.Data = p.Data
		b.Pending = append(b.Pending, rec)
	}
	return b, nil
}

// jsonLines yields the elements of an array written one a line.
func jsonLines(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			line = bytes.TrimSuffix(line, []byte(","))
			if len(line) == 0 || line[0] != '{' {
				continue
			}
			if !yield(line) {
				return
			}
		}
	}
}

// Restore builds the table. Returns an error if it does not have the hash that was written.
func (b *Base) Restore() (*locktable.Table, error) {
	entities := func(yield func(locktable.Entity, error) bool) {
		_, receipts, _ := bytes.Cut(b.request, []byte("\n"))
		for _, part := range [][]byte{b.state, receipts} {
			for line := range jsonLines(part) {
				var e locktable.Entity
				err := json.Unmarshal(line, &e)
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
	t, err := locktable.Restore(b.Head.LSN, entities)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", b.Head.LSN, err)
	}
	if t.Hash() != uint64(b.Head.Hash) {
		return nil, fmt.Errorf("checkpoint %d: the restored table has another hash than the one written", b.Head.LSN)
	}
	return t, nil
}
