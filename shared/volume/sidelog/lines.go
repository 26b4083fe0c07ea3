// SPDX-License-Identifier: Apache-2.0

package sidelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// readSize is how much of a file is read at a time, in bytes.
const readSize = 256 << 10

// Lines calls line with the lines of a file, in order, without their ends, until it returns false. It begins at off,
// a multiple of BlockSize, where a line may have begun before. A last line without its end, which is being written or was torn,
// is left out. Of a line that is longer than longest, line gets a part.
func Lines(ctx context.Context, fsys vfs.FS, name string, off int64, longest int, line func([]byte) (more bool)) (err error) {
	f, err := fsys.Open(name, vfs.FlagDirect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	piece := vfs.AlignedBuffer(readSize)
	var rest []byte
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := f.ReadAt(piece, off)
		off += int64(n)
		b := piece[:n]
		for {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				break
			}
			if len(rest) > 0 {
				rest = append(rest, b[:i]...)
				if !line(rest) {
					return nil
				}
				rest = rest[:0]
			} else if !line(b[:i]) {
				return nil
			}
			b = b[i+1:]
		}
		if rest = append(rest, b...); len(rest) > longest {
			rest = rest[:longest] // nobody wrote such a line: it does not parse
		}
		switch {
		case errors.Is(err, io.EOF) || err == nil && n < len(piece):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
}
