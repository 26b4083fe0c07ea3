// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrDamaged is the error of Open when the guard's file is not what was written.
var ErrDamaged = errors.New("damaged")

// log is the file of a guard. It is used under the guard's mutex.
type log struct {
	disk  disk
	path  string
	f     file
	size  int64 // in bytes
	lines int
}

// leastWaste is how many lines there may be before the file is ever rewritten.
const leastWaste = 1024

// openLog reads the file and writes it anew. What was read may be in memory only, after a
// sync that failed in the process before: a further sync of it succeeds and saves nothing.
func openLog(d disk, path string) (*log, map[string]Token, error) {
	b, err := d.readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	seen, _, _, err := parse(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	l, err := writeLog(d, path, seen)
	return l, seen, err
}

// writeLog puts a file with these tokens in the place of the one at path.
func writeLog(d disk, path string, seen map[string]Token) (*log, error) {
	f, err := d.create(path + ".new")
	if err != nil {
		return nil, err
	}
	l := &log{disk: d, path: path, f: f, lines: len(seen)}
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		b = appendLine(b, key, seen[key])
	}
	if err = l.write(b); err == nil {
		err = d.rename(path+".new", path)
	}
	if err == nil {
		err = d.syncDir(filepath.Dir(path))
	}
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// write appends whole lines and syncs them.
func (l *log) write(b []byte) error {
	n, err := l.f.Write(b)
	l.size += int64(n)
	if err != nil {
		return err
	}
	return l.f.Sync()
}

// check fails if another process has written here. The lock of the directory keeps others out,
// but a network filesystem may lose it, and its file may be removed.
func (l *log) check() error {
	size, err := l.disk.size(l.f, l.path)
	if err == nil && size != l.size {
		err = fmt.Errorf("%s has %d bytes, not the %d that were written", l.path, size, l.size)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return nil
}

// add writes one line and syncs it.
func (l *log) add(key string, token Token) error {
	l.lines++
	return l.write(appendLine(nil, key, token))
}

// wasteful reports whether most lines were surpassed.
func (l *log) wasteful(keys int) bool { return l.lines > max(leastWaste, 2*keys) }

// rewrite puts a file with these tokens in the place of this one.
func (l *log) rewrite(seen map[string]Token) (*log, error) {
	next, err := writeLog(l.disk, l.path, seen)
	if err != nil {
		return nil, err
	}
	return next, l.f.Close()
}

func (l *log) close() error { return l.f.Close() }

func appendLine(b []byte, key string, token Token) []byte {
	text := strconv.FormatUint(uint64(token), 10) + " " + strconv.Quote(key)
	return fmt.Appendf(b, "%08x %s\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)), text)
}

// parse reads lines. Whole is how many bytes were good; after them there is nothing, or a last
// line that was torn.
func parse(b []byte) (seen map[string]Token, lines, whole int, err error) {
	seen = map[string]Token{}
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

func parseLine(line string) (key string, token Token, ok bool) {
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
	return key, Token(n), err == nil
}
