// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// ErrDamaged says that the guard's file is not what was written.
var ErrDamaged = errors.New("damaged")

// log is the file of a guard. It is used under the guard's mutex.
type log struct {
	path  string
	f     *os.File
	lines int
}

// leastWaste is how many lines there may be in any case.
const leastWaste = 1024

// openLog reads the file, made if need be, and drops a torn last line.
func openLog(path string) (*log, map[string]cluster.Token, error) {
	b, err := os.ReadFile(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return nil, nil, err
	}
	seen, lines, whole, err := parse(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	l := &log{path: path, f: f, lines: lines}
	if err := l.begin(int64(len(b)), int64(whole)); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return l, seen, nil
}

// begin makes what is in the file durable, also what a process before this one
// wrote and could not sync, and goes on behind it.
func (l *log) begin(size, whole int64) error {
	if whole < size {
		if err := l.f.Truncate(whole); err != nil {
			return err
		}
	}
	if _, err := l.f.Seek(whole, 0); err != nil {
		return err
	}
	return errors.Join(l.f.Sync(), syncDir(filepath.Dir(l.path)))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// add writes one line and syncs it.
func (l *log) add(key string, token cluster.Token) error {
	if _, err := l.f.Write(appendLine(nil, key, token)); err != nil {
		return err
	}
	l.lines++
	return l.f.Sync()
}

// wasteful says that most lines were surpassed.
func (l *log) wasteful(keys int) bool { return l.lines > max(leastWaste, 2*keys) }

// rewrite puts a file with these tokens in the place of this one.
func (l *log) rewrite(seen map[string]cluster.Token) (*log, error) {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		b = appendLine(b, key, seen[key])
	}
	p, err := renameio.NewPendingFile(l.path, renameio.WithPermissions(0o600))
	if err != nil {
		return nil, err
	}
	if _, err := p.Write(b); err != nil {
		return nil, errors.Join(err, p.Cleanup())
	}
	if err := p.CloseAtomicallyReplace(); err != nil { // it syncs the file
		return nil, err
	}
	next, _, err := openLog(l.path) // and this the directory
	if err != nil {
		return nil, err
	}
	return next, l.f.Close()
}

func (l *log) close() error { return l.f.Close() }

func appendLine(b []byte, key string, token cluster.Token) []byte {
	text := strconv.FormatUint(uint64(token), 10) + " " + strconv.Quote(key)
	return fmt.Appendf(b, "%08x %s\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)), text)
}

// parse reads lines. Whole is how many bytes were good; behind them there is
// nothing, or a last line that was torn.
func parse(b []byte) (seen map[string]cluster.Token, lines, whole int, err error) {
	seen = map[string]cluster.Token{}
	for whole < len(b) {
		line, _, ended := bytes.Cut(b[whole:], []byte("\n"))
		key, token, ok := parseLine(string(line))
		if !ok || !ended {
			if i := bytes.IndexByte(b[whole:], '\n'); i >= 0 && whole+i+1 < len(b) {
				return nil, 0, 0, fmt.Errorf("%w: line %d is not what was written, and others follow", ErrDamaged, lines+1)
			}
			return seen, lines, whole, nil
		}
		seen[key] = max(seen[key], token)
		lines++
		whole += len(line) + 1
	}
	return seen, lines, whole, nil
}

func parseLine(line string) (key string, token cluster.Token, ok bool) {
	sum, text, ok := strings.Cut(line, " ")
	if !ok || fmt.Sprintf("%08x", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))) != sum {
		return "", 0, false
	}
	number, quoted, ok := strings.Cut(text, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n == 0 {
		return "", 0, false
	}
	key, err = strconv.Unquote(quoted)
	return key, cluster.Token(n), err == nil
}
