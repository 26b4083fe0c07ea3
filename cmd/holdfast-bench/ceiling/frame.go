// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// head is the length of the body in bytes, and the number of the call.
	head = 4 + 8
	// maxBody bounds what a frame may have: the largest append.
	maxBody = 1 << 20
	// requestBytes and answerBytes are the bodies of a call that stands for an acquire or a release.
	requestBytes = 64
	answerBytes  = 32
)

// appendFrame appends a frame to b.
func appendFrame(b []byte, number uint64, body []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint64(b, number)
	return append(b, body...)
}

// readFrame reads one frame; the body is in buf, or in a longer one, which the caller gives back next
// time. It returns io.EOF between two frames only.
func readFrame(r *bufio.Reader, buf []byte) (number uint64, body []byte, err error) {
	var h [head]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, buf, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxBody {
		return 0, buf, fmt.Errorf("a frame of %d bytes, at most %d are allowed: the other side is no ceiling of this version", n, maxBody)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	body = buf[:n]
	if _, err := io.ReadFull(r, body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, body, err
	}
	return binary.LittleEndian.Uint64(h[4:]), body, nil
}
