// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// batcher collects a stream and cuts it into batches of whole lines, each small enough for one
// append.
type batcher struct {
	// buf is what was read and not cut off yet, at most limit bytes.
	buf   []byte
	limit int
	// split permits lines that are longer than limit: they are cut.
	split bool
	// lines is how many lines were cut off.
	lines int64
}

func newBatcher(split bool) *batcher {
	return &batcher{buf: make([]byte, 0, cluster.MaxAppend), limit: cluster.MaxAppend, split: split}
}

// add takes as much of data as there is room for, and returns the rest.
func (b *batcher) add(data []byte) (rest []byte) {
	n := min(len(data), b.limit-len(b.buf))
	b.buf = append(b.buf, data[:n]...)
	return data[n:]
}

func (b *batcher) full() bool { return len(b.buf) == b.limit }

// batch returns the lines that are whole; with end also the last one, which need not have a
// newline. They stay in the batcher until cut. It returns an error if a line is too long.
func (b *batcher) batch(end bool) ([]byte, error) {
	n := bytes.LastIndexByte(b.buf, '\n') + 1
	switch {
	case end, n == 0 && b.full() && b.split:
		n = len(b.buf)
	case n == 0 && b.full():
		return nil, &wire.Error{Status: cluster.StatusTooLarge, Message: fmt.Sprintf("line %d of the standard input has more than %d bytes", b.lines+1, b.limit)}
	}
	return b.buf[:n], nil
}

// cut removes the first n bytes, which were appended.
func (b *batcher) cut(n int) {
	b.lines += int64(bytes.Count(b.buf[:n], []byte("\n")))
	b.buf = b.buf[:copy(b.buf, b.buf[n:])]
}

// pump reads a stream from a goroutine of its own, so that its reader can wait for other things
// as well. The chunk that was received last is valid until the next one is received.
type pump struct {
	chunks chan []byte
	// err is why the stream ended, nil at its end. It is read after chunks was closed.
	err error
}

// chunkSize is how much the pump reads at a time: a pipe has no more.
const chunkSize = 64 << 10

func newPump(in io.Reader) *pump {
	p := &pump{chunks: make(chan []byte)}
	go func() {
		defer close(p.chunks)
		// One buffer is read into while the other one is used.
		var buffers [2][chunkSize]byte
		for i := 0; ; i = 1 - i {
			n, err := in.Read(buffers[i][:])
			if n > 0 {
				p.chunks <- buffers[i][:n]
			}
			if err != nil {
				if err != io.EOF {
					p.err = err
				}
				return
			}
		}
	}()
	return p
}
