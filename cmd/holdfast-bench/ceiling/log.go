// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// logBytes is the size of the log. It is written with zeros first, and from its start again when it
	// is full: a sync never has to note a new size.
	logBytes = 64 << 20
	// recordHead is what stands before the body of a record: as much as in a real log.
	recordHead = 36
)

// castagnoli is the table of the checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// log is a file of records, in no format that anybody reads again.
type log struct {
	file     *os.File
	at, size int64
}

// openLog makes the file of some MiB and writes it with zeros.
func openLog(path string, size int64) (*log, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); err == nil && at < size; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros, at)
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the log: %w", err), f.Close())
	}
	return &log{file: f, size: size}, nil
}

// appendRecord appends a record to a batch.
func appendRecord(b []byte, number uint64, body []byte) []byte {
	var h [recordHead]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(len(body)))
	binary.LittleEndian.PutUint32(h[4:], crc32.Checksum(body, castagnoli))
	binary.LittleEndian.PutUint64(h[8:], number)
	return append(append(b, h[:]...), body...)
}

// commit writes a batch and syncs it.
func (l *log) commit(batch []byte) error {
	if int64(len(batch)) > l.size {
		return fmt.Errorf("a batch of %d bytes in a log of %d: use fewer workers or smaller appends", len(batch), l.size)
	}
	if l.at+int64(len(batch)) > l.size {
		l.at = 0
	}
	if _, err := l.file.WriteAt(batch, l.at); err != nil {
		return err
	}
	l.at += int64(len(batch))
	return unix.Fdatasync(int(l.file.Fd()))
}

func (l *log) close() error { return l.file.Close() }
