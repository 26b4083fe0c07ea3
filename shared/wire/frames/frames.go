// SPDX-License-Identifier: Apache-2.0

// Package frames has the format in which a client and a server exchange messages over one
// connection. The client first sends Preface; from then on either side sends frames:
//
//	length   4 bytes, big-endian: of the payload
//	kind     1 byte
//	payload
//
// The first frame of each side is its settings. A frame of an unknown kind is skipped, so that kinds
// can be added; the messages themselves are protobuf (shared/wire/holdfast.proto), whose fields can
// be added likewise.
//
// It is not gRPC, because HTTP/2's streams, windows and headers cost the primary more than all its
// own work where each client has a connection: docs/performance.md.
package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Preface is what a client sends first. Its first byte begins no text, no HTTP and no TLS.
const Preface = "\xf1HOLDF\x00\x01"

// Protocol is what a client names in the handshake of TLS (ALPN) to speak this. The preface comes all the same.
const Protocol = "holdfast/1"

// HeaderSize is the length of a frame's header, in bytes.
const HeaderSize = 5

// Version is the highest version of the format that this package speaks, for pb.Settings.
const Version = 1

// Kind says what the payload of a frame is.
type Kind uint8

// The kinds of frames.
const (
	// Settings is an encoded pb.Settings, the first frame of each side and only that.
	Settings Kind = 1 + iota
	// Message is an encoded pb.SessionRequest from a client, a pb.SessionResponse from a server.
	Message
	// Ping asks for a Pong with the same payload, of at most MaxPing bytes.
	Ping
	// Pong answers a Ping.
	Pong
)

// MaxPing is the longest payload of a Ping, in bytes. A longer one is not answered.
const MaxPing = 16

// ErrTooLong is the error of a frame whose payload is longer than the reader takes.
var ErrTooLong = errors.New("a frame is too long")

// Begin appends an empty header to b, for Finish to fill when the payload is appended.
func Begin(b []byte) []byte { return append(b, 0, 0, 0, 0, 0) }

// Finish fills the header of the frame that b begins with and that is all of b.
func Finish(b []byte, kind Kind) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-HeaderSize))
	b[HeaderSize-1] = byte(kind)
	return b
}

// Append appends a frame to b.
func Append(b []byte, kind Kind, payload []byte) []byte {
	n := len(b)
	b = append(Begin(b), payload...)
	Finish(b[n:], kind)
	return b
}

const (
	// bufferSize is what a reader keeps. Nearly all messages of a client with one operation at a
	// time fit, and a server has many thousands of idle readers.
	bufferSize = 512
	// growth is how much memory a long frame gets before any of it has arrived.
	growth = 64 << 10
)

// Reader reads frames. It belongs to one goroutine.
type Reader struct {
	r          io.Reader
	limit      int
	begin, end int // of what is read and not returned yet, in buf
	buf        [bufferSize]byte
}

// NewReader returns a reader of frames whose payloads have at most limit bytes.
func NewReader(r io.Reader, limit int) *Reader { return &Reader{r: r, limit: limit} }

// Limit has the reader take frames whose payloads have at most limit bytes from now on.
func (r *Reader) Limit(limit int) { r.limit = limit }

// Next returns the next frame. If own is set the payload is the caller's; else it is valid until the
// next call. The error is io.EOF where the other side closed between two frames,
// io.ErrUnexpectedEOF within one, ErrTooLong, or that of reading. After an error there is no next
// frame.
func (r *Reader) Next() (kind Kind, payload []byte, own bool, err error) {
	header, err := r.peek(HeaderSize)
	if err != nil {
		return 0, nil, false, err
	}
	n := binary.BigEndian.Uint32(header)
	kind = Kind(header[HeaderSize-1])
	if uint64(n) > uint64(r.limit) {
		return 0, nil, false, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLong, n, r.limit)
	}
	if n > bufferSize-HeaderSize {
		r.begin += HeaderSize
		payload, err = r.long(int(n))
		return kind, payload, true, err
	}
	whole, err := r.peek(HeaderSize + int(n))
	if err != nil {
		return 0, nil, false, torn(err)
	}
	r.begin += len(whole)
	return kind, whole[HeaderSize:], false, nil
}

// Skip reads the preface.
func (r *Reader) Skip(preface string) error {
	b, err := r.peek(len(preface))
	if err != nil {
		return err
	}
	if string(b) != preface {
		return fmt.Errorf("a connection that begins with %q: this is no client of this service", b)
	}
	r.begin += len(b)
	return nil
}

// peek returns the next n bytes, which fit the buffer. The error is io.EOF only if there are none.
func (r *Reader) peek(n int) ([]byte, error) {
	if r.begin == r.end || r.begin+n > bufferSize { // as much as there is room for is read at once
		copy(r.buf[:], r.buf[r.begin:r.end])
		r.begin, r.end = 0, r.end-r.begin
	}
	for r.end-r.begin < n {
		m, err := r.r.Read(r.buf[r.end:])
		r.end += m
		if err != nil && r.end-r.begin < n {
			if r.end > r.begin {
				err = torn(err)
			}
			return nil, err
		}
	}
	return r.buf[r.begin : r.begin+n], nil
}

// long returns the next n bytes, in memory of their own, which grows as they arrive.
func (r *Reader) long(n int) ([]byte, error) {
	b := append(make([]byte, 0, min(n, growth)), r.buf[r.begin:min(r.end, r.begin+n)]...)
	r.begin += len(b)
	for len(b) < n {
		if len(b) == cap(b) {
			b = slices.Grow(b, min(len(b), n-len(b)))
		}
		m, err := r.r.Read(b[len(b):min(cap(b), n)])
		b = b[:len(b)+m]
		if err != nil && len(b) < n {
			return nil, torn(err)
		}
	}
	return b, nil
}

// torn returns the error of a frame whose end is missing.
func torn(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
